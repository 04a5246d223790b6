"""The settings page."""

from __future__ import annotations

import pytest

from kept.config.setting import setting_names
from kept.server.web.settings_screen import load_setting_help
from tests.support.files import write_file
from tests.support.web_site import texts


@pytest.fixture
def config_file(home):
    return home / "config.yaml"


def preview(pages, name, **fields):
    return pages.post(f"/settings/{name}/preview", **fields)


def test_every_setting_has_an_explanation():
    assert set(setting_names()) <= set(load_setting_help())


def test_settings_are_listed_with_value_origin_and_explanation(pages, config_file):
    write_file(config_file, b"agents:\n  defaults:\n    memory_search:\n      query: {max_results: 9}\n")
    page = pages.page("/settings?find=max_results")
    rows = dict(zip(texts(page, ".settings .name"), texts(page, ".settings .value"), strict=True))
    assert rows["memory_search.query.max_results"] == "9"
    assert texts(page, ".settings .grade")[0] == "user file"
    assert page.select_one(".settings p").text.strip()


def test_a_change_is_shown_as_a_diff_before_it_is_made(pages, config_file):
    write_file(config_file, b"# mine\nagents:\n  defaults:\n    memory_search:\n      query: {max_results: 9}\n")
    answer = preview(pages, "memory_search.query.max_results", value="12")
    assert "max_results: 12" in answer.text
    assert "max_results: 9" in config_file.read_text()
    page = pages.follow(pages.post("/settings/memory_search.query.max_results/change", value="12"))
    assert (
        config_file.read_text() == "# mine\nagents:\n  defaults:\n    memory_search:\n      query: {max_results: 12}\n"
    )
    assert texts(page, ".settings .value")[0] == "12"
    assert "after their next start" in texts(page, ".notice.good")[0]


def test_a_setting_goes_back_to_its_default(pages, config_file):
    write_file(config_file, b"agents:\n  defaults:\n    memory_search:\n      query:\n        max_results: 9\n")
    answer = preview(pages, "memory_search.query.max_results", action="unset", value="")
    assert "max_results: 9" in answer.text
    pages.post("/settings/memory_search.query.max_results/change", action="unset")
    assert "max_results" not in config_file.read_text()


def test_a_value_that_does_not_fit_is_refused_and_nothing_changes(pages, config_file):
    answer = preview(pages, "memory_search.query.max_results", value="many")
    assert answer.status_code == 200
    assert "notice bad" in answer.text
    assert pages.post("/settings/memory_search.query.max_results/change", value="many").status_code == 400
    assert not config_file.exists()
    assert pages.post("/settings/no.such.setting/change", value="1").status_code == 400
    assert pages.page("/settings/no.such.setting", status=400)


def test_secrets_are_never_shown(pages, config_file):
    write_file(
        config_file,
        b"agents:\n  defaults:\n    model: {api_key: sk-very-secret, name: m-1}\n"
        b"gateway:\n  telegram: {token: hush-hush}\n",
    )
    for url in ("/settings", "/settings/model.api_key", "/settings/gateway.telegram.token"):
        text = pages.get(url).text
        assert "sk-very-secret" not in text
        assert "hush-hush" not in text
    answer = preview(pages, "model.name", value="m-2")
    assert "m-2" in answer.text
    assert "sk-very-secret" not in answer.text
    answer = preview(pages, "model.api_key", value="sk-new-secret")
    assert texts_in_diff(answer.text).isdisjoint({"sk-new-secret", "sk-very-secret"})


def texts_in_diff(html: str) -> set[str]:
    from bs4 import BeautifulSoup

    return set(BeautifulSoup(html, "html.parser").select_one(".diff").get_text(" ").replace(",", " ").split())


def test_a_list_is_given_on_lines_of_its_own(pages, config_file):
    pages.post("/settings/memory_search.extra_paths/change", value="~/journal\r\n~/work")
    assert "~/journal" in config_file.read_text()
    assert "~/work" in config_file.read_text()
