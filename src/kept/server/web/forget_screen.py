"""Forget: first every place of what is to go, then, once confirmed, the receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import groupby

from starlette.responses import Response

from kept.base.limits import clip, one_line
from kept.base.values import frozen
from kept.errors import KeptError, UsageError
from kept.forgetting.forgetter import require_token
from kept.forgetting.plan import ForgetPlan, Place
from kept.forgetting.receipt import read_receipts
from kept.memory import Memory
from kept.server.web.page_templates import reference_url
from kept.server.web.visit import Page, Screen, Visit

_SHOWN_CHARS = 300
_RECEIPTS = 20
TITLES = {
    "note": "Notes",
    "conversation": "Conversations",
    "import": "Imported conversations",
    "session": "Whole conversations",
    "history": "Old versions of notes",
    "proposal": "Proposals",
    "schedule": "Schedules",
    "inbox": "Messages in the inbox",
    "record": "Other files of Kept",
}
KINDS = (
    ("query", "Words, or a citation"),
    ("person", "A person"),
    ("session", "A conversation"),
    ("before", "All before"),
)

PlaceView = tuple[int, str, str, str, bool]
"""Number, citation, address and text of a place, and whether it has exactly this."""


@frozen
class ForgetForm:
    """Fields of the form that says what to forget."""

    kind: str = "query"
    what: str = ""
    all: str = ""
    """Set to forget a very short word, or something in very many places."""

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> ForgetForm:
        kind = fields.get("kind", "query")
        if kind not in dict(KINDS):
            raise UsageError(
                f"'{clip(kind, 40)}' cannot be forgotten.", hint=f"Choose one of {', '.join(dict(KINDS))}."
            )
        return cls(kind, fields.get("what", "").strip(), "1" if fields.get("all") else "")

    def plan(self, memory: Memory) -> ForgetPlan:
        request = {self.kind: self.what}
        return memory.forgetting.plan(
            request.get("query"),
            session=request.get("session"),
            person=request.get("person"),
            before=request.get("before"),
            allow_all=bool(self.all),
        )


def show_forget(visit: Visit) -> Response:
    """Show the form, the places of what it names, and the receipts of earlier forgets."""
    form = ForgetForm.read(visit.query)
    plan: ForgetPlan | None = None
    problem: KeptError | None = None
    if form.what:
        try:
            plan = form.plan(visit.memory)
        except KeptError as exc:
            problem = exc
    return visit.render(
        "forget.html",
        form=form,
        kinds=KINDS,
        plan=plan,
        groups=group_places(plan) if plan else (),
        problem=problem,
        receipts=read_receipts(visit.site.config)[::-1][:_RECEIPTS],
    )


def forget(visit: Visit) -> Response:
    """Forget the places that are ticked. If any has changed since, nothing is forgotten and they are shown again."""
    form = ForgetForm.read(visit.form)
    plan = form.plan(visit.memory)
    require_token(plan, visit.form.get("token", ""))
    numbers = [name.removeprefix("place-") for name in visit.form if name.startswith("place-")]
    if not numbers:
        raise UsageError("Nothing was forgotten: no place is chosen.", hint="Go back, and tick the places that go.")
    receipt = visit.memory.forgetting.apply(plan.choose(",".join(numbers)))
    return visit.redirect(f"/forget/receipts/{receipt.id}")


def show_receipt(visit: Visit) -> Response:
    receipt_id = visit.path["receipt"]
    for receipt in read_receipts(visit.site.config):
        if receipt.get("id") == receipt_id:
            counts = Counter(str(place.get("kind")) for place in receipt.get("places") or ())
            return visit.render("receipt.html", receipt=receipt, counts=counts, titles=TITLES)
    raise UsageError("There is no such receipt.", hint="The page Forget lists the receipts.")


def group_places(plan: ForgetPlan) -> list[tuple[str, list[PlaceView]]]:
    """Return the places by kind, each with a title, and then the candidates."""
    views = [_view(number, place, plan) for number, place in enumerate(plan.options, 1)]
    titles = [*(TITLES[place.kind] for place in plan.places), *["Perhaps also meant"] * len(plan.candidates)]
    pairs = groupby(zip(titles, views, strict=True), key=lambda pair: pair[0])
    return [(title, [view for _, view in group]) for title, group in pairs]


def _view(number: int, place: Place, plan: ForgetPlan) -> PlaceView:
    is_page = place.kind in ("note", "conversation", "import", "session")
    text = clip(one_line(place.text), _SHOWN_CHARS)
    if place.whole and place.kind == "note":
        text = f"the whole note: {text}"
    if place.new:
        text = f"{text} → {clip(one_line(place.new), _SHOWN_CHARS)}"
    return number, place.citation, reference_url(place.citation) if is_page else "", text, number <= len(plan.places)


SCREEN = Screen(
    name="forget",
    label="Forget",
    home="/forget",
    pages=(
        Page("/forget", show_forget, "forget"),
        Page("/forget/now", forget, "forget", ("POST",)),
        Page("/forget/receipts/{receipt}", show_receipt, "forget"),
    ),
    key="f",
)
