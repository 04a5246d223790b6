"""How much of what a long conversation sends is a prefix that the provider has cached."""

import json

from tests.support.chat_server import Call, Says
from tests.support.remote_agents import remote
from tests.support.workspaces import write_note

LOOK_BACK_BLOCKS = 20
"""The provider looks this many blocks before a breakpoint for a prefix that it has cached."""


def blocks_of(body) -> list[tuple[str, bool]]:
    """Return the blocks of a request in the order of the cache, each with whether it is a breakpoint."""
    tools = [(json.dumps(tool), "cache_control" in tool) for tool in body.get("tools", [])]
    system = [(block["text"], "cache_control" in block) for block in body.get("system", [])]
    contents = [(message["role"], block) for message in body["messages"] for block in message["content"]]
    messages = [
        (json.dumps([role, {**block, "cache_control": None}]), "cache_control" in block) for role, block in contents
    ]
    return [*tools, *system, *messages]


def cached_share(bodies) -> float:
    """Return the share of all characters that were part of a cached prefix."""
    cached: set[tuple[str, ...]] = set()
    total = hit = 0
    for body in bodies:
        blocks = blocks_of(body)
        texts = [text for text, _ in blocks]
        breakpoints = [at + 1 for at, (_, is_breakpoint) in enumerate(blocks) if is_breakpoint]
        assert len(breakpoints) <= 4
        candidates = {end - back for end in breakpoints for back in range(LOOK_BACK_BLOCKS) if end - back > 0}
        longest = max((end for end in candidates if tuple(texts[:end]) in cached), default=0)
        total += sum(map(len, texts))
        hit += sum(map(len, texts[:longest]))
        cached |= {tuple(texts[:end]) for end in breakpoints}
    return hit / total


def test_most_of_a_long_conversation_is_a_cached_prefix_also_after_a_restart(tmp_path, server):
    server.otherwise = lambda request: (
        Says("Let me look.", Call("memory_search", {"query": "staging port"}))
        if json.dumps(request.body["messages"][-1]).find("tool_result") < 0 and len(server.chats) % 3 == 0
        else Says("Port 5433 is what the note says, and nothing has changed since. " * 4)
    )
    for part in range(2):
        with remote(tmp_path, server, "anthropic") as at:
            write_note(at.workspace, "memory/servers.md", "The staging database listens on port 5433.\n")
            for number in range(20):
                at.say(f"Question {part}.{number}: which port is staging on? " + "I have to tell the others. " * 10)
    bodies = [request.body for request in server.chats]
    share = cached_share(bodies)
    print(f"cached prefix: {share:.0%} of {sum(len(json.dumps(body)) for body in bodies):,} characters")
    assert share >= 0.7
    restarted = next(at for at, body in enumerate(bodies) if "Question 1.0" in json.dumps(body))
    assert cached_share(bodies[restarted - 1 : restarted + 1]) > 0.3, "the marker is the same after a restart"
