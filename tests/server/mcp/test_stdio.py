"""The server as a client on the other end of a pipe sees it."""

import json
import subprocess

import pytest
from jsonschema import Draft202012Validator

from kept.agent.tools.tool_definitions import TOOLS
from kept.agent.tools.toolbox import FORGET_TOOL
from tests.support.commands import run_python, start_python
from tests.support.files import tree_of, write_file
from tests.support.mcp_client import HELLO

pytestmark = pytest.mark.slow


def text_of(result):
    assert "structuredContent" not in result  # a client would hand its model that, and not the text
    assert [block["type"] for block in result["content"]] == ["text"]
    return result["content"][0]["text"]


def test_it_says_who_it_is_and_what_it_is_for(start):
    greeting = start().greet()
    assert greeting["serverInfo"]["name"] == "kept"
    assert "memory_search" in greeting["instructions"]
    assert set(greeting["capabilities"]) == {"tools", "resources"}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18"])
def test_it_speaks_every_version_of_the_protocol_that_clients_shake_hands_in(start, notes, version):
    client = start()
    answer = client.ask("initialize", {**HELLO, "protocolVersion": version})
    assert answer["result"]["protocolVersion"] == version
    client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert "5433" in text_of(client.call("memory_search", query="staging port"))


def test_every_tool_is_listed_with_valid_schemas_and_hints(client):
    tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
    assert list(tools) == [*(tool.name for tool in TOOLS), FORGET_TOOL.name]
    for tool in tools.values():
        Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["description"]
        assert "outputSchema" not in tool
        assert tool["annotations"]["readOnlyHint"] is (tool["name"] not in ("memory_write", "memory_forget"))
        assert tool["annotations"]["destructiveHint"] is (tool["name"] == "memory_forget")
        assert tool["annotations"]["openWorldHint"] is False
    assert tools["memory_write"]["annotations"]["idempotentHint"] is False


def test_tools_that_the_settings_switch_off_are_not_offered(start, notes):
    client = start(env={"KEPT_MEMORY_SEARCH__ENABLED": "false"})
    greeting = client.greet()
    assert "memory_search" not in greeting["instructions"]
    assert "memory_write" in greeting["instructions"]
    offered = {tool["name"] for tool in client.ask("tools/list")["result"]["tools"]}
    assert offered == {"memory_get", "memory_write", "memory_status", "memory_forget"}
    calls = {"memory_get": {"path": "MEMORY.md"}, "memory_write": {"text": "Assam again."}, "memory_status": {}}
    for name, arguments in calls.items():
        assert not client.call(name, **arguments).get("isError")


def test_without_a_workspace_it_serves_and_says_what_to_do(start, tmp_path, home):
    client = start(env={"KEPT_WORKSPACE": str(tmp_path / "nowhere")})
    client.greet()
    result = client.call("memory_search", query="x")
    assert result["isError"]
    assert "kept init" in text_of(result)
    assert client.ask("resources/list")["result"]["resources"] == []
    (tmp_path / "nowhere/memory").mkdir(parents=True)
    assert not client.call("memory_write", text="Now there is one.").get("isError")
    assert "Now there is one." in text_of(client.call("memory_search", query="now there is one"))


def test_notes_are_resources_page_by_page_and_each_whole(client, notes):
    for number in range(600):
        (notes / f"memory/n{number:04}.md").touch()
    long = "\n".join(f"line {number} " + "x" * 200 for number in range(2_000))
    write_file(notes / "memory/long.md", long + "\n")
    first = client.ask("resources/list")["result"]
    rest = client.ask("resources/list", {"cursor": first["nextCursor"]})["result"]
    uris = {resource["name"]: resource["uri"] for resource in first["resources"] + rest["resources"]}
    assert len(uris) == len(first["resources"]) + len(rest["resources"]) == 604
    for name in ("memory/long.md", '"memory/über tee & kaffee.md"'):
        (content,) = client.ask("resources/read", {"uri": uris[name]})["result"]["contents"]
        assert content["text"] + "\n" == (notes / name.strip('"')).read_text()
    templates = client.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == ["kept://notes/{+path}"]


# what a client may do wrong


def test_it_survives_input_that_is_far_too_large(client, notes):
    before = tree_of(notes)
    for name, argument in (("memory_search", "query"), ("memory_get", "path"), ("memory_write", "text")):
        result = client.call(name, **{argument: "x" * 3_000_000})
        assert result["isError"]
        assert "too long" in text_of(result)
    assert tree_of(notes) == before


def test_a_client_that_leaves_in_the_middle_of_a_call_ends_the_server_and_loses_nothing(client, notes):
    for number in range(20):
        arguments = {"text": f"Fact {number}.", "to": "memory/f.md"}
        client.begin("tools/call", {"name": "memory_write", "arguments": arguments})
    client.begin("tools/call", {"name": "memory_search", "arguments": {"query": "fact"}})
    assert client.read()["result"], "the first is written down, the others are under way"
    client.process.stdout.close()  # nobody reads the other answers
    client.process.stdout = None
    code, _, err = client.finish()
    assert (code, err) == (0, "")
    written = [line for line in (notes / "memory/f.md").read_text().splitlines() if line not in ("", "* * *")]
    assert written
    assert all(line.startswith("Fact ") and line.endswith(".") for line in written)


