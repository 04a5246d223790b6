"""The command line: parses, calls, renders. Every command is a file of its own, imported when it is run."""

from __future__ import annotations


def main() -> None:
    from kept.cli.run import run

    run()


__all__ = ["main"]
