"""Forget: first every place of what is to go, then, once confirmed, the receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from kept.base.limits import clip
from kept.base.values import frozen
from kept.errors import KeptError, UsageError
from kept.forgetting.plan import TITLES, ForgetPlan
from kept.forgetting.receipt import read_receipts
from kept.memory import Memory
from kept.server.web.visit import Page, Screen, Visit

_RECEIPTS = 20
KINDS = {
    "query": "Words, or a citation",
    "person": "A person",
    "session": "A conversation",
    "before": "All before",
}


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
        if kind not in KINDS:
            raise UsageError(f"'{clip(kind, 40)}' cannot be forgotten.", hint=f"Choose one of {', '.join(KINDS)}.")
        return cls(kind, fields.get("what", "").strip(), "1" if fields.get("all") else "")

    def plan(self, memory: Memory) -> ForgetPlan:
        scope: dict[str, Any] = {name: self.what if name == self.kind else None for name in KINDS}
        return memory.forgetting.plan(scope.pop("query"), **scope, allow_all=bool(self.all))


def show_forget(visit: Visit) -> Response:
    """Show the form, the places of what it names, and the receipts of earlier forgets."""
    form = ForgetForm.read(visit.query)
    plan: ForgetPlan | None = None
    problem: KeptError | None = None
    try:
        plan = form.plan(visit.memory) if form.what else None
    except KeptError as exc:
        problem = exc
    return visit.render(
        "forget.html",
        form=form,
        kinds=KINDS.items(),
        plan=plan,
        problem=problem,
        receipts=read_receipts(visit.site.config)[::-1][:_RECEIPTS],
    )


def forget(visit: Visit) -> Response:
    """Forget the places that are ticked. If any has changed since, nothing is forgotten and they are shown again."""
    plan = ForgetForm.read(visit.form).plan(visit.memory)
    plan.require_token(visit.form.get("token", ""))
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
