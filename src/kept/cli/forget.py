"""kept forget"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from kept.agent.tools.record_json import to_json
from kept.base.wording import plural, short_list, size_text
from kept.cli.options import kept_command, option, switch
from kept.cli.output import bold, dim, echo, warn
from kept.cli.root import Globals
from kept.config import LoadedConfig
from kept.errors import KeptError, UsageError
from kept.forgetting.plan import PERHAPS, TITLES, ForgetPlan, Place
from kept.forgetting.receipt import ForgetReceipt, receipt_json
from kept.memory import Memory

_SHOWN_CHARS = 200
_SHOWN_LEFT = 50


@kept_command("forget")
@click.argument("query", nargs=-1)
@option("--session", "ID", "Forget a whole conversation, and the facts taken from it.")
@option("--person", "NAME", "Forget what a person said, and passages that name them.")
@option("--before", "DATE", "Forget conversations and daily notes from before this time.")
@option("--places", "LIST", "Forget only these places, by their numbers: 1,3. Do not ask.")
@switch("--yes", "Forget all places that have exactly this. Do not ask.", "-y")
@switch("--all", "Allow very short words and more than 100 places.", "allow_all")
@switch("--dry-run", "Only show the places.")
def command(
    options: Globals, /, query: tuple[str, ...], places: str | None, yes: bool, dry_run: bool, **what: Any
) -> None:
    """Forget something for good: in notes, conversations, the index and every other file of Kept.

    QUERY is words, a citation (memory/ideas.md#L3-L9) or the path of a note. You see every place with a number, and
    choose. Nothing else changes. Afterwards all bytes below the home and the workspace are searched for it, and a
    receipt says what was found.

    \b
    kept forget 'the old gate code'
    kept forget --session 3f2a
    kept forget --person Mallory
    """
    with options.memory() as memory:
        words = " ".join(query) if query else None
        if words is None and not any(what[name] for name in ("session", "person", "before")):
            raise UsageError(
                "There is nothing to forget.", hint="Name words or a citation: kept forget 'old gate code'"
            )
        plan = memory.forgetting.plan(words, **what)
        is_over, shape = dry_run or not plan.options, {**plan_json(plan), "receipt": None}
        if is_over or not options.as_json:
            options.report(shape, _plan_lines(plan))
        if is_over:
            return
        chosen = _choose(plan, places, yes=yes, as_json=options.as_json)
        receipt = memory.forgetting.apply(chosen)
    options.report({**shape, "receipt": receipt_json(receipt)}, _receipt_lines(receipt))
    if (receipt.left and not receipt.kept) or not receipt.is_finished:
        raise click.exceptions.Exit(1)


def _choose(plan: ForgetPlan, places: str | None, *, yes: bool, as_json: bool) -> ForgetPlan:
    """Return the plan for the places that are chosen. Exit if these are none."""
    if yes and places is None and not plan.places:
        warn("Nothing was forgotten: no place has exactly this. Choose with --places.")
        raise click.exceptions.Exit(1)
    if places is None and not yes and (as_json or not sys.stdin.isatty()):
        raise UsageError(
            "Nothing was forgotten: there is no terminal to ask on.",
            hint="Check the places, then add --yes or --places 1,3.",
        )
    answer = places if places is not None else "all" if yes else click.prompt("Which? 1,3 / all / none", default="none")
    chosen = plan.choose(answer)
    if not chosen.places:
        echo("Nothing was forgotten.")
        raise click.exceptions.Exit(0 if places is None else 1)
    return chosen


def finish_interrupted(loaded: LoadedConfig) -> None:
    """Finish a forget that was interrupted, and say so. A failure is a warning: the command itself can still run."""
    try:
        with Memory.of(loaded) as memory:
            receipt = memory.forgetting.finish()
    except KeptError as exc:
        warn(f"{exc.message} {exc.hint}")
        return
    if receipt is None:
        return
    if receipt.is_finished:
        warn(f"A forget that was interrupted has been finished: receipt {receipt.id}.")
    else:
        warn(f"A forget is not finished yet: {receipt.unreachable[0]}.")


# for people


def _plan_lines(plan: ForgetPlan) -> Iterator[str]:
    if not plan.options:
        yield f"Nothing to forget: {plan.absence}."
    elif not plan.places:
        yield "No place has exactly this."
    for title, places in plan.groups():
        yield bold(f"{title}; goes only if you name it" if title == PERHAPS else title)
        for number, place in places:
            yield f"{number:>3}. {place.citation}  {dim(place.describe(_SHOWN_CHARS))}"
    if plan.unreachable:
        yield from (bold("Not changed"), *(f"  {reason}" for reason in plan.unreachable))


def _receipt_lines(receipt: ForgetReceipt) -> Iterator[str]:
    parts = ((TITLES[kind], count) for kind, count in receipt.counts().items())
    counts = ", ".join(f"{plural(count, 'place')} in {title[0].lower()}{title[1:]}" for title, count in parts)
    yield f"Forgotten: {counts}." if counts else "Forgotten."
    outcome = "nothing else of it is left." if receipt.kept else "nothing of it is left."
    if receipt.left:
        files = short_list([f"{file.path} ({file.count})" for file in receipt.left], _SHOWN_LEFT)
        outcome = f"it is still in {plural(len(receipt.left), 'file')}: {files}"
    yield f"Searched {plural(receipt.searched.files, 'file')} ({size_text(receipt.searched.bytes)}): {outcome}"
    yield from (f"Not chosen, and left as it is: {citation}" for citation in receipt.kept)
    yield from (f"Changed since it was shown, and left alone: {citation}" for citation in receipt.changed)
    yield from ("Not reached:", *(f"  {reason}" for reason in receipt.unreachable))
    yield f"Receipt {receipt.id}, sha256 {receipt.sha256}"
    if not receipt.is_finished:
        warn("A part could not be done now. The next command finishes it.")


# JSON


def plan_json(plan: ForgetPlan) -> dict[str, Any]:
    return {
        "places": [_place_json(number, place) for number, place in enumerate(plan.places, 1)],
        "candidates": [_place_json(number, place) for number, place in enumerate(plan.options, 1)][len(plan.places) :],
        "counts": plan.counts(),
        "unreachable": list(plan.unreachable),
        "token": plan.token,
    }


def _place_json(number: int, place: Place) -> dict[str, Any]:
    own = ("digest", "copies", "isProperty", "key")
    return {"number": number, **{name: value for name, value in to_json(place).items() if name not in own}}
