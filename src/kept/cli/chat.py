"""kept chat: a conversation with the agent in the terminal"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, assert_never

from kept.cli.options import kept_command, option
from kept.cli.output import dim, echo, print_json, read_stdin, style, unguarded, warn, warn_all
from kept.cli.root import Globals
from kept.errors import KeptError, UsageError

if TYPE_CHECKING:
    from kept.agent.events import AgentEvent, ApprovalAsked, Reply
    from kept.cli.remote_chat import RemoteConversation
    from kept.gateway.dispatcher import LocalConversation

    Conversation = LocalConversation | RemoteConversation

_SIGN, _ERASE_LINE = "thinking ...", "\r\x1b[K"
_YES = ("y", "yes")
_MAX_LINE_BYTES = 4_096


async def ask_at_terminal(asked: ApprovalAsked) -> bool:
    """Return whether the person allows a call. Anything but yes, also no answer in time, is no."""
    from kept.agent.events import describe_approval

    echo(style(describe_approval(asked), err=True, bold=True), err=True)
    echo("Allow it? [y/N] ", nl=False, err=True)
    try:
        async with asyncio.timeout(asked.timeout_s):
            line = await _read_line(sys.stdin.fileno())
    except TimeoutError:
        echo("No answer, so it is not allowed.", err=True)
        return False
    return line.strip().lower() in _YES


async def _read_line(descriptor: int) -> str:
    """Return the next line that is typed. Unlike `input`, this can be cancelled and does not block the event loop."""
    loop = asyncio.get_running_loop()
    is_readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if is_readable.done() else is_readable.set_result(None))
    try:
        await is_readable
        return os.read(descriptor, _MAX_LINE_BYTES).decode("utf-8", "replace")
    finally:
        loop.remove_reader(descriptor)


@kept_command("chat")
@option("-m", "TEXT", "Ask once and print the reply; '-' reads standard input.", "--message")
@option("--session", "NAME", "Conversation: a name, a key or the id of a session.")
def command(options: Globals, message: str | None, session: str | None) -> None:
    """Talk with the agent. Without a terminal, read one message from standard input.

    \b
    kept chat
    kept chat -m 'What did we decide about backups?'
    """
    if message == "-" or (message is None and not sys.stdin.isatty()):
        message = read_stdin()
    if message is not None and not message.strip():
        raise UsageError("There is no message.", hint="Give one with -m, or on standard input.")
    if options.as_json and message is None:
        raise UsageError("--json is for a single message.", hint="Give one with -m, or on standard input.")
    with ExitStack() as stack:
        conversation, runner = _open(options, session, stack)
        if message is None:
            _talk(conversation, runner)
        else:
            _ask_once(conversation, runner, message.strip(), as_json=options.as_json)


def _open(options: Globals, session: str | None, stack: ExitStack) -> tuple[Conversation, asyncio.Runner]:
    ask = ask_at_terminal if sys.stdin.isatty() else None
    if home := options.login():
        from kept.cli.remote_chat import RemoteConversation
        from kept.client.server_connection import ServerConnection, read_login

        connection = stack.enter_context(closing(ServerConnection(read_login(home))))
        return RemoteConversation(connection, name=session, ask=ask), stack.enter_context(asyncio.Runner())
    from kept.gateway.app import open_dispatcher, open_model, open_sessions
    from kept.gateway.dispatcher import LocalConversation
    from kept.memory import Memory

    loaded = options.load()
    model = open_model(loaded)
    memory = stack.enter_context(Memory.of(loaded))
    sessions = stack.enter_context(open_sessions(loaded))
    dispatcher = open_dispatcher(memory, sessions, model)
    runner = stack.enter_context(asyncio.Runner())
    stack.callback(lambda: runner.run(model.close()))
    stack.callback(lambda: runner.run(dispatcher.close()))
    return LocalConversation(dispatcher, name=session, ask=ask), runner


# a single message


def _ask_once(conversation: Conversation, runner: asyncio.Runner, text: str, *, as_json: bool) -> None:
    """Answer a message. In a pipe, only the complete reply goes to standard output."""
    from kept.agent.events import Notice, ToolEnded

    if sys.stdout.isatty() and not as_json:
        screen = ChatScreen()
        try:
            runner.run(_answer(conversation, screen, text))
        finally:
            screen.leave()
        return
    tools: list[str] = []
    notices: list[str] = []

    def note(event: AgentEvent) -> None:
        if isinstance(event, ToolEnded):
            tools.append(event.name)
        elif isinstance(event, Notice):
            notices.append(event.text)
            warn_all(() if as_json else [event.text])

    reply = runner.run(conversation.answer(text, note))
    reply_text = None if reply is None or reply.silent else reply.text
    if not as_json:
        echo(reply_text or "", nl=bool(reply_text))
        return
    print_json(
        {
            "reply": reply_text,
            "sessionId": runner.run(conversation.session_id()),
            "entryId": reply.entry_id or None if reply else None,
            "tools": tools,
            "notices": notices,
            "context": reply.context if reply else None,
        }
    )


# an interactive conversation


def _talk(conversation: Conversation, runner: asyncio.Runner) -> None:
    """Answer messages until there are no more. Ctrl-C stops an answer, not the conversation."""
    echo("Ctrl-C stops an answer, Ctrl-D leaves. /help lists the commands.", err=True)
    with suppress(ImportError):  # some Python was built without it. It also keeps earlier lines for the arrow keys.
        import readline

        # Python turns this off. With it, the lines of a pasted text become part of the line that is being edited.
        readline.parse_and_bind("set enable-bracketed-paste on")
    screen = ChatScreen()
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            echo()
            return
        except KeyboardInterrupt:
            echo()
            continue
        if not text:
            continue
        try:
            runner.run(_answer(conversation, screen, text))
        except KeyboardInterrupt:
            screen.break_off()
            echo(dim("Stopped."))
            runner.run(conversation.stop())
        except Exception as exc:  # noqa: BLE001 - an answer that fails must not end the conversation
            screen.break_off()
            unexpected = f"Unexpected error: {type(exc).__name__}: {exc}"
            warn(f"{exc.message} {exc.hint}" if isinstance(exc, KeptError) else unexpected)


async def _answer(conversation: Conversation, screen: ChatScreen, text: str) -> None:
    screen.wait()
    await conversation.answer(text, screen.show)


class ChatScreen:
    """Screen for people: the reply appears as it is written, anything else on separate lines."""

    def __init__(self) -> None:
        self._line = ""
        self._streamed = False
        self._can_wait = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._is_waiting = False

    def wait(self) -> None:
        """Show that the agent is at work, until there is something to show."""
        if self._can_wait:
            self._draw(_SIGN)
            self._is_waiting = True

    def leave(self) -> None:
        if self._is_waiting:
            self._draw(_ERASE_LINE)
            self._is_waiting = False

    def _draw(self, text: str) -> None:
        stream = unguarded(sys.stdout)
        stream.write(text)
        stream.flush()

    def show(self, event: AgentEvent) -> None:
        from kept.agent.events import ApprovalAsked, ApprovalDecided, Notice, Reply, ReplyDelta, ToolEnded, ToolStarted

        self.leave()
        match event:
            case ReplyDelta():
                self._write(event.text)
            case ToolStarted():
                self._show_aside(f"… {event.name}")
            case ToolEnded():
                if not event.ok:
                    self._show_aside(f"… {event.name} did not work")
            case Notice():
                self._show_aside(event.text)
            case ApprovalAsked():
                self._break_line()  # the question follows
            case ApprovalDecided():
                if not event.allowed:
                    self._show_aside(f"… {event.tool} was not allowed")
            case Reply():
                self._finish(event)
            case _:
                assert_never(event)

    def break_off(self) -> None:
        """Leave what is written of a reply that goes no further."""
        self.leave()
        self._break_line()
        self._streamed = False

    def _write(self, text: str) -> None:
        echo(text, nl=False)
        self._line = (self._line + text).rpartition("\n")[2]
        self._streamed = True

    def _finish(self, reply: Reply) -> None:
        """End the reply. Write it now if it was not streamed, as with commands."""
        if not self._streamed and not reply.silent:
            self._write(reply.text)
        self._break_line()
        self._streamed = False

    def _show_aside(self, text: str) -> None:
        self._break_line()
        echo(style(text, err=True, dim=True), err=True)

    def _break_line(self) -> None:
        if self._line:
            echo()
        self._line = ""
