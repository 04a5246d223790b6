"""kept service"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

import click

from kept.cli.output import echo, json_option, print_json, style, warn
from kept.cli.root import Globals
from kept.cli.service_units import (
    ENV_FILE,
    WRITTEN_BY,
    Program,
    Service,
    launchd_label,
    launchd_path,
    launchd_plist,
    plan_service,
    systemd_path,
    systemd_unit,
)
from kept.durable import write_atomic
from kept.errors import ServiceError, UsageError
from kept.limits import one_line
from kept.values import frozen

_TIMEOUT_S = 60


@frozen
class ServiceFile:
    """The file that defines a service, and the commands that start and stop it."""

    path: str
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    """Run before the file is removed. They may fail: the service may not be running."""
    after_removal: tuple[tuple[str, ...], ...]
    state: tuple[str, ...]


@click.command("service")
@click.argument("program", type=click.Choice(["gateway", "serve", "watch"]), required=False)
@click.option("--install", is_flag=True, help="Write the definition where it belongs, and start the service.")
@click.option("--uninstall", is_flag=True, help="Stop the service and remove its definition.")
@click.option("--status", is_flag=True, help="Show whether it is installed and running.")
@click.option("--launchd", is_flag=True, help="A property list for launchd (macOS) instead of a systemd user unit.")
@json_option
@click.pass_obj
def command(
    options: Globals,
    program: Program | None,
    install: bool,
    uninstall: bool,
    status: bool,
    launchd: bool,
    as_json: bool,
) -> None:
    """Print the definition of a background service, or install it.

    PROGRAM is gateway, which answers messages and keeps the index current, serve, which does the same and serves
    everything on one port, or watch, which only keeps the index current (default: gateway if a chat model is set,
    otherwise watch).
    """
    if install + uninstall + status > 1:
        raise UsageError("--install, --uninstall and --status exclude each other.", hint="Use one of them.")
    loaded = options.load()
    program = program or ("gateway" if loaded.config.agent.model.provider else "watch")
    service = plan_service(loaded, program, options.settings)
    file = _launchd_file(service) if launchd else _systemd_file(service)
    if install:
        _install(file)
    elif uninstall:
        _uninstall(file)
    state = _run_quietly(file.state) if install or uninstall or status else None
    if as_json:
        print_json(_service_json(service, file, state))
    elif state is not None:
        _show_state(service, file, state)
    else:
        _show(service, file)


def _systemd_file(service: Service) -> ServiceFile:
    systemctl = ("systemctl", "--user")
    unit = f"{service.name}.service"
    return ServiceFile(
        path=systemd_path(service),
        text=systemd_unit(service),
        start=((*systemctl, "daemon-reload"), (*systemctl, "enable", unit), (*systemctl, "restart", unit)),
        stop=((*systemctl, "disable", "--now", unit),),
        after_removal=((*systemctl, "daemon-reload"),),
        state=(*systemctl, "is-active", unit),
    )


def _launchd_file(service: Service) -> ServiceFile:
    domain, path = f"gui/{os.getuid()}", launchd_path(service)
    stop = ("launchctl", "bootout", f"{domain}/{launchd_label(service)}")
    return ServiceFile(
        path=path,
        text=launchd_plist(service),
        start=(("launchctl", "bootstrap", domain, path),),
        stop=(stop,),
        after_removal=(),
        state=("launchctl", "print", f"{domain}/{launchd_label(service)}"),
    )


# acting


def _install(file: ServiceFile) -> None:
    existing = _read(file.path)
    if existing is not None and WRITTEN_BY not in existing:
        raise UsageError(f"{file.path} exists and was not written by Kept.", hint="Move it away first.")
    try:
        os.makedirs(os.path.dirname(file.path), exist_ok=True)
    except OSError as exc:
        raise ServiceError(f"{os.path.dirname(file.path)}: could not be created ({exc.strerror}).") from exc
    if existing is not None:
        for line in file.stop:
            _run_quietly(line)
    if existing != file.text:
        write_atomic(file.path, file.text.encode("utf-8", "surrogateescape"))
    for line in file.start:
        _run(line, f"{file.path} is written. Run it yourself: {shlex.join(line)}")


def _uninstall(file: ServiceFile) -> None:
    existing = _read(file.path)
    if existing is None:
        return
    if WRITTEN_BY not in existing:
        raise UsageError(f"{file.path} was not written by Kept.", hint="Remove it yourself.")
    for line in file.stop:
        _run_quietly(line)
    os.unlink(file.path)
    for line in file.after_removal:
        _run_quietly(line)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ServiceError(f"{path}: could not be read ({exc.strerror}).") from exc


def _run(line: Sequence[str], hint: str) -> None:
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ServiceError(f"{line[0]} could not be run.", hint=hint) from exc
    if done.returncode:
        reason = one_line(done.stderr) or f"exit code {done.returncode}"
        raise ServiceError(f"'{shlex.join(line)}' failed: {reason.rstrip('.')}.", hint=hint)


def _run_quietly(line: Sequence[str]) -> str:
    """Return the first line that a command prints, or an empty text if it could not be run."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(done.stdout.splitlines()), "").strip()


# showing


def _show(service: Service, file: ServiceFile) -> None:
    echo(file.text, nl=False)
    option = "" if file.path.endswith(".service") else " --launchd"
    echo(style(f"\n'kept service {service.program}{option} --install' does the following:", dim=True), err=True)
    echo(f"  write it to {file.path}", err=True)
    for line in file.start:
        echo(f"  {shlex.join(line)}", err=True)


def _show_state(service: Service, file: ServiceFile, state: str) -> None:
    is_installed = os.path.exists(file.path)
    echo(f"Service:  {style(service.name, fg='cyan')}")
    echo(f"File:     {file.path if is_installed else f'not installed ({file.path} does not exist)'}")
    echo(f"State:    {state or 'unknown'}")
    if is_installed and file.path.endswith(".service"):
        echo(style(f"Log:      journalctl --user -u {service.name} -f", dim=True))
        if not os.path.exists(service.env_file):
            warn(
                "Variables of your shell, such as API keys, do not reach the service."
                f" Put what it needs into {ENV_FILE} in the folder {os.path.dirname(service.env_file)}."
            )


def _service_json(service: Service, file: ServiceFile, state: str | None) -> dict[str, Any]:
    return {
        "name": service.name,
        "program": service.program,
        "path": file.path,
        "installed": os.path.exists(file.path),
        "state": state,
        "text": file.text,
        "start": [shlex.join(line) for line in file.start],
        "stop": [shlex.join(line) for line in file.stop],
    }
