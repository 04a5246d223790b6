"""The switch between light and dark. It is in no navigation, but on every page."""

from __future__ import annotations

from starlette.responses import Response

from kept.web.visit import THEME_COOKIE, THEMES, Page, Screen, Visit


def switch_theme(visit: Visit) -> Response:
    theme = visit.form.get("theme", "auto")
    response = visit.redirect(visit.back("/"))
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, max_age=31_536_000, httponly=True, samesite="strict")
    return response


SCREEN = Screen(name="theme", label="", home="", pages=(Page("/theme", switch_theme, "read", ("POST",)),))
