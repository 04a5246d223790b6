"""A round trip from an outside client: the protocol's own inspector, over both transports."""

import json
import os
import subprocess

import pytest

from kept.agent.tools.tool_definitions import TOOLS
from kept.agent.tools.toolbox import FORGET_TOOL
from tests.support.commands import KEPT
from tests.support.repository import NODE_PATH
from tests.support.serve_process import create_token

pytestmark = pytest.mark.node


@pytest.fixture
def inspect(server_env, tmp_path):
    env = {**server_env, "PATH": f"{NODE_PATH}{os.pathsep}{server_env['PATH']}"}

    def run(*arguments: str) -> tuple[dict, str]:
        ended = subprocess.run(
            ["mcp-inspector", "--cli", "--connect-timeout", "100000", *arguments],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout), ended.stderr

    return run


def round_trip(inspect, server: list[str], *more: str) -> None:
    call = (*server, *more, "--method", "tools/call")
    listed, remarks = inspect(*server, *more, "--strict", "--method", "tools/list")
    assert [tool["name"] for tool in listed["tools"]] == [*(tool.name for tool in TOOLS), FORGET_TOOL.name]
    assert "Warning" not in remarks, "every client can read the schemas"
    written, _ = inspect(*call, "--tool-name", "memory_write", "--tool-arg", "text=The plotter was sold.")
    citation = written["content"][0]["text"].removeprefix("Written to ").rstrip(".")
    result, _ = inspect(
        *call, "--tool-name", "memory_search", "--tool-arg", "query=was the plotter sold", "maxResults=1"
    )
    assert citation.partition("#")[0] in result["content"][0]["text"]
    read, _ = inspect(*call, "--tool-name", "memory_get", "--tool-arg", f"path={citation}")
    assert "The plotter was sold." in read["content"][0]["text"]


@pytest.fixture
def command(notes, home):
    """As a client starts it, which passes on nothing of its own surroundings that it was not told to."""
    return [KEPT, "mcp", "-e", f"KEPT_WORKSPACE={notes}", "-e", f"KEPT_HOME={home}"]


def test_over_standard_input_and_output(inspect, command):
    round_trip(inspect, command)


def test_over_http_with_a_token(inspect, serve, home):
    token = create_token(home, "inspector", "admin")
    server = serve()
    round_trip(
        inspect,
        ["--server-url", f"{server.url}/mcp", "--transport", "http"],
        "--header",
        f"Authorization: Bearer {token}",
    )


def test_in_the_newest_form_of_the_protocol(inspect, command):
    call = ("--method", "tools/call", "--tool-name", "memory_get", "--tool-arg", "path=MEMORY.md")
    note, _ = inspect(*command, "--protocol-era", "modern", *call)
    assert "espresso" in note["content"][0]["text"]
