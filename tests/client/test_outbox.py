"""What is written while the server cannot be reached waits, and arrives once."""

import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kept.client.outbox import Outbox, WaitingWrite
from kept.client.remote_memory import RemoteMemory
from kept.client.server_connection import Login, ServerConnection, read_login, write_login
from kept.storage.files.file_storage import FileStorage


def notes_of(place):
    return "".join(path.read_text() for path in (place / "workspace/memory").glob("*.md"))


def test_texts_wait_and_arrive_in_order_with_the_time_when_they_were_said(log_in, server, place):
    home = FileStorage(str(log_in("write")))
    login = read_login(home)
    write_login(home, Login("http://127.0.0.1:9", login.token))
    with RemoteMemory.open(home) as memory:
        assert memory.add("The first.").is_waiting
        assert memory.add("The second.", to="memory/boats.md").is_waiting
    assert [write.arguments["text"] for write in Outbox(home).read()] == ["The first.", "The second."]
    write_login(home, login)
    with RemoteMemory.open(home) as memory:
        assert not memory.refused
        assert not memory.add("The third.").is_waiting
    assert Outbox(home).read() == []
    notes = notes_of(place)
    assert [notes.count(f"The {name}.") for name in ("first", "second", "third")] == [1, 1, 1]


def test_a_write_whose_answer_was_lost_is_not_written_again(log_in, server, place):
    home = FileStorage(str(log_in("write")))
    with Forgetful(server.url) as proxy:
        write_login(home, Login(proxy.url, read_login(home).token))
        with RemoteMemory.open(home) as memory:
            assert memory.add("Said once,\nin two lines.", again=True).is_waiting
            assert proxy.passed == 1
        assert "Said once" in notes_of(place)
        with RemoteMemory.open(home) as memory:
            assert not memory.refused
        assert (proxy.passed, Outbox(home).read()) == (2, [])
    assert notes_of(place).count("Said once") == 1


def test_the_same_write_at_once_from_many_processes_is_written_once(log_in, server, place):
    home = FileStorage(str(log_in("write")))
    arguments = {"text": "Many at once,\nand one note.", "again": True, "change_id": "0123456789abcdef"}
    answers = []

    def send():
        with closing(ServerConnection(read_login(home))) as connection:
            answers.append(connection.call("add", object, **arguments))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert len({json.dumps(answer) for answer in answers}) == 1, "each got the first result"
    assert notes_of(place).count("Many at once") == 1


def test_what_the_server_refuses_is_set_aside_and_reported(log_in, server, place):
    home = FileStorage(str(log_in("write")))
    outbox = Outbox(home)
    for text, name in (("", "1"), ("Kept.", "2")):
        outbox.put(WaitingWrite(name, "add", {"text": text}))
    with RemoteMemory.open(home) as memory:
        (refused,) = memory.refused
    assert "nothing to remember" in refused.reason
    assert b'"id": "1"' in b"".join(line.data for line in home.logs.read("outbox.refused.jsonl"))
    assert outbox.read() == []
    assert "Kept." in notes_of(place)


def test_texts_wait_for_another_login_if_the_token_was_revoked(log_in, server, place):
    home = FileStorage(str(log_in("write")))
    Outbox(home).put(WaitingWrite("1", "add", {"text": "Patient."}))
    login = read_login(home)
    write_login(home, Login(server.url, "kept_revoked"))
    with RemoteMemory.open(home) as memory:
        assert memory.refused == []
    assert [write.arguments["text"] for write in Outbox(home).read()] == ["Patient."]
    write_login(home, login)
    with RemoteMemory.open(home) as memory:
        assert "Patient." in memory.read("today").text


def test_a_text_that_is_added_while_others_are_sent_stays(log_in, server, monkeypatch):
    home = FileStorage(str(log_in("write")))
    outbox, call = Outbox(home), ServerConnection.call
    outbox.put(WaitingWrite("1", "add", {"text": "One."}))

    def add_meanwhile(connection, operation, *rest, **arguments):
        if arguments.get("text") == "One.":
            Outbox(home).put(WaitingWrite("2", "add", {"text": "Two."}))
        return call(connection, operation, *rest, **arguments)

    monkeypatch.setattr(ServerConnection, "call", add_meanwhile)
    with RemoteMemory.open(home) as memory:
        assert outbox.read() == []
        assert "Two." in memory.read("today").text


class Forgetful:
    """A proxy that passes every request on, and loses the answer to the first."""

    def __init__(self, target):
        import httpx

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler):  # noqa: N805
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                headers = {name: handler.headers[name] for name in ("Authorization", "Content-Type")}
                answer = httpx.post(target + handler.path, content=body, headers=headers, trust_env=False)
                self.passed += 1
                if self.passed > 1:
                    handler.send_response(answer.status_code)
                    handler.send_header("Content-Length", str(len(answer.content)))
                    handler.end_headers()
                    handler.wfile.write(answer.content)

            def log_message(handler, *_):  # noqa: N805
                pass

        self.passed = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
