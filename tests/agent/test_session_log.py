"""An agent in a conversation: what it is told, and where it writes, depends on who is in it."""

from kept.testing import ScriptedChat
from tests.support.agents import AgentHarness, open_agent, shown
from tests.support.workspaces import write_note

FACT = "The garden gate opens with marigold."


def say(at: AgentHarness, channel: str, user: str, text: str, **more: str) -> str:
    """Send a message in a chat, and return what the model was sent for it."""
    session = at.sessions.get_or_create(channel, user, **more)
    at.say(text, session=session.id)
    return shown(at.model.requests[-1])


def answering() -> ScriptedChat:
    return ScriptedChat(lambda request: f"- {FACT}" if request.purpose == "flush" else "All right.")


def test_long_term_memory_and_daily_notes_of_a_person_are_told_to_that_person_only(tmp_path):
    with open_agent(tmp_path, answering()) as at:
        write_note(at.workspace, "MEMORY.md", "- Shared: the printer is on floor 2.\n")
        write_note(at.workspace, "memory/private/ada@http/MEMORY.md", "- Ada is allergic to walnuts.\n")
        write_note(
            at.workspace, f"memory/private/ada@http/{at.clock.now():%Y-%m-%d}.md", "Ada saw the dentist today.\n"
        )
        for user in ("ada", "bob"):
            answer = say(at, "http", user, "Hello there.")
            assert "floor 2" in answer
            assert ("walnuts" in answer) == (user == "ada")
            assert ("dentist" in answer) == (user == "ada")


def test_a_flush_writes_to_the_folder_of_its_conversation(tmp_path):
    with open_agent(tmp_path, answering()) as at:
        day = f"{at.clock.now():%Y-%m-%d}.md"
        for channel, user, chat_type, folder in (
            ("http", "ada", "direct", "memory/private/ada@http/"),
            ("telegram", "-100", "group", "memory/private/-100@telegram-group/"),
            ("terminal", "me", "direct", "memory/"),
        ):
            for number in range(3):
                say(at, channel, user, f"Message {number}. " + "More words. " * 60, chat_type=chat_type)
            session = at.sessions.get_or_create(channel, user, chat_type=chat_type)
            assert at.compact(session.id).done
            assert FACT in (at.workspace / folder / day).read_text()


def test_the_owner_that_the_settings_name_writes_to_the_shared_notes(tmp_path):
    with open_agent(tmp_path, answering(), **{"session.owner": "telegram:7"}) as at:
        say(at, "terminal", "me", "The attic light is broken.")
        answer = say(at, "telegram", "7", "What about the attic light?")
        assert "The attic light is broken." in answer
        assert "attic light is broken" not in say(at, "telegram", "8", "What about the attic light?")
        for number in range(3):
            say(at, "telegram", "7", f"Message {number}. " + "More words. " * 60)
        assert at.compact(at.sessions.get_or_create("telegram", "7").id).done
        assert FACT in at.today()


def test_nobody_recalls_what_was_said_on_the_machine_and_a_model_learns_whose_conversation_it_is(tmp_path):
    with open_agent(tmp_path) as at:
        say(at, "terminal", "me", "The attic light is broken.")
        assert "light is broken" not in say(at, "http", "ada", "What about the attic light?")
        assert [request.conversation for request in at.model.requests] == ["", "agent:main:http:default:direct:ada"]
