"""kept schedule: add, list, remove, pause, resume, run, and what status and archives know of it."""

import json

import pytest

ADD = ("schedule", "add", "every weekday 8:00", "What is due today?", "--to", "telegram:5054")


def test_a_schedule_is_added_listed_paused_resumed_and_removed(kept, home):
    added = kept(*ADD, "--timezone", "Europe/Berlin")
    assert added.code == 0
    assert added.out.startswith("Added ")
    assert "08:00 (Europe/Berlin)" in added.out
    assert "The channel telegram is off" in added.err
    assert "No gateway is running" in added.err
    (item,) = kept("schedule", "list", "--json").json["schedules"]
    assert (item["when"], item["to"], item["timezone"]) == ("every weekday 8:00", "telegram:5054", "Europe/Berlin")
    assert item["next"]
    assert "What is due today?" in kept("schedule", "list").out
    assert kept("schedule", "pause", item["id"][:3]).out.startswith("Paused ")
    assert kept("schedule", "list", "--json").json["schedules"][0]["next"] is None
    assert "08:00" in kept("schedule", "resume", item["id"]).out
    assert kept("schedule", "remove", item["id"]).code == 0
    assert kept("schedule", "list").out.startswith("There are no schedules.")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("add", "soon", "x"), 2, "'soon' cannot be read as a schedule. Write it like"),
        (("add", "every weekday 8:00", "  "), 2, "There is nothing to ask."),
        (("add", "every weekday 8:00", "x", "--to", "telegram"), 2, "is not the key of a session"),
        (("add", "every weekday 8:00", "x", "--timezone", "Mars"), 2, "There is no time zone 'Mars'."),
        (("remove", "abc"), 3, "No schedule has the id 'abc'."),
        (("pause", "abc"), 3, "No schedule has the id 'abc'."),
    ],
)
def test_what_makes_no_sense_is_one_line_and_changes_nothing(kept, home, args, code, words):
    done = kept("schedule", *args)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    path = home / "agents" / "main" / "schedules.json"
    assert not path.exists() or json.loads(path.read_text())["schedules"] == []


def test_doctor_and_export_know_the_schedules(kept, home, tmp_path):
    kept(*ADD)
    kept("schedule", "add", "every day 9:00", "Ask about the heron.")
    assert kept("doctor").code == 0
    archive = tmp_path / "all.tar"
    assert kept("export", archive).code == 0
    assert b"Ask about the heron" in archive.read_bytes()
    path = home / "agents" / "main" / "schedules.json"
    path.write_text("{")
    assert "schedules.json: it is not JSON" in kept("doctor").out
    assert "it is not JSON" in kept("schedule", "list").err
