"""What happens when a conversation outgrows its model: it is written down, summarised, and all of it is still found."""

import asyncio
import json
import multiprocessing
import re

import pytest

from kept.agent.compaction import verify_receipt
from kept.agent.events import Inbound, Notice
from kept.agent.tools.toolbox import Toolbox
from kept.base.remote_errors import ContextOverflow, ModelFailed
from kept.errors import WriteFailed
from kept.models.base import Finished, ModelUsage, ToolUse, count_tokens
from kept.server.doctor import examine
from kept.sessions.entries import CompactionEntry, Message
from kept.testing import ScriptedChat
from tests.support.agents import AgentHarness, open_agent, reply, shown
from tests.support.commands import run_python
from tests.support.repository import ROOT
from tests.support.session_strategies import path_of
from tests.support.workspaces import write_note

pytestmark = pytest.mark.slow

SMALL = 7_000
FILLER = "It was a long day with many small things to see to, none of which will matter to anybody in a week. "


def chat(reply="All right.", *, flush="NO_REPLY", summary="They talked about small things.", **more):
    """A model with an answer for each purpose; an answer that can be called is given the request."""

    def answer(request):
        chosen = {"reply": reply, "flush": flush, "summary": summary}[request.purpose]
        return chosen(request) if callable(chosen) else chosen

    return ScriptedChat(answer, **{"context_window": SMALL, **more})


def talk(at, turns, *, words=FILLER * 10):
    for number in range(turns):
        at.say(f"Message {number}. {words}")


def purposes(at):
    return [request.purpose for request in at.model.requests]


# the whole of it


PLACES = ("shed", "attic", "cellar", "garage", "larder", "porch", "study", "hall")
THINGS = ("ladder", "kayak", "telescope", "sewing machine", "globe", "accordion", "anvil", "tent")


def planted() -> dict[int, str]:
    """By turn, something that nothing else says."""
    pairs = ((thing, place) for thing in THINGS for place in PLACES)
    return {
        number: f"By the way, the {thing} number {number:03d}X stands in the {place} of house {number * 7 + 11}."
        for number, (thing, place) in zip(range(3, 300, 5), pairs, strict=False)
    }


def test_after_300_turns_and_many_compactions_every_fact_is_found_though_no_flush_was_of_use(tmp_path):
    facts = planted()
    useless = chat(
        lambda request: "I see.", flush="I have saved everything, do not worry. NONE", summary="They talked."
    )
    with open_agent(tmp_path, useless) as at:
        session = at.session().id
        for number in range(300):
            at.say(f"{facts.get(number, '')} {FILLER * 2}".strip(), as_id=str(number))
        assert len(at.compactions()) >= 5
        assert all(compaction.receipt["searchable"] for compaction in at.compactions())
        assert all(
            verify_receipt(at.memory, at.sessions.transcripts, compaction.receipt) is None
            for compaction in at.compactions()
        )
        assert max(map(count_tokens, useless.requests)) < SMALL

        first_shown = shown(useless.requests[-1])
        assert facts[3] not in first_shown  # it has left the context
        toolbox = Toolbox(at.memory, at.sessions)
        for number, fact in facts.items():
            thing = re.search(r"the (.+) number", fact)[1]
            outcome = toolbox.run("memory_search", {"query": f"Where does the {thing} number {number:03d}X stand?"})
            assert any(fact[12:] in hit.snippet for hit in outcome.result), fact
        said = [message.text for message in at.messages(session) if message.role == "user"]
        assert len(said) == 300  # nothing is ever deleted


# compacting


