"""Checks of one agent's memory, and repair of everything that can be derived again.

Notes, transcripts and records are never changed. What is damaged in them is named; their next writer sets it aside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kept.base.records import Progress
from kept.base.sqlite import database_files
from kept.base.values import frozen
from kept.base.wording import plural
from kept.config import LoadedConfig
from kept.config.agent_config import FORGETTING
from kept.config.layers import agents_sharing_workspace
from kept.errors import KeptError, SessionNotFound, StoreDamaged, StoreError
from kept.forgetting.forgetter import erase_leftovers, iter_leftovers
from kept.forgetting.places import find_mentioned
from kept.gateway.inbox import Inbox
from kept.index.batches import open_batches
from kept.index.sources import find_copies
from kept.index.sqlite.embedding_cache import find_cache_path
from kept.index.sqlite.integrity import describe_checks
from kept.memory import Memory
from kept.models.ledger import open_embedding_ledger, open_model_ledger
from kept.notes.daily import get_daily_notes
from kept.notes.history.check import check_history
from kept.notes.survey import survey_workspace
from kept.server.tokens import token_book
from kept.sessions.attachments import ATTACHMENTS, list_attachments
from kept.sessions.schedules.schedule_book import open_schedules
from kept.sessions.transcript import Damage, Transcript, open_transcripts
from kept.storage.open import open_agent, open_home
from kept.storage.record_store import DAMAGED_ENDING

_NAMED = 10
"""Faults of one kind that are named. Of others, the number is."""
_REBUILD = "rebuild the index from the notes; no embedding is lost"


@frozen
class Check:
    name: str
    ok: bool
    detail: str
    remedy: str = ""
    fixed: bool = False
    warning: bool = False
    """Nothing is broken, but the user should know."""


def examine(memory: Memory) -> list[Check]:
    checks: list[Check] = []
    examinations = _EXAMINATIONS
    if not memory.workspace.storage.exists():  # an index that is missing too is not created for it
        has_index = os.path.exists(memory.index_service.path)
        without = (_freshness, _unindexed) if has_index else (_integrity, _freshness, _unindexed, _receipts)
        examinations = tuple(examination for examination in examinations if examination not in without)
    for examination in examinations:
        try:
            checks.extend(examination(memory))
        except KeptError as exc:
            check = Check(examination.__name__.strip("_"), False, exc.message, exc.hint)
            if isinstance(exc, StoreDamaged):
                check = replace(check, remedy=_REBUILD)
            elif isinstance(exc, StoreError):  # full, read-only or busy: no repair could change it
                check = replace(check, detail=f"{exc.message} {exc.hint}", remedy="")
            checks.append(check)
    return checks


def examine_agents(loaded: LoadedConfig) -> list[Check]:
    """Report agents that share a workspace and so find each other's notes. That may be intended, or a leak."""
    sharing = agents_sharing_workspace(loaded)
    if not sharing:
        return []
    names = ", ".join((loaded.config.agent_id, *sharing))
    detail = f"{names} share {loaded.config.workspace}: each finds the notes of the others."
    remedy = "to separate them, set a 'workspace' for each in agents.list"
    return [Check("agents", True, detail, remedy, warning=True)]


def repair(memory: Memory, before: list[Check], *, progress: Progress | None = None) -> list[Check]:
    """Apply the remedies of the failed checks, and run every check again."""
    remedies: dict[str, Callable[[], object]] = {
        "permissions": lambda: _make_private(memory),
        "integrity": lambda: memory.index_service.repair(progress=progress),
        "forgetting": lambda: memory.forgetting.finish(),
        "leftovers": lambda: erase_leftovers(memory.config, memory.workspace),
        # An ordinary sync skips a note whose size and times are as they were.
        "freshness": lambda: memory.sync(force=True, progress=progress),
    }
    wrong = {check.name for check in before if not check.ok}
    for name, remedy in remedies.items():
        if name in wrong:
            remedy()
    return [replace(check, fixed=check.ok and check.name in wrong) for check in examine(memory)]


def _workspace(memory: Memory) -> Iterator[Check]:
    workspace = memory.workspace
    workspace.require()
    reason = workspace.why_read_only()
    yield Check("workspace", not reason, reason or workspace.root, "make it writable" if reason else "")


def _open_to_others(memory: Memory) -> list[tuple[str, int]]:
    """Return the private paths that other users can access, each with the mode that it should have."""
    home, index = memory.config.home, memory.index_service.path
    folders = [home, os.path.join(home, "agents"), memory.config.paths.folder]
    files = [os.path.join(home, "config.yaml"), *database_files(index), *database_files(find_cache_path(index))]
    private = [(path, 0o700) for path in folders] + [(path, 0o600) for path in files]
    return [(path, mode) for path, mode in private if os.path.exists(path) and os.stat(path).st_mode & 0o077]


