"""The page of a note, its editor, and files of the workspace."""

import pytest

from kept.base.digest import digest_bytes
from tests.support.files import write_file
from tests.support.web_site import texts, visiting
from tests.support.workspaces import write_note

PICTURE = b"\x89PNG\r\n\x1a\n picture"


@pytest.fixture
def notes(workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The gate code is 4711. #home\n- See [[ideas]] and [[nothing]].\n")
    write_note(workspace, "memory/ideas.md", "---\ntitle: Big ideas\ntags: [garden]\n---\n\nA gate, see [[MEMORY]].\n")


def test_a_note_is_shown_with_links_backlinks_and_tags(pages, notes):
    page = pages.page("/note/MEMORY.md?lines=3-3")
    assert texts(page, ".prose h1") == ["Memory"]
    assert texts(page, ".prose .cited") == ["The gate code is 4711. #home"]
    assert texts(page, "aside .tags a") == ["#home"]
    assert texts(page, "aside li a") == ["memory/ideas.md", "ideas"]
    assert texts(page, "aside .broken") == ["nothing"]
    assert page.select_one(".prose a.wiki")["href"] == "/note/memory/ideas.md"


def test_a_note_can_be_asked_for_by_its_title_or_day(pages, notes, workspace):
    page = pages.page("/note/memory/ideas.md")
    assert "title: Big ideas" in page.select_one(".properties").text
    assert "title" not in page.select_one(".prose").text
    write_note(workspace, "memory/2026-03-02.md", "# 2026-03-02\n\nx\n")
    assert pages.get("/note/Big%20ideas").headers["location"] == "/note/memory/ideas.md"
    assert pages.get("/note/2026-03-02").headers["location"] == "/note/memory/2026-03-02.md"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("memory/none.md", 404),
        ("%2e%2e/secret.md", 403),
        ("/etc/passwd.md", 403),
        ("memory/x.txt", 403),
        (".kept/x.md", 404),
    ],
)
def test_what_is_not_a_note_is_refused(pages, notes, tmp_path, path, status):
    write_file(tmp_path / "secret.md", "secret")
    page = pages.page(f"/note/{path}", status=status)
    assert "secret" not in page.select_one("main").text.replace("secret.md", "")


def test_a_long_note_is_shown_in_parts(pages, workspace):
    write_note(workspace, "memory/long.md", "".join(f"line {number}\n\n" for number in range(1, 3_001)))
    page = pages.page("/note/memory/long.md")
    assert "Lines 1–2,000 of 6,000" in page.select_one(".pager").text
    following = page.select_one(".pager a")["href"]
    assert pages.page(following).select_one("#L2001").text == "line 1001"
    cited = pages.page("/note/memory/long.md?lines=5001-5001")
    assert texts(cited, ".cited") == ["line 2501"]


def test_a_note_that_is_not_utf_8_is_shown_with_a_warning(pages, workspace):
    write_file(workspace / "memory/old.md", b"caf\xe9\n")
    page = pages.page("/note/memory/old.md")
    assert "not valid UTF-8" in texts(page, ".notice.warn")[0]
    assert "caf�" in page.select_one(".prose").text


# lists


def test_all_notes_are_listed_on_pages(pages, workspace):
    for number in range(60):
        write_note(workspace, f"memory/n{number:02}.md", f"# Note {number}\n\nText.\n")
    first = pages.page("/notes")
    assert len(first.select(".list li")) == 50
    rest = pages.page(first.select_one(".pager a[rel=next]")["href"])
    titles = {*texts(first, ".list .title"), *texts(rest, ".list .title")}
    assert titles == {f"Note {number}" for number in range(60)}
    assert not rest.select(".pager a[rel=next]")
    assert "ended before" in pages.page("/notes?page=99").text


def test_notes_with_a_tag_are_listed(pages, notes):
    assert texts(pages.page("/notes"), ".tags a") == ["#garden 1", "#home 1"]
    assert texts(pages.page("/notes?tag=garden"), ".list .title") == ["Big ideas"]


# files


def test_an_image_of_the_workspace_is_sent_and_an_attachment_found_in_its_folder(pages, workspace):
    write_file(workspace / "memory/img/a b.png", PICTURE)
    answer = pages.get("/file/memory/img/a%20b.png")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "image/png", PICTURE)
    write_file(workspace / "attachments/photo.jpg", PICTURE)
    assert pages.get("/file/memory/photo.jpg").content == PICTURE


