"""One run: clients send messages, machines write and search, and something fails every few seconds."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks.team_chaos.chaos_checks import (
    OUTAGE_CODES,
    count_replies,
    differences,
    find_marks,
    index_tables,
    lost_notes,
    outages,
    read_reports,
)
from benchmarks.team_chaos.machine_processes import TeamMachine
from benchmarks.team_chaos.machine_worker import ACKNOWLEDGED, append_line
from benchmarks.team_chaos.replicated_server import ReplicatedServer
from kept.postgres.database import Database
from kept.postgres.schema_migrations import migrate
from tests.support.chat_server import ModelServer, Request, Says
from tests.support.team_gateways import count_wrong, wait_for_answers

SCHEMA, FRESH_SCHEMA, WORKSPACE = "chaos", "chaos_fresh", "harbour"
CLOCKS = {"a": 0.0, "b": 240.0, "c": -420.0}
"""How many seconds the clock of each machine is ahead."""
USERS = 6
_LEASE_S = 2
_READY_S = 120.0
_SLOW_S = 15.0


class MessageClient(threading.Thread):
    """Sends the messages of one user, one after the other, each until a gateway accepts it."""

    def __init__(self, user: str, machines: list[TeamMachine], stop: threading.Event, *, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._user = user
        self._machines = machines
        self._stop_event = stop
        self._pause_s = pause_s
        self._chance = random.Random(user)
        self.accepted: list[str] = []
        self.waits_s: list[float] = []
        self.refused = 0
        self.slow: list[str] = []
        self.problems: list[str] = []

    def run(self) -> None:
        with httpx.Client(timeout=60) as http:
            while not self._stop_event.is_set():
                message_id = f"{len(self.accepted)}-{self._user}"
                began = time.monotonic()
                while not self._post(http, message_id):
                    self.refused += 1
                    time.sleep(0.1)
                self.waits_s.append(time.monotonic() - began)
                if self.waits_s[-1] > _SLOW_S:
                    self.slow.append(f"{message_id}: {self.waits_s[-1]:.1f} s since {_time_ago(self.waits_s[-1])}")
                self.accepted.append(message_id)
                self._stop_event.wait(self._chance.uniform(0, 2 * self._pause_s))

    def _post(self, http: httpx.Client, message_id: str) -> bool:
        wait = self._chance.random() < 0.3
        body = {"user": self._user, "text": f"Hello <<{message_id}>>", "id": message_id, "wait": wait}
        try:
            answer = http.post(f"{self._chance.choice(self._machines).url}/v1/messages", json=body)
        except httpx.TransportError:
            return False
        if answer.status_code == 503:
            return False
        if answer.status_code not in (200, 202):
            self.problems.append(f"{message_id}: {answer.status_code} {answer.text[:300]}")
        elif answer.status_code == 200 and f"<<{message_id}>>" not in answer.text:
            self.problems.append(f"{message_id}: a reply to something else: {answer.text[:300]}")
        return True


class CommandClient(threading.Thread):
    """Runs `kept add` and `kept search` on one machine."""

    def __init__(self, machine: TeamMachine, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._machine = machine
        self._stop_event = stop
        self._chance = random.Random(f"commands {machine.name}")
        self.codes: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._stop_event.wait(self._chance.uniform(2, 6)):
            number += 1
            mark = f"mark{self._chance.randbytes(6).hex()}"
            is_adding = self._chance.random() < 0.5
            command = ["add", f"By command {mark}"] if is_adding else ["search", "parrot1 engine2"]
            ended = self._machine.run(*command)
            self.codes[f"kept {command[0]}: {ended.returncode}"] += 1
            if is_adding and ended.returncode == 0:
                append_line(self._machine.folder / ACKNOWLEDGED, mark)
            if ended.returncode not in ((0,) if is_adding else (0, 1, 6)) or "Traceback" in ended.stderr:
                self.problems.append(f"kept {command[0]}: {ended.returncode} {ended.stderr[-600:]}")


class ChaosRun:
    def __init__(self, folder: Path, *, seed: int, synchronous: bool, say: Callable[[str], None]) -> None:
        self._chance = random.Random(seed)
        self._say = say
        self.events: Counter[str] = Counter()
        self._notes = folder / "notes"
        self._notes.mkdir()
        (self._notes / "MEMORY.md").write_text("# Memory\n\nThe team works at the harbour.\n")
        self.server = ReplicatedServer(folder, f"kept {SCHEMA}", synchronous=synchronous)
        self.model = ModelServer()
        self.model.otherwise = _answer
        self._databases = {schema: Database(self.server.url, schema) for schema in (SCHEMA, FRESH_SCHEMA)}
        for database in self._databases.values():
            migrate(database, create=True)
        environment = {
            "KEPT_WORKSPACE": str(self._notes),
            "KEPT_MEMORY_SEARCH__STORE__DRIVER": "postgres",
            "KEPT_MEMORY_SEARCH__STORE__URL": self.server.url,
            "KEPT_MEMORY_SEARCH__STORE__SCHEMA": SCHEMA,
            "KEPT_MEMORY_SEARCH__STORE__WORKSPACE": WORKSPACE,
            "KEPT_MODEL__PROVIDER": "openai",
            "KEPT_MODEL__NAME": "local",
            "KEPT_MODEL__BASE_URL": self.model.openai_url,
            "OPENAI_API_KEY": "none",
            "KEPT_GATEWAY__HTTP__DEBOUNCE_MS": "5",
            "KEPT_GATEWAY__LEASE_SECONDS": str(_LEASE_S),
            "KEPT_GATEWAY__AUTO_RESPONDER__MAX_QUEUED": "1000",
            "KEPT_GATEWAY__AUTO_RESPONDER__MAX_QUEUED_PER_CONVERSATION": "1000",
        }
        self.machines = [
            TeamMachine(folder / name, ahead_s, environment, watches=name == "b") for name, ahead_s in CLOCKS.items()
        ]
        self._resume_at: float | None = None

    def run(self, duration_s: float, *, event_every_s: float, pause_s: float, failovers: int) -> dict[str, Any]:
        for machine in self.machines:
            for program in machine.programs:
                machine.start(program)
        self._wait_for_gateways()
        stop = threading.Event()
        clients = [MessageClient(f"user{number}", self.machines, stop, pause_s=pause_s) for number in range(USERS)]
        commands = [CommandClient(machine, stop) for machine in self.machines]
        for thread in (*clients, *commands):
            thread.start()
        self._break_things(duration_s, event_every_s, failovers)
        stop.set()
        for thread in (*clients, *commands):
            thread.join(_READY_S)
        stuck = [f"a client of {type(thread).__name__}" for thread in (*clients, *commands) if thread.is_alive()]
        return self._check(clients, commands, stuck)

    def close(self) -> None:
        for machine in self.machines:
            machine.close()
        for database in self._databases.values():
            database.close()
        self.server.close()
        self.model.__exit__()

    def _wait_for_gateways(self) -> None:
        deadline = time.monotonic() + _READY_S
        for machine in self.machines:
            while True:
                try:
                    httpx.get(f"{machine.url}/healthz", timeout=5)
                    break
                except httpx.TransportError:
                    if time.monotonic() > deadline or not machine.is_running("gateway"):
                        raise RuntimeError((machine.folder / "gateway.log").read_text()[-2000:]) from None
                    time.sleep(0.1)

    # faults

    def _break_things(self, duration_s: float, event_every_s: float, failovers: int) -> None:
        began = time.monotonic()
        due = [began + duration_s * (number + 1) / (failovers + 1) for number in range(failovers)]
        while (now := time.monotonic()) - began < duration_s:
            if due and now >= due[0]:
                due.pop(0)
                self._note("failover")
                self.server.fail_over()
                self.server.add_standby()
            else:
                self._break_something()
            time.sleep(self._chance.uniform(0.5, 1.5) * event_every_s)
            self._restart_ended()
        self._resume()

    def _break_something(self) -> None:
        self._resume()
        machine = self._chance.choice(self.machines)
        program = self._chance.choice(machine.programs)
        kind = self._chance.choices(("kill", "end", "pause", "restart"), (8, 6, 4, 1))[0]
        if kind == "kill":
            self._note(f"{program} killed")
            machine.kill(program)
            machine.start(program)
        elif kind == "end":
            share = self._chance.choice((0.3, 1.0))
            self._note("connections ended")
            self.events["connections ended, each"] += self.server.end_connections(self._chance, share)
        elif kind == "pause":
            self._note(f"{program} stopped for a while")
            machine.pause(program)
        else:
            self._note("server restarted")
            self.server.restart()

    def _resume(self) -> None:
        for machine in self.machines:
            machine.resume()

    def _restart_ended(self) -> None:
        """Start programs again that have ended by themselves, as a service manager does."""
        for machine in self.machines:
            for program in machine.programs:
                if not machine.is_running(program):
                    self._note(f"{program} ended by itself")
                    machine.start(program)

    def _note(self, event: str) -> None:
        self.events[event] += 1
        self._say(f"{time.strftime('%H:%M:%S')} {event}")

    # results

    def _check(self, clients: list[MessageClient], commands: list[CommandClient], stuck: list[str]) -> dict[str, Any]:
        self._restart_ended()
        accepted = [message_id for client in clients for message_id in client.accepted]
        database = self._databases[SCHEMA]
        inbox = wait_for_answers(database)
        wrong = count_wrong(inbox, accepted)
        waiting = self.server.waiting_backends()
        for program in ("worker", "watch", "gateway"):
            for machine in self.machines:
                if program in machine.programs and not machine.finish(program):
                    stuck.append(f"{program} of {machine.name}")
        last_sync = [machine.run("index", "--json") for machine in self.machines]
        fresh = [
            machine.run("index", "--json", KEPT_MEMORY_SEARCH__STORE__SCHEMA=FRESH_SCHEMA) for machine in self.machines
        ]
        differing = differences(*(index_tables(database, WORKSPACE) for database in self._databases.values()))
        folders = [machine.folder for machine in self.machines]
        noted, lost = lost_notes(folders, self._notes)
        reports = read_reports(folders)
        lines = [line for report in reports for line in report]
        transcripts, inside = count_replies(machine.folder / "home" for machine in self.machines)
        times = [length for report in reports for length in outages(report)]
        waits = [wait for client in clients for wait in client.waits_s]
        runs = [*inbox._runs.values()]
        problems = {
            **{f"messages {kind}": count for kind, count in wrong.items()},
            "twice in the transcripts of a machine": [key for key, count in inside.items() if count > 1],
            "without a reply in any transcript": [name for name in accepted if not transcripts[name]],
            "notes lost or twice": lost,
            "searches that missed a note": [line["outcome"] for line in lines if line["outcome"].startswith("missed")],
            "failures other than an outage": _unexpected(lines),
            "problems of clients": [problem for client in (*clients, *commands) for problem in client.problems],
            "index unlike a rebuild": differing,
            "failed syncs": [ended.stderr for ended in (*last_sync, *fresh) if ended.returncode],
            "deadlocks": self.server.count_deadlocks(),
            "stuck": [*stuck, *waiting],
            "errors in logs": self._errors_in_logs(),
        }
        actions = Counter(line["action"] for line in lines)
        figures = {
            "messages accepted": len(accepted),
            "messages refused, sent again": sum(client.refused for client in clients),
            "until accepted, p50 and longest": f"{statistics.median(waits):.2f} and {max(waits):.1f} s",
            f"messages that took {_SLOW_S:.0f} s or more": sum(len(client.slow) for client in clients),
            "answers, begun again": f"{len(runs)}, {sum(run.attempts > 1 for run in runs)}",
            "requests to the model": len(self.model.chats),
            "replies in transcripts of two machines": sum(count > 1 for count in transcripts.values()),
            "notes acknowledged": noted,
            "searches": actions["search"] + actions["find_other"] + actions["add"],
            "searches failed, degraded": f"{_count(lines, 'failed')}, {_count(lines, 'degraded')}",
            "reasons of degraded searches": _reasons(lines),
            "notes written, removed": f"{actions['write']}, {actions['remove']}",
            "outages of a worker": len(times),
            "time to recover, p50 and longest": f"{statistics.median(times or [0]):.2f} and {max(times or [0]):.1f} s",
            **dict(sorted(sum((command.codes for command in commands), Counter[str]()).items())),
            **dict(sorted(self.events.items())),
            "files, chunks in the index": _sizes(self._databases[SCHEMA]),
        }
        return {"figures": figures, "problems": {name: found for name, found in problems.items() if found}}

    def _errors_in_logs(self) -> list[str]:
        found = []
        for machine in self.machines:
            for log in machine.folder.glob("*.log"):
                text = log.read_text(errors="replace")
                found += [f"{machine.name} {log.name}: {part[:1500]}" for part in text.split("Traceback")[1:4]]
        return found


def _answer(request: Request) -> Says:
    """Repeat the marks of the last messages, and of what the memory recalls for them."""
    asked: list[str] = []
    for message in request.body["messages"]:
        asked = [] if message["role"] == "assistant" else [*asked, *find_marks(str(message["content"]))]
    return Says("Answering " + " ".join(f"<<{mark}>>" for mark in dict.fromkeys(asked)))


def _time_ago(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))


def _unexpected(lines: list[dict[str, Any]]) -> list[str]:
    failures = Counter(
        f"{line['action']} {line['code']}: {line['message']}"
        for line in lines
        if line["outcome"] == "failed" and line["code"] not in OUTAGE_CODES
    )
    return [f"{count} x {text}" for text, count in failures.most_common(10)]


def _reasons(lines: list[dict[str, Any]]) -> str:
    reasons = Counter(line["reason"].partition(":")[0] for line in lines if "reason" in line)
    return "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(4)) or "none"


def _count(lines: list[dict[str, Any]], outcome: str) -> int:
    return sum(line["outcome"] == outcome for line in lines)


def _sizes(database: Database) -> str:
    with database.reading() as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM index_files WHERE generation = live),"
            " (SELECT count(*) FROM chunks WHERE generation = live) FROM workspaces WHERE name = %s",
            [WORKSPACE],
        ).fetchone()
    return f"{row[0]}, {row[1]}" if row else "none"