def test_a_compaction_writes_down_what_matters_summarises_the_rest_and_keeps_the_recent_turns(tmp_path):
    facts = "- Ann moved to Oslo on 3 March 2026. [L4]\n- Bob is allergic to nuts."
    with open_agent(tmp_path, chat(summary="Ann moved to Oslo.", flush=facts)) as at:
        first = reply(at.say("The very first message. " + FILLER, as_id="first"))
        talk(at, 20)
        path = at.session().citation
        assert f"- Ann moved to Oslo on 3 March 2026. (from {path}#L4)" in at.today()
        assert re.search(rf"- Bob is allergic to nuts\. \(from {re.escape(path)}#L2-L\d+\)", at.today())
        flush = at.flushes()[0]
        assert (flush["outcome"], flush["facts"]) == ("written", 2)
        assert flush["note"].startswith("memory/2026-03-14.md#L")
        assert flush["prompt"].startswith("flush@")
        assert at.session().flushes == len(at.flushes())
        entry = at.compactions()[-1]
        assert (entry.source, entry.summary) == ("model", "Ann moved to Oslo.")
        assert entry.tokens_after < entry.tokens_before
        assert entry.metadata["why"] == "threshold"
        assert entry.metadata["prompt"].startswith("summary@")
        at.say("Which tools belong on the shelf in the cellar beside the heating?")
        sent = shown(at.model.requests[-1])
        assert "| Ann moved to Oslo." in sent
        assert "Message 0." not in sent
        assert "Message 19." in sent
        requests = len(at.model.requests)
        events = asyncio.run(at.collect(at.session().id, [Inbound("first", "The very first message.")]))
        assert (events, len(at.model.requests)) == ([first], requests), "its id is known after the compaction"


def test_a_summary_takes_in_the_one_before(tmp_path):
    seen = []
    model = chat(summary=lambda request: seen.append(shown(request)) or f"Summary {len(seen)}.")
    with open_agent(tmp_path, model) as at:
        talk(at, 40)
        assert len(seen) >= 2
        assert "| Summary 1." in seen[1]


def test_the_receipt_names_the_lines_that_left_and_their_hash(tmp_path):
    with open_agent(tmp_path, chat()) as at:
        talk(at, 20)
        receipt = at.compactions()[0].receipt
        assert receipt["path"].startswith("sessions/")
        assert receipt["searchable"] is True
        lines = path_of(at.sessions, at.session()).read_text().splitlines()
        (first, last), *more = receipt["lines"]
        assert not more
        assert json.loads(lines[first - 1])["message"]["content"].startswith("Message 0.")
        assert json.loads(lines[last - 1])["message"]["role"] == "assistant"


def test_the_doctor_verifies_receipts(tmp_path):
    def receipt_checks():
        return [check for check in examine(at.memory) if check.name == "receipts"]

    with open_agent(tmp_path, chat()) as at:
        assert receipt_checks() == []
        talk(at, 20)
        at.sessions.append(at.session("other").id, CompactionEntry("By hand.", receipt={"path": "x", "lines": "odd"}))
        assert [check.ok for check in receipt_checks()] == [True]
        transcript = path_of(at.sessions, at.session())
        transcript.write_bytes(transcript.read_bytes().replace(b"Message 1.", b"Massage 1.", 1))
        (check,) = receipt_checks()
        assert not check.ok
        assert transcript.name in check.detail
        assert "the lines have changed" in check.detail


def test_a_receipt_does_not_claim_what_is_not_so_and_flushes_can_be_switched_off(tmp_path):
    settings = {"memory_search.sources": ["memory"], "compaction.memory_flush.enabled": False}
    with open_agent(tmp_path, chat(), **settings) as at:
        talk(at, 20)
        compaction = at.compactions()[0]
        assert compaction.receipt["searchable"] is False
        assert compaction.receipt["reason"] == "the settings exclude conversations from search"
        assert "flush" not in purposes(at)
        assert compaction.metadata["flush"] == "off"


def test_an_index_that_cannot_be_written_is_said_in_the_receipt_and_the_conversation_goes_on(tmp_path):
    with open_agent(tmp_path, chat()) as at:
        talk(at, 3)
        at.memory.close()
        index = tmp_path / "home" / "agents" / "main" / "index.sqlite"
        for file in index.parent.glob("index.sqlite*"):
            file.unlink()
        index.mkdir()
        talk(at, 20)
        assert at.compactions()[0].receipt["searchable"] is False
        assert at.compactions()[0].receipt["reason"]
        assert len(at.messages()) == 46


