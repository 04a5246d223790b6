"""Conversations are found like notes: by word and by meaning, without their secrets, and at the cost of what is new."""

import datetime as dt
import json
import os
from dataclasses import replace

import pytest

from kept import Message, SessionStore
from kept.agent.tools.record_json import hit_json
from kept.base.records import Filter, SeenTail
from kept.errors import PathRefused, SessionKeyInvalid
from kept.index.sources import IndexLimits, scan_transcripts
from kept.index.sqlite.integrity import find_damage
from kept.index.sqlite.rows import FileWrite
from kept.index.transcripts import read_chunks
from kept.sessions.entries import (
    Attachment,
    CompactionEntry,
    Entry,
    ResetEntry,
    SessionStart,
    StateEntry,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    format_entry,
)
from kept.sessions.session_key import SessionKey
from kept.testing import FakeEmbedder, FrozenClock
from tests.support.index_dump import dump_index
from tests.support.read_counter import ReadCounter
from tests.support.session_strategies import path_of
from tests.support.workspaces import index_path, open_memory, write_note

KEY = "sk-proj-abcDEF1234567890abcdefGHIJ"
NOW = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=dt.timezone(dt.timedelta(hours=1)))


def open_sessions(tmp_path, **more) -> SessionStore:
    return SessionStore.open(home=tmp_path / "home", clock=FrozenClock(NOW), **more)


def talk(store: SessionStore, *texts: str, channel: str = "telegram", user: str = "5054"):
    """A conversation: what the user says and what is answered, in turn."""
    session = store.get_or_create(channel, user)
    roles = ("user", "assistant")
    store.append_all(session.id, [Message.of(roles[at % 2], text) for at, text in enumerate(texts)])
    return store.get(session.id)


def texts_of(memory) -> list[tuple[int, int, str]]:
    with memory.index_service.inspecting() as (index, _), index.reading():
        rows = [row for row, *_ in index.live.lists.entry_rows(Filter(sources=("sessions",)))]
        chunks = index.live.get_chunks(rows)
        return [(chunks[row].start_line, chunks[row].end_line, chunks[row].text) for row in rows]


def equals_a_fresh_index(tmp_path, memory) -> bool:
    path = str(tmp_path / "fresh.sqlite")
    fresh = open_memory(tmp_path, settings={"memory_search.store.path": path})
    with fresh:
        fresh.sync(force=True)
        return dump_index(memory) == dump_index(fresh)


@pytest.mark.parametrize("step_bytes", [10**9, 500])
def test_a_conversation_is_found_by_its_title_and_no_longer_by_the_one_before(tmp_path, step_bytes):
    with open_sessions(tmp_path) as store:
        other = talk(store, *["The umask decides it.", "Yes."] * 4, user="6")
        titled = talk(store, *["The umask decides that.", "Sure."] * 8, user="5054")
        limits = IndexLimits(batch_chars=1_000, step_bytes=step_bytes)
        with open_memory(tmp_path, limits=limits, settings={"memory_search.provider": "none"}) as memory:
            memory.sync()
            assert memory.search("permissions of zebra").hits == ()
            store.rename(titled.id, "Zebra permissions")
            assert memory.search("permissions of zebra").hits[0].path == titled.citation
            store.rename(titled.id, "Okapi permissions")
            talk(store, "And the okapi?", "No.", user="6")
            first, second, *_ = memory.search("okapi permissions").hits
            assert (first.path, second.path) == (titled.citation, other.citation)
            assert memory.search("zebra").hits == ()
            before = dump_index(memory)
            memory.sync(force=True)
            assert dump_index(memory) == before