def test_a_page_or_a_program_is_only_downloaded(pages, workspace):
    write_file(workspace / "memory/x.html", b"<script>alert(1)</script>")
    write_file(workspace / "memory/x.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    page = pages.get("/file/memory/x.html")
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"].startswith("attachment")
    picture = pages.get("/file/memory/x.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "sandbox" in picture.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", [".git/config", "memory/.hidden.png", "%2e%2e/secret.png", "memory//x.png", "memory/link.png", "memory", ""]
)
def test_other_files_are_refused(pages, workspace, tmp_path, path):
    write_file(tmp_path / "secret.png", PICTURE)
    write_file(workspace / ".git/config", PICTURE)
    write_file(workspace / "memory/.hidden.png", PICTURE)
    (workspace / "memory/link.png").symlink_to(tmp_path / "secret.png")
    answer = pages.get(f"/file/{path}")
    assert answer.status_code in (403, 404)
    assert PICTURE not in answer.content


# editing


def edit(pages, path: str, text: str, **fields: str):
    digest = pages.page(f"/edit/{path}").select_one("input[name=digest]")["value"]
    return pages.post(f"/edit/{path}", text=text, **{"digest": digest, "do": "save", **fields})


def test_an_edit_is_saved_recorded_and_found(pages, notes, workspace):
    answer = edit(pages, "MEMORY.md", "# Memory\r\n\r\n- The gate code is 9922.\r\n", why="new lock")
    page = pages.follow(answer)
    assert texts(page, ".notice.good") == ["Saved."]
    assert (workspace / "MEMORY.md").read_bytes() == b"# Memory\n\n- The gate code is 9922.\n"
    assert "9922" in pages.page("/?q=gate+code").select_one(".hit").text
    change = pages.page("/changes").select_one(".change")
    assert "kept web" in change.text
    assert "new lock" in change.text
    assert "9922" in change.select_one(".diff .added").text


def test_a_change_on_disk_is_shown_and_never_overwritten(pages, notes, workspace):
    file = workspace / "MEMORY.md"
    digest = pages.page("/edit/MEMORY.md").select_one("input[name=digest]")["value"]
    file.write_bytes(b"# Memory\n\n- Changed by an editor.\n")
    answer = pages.post("/edit/MEMORY.md", text="# Memory\n\n- Mine.\n", digest=digest, do="save")
    assert answer.status_code == 409
    assert file.read_bytes() == b"# Memory\n\n- Changed by an editor.\n"
    assert "Changed by an editor." in answer.text
    assert "- Mine." in answer.text
    assert digest_bytes(file.read_bytes()) in answer.text, "saving again is about the note as it is now"


def test_changes_of_other_lines_on_disk_and_on_the_page_are_put_together(pages, workspace):
    pages.site.memory.add("One", to="memory/n.md")
    file = write_file(workspace / "memory/n.md", b"# N\n\n- One\n- Two\n")
    pages.get("/note/memory/n.md")
    form = pages.page("/edit/memory/n.md")
    digest = form.select_one("input[name=digest]")["value"]
    file.write_bytes(b"# N\n\n- One\n- Two from an editor\n")
    answer = pages.post("/edit/memory/n.md", text="# N\n\n- One, mine\n- Two\n", digest=digest, do="save")
    assert answer.status_code == 409
    assert "The text below has both changes." in answer.text
    assert "# N\n\n- One, mine\n- Two from an editor\n" in answer.text
    assert file.read_bytes() == b"# N\n\n- One\n- Two from an editor\n", "nothing is saved yet"


def test_a_note_that_links_here_is_shown_with_its_sentence(pages, workspace):
    write_note(workspace, "memory/ada.md", "# Ada\n")
    write_note(workspace, "memory/day.md", "# Day\n\n- Lunch with [[ada|Ada]] at the harbour.\n")
    assert "Lunch with Ada at the harbour." in pages.page("/note/memory/ada.md").select_one("aside").text


def test_a_preview_saves_nothing(pages, notes, workspace):
    before = (workspace / "MEMORY.md").read_bytes()
    answer = edit(pages, "MEMORY.md", "# New <script>x</script>\n\n[[ideas]]\n", do="preview")
    assert answer.status_code == 200
    assert '<h1 id="L1">New &lt;script&gt;x&lt;/script&gt;</h1>' in answer.text
    assert 'href="/note/memory/ideas.md"' in answer.text
    assert (workspace / "MEMORY.md").read_bytes() == before


def test_a_note_of_an_extra_path_has_no_editor(tmp_path, workspace):
    write_file(tmp_path / "extra/n.md", "extra text\n")
    with visiting(tmp_path, memory_search__extra_paths=[str(tmp_path / "extra")]) as pages:
        url = pages.page("/?q=extra").select_one(".hit a.title")["href"]
        page = pages.page(url)
        assert "extra text" in page.select_one(".prose").text
        assert not page.select("[data-edit]")
        path = str(tmp_path / "extra/n.md")
        answer = pages.post(f"/edit/{path}", text="x", digest=digest_bytes(b"extra text\n"), do="save")
        assert answer.status_code == 403
