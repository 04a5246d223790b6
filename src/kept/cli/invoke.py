"""Running a command, and turning every error into one line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
from itertools import takewhile
from typing import NoReturn

import click

from kept.base.limits import one_line
from kept.cli.output import echo, json_text, style
from kept.cli.streams import guard_streams, hide_secrets
from kept.errors import KeptError

INTERRUPTED = 130
UNEXPECTED = 70
_WRITE_FAILED = 8
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def run() -> NoReturn:
    from kept.cli.root import OutputClosed, cli

    _prepare_streams()
    # Looked up in the arguments rather than in click's context: an unknown or incomplete option is refused by the
    # parser, before any option has a value, and that error must be JSON as well. Arguments after "--" are text.
    options = list(takewhile(lambda argument: argument != "--", sys.argv[1:]))
    as_json, debug = "--json" in options, "--debug" in options
    try:
        code = cli.main(prog_name="kept", standalone_mode=False)
        sys.stdout.flush()
    except KeptError as exc:
        _show_traceback(debug=debug)
        fail(exc.code, exc.message, exc.hint, exc.exit_code, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as exc:
        echo(exc.message, err=True)
        sys.exit(2)
    except click.UsageError as exc:
        fail("usage", _as_sentence(exc.format_message()), _usage_hint(exc), 2, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted", "Interrupted.", "Nothing is lost; run the command again.", INTERRUPTED, as_json=as_json)
    except (BrokenPipeError, OutputClosed):
        _discard_output()
        sys.exit(0)
    except Exception as exc:  # noqa: BLE001  (the last resort: one line and an exit code instead of a traceback)
        _show_traceback(debug=debug)
        _fail_unexpectedly(exc, as_json=as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _fail_unexpectedly(exc: Exception, *, as_json: bool) -> NoReturn:
    if isinstance(exc, OSError) and exc.errno in _OUTPUT_ERRORS:
        # Errors of files are KeptErrors by now: this one is of standard output.
        _discard_output()
        message = f"The output could not be written ({exc.strerror})."
        fail("write_failed", message, "Check the disk that it is redirected to.", _WRITE_FAILED, as_json=False)
    message = f"Unexpected error: {type(exc).__name__}: {exc}".rstrip(".: ") + "."
    hint = "Run the command again with --debug and report what it prints."
    fail("internal", message, hint, UNEXPECTED, as_json=as_json)


def _as_sentence(message: str) -> str:
    """Return a message of the parser with a full stop: a list of choices has none."""
    text = message.rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _usage_hint(error: click.UsageError) -> str:
    context = error.ctx
    if context is None:
        return "See 'kept --help'."
    hint = f"See '{context.command_path} --help'."
    takes_text = any(isinstance(param, click.Argument) for param in context.command.params)
    if isinstance(error, click.NoSuchOption) and takes_text:
        hint += f" If '{error.option_name}' is not an option, put '--' before it."
    return hint


def _show_traceback(*, debug: bool) -> None:
    """Print the traceback, with --debug, in one write: a secret that is written in parts would not be redacted."""
    if debug:
        import traceback

        echo(traceback.format_exc(), err=True, nl=False)


def _prepare_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It was closed before the start. The next file to be opened would get its descriptor.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # escape what the encoding cannot show
    guard_streams()


def _discard_output() -> None:
    """Redirect standard output to nothing after a write failed. Else Python tries again at exit, and reports that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(code: str, message: str, hint: str, status: int, *, as_json: bool) -> NoReturn:
    if as_json:
        try:
            shown = {"code": code, "message": hide_secrets(message), "hint": hide_secrets(hint)}
            echo(json_text({"error": shown}))
        except BrokenPipeError:
            _discard_output()
        except OSError:  # the output cannot be written: then people are told
            _discard_output()
            as_json = False
    if not as_json:
        echo(style("Error: ", err=True, fg="red", bold=True) + one_line(f"{message} {hint}"), err=True)
    sys.exit(status)
