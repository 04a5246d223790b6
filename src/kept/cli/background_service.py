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

from kept.base.durable import write_atomic
from kept.base.limits import one_line
from kept.cli.output import bold, echo, warn
from kept.cli.root import Globals
from kept.config.layers import MAIN_AGENT
from kept.errors import ServiceError, UsageError
from kept.gateway.app import client_command

Action = Literal["install", "uninstall"]
_WRITTEN_BY = "Written by Kept"
"""Marks a file that may be replaced and removed again."""
_ENV_FILE = "service.env"
_TIMEOUT_S = 60
_UNIT = """\
# {written_by}.
[Unit]
Description=Kept: {name}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
ExecStart={command}
Environment={path}
# API keys and other variables, one NAME=VALUE a line. The file may be missing.
EnvironmentFile=-{env_file}
Restart=on-failure
RestartSec=5
# A wrong setting or a missing workspace does not go away by starting again.
RestartPreventExitStatus=2 3 4
KillMode=mixed
# More than the 30 seconds in which a gateway finishes its replies.
TimeoutStopSec=45
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
        ("--uninstall", "uninstall", "Stop the service and remove it."),
        ("--install", "install", "Run this in the background from now on, as a service of systemd or launchd."),
    ):
        command = click.option(flag, "service", flag_value=value, help=text)(command)
    return command


def manage_service(options: Globals, arguments: Sequence[str], action: Action) -> None:
    """Install or uninstall the service that runs `kept` with these arguments."""
    loaded = options.load()
    config, start = loaded.config, client_command(loaded)
    overrides = [argument for key, value in dict(options.settings).items() for argument in ("--set", f"{key}={value}")]
    parts = ["kept", arguments[0]]
    if config.home != os.path.expanduser("~/.kept"):
        parts.append(re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(config.home)).strip("-").lower() or "home")
    if config.agent_id != MAIN_AGENT:
        parts.append(config.agent_id)
    name, env_file = "-".join(parts), os.path.join(config.home, _ENV_FILE)
    command = (start.program, *start.options, *overrides, *arguments)
    place = _launchd if sys.platform == "darwin" else _systemd
    path, text, start_lines, stop_line = place(name, command, env_file)
    is_installed = _is_own(path)
    if is_installed:
        _run(stop_line)  # may fail: the service may not be running
    if action == "uninstall":
        if is_installed:
            os.unlink(path)
        echo(f"{name} no longer runs in the background.")
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as exc:
        raise ServiceError(f"{os.path.dirname(path)}: could not be created ({exc.strerror}).") from exc
    write_atomic(path, text.encode("utf-8", "surrogateescape"))
    for line in start_lines:
        if problem := _run(line):
            raise ServiceError(problem, hint=f"{path} is written. Run it yourself: {shlex.join(line)}")
    echo(f"{bold(name)} runs in the background and starts when you log in ({path}).")
    if place is _systemd and not os.path.exists(env_file):
        warn(f"Variables of your shell, such as API keys, do not reach it. Put them into {env_file}.")


_Definition = tuple[str, str, list[tuple[str, ...]], tuple[str, ...]]
"""Path and text of the file that defines a service, the commands that start it, and the one that stops it."""


def _systemd(name: str, command: Sequence[str], env_file: str) -> _Definition:
    systemctl, unit = ("systemctl", "--user"), f"{name}.service"
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    start = [(*systemctl, *line) for line in (("daemon-reload",), ("enable", unit), ("restart", unit))]
    path = os.path.join(folder, "systemd", "user", unit)
    return path, unit_text(name, command, env_file), start, (*systemctl, "disable", "--now", unit)


def _launchd(name: str, command: Sequence[str], _: str) -> _Definition:
    label, domain = f"org.kept.{name}", f"gui/{os.getuid()}"
    path = os.path.expanduser(f"~/Library/LaunchAgents/{label}.plist")
    start: list[tuple[str, ...]] = [("launchctl", "bootstrap", domain, path)]
    return path, property_list(name, label, command), start, ("launchctl", "bootout", f"{domain}/{label}")


def property_list(name: str, label: str, command: Sequence[str]) -> str:
    import plistlib

    values = {
        "Label": label,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": 45,
        "StandardErrorPath": os.path.expanduser(f"~/Library/Logs/{name}.log"),
        "EnvironmentVariables": {"PATH": os.environ.get("PATH", os.defpath)},
    }
    return f"{plistlib.dumps(values).decode()}<!-- {_WRITTEN_BY}. -->\n"


def unit_text(name: str, command: Sequence[str], env_file: str) -> str:
    return _UNIT.format(
        written_by=_WRITTEN_BY,
        name=name,
        command=" ".join(_quoted(part.replace("$", "$$")) for part in command),  # '$' begins a variable
        env_file=env_file.replace("%", "%%"),
        path=_quoted(f"PATH={os.environ.get('PATH', os.defpath)}"),
    )


def _quoted(text: str) -> str:
    """Return a text in quotes, as systemd reads it: what is not printable is escaped, so that it stays in its line."""
    escaped = text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    shown = (
        char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in escaped
    )
    return f'"{"".join(shown)}"'


def _is_own(path: str) -> bool:
    """Return whether there is a definition. Raise UsageError if Kept has not written it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise ServiceError(f"{path}: could not be read ({exc.strerror}).") from exc
    if _WRITTEN_BY not in text:
        raise UsageError(f"{path} was not written by Kept.", hint="Move it away first.")
    return True


def _run(line: Sequence[str]) -> str | None:
    """Run a command. Return what went wrong, or None."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return f"{line[0]} could not be run."
    reason = one_line(done.stderr) or f"exit code {done.returncode}"
    return f"'{shlex.join(line)}' failed: {reason.rstrip('.')}." if done.returncode else None
