"""What a turn is given from outside its conversation: memories that follow the talk."""

import pytest

from kept.agent.material import plan_queries
from kept.testing import ScriptedChat
from tests.support.agents import open_agent, reply, shown
from tests.support.workspaces import write_note


@pytest.mark.parametrize(
    ("question", "refers"),
    [
        ("And when does it ship?", True),
        ("What about the price?", True),
        ("Who is in charge?", True),
        ("และราคาล่ะ", False),
        ("Which port does the staging database of the billing service listen on?", False),
    ],
)
def test_a_follow_up_is_searched_with_what_it_refers_to(question, refers):
    queries = plan_queries(question, "What do we know about project Falcon?")
    assert (queries[-1], len(queries) == 2) == (question, refers)
    assert not refers or queries[0].startswith("What do we know about project Falcon?\n")


def test_a_follow_up_gets_the_notes_of_what_it_refers_to(tmp_path):
    with open_agent(tmp_path, ScriptedChat(lambda request: "Let me see.")) as at:
        for name in ("Osprey", "Heron", "Kestrel", "Merlin", "Condor", "Harrier"):
            write_note(
                at.workspace, f"memory/{name.lower()}.md", f"# {name}\n\n{name} ships in May. It will ship late.\n"
            )
        write_note(at.workspace, "memory/falcon.md", "# Falcon\n\nProject Falcon is a drone. Delivery is on 3 June.\n")
        write_note(at.workspace, "memory/hotel.md", "# Hotel\n\nThe porter says good evening after six.\n")
        at.say("Good evening")
        at.say("What do we know about project Falcon?")
        assert "memory/hotel.md" not in shown(at.model.requests[-1]), "a greeting is not searched for"
        assert reply(at.say("And when does it ship?")).text
        assert "Delivery is on 3 June." in shown(at.model.requests[-1])


def test_a_fact_and_the_line_it_came_from_take_one_place(tmp_path):
    with open_agent(tmp_path, ScriptedChat(lambda request: "Noted.")) as at:
        at.say("The parrot of Ada is called Kiwi.")
        session = at.session().id
        path = at.sessions.get(session).citation
        write_note(at.workspace, "memory/facts.md", f"- Ada's parrot is called Kiwi (from {path}#L2)\n")
        at.say("What is the parrot of Ada called?", session=at.session("bob").id)
        sent = shown(at.model.requests[-1])
        assert "memory/facts.md#L1" in sent
        assert f'citation "{path}' not in sent
