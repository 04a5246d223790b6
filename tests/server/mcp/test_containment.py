"""What is outside the workspace cannot be read, by the tool, or through the server."""

import os

import pytest

from kept.agent.tools.tool_text import uri_of
from kept.agent.tools.toolbox import Toolbox
from kept.sessions.store import SessionStore
from tests.support.files import tree_of, write_file

SECRET = "the treasure is under the oak"


@pytest.fixture
def toolbox(memory, notes, home):
    with SessionStore.open(home=home) as sessions:
        yield Toolbox(memory(), sessions)


def escapes(notes):
    """Every way out, by its name."""
    outside = write_file(notes.parent / "secret.md", SECRET)
    write_file(notes.parent / "outside/secret.md", SECRET)
    write_file(notes / "plain.txt", SECRET)
    os.symlink(outside, notes / "memory/link.md")
    os.symlink(notes.parent / "outside", notes / "memory/folder")
    os.symlink("/dev/zero", notes / "memory/zero.md")
    os.mkfifo(notes / "memory/pipe.md")
    (notes / "memory/dir.md").mkdir()
    return {
        "dots": "../secret.md",
        "dots inside": "memory/../../secret.md",
        "dots behind a note": "MEMORY.md/../../secret.md",
        "dots that stay inside": "memory/../MEMORY.md",
        "backslashes": "..\\secret.md",
        "absolute": str(outside),
        "absolute with dots": f"{notes}/../secret.md",
        "a name that begins alike": f"{notes}-other/secret.md",
        "a file URL": f"file://{outside}",
        "home": "~/secret.md",
        "variable": "$HOME/secret.md",
        "link": "memory/link.md",
        "link as a folder": "memory/folder/secret.md",
        "device": "/dev/zero",
        "device in the workspace": "memory/zero.md",
        "pipe": "memory/pipe.md",
        "folder": "memory/dir.md",
        "process": "/proc/self/environ",
        "not Markdown": "plain.txt",
        "not Markdown by citation": "plain.txt#L1-L2",
        "case of the ending": "PLAIN.TXT",
        "case of the folder": f"{str(notes).upper()}/../SECRET.MD",
        "case of the dots": "MEMORY/../../SECRET.md",
        "NUL": "plain.txt\0.md",
        "percent": "%2e%2e/secret.md",
        "percent slash": "..%2fsecret.md",
        "percent twice": "%252e%252e%252fsecret.md",
        "percent NUL": "plain.txt%00.md",
        "overlong dots": "\u2024\u2024/secret.md",
        "wide slash": "..\uff0fsecret.md",
        "transcript": "sessions/../../../secret.jsonl",
        "transcript absolute": f"sessions/{outside}.jsonl",
        "empty": "  ",
        "long": "a/" * 2_000 + "secret.md",
    }


def test_the_tool_reads_nothing_outside(toolbox, notes):
    for name, path in escapes(notes).items():
        outcome = toolbox.run("memory_get", {"path": path})
        assert outcome.is_error, name
        assert SECRET not in outcome.text, name
        assert "espresso" not in outcome.text, name


def test_the_tool_writes_nothing_outside(toolbox, notes):
    paths = escapes(notes)
    before = tree_of(notes.parent)
    for name, path in paths.items():
        if "%" not in path and not path.startswith(("~", "$", "\u2024")):  # those are ordinary names, if odd ones
            assert toolbox.run("memory_write", {"text": "x", "to": path}).is_error, name
    after = tree_of(notes.parent)
    assert {path: text for path, text in after.items() if before.get(path, text) != text} == {}
    assert {path for path in after if path not in before and not path.startswith("home/")} == set()


def test_an_address_of_a_note_is_nothing_outside(toolbox, notes):
    for name, path in escapes(notes).items():
        for address in (uri_of(path), f"kept://notes/{path}", f"kept://notes//{path}"):
            assert toolbox.run("memory_get", {"path": address}).is_error, name


def test_the_case_of_a_name_is_no_way_around_a_rule(toolbox, notes):
    """Where the file system ignores case it is the same note; where it does not, there is none of that name."""
    for path in ("memory.MD", "MEMORY.MD", "Memory/2026-03-13.md"):
        outcome = toolbox.run("memory_get", {"path": path})
        assert outcome.is_error is not (notes / path).exists()


def test_the_server_refuses_it(client, notes):
    paths = escapes(notes)
    for name in ("dots", "link", "pipe"):
        answer = client.call("memory_get", path=uri_of(paths[name]))
        assert answer["isError"], name
        resource = client.ask("resources/read", {"uri": uri_of(paths[name])})
        assert resource["error"]["code"] == -32602, name
        assert SECRET not in str((answer, resource))
