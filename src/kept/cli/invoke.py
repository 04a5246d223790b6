"""Running a command, and turning whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

import click

from kept.cli.output import echo, json_text, style
from kept.cli.streams import guard_streams, hide_secrets
from kept.errors import KeptError, status_of
from kept.text import one_line

INTERRUPTED = 130
UNEXPECTED = 70


def run() -> NoReturn:
    from kept.cli.root import ReaderGone, cli

    _ready_streams()
    as_json, debug = "--json" in sys.argv, "--debug" in sys.argv
    try:
        code = cli.main(prog_name="kept", standalone_mode=False)
        sys.stdout.flush()
    except KeptError as exc:
        if debug:
            _show_traceback()
        fail(exc.code, exc.message, exc.hint, status_of(exc).exit_code, as_json=as_json)
    except click.UsageError as exc:
        hint = f"See '{exc.ctx.command_path} --help'." if exc.ctx else "See 'kept --help'."
        fail("usage", exc.format_message(), hint, 2, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted", "Interrupted.", "Nothing is lost; run it again.", INTERRUPTED, as_json=as_json)
    except (BrokenPipeError, ReaderGone):
        _forget_the_reader()
        sys.exit(0)
    except SystemExit as exc:
        if not isinstance(exc.__context__, BrokenPipeError):
            raise
        sys.exit(0)  # this is how rich tells of it
    except Exception as exc:  # noqa: BLE001  (the last resort: one line and an exit code instead of a traceback)
        if debug:
            _show_traceback()
        message = f"Something went wrong that should not: {type(exc).__name__}: {exc}"
        fail("internal", message, "Run it again with --debug and report what it prints.", UNEXPECTED, as_json=as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _show_traceback() -> NoReturn:
    """As a whole, since a secret that is written in pieces would not be recognised."""
    import traceback

    echo(traceback.format_exc(), err=True, nl=False)
    sys.exit(1)


def _ready_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It was closed before the start. Its number would go to the next file that is opened.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter that cannot be shown is no reason to stop
    guard_streams()


def _forget_the_reader() -> None:
    """Whoever read our output has seen enough. Python would complain about it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(code: str, message: str, hint: str, status: int, *, as_json: bool) -> NoReturn:
    if as_json:
        try:
            shown = {"code": code, "message": hide_secrets(message), "hint": hide_secrets(hint)}
            echo(json_text({"error": shown}))
        except BrokenPipeError:
            _forget_the_reader()
    else:
        echo(style("Error: ", err=True, fg="red", bold=True) + one_line(f"{message} {hint}"), err=True)
    sys.exit(status)