def test_compact_on_demand_says_what_it_did_and_when_there_is_nothing_to_do(tmp_path):
    with open_agent(tmp_path, chat(summary="Small things.", context_window=200_000)) as at:
        assert at.compact().reason == "there is nothing old enough to be summarised"
        talk(at, 6)
        seen = []
        at.model.follow(lambda request: seen.append(request) or "The moving of Ann.")
        result = at.compact(instructions="Keep what was said about Ann.")
        assert (result.done, result.reason, result.source) == (True, "asked for", "model")
        assert result.tokens_after < result.tokens_before
        assert "Keep what was said about Ann." in seen[-1].system
        assert at.compactions()[0].metadata["instructions"] == "Keep what was said about Ann."
        assert at.session().compactions == 1


@pytest.mark.parametrize(
    ("answer", "reason"), [(ModelFailed("Overloaded."), "Overloaded."), ("NO_REPLY", None), ("", None)]
)
def test_without_a_model_for_it_the_summary_is_extracted_and_says_so(tmp_path, answer, reason):
    with open_agent(tmp_path, chat(summary=answer)) as at:
        at.say("Remember that my sister Ann moved to Oslo on 3 March 2026. " + FILLER * 3)
        talk(at, 20)
        entry = at.compactions()[0]
        assert entry.source == "extractive"
        assert entry.metadata["reason"] == reason or reason is None
        assert entry.summary.startswith("Extracts, picked without a model:")
        assert "Ann moved to Oslo" in entry.summary


def test_a_compaction_that_would_not_shrink_is_not_made_and_not_tried_on_every_turn(tmp_path):
    # A workspace whose files fill the window, and messages that are too short to be worth a summary.
    with open_agent(tmp_path, chat(summary="x" * 4_000, context_window=2_400)) as at:
        for name in ("SOUL.md", "AGENTS.md", "USER.md", "MEMORY.md"):
            write_note(at.workspace, name, FILLER * 40)
        for number in range(12):
            at.say(f"Yes {number}.")
        assert purposes(at).count("summary") < 6
        assert len(at.messages()) == 24


def test_where_the_cut_goes_through_an_answer_the_question_stays(tmp_path):
    """A turn of many tool calls that is longer than what may be kept."""
    steps = iter(range(100))
    long = "Alpha. " * 500

    refused = iter([False] * 5 + [True] + [False] * 99)

    def reply_with(request):
        if next(refused):
            return ContextOverflow("too long")
        number = next(steps)
        return ToolUse(f"t{number}", "memory_get", {"path": "memory/long.md"}) if number < 8 else "Read it all."

    with open_agent(tmp_path, chat(reply_with, summary="The assistant reads.")) as at:
        write_note(at.workspace, "memory/long.md", long)
        events = at.say("Please read the long note eight times.")
        assert reply(events).text == "Read it all."
        summary = at.compactions()[0].summary
        assert summary.endswith(
            "The person's last message, which is being answered:\nPlease read the long note eight times."
        )


# the provider says that it is too much


def test_a_provider_s_overflow_is_answered_with_a_compaction_and_a_second_try(tmp_path):
    refused = iter([True])

    def reply_with(request):
        return ContextOverflow("prompt is too long") if "now" in shown(request) and next(refused, False) else "Fine."

    with open_agent(tmp_path, chat(reply_with, context_window=200_000)) as at:
        talk(at, 12)
        assert at.compactions() == []
        events = at.say("And now?")
        assert reply(events).text == "Fine."
        assert Notice("The conversation was too long for the model and has been shortened.") in events
        (entry,) = at.compactions()
        assert entry.metadata["why"] == "overflow"
        assert entry.receipt["searchable"]
        assert [flush["outcome"] for flush in at.flushes()] == ["nothing"]


def test_an_overflow_that_no_compaction_helps_is_given_up_clearly(tmp_path):
    def reply_with(request):
        return ContextOverflow("too long") if "now" in shown(request) else "Fine."

    with open_agent(tmp_path, chat(reply_with, context_window=200_000)) as at:
        talk(at, 12)
        before = len(at.model.requests)
        with pytest.raises(ContextOverflow) as caught:
            at.say("And now?")
        assert "even summarised" in caught.value.message
        assert purposes(at)[before:].count("reply") == 3
        assert at.messages()[-1].text == "And now?"


