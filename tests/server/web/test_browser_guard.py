"""Requests that are refused, and the policy that every answer has."""

import pytest

from kept.base.clock import SystemClock
from kept.base.net.serving import RateLimiter
from kept.server.tokens import KnownTokens
from kept.storage.files.file_storage import FileStorage
from tests.support.serve_process import create_token
from tests.support.web_site import ORIGIN, texts, visiting


def test_every_answer_has_the_policy(pages):
    for url, status in (("/", 200), ("/nowhere", 404), ("/static/kept.css", 200), ("/open?key=x", 303)):
        answer = pages.get(url)
        assert answer.status_code == status, url
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert pages.get("/").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8740", "", "localhost.:8740"])
def test_another_host_name_is_refused(pages, host):
    assert pages.get("/", Host=host).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:3000", "http://localhost:8740", "null", "", "127.0.0.1:8740"]
)
def test_a_request_of_another_origin_is_refused(pages, origin):
    assert pages.get("/", Origin=origin).status_code == 403
    form = {"form_token": pages.access.form_token(pages.cookie), "text": "x"}
    assert pages.http.post("/add", data=form, headers={"Origin": origin}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_that_another_page_makes_is_refused(pages, site):
    assert pages.get("/", Sec_Fetch_Site=site).status_code == 403
    assert pages.get("/static/kept.js", Sec_Fetch_Site=site).status_code == 403


def test_a_request_of_a_person_and_of_our_own_pages_is_answered(pages):
    assert pages.get("/", Sec_Fetch_Site="none").status_code == 200
    assert pages.get("/", Sec_Fetch_Site="same-origin", Origin=ORIGIN).status_code == 200


def test_without_a_cookie_nothing_is_shown(tmp_path):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/MEMORY.md").write_text("The gate code is 4711.\n")
    with visiting(tmp_path, signed_in=False) as pages:
        for url in ("/", "/?q=gate", "/note/MEMORY.md", "/file/x.png", "/nowhere", "/openx", "/hello/notes"):
            answer = pages.get(url)
            assert answer.status_code == 401, url
            assert "4711" not in answer.text
            assert "kept web" in answer.text
        pages.http.cookies.set("kept", "0.forged.cookie")
        assert pages.get("/").status_code == 401


def test_a_form_without_its_token_changes_nothing(pages):
    answer = pages.post("/add", text="x", form_token="wrong")
    assert answer.status_code == 400
    assert "Added" not in answer.text
    assert pages.post("/add", text="x").status_code == 303


@pytest.mark.parametrize("media_type", ["text/plain", "application/json", "multipart/form-data; boundary=x", ""])
def test_a_change_that_is_not_a_form_is_refused(pages, media_type):
    body = f"form_token={pages.access.form_token(pages.cookie)}&text=x"
    headers = {"Origin": ORIGIN, "Content-Type": media_type}
    answer = pages.http.post("/add", content=body, headers=headers)
    assert answer.status_code == 400
    assert "Added" not in answer.text


def test_a_form_that_is_not_text_is_refused(pages):
    headers = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"text=%ff%fe", b"\xff\xfe", b"a&" * 5_000):
        assert pages.http.post("/add", content=body, headers=headers).status_code == 400


def test_a_form_that_is_too_long_is_refused(tmp_path):
    with visiting(tmp_path, memory_search__max_file_bytes=1_000) as pages:
        answer = pages.post("/add", text="x", more="x" * 100_000)
        assert answer.status_code == 400
        assert "more than 68,536 bytes" in answer.text


def test_a_link_signs_a_browser_in_once(tmp_path):
    with visiting(tmp_path, signed_in=False) as pages:
        link = f"/open?key={pages.access.make_link_key()}"
        answer = pages.get(link, Sec_Fetch_Site="cross-site")
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        assert pages.get("/").status_code == 200
        pages.http.cookies.clear()
        again = pages.get(link)
        assert again.status_code == 401
        assert "used already" in again.text


def test_a_token_signs_a_browser_in(tmp_path):
    token = create_token(tmp_path / "home", "ada", "read")
    gate = KnownTokens(FileStorage(str(tmp_path / "home")), SystemClock(), RateLimiter(0, 1), always=True)
    hosts = {"gateway__serve__allowed_hosts": ["memory.example"]}
    with visiting(tmp_path, signed_in=False, gate=gate, **hosts) as pages:
        home = {"Host": "memory.example", "Origin": "https://memory.example", "X-Forwarded-Proto": "https"}
        assert 'name="token"' in pages.get("/", Host="memory.example").text
        wrong = pages.http.post("/login", data={"token": "guess"}, headers=home)
        assert wrong.status_code == 401
        assert pages.http.post("/login", data={"token": token}).status_code == 403, "no origin"
        assert pages.http.post("/login", content=b"x" * 10_000, headers=home).status_code == 401
        right = pages.http.post("/login", data={"token": token}, headers=home)
        assert right.status_code == 303
        assert "Secure" in right.headers["set-cookie"], "a proxy with TLS is in front"


def test_a_page_that_does_not_exist_says_so(pages):
    page = pages.page("/nowhere", status=404)
    assert texts(page, "h1") == ["There is no such page."]
    assert pages.http.put("/", headers={"Origin": ORIGIN}).status_code == 405


def test_static_files_are_confirmed_by_their_hash(pages):
    first = pages.get("/static/kept.css")
    assert first.headers["content-type"].startswith("text/css")
    assert pages.get("/static/kept.css", If_None_Match=first.headers["etag"]).status_code == 304
    assert pages.get("/static/../visit.py").status_code == 404
    assert pages.get("/static/%2e%2e/visit.py").status_code == 404


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_a_form_never_leads_elsewhere(pages, workspace, back):
    pages.site.memory.add("Ada likes tea.", to="memory")
    change = pages.page("/changes").select_one("button[name=change]")["value"]
    assert pages.post("/undo", change=change, back=back).headers["location"] == "/changes"
