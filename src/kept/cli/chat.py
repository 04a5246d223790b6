"""kept chat"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, assert_never

import click

from kept.cli.output import echo, json_option, print_json, style, warn
from kept.cli.root import Globals
from kept.cli.streams import read_stdin
from kept.errors import KeptError, UsageError

if TYPE_CHECKING:
    from kept.agent.events import AgentEvent, Reply
    from kept.channels.terminal import TerminalConversation

_HISTORY_LINES = 1000


@click.command("chat")
@click.option("-m", "--message", metavar="TEXT", help="Ask once and print the reply; '-' reads standard input.")
@click.option("--session", metavar="NAME", help="Which conversation: a name, a key or the id of a session.")
@json_option
@click.pass_obj
def command(options: Globals, message: str | None, session: str | None, as_json: bool) -> None:
    """Talk with the agent. Reads one message from standard input where that is not a terminal."""
    if message == "-" or (message is None and not sys.stdin.isatty()):
        message = read_stdin()
    if message is not None and not message.strip():
        raise UsageError("There is no message.", hint="Give one with -m, or on standard input.")
    if as_json and message is None:
        raise UsageError("--json is for a single message.", hint="Give one with -m, or on standard input.")
    with ExitStack() as stack:
        conversation, runner = _open(options, session, stack)
        if message is None:
            _talk(options, conversation, runner)
        else:
            _ask_once(conversation, runner, message.strip(), as_json=as_json)


def _open(options: Globals, session: str | None, stack: ExitStack) -> tuple[TerminalConversation, asyncio.Runner]:
    from kept.app import open_answerer, open_memory, open_model, open_sessions
    from kept.channels.terminal import TerminalConversation

    loaded = options.load()
    model = open_model(loaded)
    memory = stack.enter_context(open_memory(loaded))
    sessions = stack.enter_context(open_sessions(loaded))
    answerer = open_answerer(memory, sessions, model)
    runner = stack.enter_context(asyncio.Runner())
    stack.callback(lambda: runner.run(model.close()))
    stack.callback(lambda: runner.run(answerer.close()))
    return TerminalConversation(answerer, sessions, memory.clock, named=session), runner


# once


def _ask_once(conversation: TerminalConversation, runner: asyncio.Runner, text: str, *, as_json: bool) -> None:
    from kept.agent.events import Reply

    screen: ChatScreen | QuietScreen = (
        ChatScreen() if sys.stdout.isatty() and not as_json else QuietScreen(say_asides=not as_json)
    )

    async def turn() -> tuple[Reply | None, str]:
        reply = None
        async for event in conversation.say(text):
            screen.show(event)
            reply = event if isinstance(event, Reply) else reply
        return reply, await conversation.session_id()

    reply, session_id = runner.run(turn())
    if isinstance(screen, ChatScreen):
        return
    said = None if reply is None or reply.silent else reply.text
    if not as_json:
        echo(said or "", nl=bool(said))
        return
    entry_id = reply.entry_id or None if reply else None
    print_json(
        {
            "reply": said,
            "sessionId": session_id,
            "entryId": entry_id,
            "tools": screen.tools,
            "notices": screen.notices,
        }
    )


class QuietScreen:
    """For a script: the reply alone goes to standard output, once it is whole."""

    def __init__(self, *, say_asides: bool) -> None:
        self.tools: list[str] = []
        self.notices: list[str] = []
        self._say_asides = say_asides

    def show(self, event: AgentEvent) -> None:
        from kept.agent.events import Notice, ToolEnded

        if isinstance(event, ToolEnded):
            self.tools.append(event.name)
        elif isinstance(event, Notice):
            self.notices.append(event.text)
            if self._say_asides:
                warn(event.text)


# line by line


def _talk(options: Globals, conversation: TerminalConversation, runner: asyncio.Runner) -> None:
    from kept.channels.terminal import talk

    prompt = "> "
    echo("Ctrl-C stops an answer, Ctrl-D leaves. /help lists the commands.", err=True)

    def read_line() -> str:
        try:
            return input(prompt)
        except (EOFError, KeyboardInterrupt):
            echo()
            raise

    home = options.load().config.home
    with _line_history(os.path.join(home, "chat_history")):
        talk(conversation, ChatScreen(), read_line, runner)


@contextmanager
def _line_history(path: str) -> Iterator[None]:
    """Lines can be edited, and those of earlier conversations are there with the arrow keys."""
    try:
        import readline
    except ImportError:  # a Python that was built without it
        yield
        return
    try:
        readline.read_history_file(path)
    except OSError:
        pass
    readline.set_history_length(_HISTORY_LINES)
    try:
        yield
    finally:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))  # it says what was said: nobody else reads it
            readline.write_history_file(path)
        except OSError as exc:
            warn(f"The lines of this conversation could not be kept ({exc.strerror}).")


class ChatScreen:
    """What is written appears as it comes; anything else stands on lines of its own."""

    def __init__(self) -> None:
        self._line = ""
        self._streamed = False

    def show(self, event: AgentEvent) -> None:
        from kept.agent.events import Notice, Reply, ReplyDelta, ToolEnded, ToolStarted

        match event:
            case ReplyDelta():
                self._write(event.text)
            case ToolStarted():
                self._aside(f"… {event.name}")
            case ToolEnded():
                if not event.ok:
                    self._aside(f"… {event.name} did not work")
            case Notice():
                self._aside(event.text)
            case Reply():
                self._finish(event)
            case _:
                assert_never(event)

    def stopped(self) -> None:
        self._break_line()
        self._streamed = False
        echo(style("Stopped.", dim=True))

    def failed(self, error: Exception) -> None:
        self._break_line()
        self._streamed = False
        if isinstance(error, KeptError):
            warn(f"{error.message} {error.hint}")
        else:
            warn(f"Something went wrong that should not: {type(error).__name__}: {error}")

    def _write(self, text: str) -> None:
        echo(text, nl=False)
        self._line = (self._line + text).rpartition("\n")[2]
        self._streamed = True

    def _finish(self, reply: Reply) -> None:
        """What was not streamed, as the answer to a command is not, is written now."""
        if not self._streamed and not reply.silent:
            self._write(reply.text)
        self._break_line()
        self._streamed = False

    def _aside(self, text: str) -> None:
        self._break_line()
        echo(style(text, err=True, dim=True), err=True)

    def _break_line(self) -> None:
        if self._line:
            echo()
        self._line = ""
