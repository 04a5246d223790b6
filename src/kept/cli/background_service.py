"""Background services: options of commands that run until they are stopped, and definitions for systemd and launchd."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import click

from kept.cli.output import echo, style, warn
from kept.cli.root import Globals
from kept.config.layers import MAIN_AGENT
from kept.durable import write_atomic
from kept.errors import ServiceError, UsageError
from kept.limits import one_line
from kept.server_command import client_command
from kept.values import frozen

Action = Literal["install", "uninstall", "print"]
_WRITTEN_BY = "Written by Kept"
"""Marks a file that may be replaced and removed again."""
_ENV_FILE = "service.env"
_STOP_TIMEOUT_S = 45
"""More than the 30 seconds in which a gateway finishes its replies."""
_TIMEOUT_S = 60
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_UNIT = """\
# {written_by}.
[Unit]
Description=Kept: {name}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
ExecStart={command}
# API keys and other variables, one NAME=VALUE a line. The file may be missing.
EnvironmentFile=-{env_file}
{path}Restart=on-failure
RestartSec=5
# A wrong setting or a missing workspace does not go away by starting again.
RestartPreventExitStatus=2 3 4
KillMode=mixed
TimeoutStopSec={stop_timeout_s}
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""
"""Restrictions that systemd applies without a mount namespace: a user manager often cannot create one, and the notes
may be anywhere."""


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that run a command in the background. The command gets the choice as ``service``."""
    for flag, value, text in (
        ("--print-service", "print", "Print the definition that --install writes, and do nothing."),
        ("--uninstall", "uninstall", "Stop the service and remove it."),
        ("--install", "install", "Run this in the background from now on, as a service of systemd or launchd."),
    ):
        command = click.option(flag, "service", flag_value=value, help=text)(command)
    return command


@frozen
class Service:
    """A command to run in the background, and how to supervise it."""

    name: str
    """Name of the unit without its ending."""
    command: tuple[str, ...]
    env_file: str
    """File with variables such as API keys, which do not belong in a unit."""
    search_path: str | None
    """PATH, if the command starts other programs."""
    stop_timeout_s: int


@frozen
class ServiceFile:
    """The file that defines a service, and the commands that start and stop it."""

    path: str
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[str, ...]
    """Run before the file is removed. It may fail: the service may not be running."""


def manage_service(options: Globals, arguments: Sequence[str], action: Action) -> None:
    """Install, uninstall or print the service that runs `kept` with these arguments."""
    service = plan_service(options, arguments)
    file = launchd_file(service) if sys.platform == "darwin" else systemd_file(service)
    if action == "print":
        echo(file.text, nl=False)
        echo(style("\n--install does the following:", dim=True), err=True)
        for line in (f"write it to {file.path}", *map(shlex.join, file.start)):
            echo(f"  {line}", err=True)
    elif action == "uninstall":
        _uninstall(file)
        echo(f"The service {style(service.name, fg='cyan')} is not installed.")
    else:
        _install(file)
        echo(f"The service {style(service.name, fg='cyan')} runs: {file.path}")
        if file.path.endswith(".service"):
            echo(style(f"Log: journalctl --user -u {service.name} -f", dim=True))
            if not os.path.exists(service.env_file):
                warn(f"Variables of your shell, such as API keys, do not reach it. Put them into {service.env_file}.")


def plan_service(options: Globals, arguments: Sequence[str]) -> Service:
    loaded = options.load()
    config = loaded.config
    start = client_command(loaded)
    overrides = [argument for key, value in options.settings.items() for argument in ("--set", f"{key}={value}")]
    runs_programs = config.agent.model.provider == "claude_cli" or config.memory_search.backend == "qmd"
    parts = ["kept", arguments[0]]
    if config.home != os.path.expanduser("~/.kept"):
        parts.append(re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(config.home)).strip("-").lower() or "home")
    if config.agent_id != MAIN_AGENT:
        parts.append(config.agent_id)
    return Service(
        name="-".join(parts),
        command=(start.program, *start.options, *overrides, *arguments),
        env_file=os.path.join(config.home, _ENV_FILE),
        search_path=os.environ.get("PATH") if runs_programs else None,
        stop_timeout_s=_STOP_TIMEOUT_S,
    )


def systemd_file(service: Service) -> ServiceFile:
    systemctl, unit = ("systemctl", "--user"), f"{service.name}.service"
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return ServiceFile(
        path=os.path.join(folder, "systemd", "user", unit),
        text=_UNIT.format(
            written_by=_WRITTEN_BY,
            name=service.name,
            command=" ".join(_quoted(part.replace("$", "$$")) for part in service.command),  # '$' begins a variable
            env_file=service.env_file.replace("%", "%%"),
            path=f"Environment={_quoted(f'PATH={service.search_path}')}\n" if service.search_path else "",
            stop_timeout_s=service.stop_timeout_s,
        ),
        start=((*systemctl, "daemon-reload"), (*systemctl, "enable", unit), (*systemctl, "restart", unit)),
        stop=(*systemctl, "disable", "--now", unit),
    )


def _quoted(text: str) -> str:
    text = text.replace("%", "%%")
    if _SAFE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else _escape(char) for char in escaped) + '"'


def _escape(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def launchd_file(service: Service) -> ServiceFile:
    """Return the property list for macOS, where variables cannot come from a file."""
    import plistlib

    label = f"org.kept.{service.name}"
    path, domain = os.path.expanduser(f"~/Library/LaunchAgents/{label}.plist"), f"gui/{os.getuid()}"
    values = {
        "Label": label,
        "ProgramArguments": list(service.command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": service.stop_timeout_s,
        "ProcessType": "Background",
        "StandardErrorPath": os.path.expanduser(f"~/Library/Logs/{service.name}.log"),
        **({"EnvironmentVariables": {"PATH": service.search_path}} if service.search_path else {}),
    }
    head, declaration, rest = plistlib.dumps(values, sort_keys=False).decode().partition("?>\n")
    text = f"{head}{declaration}<!-- {_WRITTEN_BY}. -->\n{rest}"
    bootstrap = ("launchctl", "bootstrap", domain, path)
    return ServiceFile(path, text, (bootstrap,), ("launchctl", "bootout", f"{domain}/{label}"))


def _install(file: ServiceFile) -> None:
    existing = _read_own(file.path, hint="Move it away first.")
    if existing is not None:
        _run(file.stop)
    try:
        os.makedirs(os.path.dirname(file.path), exist_ok=True)
    except OSError as exc:
        raise ServiceError(f"{os.path.dirname(file.path)}: could not be created ({exc.strerror}).") from exc
    write_atomic(file.path, file.text.encode("utf-8", "surrogateescape"))
    for line in file.start:
        problem = _run(line)
        if problem is not None:
            raise ServiceError(problem, hint=f"{file.path} is written. Run it yourself: {shlex.join(line)}")


def _uninstall(file: ServiceFile) -> None:
    if _read_own(file.path, hint="Remove it yourself.") is not None:
        _run(file.stop)
        os.unlink(file.path)
        if file.path.endswith(".service"):
            _run(file.start[0])


def _read_own(path: str, *, hint: str) -> str | None:
    """Return the text of a definition, or None if there is none. Raise UsageError if Kept has not written it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ServiceError(f"{path}: could not be read ({exc.strerror}).") from exc
    if _WRITTEN_BY not in text:
        raise UsageError(f"{path} was not written by Kept.", hint=hint)
    return text


def _run(line: Sequence[str]) -> str | None:
    """Run a command. Return what went wrong, or None."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return f"{line[0]} could not be run."
    reason = one_line(done.stderr) or f"exit code {done.returncode}"
    return f"'{shlex.join(line)}' failed: {reason.rstrip('.')}." if done.returncode else None
