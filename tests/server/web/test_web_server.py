"""`kept web` as people run it: the link, the address, a second process, and what it refuses."""

import re
import signal
import subprocess

import httpx
import pytest

from tests.support.commands import KEPT, start_kept
from tests.support.gateway_processes import Process
from tests.support.workspaces import write_note


@pytest.fixture
def start(tmp_path, workspace):
    """Start `kept web` on a free port, and return the process and its link."""
    write_note(workspace, "MEMORY.md", "The gate code is 4711.\n")
    running: list[subprocess.Popen[str]] = []

    def run(*args: str) -> tuple[subprocess.Popen[str], str]:
        process = start_kept(tmp_path, "--set", "memory_search.provider=none", "web", "--no-open", *args)
        running.append(process)
        line = process.stdout.readline()
        link = re.fullmatch(r"Open (http://127\.0\.0\.1:\d+/open\?key=\S+)\n", line)
        assert link, line + process.stderr.read()
        return process, link[1]

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_link_opens_the_pages_and_a_signal_ends_them(start):
    process, link = start("--port", "0")
    with httpx.Client() as browser:
        assert browser.get(link).status_code == 200
        home = link.partition("open?")[0]
        assert "/note/MEMORY.md" in browser.get(home).text
        assert "4711" in browser.get(home, params={"q": "gate"}).text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, -signal.SIGINT, 130)


def test_a_second_process_prints_a_link_for_the_first(start):
    first, link = start("--port", "0")
    port = link.split(":")[2].partition("/")[0]
    second, other = start("--port", port)
    assert second.wait(30) == 0
    assert "another process" in second.stderr.read()
    assert other != link
    assert httpx.get(other).status_code == 200
    assert first.poll() is None


def test_a_gateway_serves_the_pages_too_and_a_command_gives_the_link(tmp_path, workspace, start):
    write_note(workspace, "MEMORY.md", "The gate code is 4711.\n")
    settings = ("memory_search.provider=none", "model.provider=extractive", "gateway.http.port=0")
    settings += ("gateway.web.enabled=true",)
    command = [KEPT, *(part for each in settings for part in ("--set", each)), "gateway"]
    gateway = Process(tmp_path, command=tuple(command), KEPT_WORKSPACE=str(workspace))
    gateway.url()
    home = gateway.wait_for("Pages: ").split()[1].rstrip(",")
    port = home.split(":")[2].rstrip("/")
    assert httpx.get(home).status_code == 401
    _, link = start("--port", port)
    with httpx.Client(follow_redirects=True) as browser:
        browser.get(link)
        assert "4711" in browser.get(home, params={"q": "gate"}).text
    assert gateway.stop() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(home)
