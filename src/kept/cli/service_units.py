"""Definitions of background services: systemd user units, and property lists for launchd."""

from __future__ import annotations

import os
import re
from typing import Literal

from kept.config import LoadedConfig
from kept.config.gateway_settings import GatewaySettings
from kept.config.layers import MAIN_AGENT
from kept.server_command import client_command
from kept.values import frozen

Program = Literal["gateway", "serve", "watch"]

WRITTEN_BY = "Written by 'kept service"
"""Marks a file that may be replaced and removed again."""
ENV_FILE = "service.env"
_DESCRIPTIONS: dict[Program, str] = {
    "gateway": "Kept: answer messages over HTTP and Telegram",
    "serve": "Kept: serve MCP, HTTP and the pages on one port",
    "watch": "Kept: keep the index of the notes current",
}
_SPARE_STOP_S = 15
"""Seconds on top of the time that a program takes to stop by itself."""
_RESTART_S = 5
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


@frozen
class Service:
    """A command to run in the background, and how to supervise it."""

    program: Program
    name: str
    """Name of the unit without its ending."""
    command: tuple[str, ...]
    env_file: str
    """File with variables such as API keys, which do not belong in a unit."""
    search_path: str | None
    """PATH, if the command starts other programs."""
    stop_timeout_s: int


def plan_service(loaded: LoadedConfig, program: Program, settings: dict[str, str]) -> Service:
    """Return the service for a configuration. ``settings`` are those of the command line."""
    config = loaded.config
    start = client_command(loaded)
    overrides = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    runs_programs = config.agent.model.provider == "claude_cli" or config.memory_search.backend == "qmd"
    return Service(
        program=program,
        name=_unit_name(program, config.home, config.agent_id),
        command=(start.program, *start.options, *overrides, program),
        env_file=os.path.join(config.home, ENV_FILE),
        search_path=os.environ.get("PATH") if runs_programs else None,
        stop_timeout_s=int(_stopping_s(program, config.gateway)) + _SPARE_STOP_S,
    )


def _stopping_s(program: Program, settings: GatewaySettings) -> float:
    return 0.0 if program == "watch" else settings.shutdown_timeout_s


def _unit_name(program: Program, home: str, agent_id: str) -> str:
    """Return a name that differs for each home, and for each agent whose index is watched."""
    parts = ["kept", program]
    if home != os.path.expanduser("~/.kept"):
        parts.append(re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(home)).strip("-").lower() or "home")
    if agent_id != MAIN_AGENT:
        parts.append(agent_id)
    return "-".join(parts)


# systemd


def systemd_path(service: Service) -> str:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "systemd", "user", f"{service.name}.service")


def systemd_unit(service: Service) -> str:
    """Return the unit. Its restrictions are those that systemd applies without a mount namespace: a user manager often
    cannot create one, and the notes may be anywhere."""
    path = f"Environment={_quoted(f'PATH={service.search_path}')}\n" if service.search_path else ""
    return f"""\
# {WRITTEN_BY} {service.program}'.
[Unit]
Description={_DESCRIPTIONS[service.program]}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
ExecStart={" ".join(_argument(part) for part in service.command)}
# API keys and other variables, one NAME=VALUE a line. The file may be missing.
EnvironmentFile=-{_specifier_free(service.env_file)}
{path}Restart=on-failure
RestartSec={_RESTART_S}
# A wrong setting or a missing workspace does not go away by starting again.
RestartPreventExitStatus=2 3 4
KillMode=mixed
TimeoutStopSec={service.stop_timeout_s}
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def _argument(text: str) -> str:
    """Return an argument of ExecStart, where '$' would begin a variable too."""
    return _quoted(text.replace("$", "$$"))


def _quoted(text: str) -> str:
    text = _specifier_free(text)
    if _SAFE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else _escape(char) for char in escaped) + '"'


def _escape(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _specifier_free(text: str) -> str:
    return text.replace("%", "%%")


# launchd


def launchd_label(service: Service) -> str:
    return f"org.kept.{service.name}"


def launchd_path(service: Service) -> str:
    return os.path.expanduser(f"~/Library/LaunchAgents/{launchd_label(service)}.plist")


def launchd_plist(service: Service) -> str:
    """Return the property list for macOS, where variables cannot come from a file."""
    import plistlib

    values = {
        "Label": launchd_label(service),
        "ProgramArguments": list(service.command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": service.stop_timeout_s,
        "ProcessType": "Background",
        "StandardErrorPath": os.path.expanduser(f"~/Library/Logs/{service.name}.log"),
        **({"EnvironmentVariables": {"PATH": service.search_path}} if service.search_path else {}),
    }
    text = plistlib.dumps(values, sort_keys=False).decode()
    head, declaration, rest = text.partition("?>\n")
    return f"{head}{declaration}<!-- {WRITTEN_BY} {service.program}'. -->\n{rest}"