def _permissions(memory: Memory) -> Iterator[Check]:
    exposed = _open_to_others(memory)
    if exposed:
        names = ", ".join(path for path, _ in exposed)
        yield Check("permissions", False, f"Other users can access {names}.", "make them private (0700 and 0600)")
    else:
        yield Check("permissions", True, f"{memory.config.home} is private")


def _make_private(memory: Memory) -> None:
    for path, mode in _open_to_others(memory):
        os.chmod(path, mode)


def _integrity(memory: Memory) -> Iterator[Check]:
    with memory.index_service.inspecting() as (index, _):
        problems, lost = index.find_damage(), index.cache.find_damage()
        size, why_read_only = index.size_bytes(), index.why_read_only
    if why_read_only:
        detail = f"{why_read_only.message} Notes can be searched, but changes are not indexed. {why_read_only.hint}"
        yield Check("index", False, detail)
    if not problems and not lost:
        yield Check("integrity", True, f"all tables are consistent ({size:,} bytes, {describe_checks()})")
    for problem in problems[:_NAMED]:
        yield Check("integrity", False, problem, _REBUILD)
    for problem in lost:
        yield Check("integrity", False, problem, "delete it; texts are embedded again")


def _freshness(memory: Memory) -> Iterator[Check]:
    """Compare the index with the content of every file. A sync compares sizes and times only."""
    with memory.index_service.inspecting() as (index, planner):
        scan = planner.reader.scan()
        changed = planner.count_changed(scan, read_all=True)
        remedy = "" if index.why_read_only else "index them"
        with index.reading():
            warnings = index.live.note_warnings()
    if changed:
        yield Check("freshness", False, f"{changed} of {len(scan.files)} files differ from the index.", remedy)
    else:
        yield Check("freshness", True, f"{len(scan.files)} files, all indexed")
    for problem in scan.problems:
        yield Check("notes", False, f"{problem.path}: {problem.reason}")
    for path, reason in warnings:
        yield Check("notes", True, f"{path}: {reason}")
    for copy in find_copies(scan):
        yield Check("notes", True, f"{copy.path}: {copy.reason}", warning=True)


def _unindexed(memory: Memory) -> Iterator[Check]:
    """Report Markdown in the workspace that no search finds, and daily notes that are not where the vault has them."""
    workspace = memory.workspace
    if missed := survey_workspace(workspace, max_bytes=memory.settings.max_file_bytes).missed_markdown():
        detail = f"Not indexed: {plural(len(missed), 'Markdown file')} in {workspace.root}, such as {missed[0]}."
        remedy = f"to search all of it: {workspace.init_command} --layout vault '{workspace.root}'"
        if not workspace.is_note_file(missed[0]):
            remedy = "add .markdown to memory_search.extensions"
        yield Check("notes", True, detail, remedy, warning=True)
    if problem := get_daily_notes(workspace).problem:
        yield Check("notes", True, problem, "change the format of daily notes in that program", warning=True)


def _transcripts(memory: Memory) -> list[Transcript]:
    transcripts = open_transcripts(memory.config)
    return [Transcript(transcripts.storage, info.name) for info in transcripts.list()]


def _sessions(memory: Memory) -> Iterator[Check]:
    """Read every line of every transcript. A damaged one cannot be repaired, but it can be restored from a backup."""
    transcripts = _transcripts(memory)
    faulty = [fault for fault in map(_fault_of, transcripts) if fault]
    for detail in _name_first(faulty, "transcripts are damaged"):
        yield Check("sessions", False, detail)
    if not faulty:
        yield Check("sessions", True, f"{plural(len(transcripts), 'transcript')}, all readable")


def _name_first(faults: Sequence[str], rest: str) -> list[str]:
    """Return the first faults, and how many more there are."""
    more = len(faults) - _NAMED
    return [*faults[:_NAMED], *([f"{more} more {rest}."] if more > 0 else [])]


def _fault_of(transcript: Transcript) -> str:
    try:
        faults = [str(line.content) for line in transcript.iter_lines() if isinstance(line.content, Damage)]
    except SessionNotFound:  # deleted meanwhile
        return ""
    except KeptError as exc:
        return exc.message
    if not faults:
        return ""
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    name = os.path.basename(transcript.log)
    return f"{name}, {faults[0]}{more}. Correct the line by hand, or restore the file from a backup."


