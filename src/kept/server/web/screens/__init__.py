"""The screens, in the order of the navigation. To add one, write a module with a `Screen` and list it here."""

from __future__ import annotations

from starlette.responses import Response

from kept.server.web.screens.changes_screen import SCREEN as CHANGES
from kept.server.web.screens.chat_screen import SCREEN as CHAT
from kept.server.web.screens.context_screen import SCREEN as CONTEXT
from kept.server.web.screens.conversations_screen import SCREEN as CONVERSATIONS
from kept.server.web.screens.forget_screen import SCREEN as FORGET
from kept.server.web.screens.health_screen import SCREEN as HEALTH
from kept.server.web.screens.note_screen import SCREEN as NOTES
from kept.server.web.screens.review_screen import SCREEN as REVIEW
from kept.server.web.screens.search_screen import SCREEN as SEARCH
from kept.server.web.screens.settings_screen import SCREEN as SETTINGS
from kept.server.web.screens.timeline_screen import SCREEN as TIMELINE
from kept.server.web.visit import THEME_COOKIE, THEMES, Page, Screen, Visit


def switch_theme(visit: Visit) -> Response:
    """Switch between light and dark. The switch is in no navigation, but on every page."""
    theme = visit.form.get("theme", "auto")
    response = visit.redirect(visit.back("/"))
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, max_age=31_536_000, httponly=True, samesite="strict")
    return response


SCREENS: tuple[Screen, ...] = (
    SEARCH,
    TIMELINE,
    NOTES,
    CONVERSATIONS,
    CHAT,
    CONTEXT,
    CHANGES,
    REVIEW,
    FORGET,
    HEALTH,
    SETTINGS,
    Screen(name="theme", label="", home="", pages=(Page("/theme", switch_theme, "read", ("POST",)),)),
)
