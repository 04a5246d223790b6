"""The command line: parse, call, render.

root      the command `kept`: global options, the table of commands, each imported when it is used, and errors
output    JSON, plain text, colours, progress bars; streams that are safe for a terminal
terminal_layout     the width of the terminal, wrapping, tables
background_service  options that install a command as a service of systemd or launchd
Every other module is one command, named like it, or several of one kind.
"""

from __future__ import annotations


def main() -> None:
    import gc

    # A command creates tens of thousands of objects while it imports, and hardly any cycles: collecting them less often
    # saves 2 % of a cold search.
    gc.set_threshold(100_000, 50, 100)
    from kept.cli.root import run

    try:
        run()
    finally:
        gc.freeze()  # at its end, Python would search everything that was imported for cycles: 7 % of a cold search


__all__ = ["main"]
