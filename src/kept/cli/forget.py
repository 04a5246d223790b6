"""kept forget"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, json_option, local_time, print_json, require_consent, style, warn
from kept.cli.root import Globals
from kept.errors import KeptError, UsageError
from kept.limits import clip, one_line
from kept.wording import plural, size_text

if TYPE_CHECKING:
    from kept.config import LoadedConfig
    from kept.forgetting.plan import ForgetPlan, Place
    from kept.forgetting.receipt import ForgetReceipt
    from kept.memory import Memory

_SHOWN_CHARS = 200
_SHOWN_PLACES = 200
_SHOWN_LEFT = 10
_TITLES = {
    "note": "Notes",
    "conversation": "Conversations",
    "import": "Imported conversations",
    "session": "Whole conversations",
    "history": "Old versions",
    "proposal": "Proposals",
    "record": "Other files of Kept",
}


@click.command("forget")
@click.argument("query", nargs=-1)
@click.option("--session", metavar="ID", help="Forget a whole conversation, and the facts that were made of it.")
@click.option("--person", metavar="NAME", help="Forget what a person said, and every passage that names them.")
@click.option("--before", metavar="DATE", help="Forget conversations and daily notes from before this time.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--all", "allow_all", is_flag=True, help="Also if it is in more than 100 places, or a very short word.")
@click.option("--dry-run", is_flag=True, help="Only show the places.")
@click.option("--receipts", is_flag=True, help="List the receipts of earlier forgets.")
@json_option
@click.pass_obj
def command(
    options: Globals,
    query: tuple[str, ...],
    session: str | None,
    person: str | None,
    before: str | None,
    yes: bool,
    allow_all: bool,
    dry_run: bool,
    receipts: bool,
    as_json: bool,
) -> None:
    """Forget something for good: in notes, conversations, the index and every other file of Kept.

    QUERY is words, a citation (memory/ideas.md#L3-L9) or the path of a note. Every place is shown first. Afterwards all
    bytes below the home and the workspace are searched for it, and a receipt says what was found.
    """
    with options.memory() as memory:
        if receipts:
            _list_receipts(memory, as_json=as_json)
            return
        words = " ".join(query) if query else None
        if (words, session, person, before) == (None, None, None, None):
            raise UsageError(
                "There is nothing to forget.", hint="Name words or a citation: kept forget 'old gate code'"
            )
        plan = memory.forgetting.plan(words, session=session, person=person, before=before, allow_all=allow_all)
        if dry_run or not plan.places:
            _show_plan(plan, as_json=as_json)
            return
        _require_consent(plan, yes=yes, as_json=as_json)
        receipt = memory.forgetting.apply(plan)
    if as_json:
        from kept.forgetting.receipt import receipt_json

        print_json({**plan_json(plan), "receipt": receipt_json(receipt)})
    else:
        _show_receipt(receipt)
    if receipt.left or not receipt.is_finished:
        raise click.exceptions.Exit(1)


def _require_consent(plan: ForgetPlan, *, yes: bool, as_json: bool) -> None:
    if not as_json:
        _show_plan(plan, as_json=False)
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise UsageError(
            "Nothing was forgotten: there is no terminal to ask on.", hint="Check the places, then add --yes."
        )
    require_consent(f"Forget {plural(len(plan.places), 'place')} for good? It cannot be undone.")


def finish_interrupted(loaded: LoadedConfig) -> None:
    """Finish a forget that was interrupted, and say so. A failure is a warning: the command itself can still run."""
    from kept.app import open_memory

    try:
        with open_memory(loaded) as memory:
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


def _show_plan(plan: ForgetPlan, *, as_json: bool) -> None:
    if as_json:
        print_json({**plan_json(plan), "receipt": None})
        return
    if not plan.places:
        echo(f"Nothing to forget: {_describe_absence(plan)}.")
    kind = None
    places = [place for place in plan.places if place.kind != "history"]
    for place in places[:_SHOWN_PLACES]:
        if place.kind != kind:
            kind = place.kind
            echo(style(_TITLES[kind], bold=True))
        echo(f"  {_describe(place)}")
    if len(places) > _SHOWN_PLACES:
        echo(f"  and {plural(len(places) - _SHOWN_PLACES, 'more place')}")
    _show_versions([place.path for place in plan.places if place.kind == "history"])
    if plan.unreachable:
        echo(style("Not changed", bold=True))
        for reason in plan.unreachable:
            echo(f"  {reason}")


def _describe_absence(plan: ForgetPlan) -> str:
    if plan.request.before_ms is not None:
        return "no conversation and no daily note is from before that time"
    return "no note and no conversation has it. Search for it, and forget the lines that a result cites"


def _show_versions(paths: list[str]) -> None:
    """Show how many old versions of each note go: their text is that of the notes."""
    if not paths:
        return
    echo(style(_TITLES["history"], bold=True))
    counts = Counter(paths)
    for path, count in list(counts.items())[:_SHOWN_PLACES]:
        echo(f"  {path}  {style(plural(count, 'old version'), dim=True)}")
    if len(counts) > _SHOWN_PLACES:
        echo(f"  and old versions of {plural(len(counts) - _SHOWN_PLACES, 'more note')}")


def _describe(place: Place) -> str:
    whole = " (the whole note)" if place.whole and place.kind == "note" else ""
    return f"{place.citation}{whole}  {style(clip(one_line(place.text), _SHOWN_CHARS), dim=True)}"


def _show_receipt(receipt: ForgetReceipt) -> None:
    parts = [(count, _TITLES[kind][0].lower() + _TITLES[kind][1:]) for kind, count in receipt.counts().items()]
    first = [f"{plural(count, 'place')} in {store}" for count, store in parts[:1]]
    counts = ", ".join([*first, *(f"{count:,} in {store}" for count, store in parts[1:])])
    echo(f"Forgotten: {counts}." if counts else "Forgotten.")
    echo(f"Searched {plural(receipt.files, 'file')} ({size_text(receipt.size)}): {_describe_left(receipt)}")
    for file in receipt.left[:_SHOWN_LEFT]:
        echo(f"  {file.path} ({file.count})")
    for citation in receipt.changed:
        echo(f"Changed since it was shown, and left alone: {citation}")
    echo("Not reached:")
    for reason in receipt.unreachable:
        echo(f"  {reason}")
    echo(f"Receipt {receipt.id}, sha256 {receipt.sha256}")
    if not receipt.is_finished:
        warn("A part could not be done now. The next command finishes it.")


def _describe_left(receipt: ForgetReceipt) -> str:
    return f"it is still in {plural(len(receipt.left), 'file')}:" if receipt.left else "nothing of it is left."


def _list_receipts(memory: Memory, *, as_json: bool) -> None:
    from kept.forgetting.receipt import read_receipts

    receipts = read_receipts(memory.config)
    if as_json:
        print_json({"receipts": receipts})
        return
    for receipt in receipts:
        left = receipt.get("left")
        outcome = "nothing left" if not left else f"still in {plural(len(left), 'file')}"
        count = plural(len(receipt.get("places") or ()), "place")
        lead = f"{receipt['id']}  {local_time(str(receipt.get('at')))}"
        echo(f"{lead}  {receipt.get('request')!s:<8}  {count:>10}  {outcome}")
    if not receipts:
        echo("Nothing was forgotten yet.")


# JSON


def plan_json(plan: ForgetPlan) -> dict[str, Any]:
    return {
        "places": [
            {
                "kind": place.kind,
                "citation": place.citation,
                "path": place.path,
                "startLine": place.start_line,
                "lines": place.lines,
                "whole": place.whole,
                "text": place.text,
            }
            for place in plan.places
        ],
        "counts": plan.counts(),
        "unreachable": list(plan.unreachable),
        "token": plan.token,
    }