def _records(memory: Memory) -> Iterator[Check]:
    """Read the inbox, the books and the ledgers. A record that cannot be read is skipped, and set aside by whoever
    writes there next."""
    config, clock, storage = memory.config, memory.clock, open_agent(memory.config)
    readers: tuple[Callable[[], Sequence[object]], ...] = (
        lambda: Inbox(storage, clock=clock).faults,
        *(book.find_faults for book in (open_batches(config), open_schedules(config), token_book(open_home(config)))),
        open_embedding_ledger(config, clock).open_log().find_faults,
        open_model_ledger(config, clock).open_log().find_faults,
    )
    faults: list[str] = []
    for read in readers:
        try:
            faults += map(str, read())
        except KeptError as exc:  # so that the others are still checked
            faults.append(exc.message.rstrip("."))
    faults = [f"{fault}. The other records are fine." for fault in faults]
    for detail in _name_first(faults, "records cannot be read"):
        yield Check("records", True, detail, warning=True)
    if not faults:
        names = [info.path for info in storage.documents.list()] + [info.name for info in storage.logs.list()]
        aside = ", ".join(sorted(name for name in names if name.endswith(DAMAGED_ENDING)))
        yield Check("records", True, "all readable" + (f"; set aside earlier: {aside}" if aside else ""))


def _attachments(memory: Memory) -> Iterator[Check]:
    """Compare the files that came with messages with their hashes, and with what transcripts mention."""
    storage, folder = open_agent(memory.config), memory.config.paths.folder
    names = {name[:64]: f"{ATTACHMENTS}/{name}" for name in list_attachments(storage)}
    changed = [name for digest, name in names.items() if storage.documents.read(name).version != digest]
    mentioned = {digest.decode() for digest in find_mentioned(memory.config)}
    missing = len(mentioned - set(names))
    for name in changed:
        yield Check("attachments", False, f"{os.path.join(folder, name)} was changed: a model is not handed it.")
    if missing:
        yield Check("attachments", False, f"{missing} files that messages mention are missing.")
    if names and not changed and not missing:
        yield Check("attachments", True, f"{len(names)} files that came with messages, all intact")


def _forgetting(memory: Memory) -> Iterator[Check]:
    """Report what may still have words that are to be gone: the journal of a forget that was interrupted, and temporary
    files that a killed process left."""
    if open_agent(memory.config).documents.find(FORGETTING):
        yield Check("forgetting", False, "A forget was interrupted, or waits for a gateway to stop.", "finish it")
    if count := sum(1 for _ in iter_leftovers(memory.config, memory.workspace)):
        yield Check("leftovers", False, f"A killed process left {plural(count, 'temporary file')}.", "erase them")


def _history(memory: Memory) -> Iterator[Check]:
    """Read every change and every old version of the notes. The notes themselves do not depend on them."""
    if not memory.config.agent.history.enabled and not memory.history.logs():
        return
    state = check_history(memory.history)
    for reason in state.torn:
        yield Check("history", True, f"{reason} They are skipped; notes are not affected.", warning=True)
    if state.lost:
        lost = f"{plural(state.lost, 'old version')} of notes cannot be read."
        yield Check("history", False, f"{lost} Notes are not affected.")
    if not state.torn and not state.lost:
        yield Check("history", True, f"{plural(state.changes, 'change')}, all readable")


def _receipts(memory: Memory) -> Iterator[Check]:
    """Check that the messages which compactions removed from the context are unchanged and still in the index."""
    from kept.agent.compaction import iter_receipts, verify_receipt

    transcripts = open_transcripts(memory.config)
    count, wrong = 0, 0
    for transcript in _transcripts(memory):
        try:
            problems = [verify_receipt(memory, transcripts, receipt) for receipt in iter_receipts(transcript)]
        except KeptError:
            continue  # the check of the sessions reports it
        count += len(problems)
        for problem in filter(None, problems):
            wrong += 1
            if wrong <= _NAMED:
                detail = f"{os.path.basename(transcript.log)}: the receipt of a compaction is not valid: {problem}."
                yield Check("receipts", False, detail)
    if count and not wrong:
        yield Check("receipts", True, f"{count} compactions, all compacted messages are unchanged")


def _embedder(memory: Memory) -> Iterator[Check]:
    service = memory.index_service
    problems, embedder = service.chain.problems, service.embedder
    has_workspace = memory.workspace.storage.exists()  # an index that is missing too is not created for it
    reductions = service.reductions() if has_workspace else ()
    for reason in reductions[len(problems) :]:
        yield Check("embedder", True, reason, warning=True)
    if problems:
        yield Check("embedder", False, problems[0], "set memory_search.provider to local or none")
    elif embedder is None:
        yield Check("embedder", True, "none: search by word only, as configured")
    else:
        embedder.embed(["Does it work?"], role="query")
        yield Check("embedder", True, f"{embedder.identity.provider}, {embedder.identity.model} works")
        if has_workspace:
            with service.inspecting() as (_, planner):
                change = planner.size_change()
            if change:
                yield Check("freshness", False, f"{change}.", "embed the notes again")


_EXAMINATIONS: tuple[Callable[[Memory], Iterator[Check]], ...] = (
    _workspace,
    _permissions,
    _integrity,
    _freshness,
    _unindexed,
    _sessions,
    _receipts,
    _records,
    _attachments,
    _forgetting,
    _history,
    _embedder,
)