def test_a_conversation_is_found_by_word_and_by_meaning_with_its_exact_lines(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        record = talk(store, "Where is the spare key?", "Under the blue flowerpot.", "And the ladder?", "In the shed.")
        hit = memory.search("spare key flowerpot").hits[0]
        assert (hit.path, hit.start_line, hit.end_line) == (record.citation, 2, 5)
        assert hit.snippet == (
            "[2026-03-14 15:09] User: Where is the spare key?\n[2026-03-14 15:09] Assistant: Under the blue flowerpot."
            "\n[2026-03-14 15:09] User: And the ladder?\n[2026-03-14 15:09] Assistant: In the shed."
        )
        assert (hit.source, hit.session_key, hit.channel) == ("sessions", record.key, "telegram")
        assert hit.timestamp == NOW
        assert hit.heading == "telegram:5054"
        assert hit.vector_score is not None
        lines = (tmp_path / "home/agents/main/sessions" / hit.path[9:]).read_text().splitlines()
        assert [json.loads(line)["message"]["content"] for line in lines[1:3]] == [
            "Where is the spare key?",
            "Under the blue flowerpot.",
        ]


def test_a_search_asked_in_a_conversation_leaves_what_was_said_last_to_others(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        record = talk(store, "The otter is called Bruno.", "Noted.")
        seen = SeenTail(record.citation, 1)
        assert memory.search("otter", seen=SeenTail(record.citation, 99)).hits  # a new transcript is indexed at once
        assert not memory.search("otter", seen=seen).hits
        talk(store, "And the badger is called Greta.", "Noted.")
        assert not memory.search("badger", seen=SeenTail(record.citation, 99)).hits
        write_note(tmp_path / "workspace", "memory/zoo.md", "The badger eats pears.")
        assert "pears" in memory.search("badger", seen=seen).hits[0].snippet
        talk(store, "The heron is called Olaf.", "Noted.")
        assert "heron" in memory.search("heron").hits[0].snippet
        talk(store, "The stork sleeps. " + "It is a long story. " * 1_000, "Noted.")
        assert "stork" in memory.search("stork", seen=SeenTail(record.citation, 99)).hits[0].snippet


def test_the_first_conversation_of_an_agent_is_noticed_by_a_memory_that_stays_open(tmp_path):
    with open_memory(tmp_path) as memory:
        for _ in range(3):
            memory.search("parrot")
        with open_sessions(tmp_path) as store:
            talk(store, "The parrot is green.")
        assert len(memory.search("parrot")) == 1


def test_filters_by_session_channel_and_the_time_of_the_turn(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path, clock=FrozenClock(NOW)) as memory:
        write_note(tmp_path / "workspace", "memory/a.md", "The parrot of the note.\n")
        one = talk(store, "The parrot of Ann.", "Yes.")
        two = talk(store, "The parrot of Bob.", "Yes. " * 150, channel="slack", user="U1")
        store.append(two.id, Message.of("user", "An old parrot."), timestamp=NOW - dt.timedelta(days=90))

        def lines(**filters):
            return sorted((hit.path, hit.start_line) for hit in memory.search("parrot", min_score=0.3, **filters))

        assert len(lines()) == 4
        assert lines(session_key="telegram:5054") == [(one.citation, 2)]
        assert lines(session_key=one.key) == [(one.citation, 2)]
        assert lines(session_key="telegram:nobody") == []
        assert lines(channel="slack") == [(two.citation, 2), (two.citation, 4)]
        assert lines(channel="slack", since="7d") == [(two.citation, 2)]
        assert lines(channel="slack", until="30d") == [(two.citation, 4)]
        assert lines(source="memory") == [("memory/a.md", 1)]
        assert lines(path=one.citation) == [(one.citation, 2)]
        with pytest.raises(SessionKeyInvalid):
            memory.search("parrot", session_key="nonsense")


def test_two_agents_that_share_an_index_file_do_not_find_each_others_conversations(tmp_path):
    shared = {"memory_search.store.path": str(tmp_path / "shared.sqlite")}
    with open_sessions(tmp_path, agent="research", create=True) as store:
        talk(store, "The parrot is green.")
    with open_memory(tmp_path, agent="research", settings=shared) as memory:
        assert len(memory.search("parrot")) == 1
    with open_memory(tmp_path, settings={**shared, "memory_search.sync.on_search": False}) as memory:
        assert memory.search("parrot").hits == ()
    with open_memory(tmp_path, settings=shared) as memory:
        assert memory.search("parrot").hits == ()


def test_without_the_source_no_conversation_is_indexed(tmp_path):
    with open_sessions(tmp_path) as store:
        talk(store, "The parrot is green.")
    with open_memory(tmp_path) as memory:
        assert memory.sync().files == 1
    write_note(tmp_path / "workspace", "memory/a.md", "A note.\n")
    with open_memory(tmp_path, settings={"memory_search.sources": ["memory"]}) as memory:
        report = memory.sync()
        assert (report.files, report.removed, report.chunks) == (1, 1, 1)
        assert memory.search("parrot").hits == ()
    with open_memory(tmp_path, settings={"memory_search.sources": ["sessions"]}) as memory:
        report = memory.sync()
        assert (report.files, report.removed, report.chunks) == (1, 1, 1)
        assert len(memory.search("parrot")) == 1


def test_an_index_that_is_not_synced_shows_only_what_is_still_said(tmp_path):
    with open_sessions(tmp_path) as store:
        kept = talk(store, f"The parrot {KEY} is green. " + "word " * 700, "The answer is long. " + "term " * 900)
        gone = talk(store, "The parrot is grey.", user="6000")
        changed = talk(store, "The parrot is blue.", user="7000")
        with open_memory(tmp_path) as memory:
            memory.sync()
        store.delete(gone.id)
    path = tmp_path / "home/agents/main" / changed.citation
    path.write_bytes(path.read_bytes().replace(b"blue", b"pink"))
    with open_memory(tmp_path, settings={"memory_search.sync.on_search": False}) as memory:
        result = memory.search("parrot", min_score=0.0, max_results=20)
        assert {hit.path for hit in result} == {kept.citation}
        assert len(result) == 2
        assert "2 outdated hits were left out." in result.degraded


def test_secrets_are_not_in_the_index_and_the_transcript_is_untouched(tmp_path):
    secrets = [KEY, "hunter2secret", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "AKIAIOSFODNN7EXAMPLE"]
    with open_sessions(tmp_path) as store:
        record = talk(store, f"My key is {KEY}.", "The database is postgres://kai:hunter2secret@db/x, I noted it.")
        call = ToolCall("1", "bash", {"command": f"login --token {secrets[2]}", "env": {"AWS": secrets[3]}})
        store.append(record.id, Message("assistant", (Text("I log in."), call)))
        store.append(record.id, Message("tool", (ToolResult("1", "x" * 150 + f" {secrets[3]} " + "y" * 500),)))
        store.append(record.id, CompactionEntry(f"They have a key, {KEY}, and a database."))
    before = path_of(tmp_path / "home", record).read_bytes()
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        assert "[redacted]" in memory.search("key database").hits[0].snippet
        memory.sync(force=True)
        shown = memory.read(record.citation).text
    stored = b"".join(path.read_bytes() for path in index_path(tmp_path).parent.glob("index.sqlite*"))
    for secret in secrets:
        assert secret.encode() not in stored
        assert secret.lower().encode() not in stored
        assert secret not in "\n".join(embedder.texts)
        assert secret not in shown
    assert path_of(tmp_path / "home", record).read_bytes() == before
    assert KEY.encode() in before


def test_no_cut_of_what_a_tool_answered_leaves_the_beginning_of_a_key(tmp_path):
    with open_sessions(tmp_path) as store:
        record = talk(store, "Look into the file.", "I look.")
        for limit in (1_000, 4_000):
            for shift in range(0, len(KEY), 3):
                answer = f"{' ' * (limit - shift)}{KEY} is the key"
                store.append(record.id, Message("tool", (ToolResult("1", answer),)))
                store.append(record.id, Message("assistant", (ToolCall("1", "bash", {"command": answer}),)))
    with open_memory(tmp_path) as memory:
        memory.sync()
        shown = memory.read(record.citation).text
        assert "sk-" not in shown
        assert "sk-" not in "".join(text for _, _, text in texts_of(memory))


def test_an_id_that_looks_like_a_key_is_not_shown_as_a_heading(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        talk(store, "Where is the spare key?", "Under the pot.", channel="http", user=KEY)
        hit = memory.search("spare key").hits[0]
        assert hit.heading == "http:[redacted]"
        assert KEY not in json.dumps(hit_json(hit))


def test_secrets_in_notes_are_not_sent_to_an_embedder_and_are_still_found_by_word(tmp_path):
    write_note(tmp_path / "workspace", "memory/keys.md", f"The deploy key is {KEY}\n")
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        assert KEY in memory.search(KEY).hits[0].snippet
    assert KEY not in "\n".join(embedder.texts)


def test_calls_of_tools_are_indexed_in_short_their_results_as_context_and_thoughts_not_at_all(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        session = store.get_or_create("cli", "me")
        store.append_all(
            session.id,
            [
                Message.of("user", "What is in the garden?", sender="Ann\nLee"),
                Message(
                    "assistant", (Thinking("Perhaps a walrus."), ToolCall("1", "look", {"where": "garden", "n": 2}))
                ),
                Message("tool", (ToolResult("1", "a gnome\n" * 1000, name="look"),)),
                StateEntry("model", "walrus"),
                Message("assistant", (Thinking("walrus"),)),
                Message("assistant", (Text("A gnome."), Attachment("image/png", "gnome.png"))),
            ],
        )
        memory.sync()
        found = texts_of(memory)
        assert [(start, end) for start, end, _ in found] == [(2, 2), (3, 3), (7, 7)]
        text = "\n".join(text for _, _, text in found)
        assert "walrus" not in text
        assert "Ann Lee: What is in the garden?" in text
        assert "Assistant: → look where: garden, n: 2" in text
        assert "←" not in text
        assert "Tool: ← look: a gnome a gnome" in memory.read(store.get(session.id).citation).text
        assert "Assistant: A gnome.\n[gnome.png]" in text
        assert len(text) < 600
        assert not any(hit.text_score for hit in memory.search("walrus", min_score=0.0))


def test_a_summary_is_a_chunk_of_its_own_and_a_reset_parts_what_it_stands_between(tmp_path):
    start = SessionStart("agent:main:cli:default:direct:me")
    bodies = [
        Message.of("user", "first"),
        CompactionEntry("They spoke of parrots."),
        Message.of("assistant", "second"),
        ResetEntry("command"),
        Message.of("assistant", "third"),
    ]
    entries = [Entry(f"e{at}", None, NOW, body) for at, body in enumerate(bodies)]
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        store.adopt(start, entries, session_id="s1", created=NOW)
        memory.sync()
        assert [(a, b) for a, b, _ in texts_of(memory)] == [(2, 2), (3, 3), (4, 4), (6, 6)]
        assert "Summary: They spoke of parrots." in memory.search("parrots").hits[0].snippet
        assert 6 not in [hit.start_line for hit in memory.search("second", min_score=0.0) if hit.text_score]


def test_a_damaged_line_is_reported_once_and_the_rest_is_found(tmp_path):
    with open_sessions(tmp_path) as store:
        record = talk(store, "The parrot is green.")
        with open(path_of(tmp_path / "home", record), "ab") as file:
            file.write(b'{"type": "message", "id"\n')
        talk(store, "The zeppelin is silver.")
    with open_memory(tmp_path) as memory:
        report = memory.sync()
        assert [(one.path, one.reason[:7]) for one in report.problems] == [(record.citation, "line 3:")]
        assert memory.search("zeppelin").hits[0].end_line == 4
        assert "(line 3 cannot be read" in memory.read(record.citation).text
        with open_sessions(tmp_path) as store:
            talk(store, "More of the same.")
        assert memory.sync().problems == ()


def test_a_transcript_without_its_first_line_is_found_but_belongs_to_nobody(tmp_path):
    with open_sessions(tmp_path) as store:
        record = talk(store, "The parrot is green.")
    path = tmp_path / "home/agents/main" / record.citation
    path.write_bytes(b"lost\n" + path.read_bytes().split(b"\n", 1)[1])
    with open_memory(tmp_path) as memory:
        hit = memory.search("parrot").hits[0]
        assert (hit.session_key, hit.channel, hit.heading) == (None, None, "")
        assert memory.search("parrot", channel="telegram").hits == ()


def test_any_text_there_is_can_be_indexed(tmp_path):
    odd = ["half \ud83d pair", "nul \0 sign", "line\r\nends\rhere", "\u2028", " \n\t ", "北京大学的鹦鹉", "ข้าวผัดกุ้ง"]
    bodies = [SessionStart(str(SessionKey("main", "cli", "x", "y", "\ud800 you:me")))]
    bodies += [Message.of("user", text, sender=text) for text in odd]
    folder = tmp_path / "home/agents/main/sessions"
    folder.mkdir(parents=True)
    (folder / "odd.jsonl").write_bytes(b"".join(format_entry(Entry("e", None, NOW, body)) for body in bodies))
    with open_memory(tmp_path) as memory:
        assert memory.sync().problems == ()
        assert len(memory.search("大学")) == 1
        assert len(memory.search("กุ้ง")) == 1


def count_cut_chunks(memory) -> int:
    """How many chunks the next sync would cut from the only transcript."""
    with memory.index_service.inspecting() as (index, _):
        (file,) = scan_transcripts(memory.config).files
        with index.reading():
            row = index.live.file_rows()[file.source, file.path]
        pieces = list(read_chunks(file, row, memory.config, checked_ns=0, step_bytes=10**9))
    return sum(len(piece.chunks) for piece in pieces if isinstance(piece, FileWrite))


def test_adding_a_turn_to_a_long_conversation_reads_cuts_and_embeds_only_its_end(tmp_path, monkeypatch):
    embedder = FakeEmbedder()
    with open_sessions(tmp_path) as store, open_memory(tmp_path, embedder=embedder) as memory:
        record = talk(store, *(f"Turn number {at} is about thing{at}." for at in range(5000)))
        assert memory.sync().chunks == 5000
        memory.sync()
        embedder.texts.clear()
        line_bytes = os.path.getsize(path_of(tmp_path / "home", record)) // 5001
        counter = ReadCounter(monkeypatch)
        talk(store, "And the parrot?", "It is green.")
        assert 2 <= count_cut_chunks(memory) < 10
        counter.take()  # the catalogue of sessions has read too
        report = memory.sync()
        assert (report.indexed, report.embedded, report.chunks) == (1, 2, 5002)
        assert counter.take() < 30 * line_bytes
        assert len(embedder.texts) == 2
        talk(store, "Goodbye.")
        counter.take()
        hit = memory.search("parrot").hits[0]
        assert (hit.start_line <= 5002, hit.end_line, hit.path) == (True, 5004, record.citation)
        assert 0 < counter.take() < 30 * line_bytes
        assert equals_a_fresh_index(tmp_path, memory)


def test_a_long_transcript_is_taken_in_piece_by_piece_and_goes_on_after_a_kill(tmp_path):
    with open_sessions(tmp_path) as store:
        talk(store, *(f"Turn {at}, thing{at % 7}. " + "word " * (at % 40) for at in range(400)))
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder, limits=IndexLimits(batch_chars=1_000, step_bytes=4_000)) as memory:

        def kill(done, total, label):
            if len(texts_of(memory)) > 60:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            memory.sync(progress=kill)
        taken = len(texts_of(memory))
        assert 60 < taken < 399
        embedded = len(embedder.texts)
        memory.sync()
        assert len(embedder.texts) == embedded + 400 - taken
        with memory.index_service.inspecting() as (index, _):
            assert find_damage(index) == []
        assert equals_a_fresh_index(tmp_path, memory)


@pytest.mark.parametrize("change", ["shrink", "middle", "middle and end", "other file", "touch"])
def test_a_transcript_that_was_not_only_added_to_is_read_from_its_beginning(tmp_path, monkeypatch, change):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        record = talk(store, *(f"Turn {at} has thing{at}." for at in range(100)))
        memory.sync()
        path = tmp_path / "home/agents/main" / record.citation
        raw = path.read_bytes()
        longer = raw.replace(b"thing20", b"a parrot and thing20")
        new = {
            "shrink": b"".join(raw.splitlines(keepends=True)[:50]),
            "middle": raw.replace(b"thing20", b"parrot!"),
            "middle and end": longer + longer.splitlines(keepends=True)[-1],
            "other file": raw.replace(b"thing20", b"parrot!"),
            "touch": raw,
        }[change]
        if change == "other file":
            path.unlink()
        path.write_bytes(new)
        counter = ReadCounter(monkeypatch)
        report = memory.sync()
        assert counter.take() >= len(new)
        assert report.indexed == (0 if change == "touch" else 1)
        assert bool(memory.search("parrot").hits) == (change not in ("shrink", "touch"))
        assert bool(memory.search("thing80").hits) == (change != "shrink")
        assert equals_a_fresh_index(tmp_path, memory)


def test_a_torn_end_is_not_indexed_and_is_once_it_is_whole(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        record = talk(store, "The parrot is green.", "Yes.")
        raw = path_of(tmp_path / "home", record).read_bytes()
        last = raw.splitlines(keepends=True)[-1].replace(b"Yes.", b"A zeppelin.")
        for torn in (last[:30], last[:-1]):
            with open(path_of(tmp_path / "home", record), "wb") as file:
                file.write(raw + torn)
            assert memory.search("zeppelin").hits == ()
            assert len(memory.search("parrot")) == 1
        with open(path_of(tmp_path / "home", record), "ab") as file:
            file.write(b"\n")
        assert len(memory.search("zeppelin")) == 1
        assert equals_a_fresh_index(tmp_path, memory)


def test_status_and_doctor_see_a_transcript_that_changed(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        record = talk(store, *(f"Turn {at}." for at in range(20)))
        assert memory.status().changed_files == 1
        memory.sync()
        assert not memory.status().dirty
        talk(store, "More.")
        assert memory.status().changed_files == 1
        memory.sync()
        state = os.stat(path_of(tmp_path / "home", record))
        raw = path_of(tmp_path / "home", record).read_bytes()
        with open(path_of(tmp_path / "home", record), "r+b") as file:
            file.write(raw.replace(b"Turn 3.", b"Turn X."))
        os.utime(path_of(tmp_path / "home", record), ns=(state.st_atime_ns, state.st_mtime_ns))
        with memory.index_service.inspecting() as (_, planner):
            assert planner.count_changed(planner.reader.scan(), read_all=True) == 1


def test_a_citation_is_read_back_as_it_was_found(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        record = talk(store, *(f"Turn {at} is about thing{at}." for at in range(300)))
        hit = memory.search("thing44").hits[0]
        passage = memory.read(hit.path, start=hit.start_line, lines=hit.end_line - hit.start_line + 1)
        assert passage.text == hit.snippet
        assert passage.start <= 46 < passage.start + passage.lines
        passage = memory.read(record.citation)
        assert (passage.lines, passage.truncated, passage.next_from) == (200, True, 201)
        assert passage.text.startswith("[2026-03-14 15:09] (the session begins)\n[2026-03-14 15:09] User: Turn 0 ")
        passage = memory.read(record.citation, start=201)
        assert (passage.lines, passage.truncated, passage.next_from) == (101, False, None)


@pytest.mark.parametrize(
    "path",
    "sessions/../config.jsonl sessions/a/b/c.jsonl sessions/.hidden.jsonl sessions/link.jsonl ledger.jsonl".split(),
)
def test_no_path_leads_out_of_the_folder_of_the_transcripts(tmp_path, path):
    folder = tmp_path / "home/agents/main/sessions"
    folder.mkdir(parents=True)
    (tmp_path / "secret.jsonl").write_text("{}\n")
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with open_memory(tmp_path) as memory:
        with pytest.raises(PathRefused):
            memory.read(path)
        assert memory.sync().files == 0


def _growth_reached(memory, **thresholds):
    with memory.index_service.inspecting() as (_, planner):
        search = memory.config.memory_search
        sync = replace(search.sync, sessions=replace(search.sync.sessions, **thresholds))
        agent = replace(memory.config.agent, memory_search=replace(search, sync=sync))
        config = replace(memory.config, agent=agent)
        return replace(planner, reader=replace(planner.reader, config=config)).growth_reached()


def test_a_sync_is_due_when_a_transcript_has_grown_by_enough(tmp_path):
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        assert not _growth_reached(memory)
        talk(store, "One.", "Two.")
        assert _growth_reached(memory, delta_messages=2)
        assert not _growth_reached(memory, delta_messages=3)
        memory.sync()
        assert not _growth_reached(memory, delta_bytes=0, delta_messages=0)
        record = talk(store, "Three.")
        added = len(path_of(tmp_path / "home", record).read_bytes().splitlines(keepends=True)[-1])
        assert not _growth_reached(memory)
        assert _growth_reached(memory, delta_messages=1)
        assert not _growth_reached(memory, delta_messages=2)
        assert _growth_reached(memory, delta_bytes=added)
        assert not _growth_reached(memory, delta_bytes=added + 1)
        assert _growth_reached(memory, delta_bytes=0, delta_messages=0)


def test_lines_that_no_search_can_find_yet_are_named(tmp_path):
    with open_memory(tmp_path) as memory, SessionStore(memory.config) as sessions:
        session = sessions.get_or_create("telegram", "5054")
        path = session.citation
        for number in range(3):
            sessions.append(session.id, Message.of("user", f"Question {number} about the garden?"))
            sessions.append(session.id, Message.of("assistant", f"Answer {number}."))
        memory.sync()
        assert memory.index_service.find_unindexed(path, first_line=1, last_line=7) == ()
        sessions.append(session.id, Message.of("user", "One more question about the garden?"))
        assert memory.index_service.find_unindexed(path, first_line=1, last_line=8) == (8,)
        assert memory.index_service.find_unindexed(path, first_line=1, last_line=7) == ()
        memory.sync()
        assert memory.index_service.find_unindexed(path, first_line=1, last_line=8) == ()


def test_memory_tools_stay_out_of_the_index_at_whatever_line_a_sync_stops(tmp_path):
    calls = [
        Message("assistant", (ToolCall(f"c{at}", "mcp__kept__memory_search", {"query": "parrot"}),)) for at in range(6)
    ]
    results = [Message("tool", (ToolResult(f"c{at}", f"The parrot is grey {at}."),)) for at in range(6)]
    messages = [
        Message.of("user", "Which colour is the parrot?"),
        *calls,
        *results,
        Message.of("assistant", "It is grey."),
        Message.of("user", "No, it is green."),
        Message("assistant", (ToolCall("w", "memory_write", {"text": "The parrot is green."}),)),
        Message("tool", (ToolResult("w", "Written to memory/2026-03-14.md#L3-L5."),)),
        Message.of("assistant", "Noted."),
        Message.of("user", "Thank you."),
    ]
    with open_sessions(tmp_path) as store, open_memory(tmp_path) as memory:
        session = store.get_or_create("cli", "me")
        for message in messages:
            store.append(session.id, message)
            memory.sync()
        grown = texts_of(memory)
        assert [line for line, _, _ in grown] == [2, 15, 16, 19, 20]
        memory.sync(force=True)
        assert texts_of(memory) == grown
        missing = memory.index_service.find_unindexed(store.get(session.id).citation, first_line=1, last_line=20)
        assert missing == ()
