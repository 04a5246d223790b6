"""What holds for every template, and how times and sizes are written."""

import datetime as dt
import re

import pytest

from kept.server.web.page_templates import describe_time
from tests.support.repository import SOURCE


def test_no_template_has_script_or_style_of_its_own_or_loads_anything_from_elsewhere():
    own = r"<script(?! type=\"module\" src=\"/static/)|<style|\son\w+=|\sstyle=|javascript:"
    elsewhere = r"(?:src|href|action)=\"(?:https?:)?//"
    templates = [*(SOURCE / "server/web/templates").glob("*.html")]
    assert templates
    for template in templates:
        assert re.search(f"{own}|{elsewhere}", template.read_text(encoding="utf-8")) is None, template.name


NOW = dt.datetime(2026, 3, 14, 15, 9).astimezone()


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (dt.datetime(2026, 3, 14, 9, 5), "today 09:05"),
        (dt.datetime(2026, 3, 13, 23, 59), "yesterday 23:59"),
        (dt.datetime(2026, 3, 10, 8, 0), "Tuesday 08:00"),
        (dt.datetime(2026, 3, 7, 8, 0), "7 Mar"),
        (dt.datetime(2025, 12, 31), "31 Dec 2025"),
    ],
)
def test_times_are_written_as_people_say_them(when, text):
    assert describe_time(when.astimezone(), NOW) == text
