"""Suggestions for a command that does not exist."""

from __future__ import annotations

from collections.abc import Collection

_SIMILAR = 0.7

_DELETE = (
    "Notes are files: edit or delete them, and the next search sees the change."
    " 'kept forget' removes something everywhere, 'kept sessions delete ID' deletes a conversation."
)
_HINTS = {
    _DELETE: ("remove", "delete", "rm", "del", "erase"),
    "Notes are files: 'kept get' prints one, your editor changes it. 'kept config edit' opens the settings.": (
        "edit",
        "open",
        "update",
    ),
    "'kept search' answers questions.": ("find", "query", "ask", "grep", "recall", "question"),
    "'kept get' prints a note or a conversation.": ("show", "read", "cat", "view", "print"),
    "'kept list' lists notes, 'kept sessions list' conversations.": ("ls", "notes", "dir"),
    "'kept recent' shows what changed lately.": ("log", "history", "changes", "today", "activity"),
    "'kept add' writes to a note.": ("new", "note", "write", "remember", "save", "store", "append", "create"),
    "'kept config set KEY VALUE' changes a setting, 'kept config explain' lists them.": (
        "set",
        "settings",
        "configure",
        "setting",
        "options",
    ),
    "'kept init' creates a workspace, 'kept connect' adds Kept to another program.": ("setup", "install", "start"),
    "'kept mcp' serves other programs, 'kept gateway' answers messages.": ("serve", "server", "run", "daemon"),
    "'kept index' updates the index.": ("reindex", "sync", "rebuild", "refresh"),
    "'kept sessions export ID' prints a conversation; notes are files.": ("export", "backup", "dump"),
    "'kept sessions' has the commands for conversations.": ("session", "conversations", "conversation", "chats"),
}


def suggestion_for(name: str, known: Collection[str]) -> str:
    """Return a sentence with the command that the user may have meant."""
    import difflib

    if near := difflib.get_close_matches(name.lower(), known, n=1, cutoff=_SIMILAR):
        return f"Did you mean '{near[0]}'?"
    return next((hint for hint, names in _HINTS.items() if name.lower() in names), "'kept help' lists them all.")