def test_a_call_that_was_cancelled_leaves_the_server_answering(client):
    number = client.begin("tools/call", {"name": "memory_search", "arguments": {"query": "staging"}})
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    assert "5433" in text_of(client.call("memory_search", query="staging port"))


def test_fifty_calls_at_once_are_all_answered(client, notes):
    waiting = {}
    for number in range(50):
        name, arguments = (
            ("memory_search", {"query": f"staging port {number}"}),
            ("memory_write", {"text": f"Item {number} was counted.", "to": "memory/count.md"}),
            ("memory_get", {"path": "MEMORY.md"}),
            ("memory_status", {}),
            ("sessions_search", {}),
        )[number % 5]
        waiting[client.begin("tools/call", {"name": name, "arguments": arguments})] = name
    while waiting:
        message = client.read()
        assert not message["result"].get("isError"), text_of(message["result"])
        del waiting[message["id"]]
    counted = (notes / "memory/count.md").read_text()
    assert counted.count("was counted.") == 10


# its surroundings


def test_what_a_library_prints_goes_to_standard_error(server_env, notes):
    """A print, a write to the descriptor itself, a warning and a log line, all from inside a tool call."""
    program = """
        import logging, os, sys, warnings
        from kept.agent.tools.toolbox import Toolbox
        quiet = Toolbox.run
        def loud(self, *args, **more):
            print('printed', flush=True)
            os.write(1, b'descriptor' + os.linesep.encode())
            warnings.warn('warned')
            logging.getLogger('x').warning('logged')
            return quiet(self, *args, **more)
        Toolbox.run = loud
        sys.argv = ['kept', 'mcp']
        from kept.cli import main
        main()
    """
    call = {"name": "memory_get", "arguments": {"path": "MEMORY.md"}}
    messages = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    with start_python(program, env=server_env, stderr=subprocess.PIPE) as process:
        process.stdin.writelines(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
        process.stdin.flush()
        answers = [process.stdout.readline(), process.stdout.readline()]
        out, err = process.communicate(timeout=60)
    assert all(answer.startswith('{"jsonrpc"') for answer in answers)
    assert "espresso" in answers[1]
    assert out == ""
    assert all(word in err for word in ("printed", "descriptor", "warned", "logged"))


def test_the_sdk_and_the_pages_are_imported_by_no_other_command(kept, workspace):
    code = "import sys; sys.argv[0] = 'kept'; from kept.cli import main\n"
    heavy = {"mcp", "pydantic", "jinja2", "nh3", "kept.server.web.web_app"}
    watch = f"import atexit; atexit.register(lambda: print({heavy} & sys.modules.keys()))\n"
    for command in (["status"], ["search", "x"], ["--help"], ["mcp", "--help"]):
        program = f"import sys; sys.argv[1:] = {command}\n{watch}{code}main()"
        ended = run_python(program, env={"KEPT_WORKSPACE": str(workspace), "HOME": str(workspace.parent)})
        assert ended.stdout.splitlines()[-1] == "set()", ended.stderr


def test_without_the_sdk_one_line_says_what_to_install(server_env, tmp_path):
    code = "import sys; sys.modules['mcp'] = None; sys.argv = ['kept', 'mcp']; from kept.cli import main; main()"
    ended = run_python(code, env=server_env)
    assert ended.returncode == 2
    assert ended.stderr == "Error: 'kept mcp' needs the package 'mcp'. Install it: pip install 'kept[mcp]'\n"
    assert ended.stdout == ""


def test_it_keeps_the_index_live_also_for_another(start, notes, kept):
    first, second = start(), start()
    for client in (first, second):
        client.greet()
        client.ask("tools/list")
        assert "5433" in text_of(client.call("memory_search", query="staging port"))
    pids = {first.process.pid, second.process.pid}
    watcher = kept("status", "--json").json["watcher"]
    assert watcher in pids
    other = second if watcher == first.process.pid else first
    write_file(notes / "memory/kite.md", "The kite is in the attic.\n")
    assert "attic" in text_of(other.call("memory_search", query="where is the kite"))


def test_half_a_surrogate_pair_is_answered(client, notes):
    """JavaScript sends a text that was cut in the middle of an emoji like this."""
    request = {"jsonrpc": "2.0", "id": "cut", "method": "tools/call"}
    params = '{"name": "memory_search", "arguments": {"query": "staging port \\ud83d"}}'
    client.send_line(json.dumps(request)[:-1] + f', "params": {params}}}')
    answer = client.read_until(lambda message: message.get("id") == "cut")
    assert "5433" in text_of(answer["result"])


def test_it_survives_what_is_no_message(client):
    for line in ("", "not JSON", '{"jsonrpc": "2.0", "id": 7, "meth', "[" * 100_000, "[1]", "{}", "null"):
        client.send_line(line)
    client.send_line('{"jsonrpc": "2.0", "id": 8, "params": {"a": "\\udcff"}}')
    client.send_line('{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":5,"arguments":[]}}')
    assert "error" in client.read_until(lambda message: message.get("id") == 900)
    assert "error" in client.ask("no/such/method")
    assert "error" in client.ask("tools/call", {})
    assert client.ask("tools/list")["result"]["tools"]
