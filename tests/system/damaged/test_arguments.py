"""Words that have no UTF-8, from a shell or a model: one clear line and the right code, whatever is asked for."""

import pytest

from kept import Memory, SessionStore
from kept.agent.tools.toolbox import Toolbox
from kept.errors import KeptError, SessionNotFound, StoreUnavailable, UsageError
from kept.sessions.entries import Message
from kept.testing import FakeEmbedder
from tests.support.damaged_commands import Commands
from tests.support.files import write_file

HALF = "b\udcff"
PAIR = "cut \ud83d"


@pytest.fixture
def commands(home, workspace) -> Commands:
    write_file(workspace / "MEMORY.md", "# Memory\n\nStaging is on port 5433.\n")
    with SessionStore.open(home=home) as sessions:
        sessions.append(sessions.get_or_create("telegram", "5054").id, Message.of("user", "Which port is it?"))
    return Commands(home, workspace)


@pytest.mark.parametrize("word", [HALF, PAIR])
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("search", "x", "--channel", "{}"), 2),
        (("search", "x", "--path", "{}"), 2),
        (("search", "x", "--path", "{}*"), 2),
        (("search", "x", "--since", "{}"), 2),
        (("search", "x", "--session", "{}"), 3),
        (("search", "x", "--session", "telegram:{}"), 3),
        (("search", "{}"), 0),
        (("sessions", "list", "--channel", "{}"), 0),
        (("sessions", "show", "{}"), 3),
        (("sessions", "show", "telegram:{}"), 3),
        (("sessions", "reset", "{}"), 3),
        (("sessions", "delete", "{}"), 3),
        (("chat", "-m", "{}", "--session", "{}"), 0),
        (("get", "{}"), 4),
        (("get", "sessions/{}.jsonl"), 3),
        (("add", "{}"), 2),
    ],
)
def test_every_command_ends_with_the_right_code(commands, args, code, word):
    assert code_of(commands, *(arg.format(word) for arg in args)) == code


def code_of(commands: Commands, *args: str) -> int:
    try:
        commands.run(*args)
    except KeptError as exc:
        return exc.exit_code
    return 0


def test_a_home_or_workspace_without_utf8_is_refused_in_one_line(tmp_path, workspace):
    with pytest.raises(StoreUnavailable, match="UTF-8"):
        Commands(tmp_path / "h\udcff", workspace).run("status")
    with pytest.raises(UsageError, match="UTF-8"):
        Commands(tmp_path / "home", tmp_path / "w\udcff").run("init")
    assert not (tmp_path / "w\udcff").exists()


@pytest.mark.parametrize("word", [HALF, PAIR, "nul \0", "x" * 300])
def test_no_argument_of_a_tool_or_a_method_fails_in_another_way(commands, home, workspace, word):
    memory = Memory.open(workspace, home=home, embedder=FakeEmbedder())
    with memory, SessionStore(memory.config) as sessions:
        toolbox = Toolbox(memory, sessions)
        for name in ("memory_search", "sessions_search"):
            for more in ({}, {"channel": word}, {"since": word}, {"until": word}):
                toolbox.run(name, {"query": word, **more}).text.encode()
        toolbox.run("sessions_search", {"channel": word}).text.encode()
        toolbox.run("memory_get", {"path": word}).text.encode()
        with pytest.raises(SessionNotFound):
            sessions.get(word)
        assert sessions.find(word, word) is None
        session = sessions.get_or_create(word, word, account_id=word, chat_type=word, metadata={word: word})
        assert sessions.get_or_create(word, word, account_id=word, chat_type=word).id == session.id
        assert session in sessions.recent(channel=session.channel)
        for source in (word, None):
            try:
                memory.search("port", source=source, path=word)
            except UsageError:
                pass
