"""kept review --tidy: facts that say the same or contradict each other, and what to do about them"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kept.cli.output import echo, print_json, printable, style, warn
from kept.cli.root import Globals, command_recorder
from kept.errors import KeptError, UsageError
from kept.remote_errors import ModelError
from kept.wording import plural

if TYPE_CHECKING:
    import datetime as dt

    from kept.config import LoadedConfig
    from kept.memory import Memory
    from kept.workspace.fact_pairs import FactPair
    from kept.workspace.line_edit import Proposal


def tidy_notes(options: Globals, chosen: Sequence[str], *, words: bool, as_json: bool) -> None:
    """List the proposals, or apply those that are chosen. With a model set up, the model decides which pairs are
    repetitions, replacements or can be merged; without one, or with ``words``, their words do."""
    loaded = options.load_finished()
    with options.memory() as memory:
        if chosen:
            _apply(memory, chosen, as_json=as_json)
            return
        proposals, model, problems = _find(loaded, memory, words=words)
        from kept.workspace.line_edit import proposal_json, save_proposals

        save_proposals(memory.config.paths.proposals, proposals)
        if as_json:
            shapes = [proposal_json(proposal) for proposal in proposals]
            print_json({"proposals": shapes, "model": model, "degraded": problems})
            return
        for problem in problems:
            warn(problem)
        if not proposals:
            echo("Nothing to tidy: no two facts say the same or contradict each other.")
        elif sys.stdin.isatty() and sys.stdout.isatty():
            _ask(memory, proposals)
        else:
            for number, proposal in enumerate(proposals, 1):
                echo(proposal_text(number, proposal, memory))
            echo(f"{plural(len(proposals), 'proposal')}. Apply one with 'kept review --tidy --apply 1'.")


def _find(loaded: LoadedConfig, memory: Memory, *, words: bool) -> tuple[list[Proposal], str | None, list[str]]:
    """Return the proposals, the name of the model that made them, and problems."""
    from kept.durable import make_private_folder
    from kept.workspace.fact_pairs import collect_facts, find_pairs, propose, without_overlaps

    make_private_folder(memory.config.paths.folder)
    pairs = find_pairs(collect_facts(memory.workspace, max_bytes=memory.settings.max_file_bytes))
    now, problems = memory.clock.now(), list[str]()
    if pairs and not words and memory.config.agent.model.provider not in (None, "extractive"):
        try:
            proposals, model = _ask_model(loaded, pairs, now)
            return without_overlaps(proposals), model, problems
        except ModelError as exc:
            problems.append(f"Compared by words only: {exc.message}")
    proposals = [propose(pair, now.date()) for pair in pairs]
    return without_overlaps(proposals), None, problems


def _ask_model(loaded: LoadedConfig, pairs: Sequence[FactPair], now: dt.datetime) -> tuple[list[Proposal], str]:
    import asyncio

    from kept.agent.fact_list import review_pairs
    from kept.app import open_model

    async def run() -> tuple[list[Proposal], str]:
        model = open_model(loaded)
        try:
            return await review_pairs(model, pairs, now), model.name
        finally:
            await model.close()

    return asyncio.run(run())


def _apply(memory: Memory, chosen: Sequence[str], *, as_json: bool) -> None:
    from kept.workspace.line_edit import apply_edits, load_proposals, proposal_json, save_proposals

    path = memory.config.paths.proposals
    proposals = load_proposals(path)
    picked = proposals if "all" in chosen else [_pick(proposals, choice) for choice in dict.fromkeys(chosen)]
    if not picked:
        raise UsageError("There are no proposals.", hint="Run 'kept review --tidy' first.")
    # All at once: the edits of one proposal may move the lines of another.
    edits = [edit for proposal in picked for edit in proposal.edits]
    recorder = command_recorder(memory.config, "review --tidy")
    apply_edits(memory.workspace, edits, max_bytes=memory.settings.max_file_bytes, recorder=recorder)
    save_proposals(path, _still_valid(memory, [proposal for proposal in proposals if proposal not in picked]))
    if as_json:
        print_json({"applied": [proposal_json(proposal) for proposal in picked]})
        return
    echo(f"Applied {plural(len(picked), 'proposal')}.")


def _still_valid(memory: Memory, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals whose lines are where they were. The next 'kept review --tidy' finds the others again."""
    from kept.workspace.line_edit import edits_fit

    max_bytes = memory.settings.max_file_bytes
    return [proposal for proposal in proposals if edits_fit(memory.workspace, proposal.edits, max_bytes=max_bytes)]


def _pick(proposals: Sequence[Proposal], choice: str) -> Proposal:
    by_id = next((proposal for proposal in proposals if proposal.id == choice), None)
    if by_id is not None:
        return by_id
    if choice.isdecimal() and len(choice) < 9 and 1 <= int(choice) <= len(proposals):
        return proposals[int(choice) - 1]
    raise UsageError(f"There is no proposal '{choice}'.", hint="Run 'kept review --tidy' to list them.")


def _ask(memory: Memory, proposals: Sequence[Proposal]) -> None:
    """Show proposals one by one, and apply those that are accepted at the end, all at once."""
    from kept.workspace.line_edit import apply_edits

    accepted: list[Proposal] = []
    for number, proposal in enumerate(proposals, 1):
        echo(proposal_text(number, proposal, memory))
        answer = click.prompt("Accept, skip or quit?", type=click.Choice(["a", "s", "q"]), default="s")
        if answer == "q":
            break
        if answer == "a":
            accepted.append(proposal)
    if not accepted:
        echo("Nothing was changed.")
        return
    edits = [edit for proposal in accepted for edit in proposal.edits]
    recorder = command_recorder(memory.config, "review --tidy")
    apply_edits(memory.workspace, edits, max_bytes=memory.settings.max_file_bytes, recorder=recorder)
    echo(f"Applied {plural(len(accepted), 'proposal')}.")


def proposal_text(number: int, proposal: Proposal, memory: Memory) -> str:
    lines = [f"{style(str(number), bold=True)}  {style(proposal.kind, fg='cyan')}  {printable(proposal.reason)}"]
    for edit in proposal.edits:
        try:
            old = memory.read(edit.path, start=edit.start_line, lines=edit.end_line - edit.start_line + 1).text
        except KeptError as exc:
            old = f"({exc.message})"
        lines += [style(f"   - {printable(line)}", fg="red") for line in old.split("\n")]
        lines += [style(f"   + {printable(line)}", fg="green") for line in edit.text.split("\n") if edit.text]
    return "\n".join([*lines, ""])
