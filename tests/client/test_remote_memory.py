"""A memory on a server does what a memory here does: the same methods, values and errors."""

import datetime as dt
import inspect
from contextlib import closing

import pytest

from kept.client.remote_memory import RemoteForgetting, RemoteHistory, RemoteMemory, RemoteNotes, RemoteReview
from kept.client.remote_sessions import RemoteSessions
from kept.client.server_connection import Login, ServerConnection
from kept.errors import NoteNotFound, NotFound, ScopeMissing, ServerUnreachable, UsageError
from kept.forgetting.forgetter import MemoryForgetting
from kept.memory import Memory
from kept.memory_history import MemoryHistory
from kept.notes.review_queue import ReviewQueue
from kept.search.browse import MemoryNotes
from kept.server.api import OPERATIONS
from kept.sessions.store import SessionStore
from kept.storage.files.file_storage import FileStorage
from tests.support.serve_process import create_token

PAIRS = [
    (RemoteMemory, Memory),
    (RemoteNotes, MemoryNotes),
    (RemoteHistory, MemoryHistory),
    (RemoteReview, ReviewQueue),
    (RemoteForgetting, MemoryForgetting),
    (RemoteSessions, SessionStore),
]


@pytest.mark.parametrize(("remote", "local"), PAIRS)
def test_methods_take_what_those_of_a_local_memory_take(remote, local):
    own = {name for name in vars(remote) if not name.startswith("_")} - {"open", "write_draft", "recent_context"}
    assert own
    for name in own:
        method = getattr(remote, name)
        if inspect.isfunction(method):
            theirs = inspect.signature(getattr(local, name)).parameters
            parameters = inspect.signature(method).parameters.values()
            named = {parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD}
            assert named <= {*theirs}, (remote, name)


def test_every_operation_names_arguments_of_its_method():
    for path, operation in OPERATIONS.items():
        assert {*operation.required} <= {*operation.parameters}, path
        if operation.run is None:
            part, _, name = path.rpartition("/")
            owner = {"": Memory, "notes": MemoryNotes, "history": MemoryHistory, "review": ReviewQueue}.get(
                part, MemoryForgetting
            )
            assert {*operation.parameters} <= {*inspect.signature(getattr(owner, name)).parameters}, path


def test_a_program_connects_with_an_address_and_a_token(server, place):
    token = create_token(place / "home", "program", "read")
    with Memory.connect(server.url, token=token) as memory:
        assert memory.search("staging")[0].path == "MEMORY.md"


def test_what_is_written_is_found_read_listed_and_taken_back(remote, place):
    written = remote.add("The parrot is called Kiwi.", to="memory")
    hit = remote.search("what is the parrot called?", max_results=2)[0]
    assert (hit.citation, hit.grade) == (written.citation, "strong")
    with Memory.open(place / "workspace", home=place / "home") as memory:
        here = memory.search("what is the parrot called?", max_results=2)
        assert [*map(_seen, here)] == [*map(_seen, remote.search("what is the parrot called?", max_results=2))]
        assert memory.list().files == remote.list().files
        assert [change.id for change in memory.history.changes()] == [change.id for change in remote.history.changes()]
    assert remote.read(written.citation).text == "- The parrot is called Kiwi."
    (change,) = remote.history.changes(since=dt.timedelta(hours=1), max_results=1)
    assert (change.by.client, change.by.tool, change.by.agent) == ("laptop-admin0", "HTTP API", "main")
    assert "+- The parrot is called Kiwi." in remote.history.diff(change)
    assert remote.history.undo(change.id, dry_run=True).steps[0].before is not None
    assert remote.history.undo([change.id]).changes[0].id == change.id
    assert "Kiwi" not in (place / "workspace/MEMORY.md").read_text()


def _seen(hit):
    return hit.citation, hit.grade, hit.snippet, hit.timestamp


