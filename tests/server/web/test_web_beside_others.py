"""The pages beside a gateway and an editor, on the same notes: nothing is lost."""

import re
import threading
from pathlib import Path

import httpx
import pytest

from tests.support.commands import start_kept
from tests.support.files import write_file
from tests.support.gateway_processes import Process
from tests.support.workspaces import write_note

pytestmark = pytest.mark.slow

ROUNDS = 12
_DIGEST = re.compile(r'name="digest" value="([^"]+)"')
_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
_TEXT = re.compile(r"<textarea[^>]*>\n?(.*?)</textarea>", re.DOTALL)


def edit_in_browser(browser: httpx.Client, home: str, path: str, line: str) -> None:
    """Append a line on the page of a note, again until no other program was in between."""
    while True:
        page = browser.get(f"{home}/edit/{path}").text
        fields = {"digest": _DIGEST.search(page)[1], "form_token": _TOKEN.search(page)[1], "do": "save"}
        text = _TEXT.search(page)[1].replace("\r\n", "\n")
        answer = browser.post(f"{home}/edit/{path}", data={**fields, "text": text + line}, headers={"Origin": home})
        if answer.status_code == 303:
            return
        assert answer.status_code == 409, answer.text[:500]


def edit_by_hand(file: Path, line: str) -> None:
    """Append a line as `echo >>` does."""
    with file.open("a") as note:
        note.write(line)


def test_pages_a_gateway_and_an_editor_lose_nothing_of_each_other(tmp_path, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- Begin.\n")
    file = write_file(workspace / "memory/shared.md", b"# Shared\n\n")
    gateway = Process(tmp_path, "memory_search.provider=none", "gateway.http.port=0", KEPT_WORKSPACE=str(workspace))
    server = start_kept(tmp_path, "--set", "memory_search.provider=none", "web", "--no-open", "--port", "0")
    try:
        url = gateway.url()
        link = server.stdout.readline().split()[1]
        home = link.partition("/open")[0]
        with httpx.Client(timeout=60) as browser:
            browser.get(link)

            def write_on_pages() -> None:
                for number in range(ROUNDS):
                    edit_in_browser(browser, home, "MEMORY.md", f"- page {number}\n")

            def write_by_hand() -> None:
                for number in range(ROUNDS):
                    edit_by_hand(file, f"- hand {number}\n")

            def write_in_chat() -> None:
                for number in range(ROUNDS):
                    body = {"user": "ada", "text": f"/remember chat {number}", "id": f"m{number}"}
                    assert httpx.post(f"{url}/v1/messages", json=body, timeout=60).status_code == 200

            writers = [threading.Thread(target=write) for write in (write_on_pages, write_by_hand, write_in_chat)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            found = browser.get(f"{home}/", params={"q": "hand 11"}).text
    finally:
        server.terminate()
        server.communicate(timeout=30)
        gateway.stop()
    notes = "".join(note.read_text() for note in workspace.rglob("*.md"))
    for writer in ("page", "chat", "hand"):
        assert [line for line in range(ROUNDS) if f"- {writer} {line}\n" not in notes] == []
    assert "memory/shared.md" in found