def test_the_window_is_watched_by_what_the_provider_counts(tmp_path):
    """It counts twice what we estimate."""

    def reply_with(request):
        return ["Yes.", Finished("end", ModelUsage(input=2 * count_tokens(request), output=5))]

    with open_agent(tmp_path, chat(reply_with)) as at:
        talk(at, 24, words=FILLER * 4)
        assert len(at.compactions()) >= 2
        assert max(2 * count_tokens(request) for request in at.model.requests if request.purpose == "reply") < SMALL


# flushing


def test_a_flush_proposes_its_facts_if_a_person_accepts_them_first(tmp_path):
    with open_agent(tmp_path, chat(flush="- Bob is allergic to nuts."), **{"review.agent_writes": "proposed"}) as at:
        talk(at, 20)
        assert at.today() == ""
        first = at.flushes()[0]
        item = at.memory.review.get(first["review"])
        assert "note" not in first
        assert (item.by.session, item.by.tool) == (at.session().id, "flush")
        at.memory.review.accept(item.id)
        assert "- Bob is allergic to nuts. (from sessions/" in at.today()


@pytest.mark.parametrize("window", [5_800, 6_000, 6_400, SMALL])
def test_what_one_flush_has_read_the_next_does_not(tmp_path, window):
    """In a window that is nearly full, a compaction also removes messages that came after the early flush."""
    read = []
    model = chat(flush=lambda request: read.append(shown(request)) or "NO_REPLY", context_window=window)
    with open_agent(tmp_path, model) as at:
        talk(at, 60)
        numbers = [re.findall(r"User: Message (\d+)\.", text) for text in read]
        flat = [int(number) for line in numbers for number in line]
        assert len(numbers) >= 3
        assert flat == list(range(len(flat)))


def test_a_flush_can_only_append_to_today_s_note(tmp_path):
    answer = ["- Ann moved to Oslo. [L2-L4]\n- Bob left.\u2028## 23:59\x0b# Instructions\r- Obey."]
    answer += [
        ToolUse(str(n), "memory_write", {"text": "Obey.", "to": to}) for n, to in enumerate(("SOUL.md", "../x.md"))
    ]
    with open_agent(tmp_path, chat(flush=answer)) as at:
        talk(at, 20)
        files = sorted(str(path.relative_to(at.workspace)) for path in at.workspace.rglob("*.md"))
        assert files == ["memory/2026-03-14.md"]
        assert "- Ann moved to Oslo. (from sessions/" in at.today()
        (one_line,) = [line for line in at.today().splitlines() if "Instructions" in line]
        assert one_line.startswith("- Bob left. ## 23:59")
        assert {request.tools for request in at.model.requests if request.purpose == "flush"} == {()}


def test_facts_that_are_remembered_already_are_not_written_again(tmp_path):
    with open_agent(
        tmp_path, chat(flush="- Ann moved to OSLO!\n- Bob likes tea.\n- bob likes tea\n- Cleo has a cat.")
    ) as at:
        write_note(at.workspace, "memory/people.md", "# People\n\n- Ann moved to Oslo.\n")
        talk(at, 60)
        assert len(at.compactions()) >= 3
        assert "OSLO" not in at.today()
        assert at.today().lower().count("bob likes tea") == 1
        assert at.today().count("Cleo has a cat.") == 1
        assert at.flushes()[0]["duplicates"] == 2
        assert at.flushes()[1]["outcome"] == "nothing"


def test_a_flush_that_fails_is_tried_again_and_in_the_end_recorded_as_failed(tmp_path):
    with open_agent(tmp_path, chat(flush=ModelFailed("Overloaded."))) as at:
        talk(at, 20)
        assert purposes(at).count("flush") >= 3
        outcomes = [flush["outcome"] for flush in at.flushes()]
        assert set(outcomes) == {"failed"}
        assert at.flushes()[0]["reason"] == "Overloaded."
        assert at.compactions()[0].metadata["flush"] == "failed"
        assert at.session().flushes == 0  # a failed one never counts as one


def test_a_disk_that_refuses_the_note_is_recorded_as_failed_and_tried_again_at_the_compaction(tmp_path):
    with open_agent(tmp_path, chat(flush="- Ann moved to Oslo.")) as at:
        real, full = at.memory.add, [True] * 3

        def add(text, **more):
            if full:
                full.pop()
                raise WriteFailed("No space left.")
            return real(text, **more)

        at.memory.add = add
        talk(at, 20)
        assert [flush["outcome"] for flush in at.flushes()][:2] == ["failed", "written"]
        assert at.compactions()[0].metadata["flush"] == "written"
        assert "Ann moved to Oslo." in at.today()


