"""Title of a conversation: the user's own, or else that of the program it is from, or else the first words asked."""

from __future__ import annotations

from typing import Any

from kept.base.limits import clip, one_line, utf8_safe
from kept.base.values import frozen
from kept.sessions.echoes import strip_markup
from kept.sessions.entries import TITLE, USER_TITLE, Entry, Message, SessionStart, StateEntry

OPENING_CHARS = 60
TITLE_CHARS = 200
_CHARS_READ = 2_000
_GREETING_CHARS = 20
_GREETINGS = frozenset(
    (
        "hi|hello|hey|hi there|hello there|good morning|good afternoon|good evening|good day|hallo|guten morgen|"
        "guten tag|guten abend|hola|buenos días|buenas tardes|bonjour|bonsoir|salut|ciao|buongiorno|olá|bom dia|"
        "привет|你好|test"
    ).split("|")
)


@frozen
class TitleParts:
    """Candidates for the title, as far as a transcript was read. Empty if there is none."""

    opening: str = ""
    """The first words that the user said."""
    client: str = ""
    chosen: str = ""

    @property
    def text(self) -> str:
        return self.given or self.opening

    @property
    def given(self) -> str:
        """The title, unless it is only the first words that the user said."""
        return self.chosen or self.client

    def after(self, content: object) -> TitleParts:
        """Return the candidates after one more line. Reading a line twice changes nothing."""
        if not isinstance(content, Entry):
            return self
        match content.body:
            case Message() as message:
                opening = next_opening(self.opening, message)
                return self if opening == self.opening else TitleParts(opening, self.client, self.chosen)
            case StateEntry(name, value) if name in (TITLE, USER_TITLE):
                return self.with_states({name: value})
            case SessionStart(state=state) if state:
                return self.with_states(state)
            case _:
                return self

    def with_states(self, state: dict[str, Any]) -> TitleParts:
        return TitleParts(
            self.opening,
            _safe_line(state[TITLE], TITLE_CHARS) if TITLE in state else self.client,
            _safe_line(state[USER_TITLE], TITLE_CHARS) if USER_TITLE in state else self.chosen,
        )


def _safe_line(value: Any, max_chars: int) -> str:
    """Return a text as one line without secrets. Empty for a value that is none."""
    if not isinstance(value, str):
        return ""
    from kept.base.redact import redact

    return clip(utf8_safe(one_line(redact(value, limit=_CHARS_READ))), max_chars)


def next_opening(opening: str, message: Message) -> str:
    """Return the first words asked, after one more message. A greeting gives way to the first words after it."""
    if message.role != "user" or (opening and not is_greeting(opening)):
        return opening
    text = one_line(strip_markup(message.text))
    if text.startswith("/") and " " not in text and text.count("/") == 1:
        return opening  # only a command, such as /clear
    words = _safe_line(text, OPENING_CHARS)
    return opening if not words or (opening and is_greeting(words)) else words


def is_greeting(text: str) -> bool:
    """Return whether a text only greets, so that it says nothing about the subject of a conversation."""
    return len(text) <= _GREETING_CHARS and text.casefold().strip(" .!?,") in _GREETINGS
