"""The settings page."""

import pytest

from kept.config.setting import setting_names
from kept.server.web.settings_screen import load_setting_help
from tests.support.files import write_file
from tests.support.web_site import texts


@pytest.fixture
def config_file(home):
    return home / "config.yaml"


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
    before = b"# mine\nagents:\n  defaults:\n    memory_search:\n      query: {max_results: 9, min_score: 0.1}\n"
    write_file(config_file, before)
    url = "/settings/memory_search.query.max_results/change"
    assert "max_results: 12" in pages.post(url, value="12").text
    assert config_file.read_bytes() == before
    page = pages.follow(pages.post(url, value="12", do="save"))
    assert config_file.read_bytes() == before.replace(b"9", b"12")
    assert texts(page, ".settings .value")[0] == "12"
    assert "after their next start" in texts(page, ".notice.good")[0]
    assert "max_results: 12" in pages.post(url, action="unset").text
    pages.post(url, action="unset", do="save")
    assert "max_results" not in config_file.read_text()


def test_a_value_that_does_not_fit_is_refused_and_nothing_changes(pages, config_file):
    answer = pages.post("/settings/memory_search.query.max_results/change", value="many", do="save")
    assert answer.status_code == 400
    assert "notice bad" in answer.text
    assert not config_file.exists()
    assert pages.post("/settings/no.such.setting/change", value="1", do="save").status_code == 400
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
    answer = pages.post("/settings/model.name/change", value="m-2")
    assert "m-2" in answer.text
    assert "sk-very-secret" not in answer.text
    diff = pages.post("/settings/model.api_key/change", value="sk-new-secret").text.partition("<form")[0]
    assert "api_key" in diff
    assert "sk-" not in diff


def test_a_list_is_given_on_lines_of_its_own(pages, config_file):
    pages.post("/settings/memory_search.extra_paths/change", value="~/journal\r\n~/work", do="save")
    assert "~/journal" in config_file.read_text()
    assert "~/work" in config_file.read_text()