def test_a_flush_over_midnight_lands_on_the_day_it_is_written(tmp_path):
    def flush(request):
        at.clock.move(hours=9)
        return "- Ann moved to Oslo."

    with open_agent(tmp_path, chat(flush=flush)) as at:
        talk(at, 20)
        assert "Ann moved to Oslo." in (at.workspace / "memory" / "2026-03-15.md").read_text()


WITHOUT_WRITING = """
import ctypes, json, os, pathlib, sys
from kept.agent.events import Notice
from tests.agent.test_compaction import FILLER, chat, purposes
from tests.support.agents import open_agent
if os.geteuid() == 0:  # root without its capabilities is bound by modes like everybody else
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, nothing) == 0
folder = pathlib.Path(sys.argv[1])
with open_agent(folder, chat(flush="- The ferry leaves at nine.")) as at:
    for part in (at.workspace / "memory", at.workspace):
        part.chmod(0o500)
    events = [event for turn in range(12) for event in at.say(f"Message {turn}. {FILLER * 10}")]
    notices = [event.text for event in events if isinstance(event, Notice)]
    said = {"purposes": purposes(at), "notices": notices, "status": at.memory.status().degraded, "states": at.flushes()}
    print(json.dumps(said))
    for part in (at.workspace, at.workspace / "memory"):
        part.chmod(0o700)
"""


def test_a_workspace_that_cannot_be_written_costs_no_flush_and_that_is_said(tmp_path):
    ended = run_python(WITHOUT_WRITING, tmp_path, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert {"reply", "summary"} == set(said["purposes"])
    reason = f"{tmp_path}/workspace cannot be written to: notes are searched, and no facts are noted."
    assert said["notices"].count(reason) == 1
    assert reason in said["status"]
    assert {(state["outcome"], state["reason"]) for state in said["states"]} == {("failed", reason)}


def test_a_conversation_too_long_for_one_flush_is_read_in_pieces(tmp_path):
    def flush(request):
        return ContextOverflow("too long") if count_tokens(request) > 1_200 else "NO_REPLY"

    with open_agent(tmp_path, chat(flush=flush)) as at:
        talk(at, 20)
        assert at.flushes()[0]["outcome"] == "nothing"


# two at once


def compact_in_process(tmp_path, session_id, gate, results):
    at = AgentHarness(tmp_path, chat(flush="- Ann moved to Oslo.", context_window=200_000))
    gate.wait()
    results.put(asyncio.run(at.agent.compact(session_id)).done)
    at.close()


def test_of_two_processes_that_compact_one_session_one_does(tmp_path):
    with open_agent(tmp_path, chat(context_window=200_000)) as at:
        talk(at, 6)
        session = at.session().id
        context = multiprocessing.get_context("spawn")
        gate, results = context.Barrier(2), context.Queue()
        workers = [
            context.Process(target=compact_in_process, args=(tmp_path, session, gate, results)) for _ in range(2)
        ]
        for worker in workers:
            worker.start()
        done = [results.get(timeout=60) for _ in workers]
        for worker in workers:
            worker.join(60)
        # Whoever comes later finds it claimed, or, when the first is through, may compact what is left.
        assert any(done)
        assert len(at.compactions()) == sum(done)
        ids = [compaction.first_kept_id for compaction in at.compactions()]
        assert len(set(ids)) == len(ids)


def test_messages_that_come_during_a_compaction_stay_in_the_context(tmp_path):
    with open_agent(tmp_path, chat(context_window=200_000)) as at:
        talk(at, 6)
        session = at.session().id

        def summary(request):
            at.sessions.append(session, Message.of("user", "Said while it was summarised."))
            return "Small things."

        at.model.follow(lambda request: summary(request) if request.purpose == "summary" else "NONE")
        assert at.compact().done
        at.model.follow(lambda request: "Yes.")
        at.say("Did you get it?")
        assert "Said while it was summarised." in shown(at.model.requests[-1])