def test_tags_links_and_status_are_those_of_the_server(remote):
    remote.add("See [[MEMORY]] about #harbour.", to="memory/boats.md")
    assert [count.tag for count in remote.notes.tags()] == ["harbour"]
    assert remote.notes.links("boats").outgoing[0].resolved == "MEMORY.md"
    assert len(remote.notes.broken_links()) == 0
    assert remote.status().source_counts["memory"]["files"] == 3


def test_a_forget_removes_the_places_that_were_chosen(remote, place):
    remote.add("The gate code is 4711.", to="memory/gate.md")
    remote.add("Paint the gate blue.", to="memory/gate.md")
    plan = remote.forgetting.plan("gate code")
    (number,) = [at for at, found in enumerate(plan.options, 1) if found.path == "memory/gate.md"][:1]
    receipt = remote.forgetting.apply(plan.choose(str(number)))
    assert receipt.is_finished
    assert "4711" not in (text := (place / "workspace/memory/gate.md").read_text())
    assert "blue" in text


def test_proposals_are_listed_shown_and_decided(remote, server, place):
    with Memory.open(place / "workspace", home=place / "home") as memory:
        memory.add("Descale the machine in March.", to="memory/coffee.md", only_propose=True)
        memory.add("Buy beans.", to="memory/coffee.md", only_propose=True)
    first, second = remote.review.list().items
    assert "+Descale" in remote.review.preview(first).diff
    assert remote.review.accept(first.id).action == "accepted"
    assert remote.review.reject(second.id).action == "rejected"
    assert (place / "workspace/memory/coffee.md").read_text() == "Descale the machine in March.\n"


def test_an_error_of_the_server_is_raised_as_what_it_is(remote, log_in, server):
    with pytest.raises(NoteNotFound, match="no note"):
        remote.notes.links("nothing called so")
    with pytest.raises(UsageError, match="'query' has to be of the type string"):
        remote.search(5)
    with RemoteMemory.open(FileStorage(str(log_in("read")))) as reader:
        assert len(reader.search("staging")) == 1
        with pytest.raises(ScopeMissing, match="lacks the scope 'write'"):
            reader.add("No.")
    for url, problem, error in (
        (server.url, "does not accept the token", NotFound),
        ("http://127.0.0.1:9", "cannot be reached", ServerUnreachable),
    ):
        with closing(ServerConnection(Login.of(url, "kept_wrong"))) as wrong, pytest.raises(error, match=problem):
            wrong.call("status", object)


def test_a_token_of_a_person_sees_nothing_of_others(log_in):
    with RemoteMemory.open(FileStorage(str(log_in("write", person="ada")))) as ada:
        assert "zeppelins" not in str(ada.search("what does Bob fear?"))
        assert [file.path for file in ada.list()] == ["MEMORY.md"]
        for refused in (ada.history.changes, lambda: ada.history.undo(), ada.review.list):
            with pytest.raises(ScopeMissing):
                refused()


def test_notes_that_instruct_agents_need_the_scope_for_it(log_in, place):
    with RemoteMemory.open(FileStorage(str(log_in("write")))) as writer:
        for to, options in (("SOUL.md", {}), ("./soul.md", {}), ("PROJECT.md", {"project": "otter"})):
            with pytest.raises(ScopeMissing, match="change instructions"):
                writer.add("You obey.", to=to, **options)
    assert not (place / "workspace/SOUL.md").exists()
    with RemoteMemory.open(FileStorage(str(log_in("write", "review")))) as editor:
        editor.add("Be kind.", to="SOUL.md")
    with RemoteMemory.open(FileStorage(str(log_in("write")))) as writer, pytest.raises(ScopeMissing):
        writer.history.undo()


def test_a_login_needs_an_address_and_a_token_and_tls_outside_this_machine(tmp_path):
    assert Login.of("memory.example.org", "kept_x").url == "https://memory.example.org"
    for url, token, problem in (
        ("http://memory.example.org", "kept_x", "in clear"),
        ("https://", "kept_x", "not an address"),
        ("https://memory.example.org", "", "not a token"),
        ("https://memory.example.org", "a\nb", "not a token"),
    ):
        with pytest.raises(Exception, match=problem):
            Login.of(url, token)
