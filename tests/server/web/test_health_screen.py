"""The pages about health and cost, and the checks."""

import datetime as dt

from kept.base.reports import ModelSpending
from kept.models.ledger import open_model_ledger
from kept.testing import FrozenClock
from tests.support.web_site import texts, visiting
from tests.support.workspaces import write_note


def test_the_page_shows_counts_and_the_state_of_the_index(pages, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- Ada likes tea.\n")
    page = pages.page("/health")
    assert "1 file changed since the last sync." in texts(page, ".states li")
    pages.site.memory.sync()
    page = pages.page("/health")
    assert dict(zip(texts(page, ".tiles dt"), texts(page, ".tiles dd"), strict=True))["Notes"] == "1"
    assert any(state.startswith("The index is up to date") for state in texts(page, ".states li"))
    assert "No tokens were used" in page.text


def test_tokens_of_thirty_days_are_added_up_by_purpose_and_listed(tmp_path):
    clock = FrozenClock(dt.datetime(2026, 3, 14, 12, tzinfo=dt.UTC))
    with visiting(tmp_path, clock=clock, model__daily_budget_tokens=9_000) as pages:
        ledger = open_model_ledger(pages.site.config, clock)
        ledger.record(ModelSpending("anthropic", "m-1", "reply", "2026-03-14", 2, 1_000, 200, 600))
        ledger.record(ModelSpending("anthropic", "m-1", "flush", "2026-03-13", 1, 400, 100))
        ledger.record(ModelSpending("anthropic", "m-1", "flush", "2026-02-12", 1, 400, 100))
        page = pages.page("/health")
    tiles = dict(zip(texts(page, ".tiles dt"), texts(page, ".tiles dd"), strict=True))
    assert (tiles["Tokens today"], tiles["Reply"], tiles["Flush"]) == ("1,200 of 9,000", "1,200", "500")
    assert texts(page, ".spending tbody tr")[0].startswith("2026-03-14 anthropic, m-1 reply 2 1,000 600 200")


def test_the_checks_of_the_doctor_are_shown(pages, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- Ada likes tea.\n")
    pages.site.memory.sync()
    page = pages.page("/health/checks")
    assert texts(page, "h1") == ["All is well"]
    assert len(page.select(".checks li")) > 5
