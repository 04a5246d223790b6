"""The page that measures recall."""

from __future__ import annotations

from tests.support.web_site import texts
from tests.support.workspaces import write_note


def test_recall_on_a_set_made_from_the_notes_is_measured_and_shown(pages, workspace):
    for number, subject in enumerate(("gate", "garden", "server", "bicycle")):
        write_note(workspace, f"memory/n{number}.md", f"# {subject}\n\nThe {subject} was repaired in May.\n")
    pages.follow(pages.post("/recall/run"))
    pages.site.recall.wait()
    page = pages.page("/recall")
    assert texts(page, ".notice.good")[0].startswith("Measured")
    rows = {row.th.text: [cell.text for cell in row.select("td")] for row in page.select("tbody tr")}
    assert rows["all, with your settings"][2] == "1.000"
    assert {"adversarial", "strong", "weak"} <= rows.keys()
