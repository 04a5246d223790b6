"""The command line: parse, call, render.

invoke    runs a command; turns errors into one line and an exit code
root      the command `kept`: global options, and the table of commands, each imported when it is used
command_arguments  global options after the command, and text that begins with a dash
unknown_command    suggestions for a command that does not exist
model_switch       how `kept models use` switches
output    JSON, plain text, colours, tables, progress bars
terminal_layout    the width of the terminal, wrapping, links to files
completion_values  names that a shell completes
service_units      systemd units and launchd property lists for `kept service`
hit_text, file_table    hits and lists of files as text
streams   standard streams that are safe for a terminal
Every other module is one command, named like it.
"""

from __future__ import annotations


def main() -> None:
    import gc

    # A command creates tens of thousands of objects while it imports, and hardly any cycles: collecting them less often
    # saves 2 % of a cold search.
    gc.set_threshold(100_000, 50, 100)
    from kept.cli.invoke import run

    try:
        run()
    finally:
        gc.freeze()  # at its end, Python would search everything that was imported for cycles: 7 % of a cold search


__all__ = ["main"]
