"""Where pip looks for packages, read from its variables and files."""

from __future__ import annotations

import os

import pytest

from kept.embedding.package_index import PYPI, find_wheel, read_index_settings

NO_FILES = {"PIP_CONFIG_FILE": os.devnull}


def test_without_settings_it_is_pypi():
    assert read_index_settings(NO_FILES).indexes == (PYPI,)


def test_variables_name_indexes_and_folders():
    settings = read_index_settings(
        {**NO_FILES, "PIP_INDEX_URL": "https://a/simple", "PIP_EXTRA_INDEX_URL": "https://b https://c"}
        | {"PIP_FIND_LINKS": "/x /y"}
    )
    assert settings.indexes == ("https://a/simple", "https://b", "https://c")
    assert settings.links == ("/x", "/y")


def test_a_settings_file_counts_less_than_a_variable(tmp_path):
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://file\nextra-index-url =\n  https://more\n  https://most\n")
    environ = {"PIP_CONFIG_FILE": str(file), "HOME": str(tmp_path)}
    assert read_index_settings(environ).indexes[0] == "https://file"
    assert read_index_settings(environ).indexes[1:] == ("https://more", "https://most")
    assert read_index_settings(environ | {"PIP_INDEX_URL": "https://own"}).indexes[0] == "https://own"


@pytest.mark.parametrize("content", ["no section\n", "[global\n", "\xff"])
def test_a_settings_file_that_cannot_be_read_is_passed_over(tmp_path, content):
    file = tmp_path / "pip.conf"
    file.write_bytes(content.encode("latin-1"))
    assert read_index_settings({"PIP_CONFIG_FILE": str(file), "HOME": str(tmp_path)}).links is not None


def test_uv_may_name_the_index():
    assert read_index_settings({**NO_FILES, "UV_INDEX_URL": "https://uv"}).indexes == ("https://uv",)


def test_an_index_may_be_a_folder(tmp_path):
    page = tmp_path / "simple" / "some-package" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text('<a href="../../files/some_package-1.0-py3-none-any.whl#sha256=0">x</a>')
    settings = read_index_settings({**NO_FILES, "PIP_INDEX_URL": f"file://{tmp_path}/simple"})
    path = find_wheel("Some.Package", "some_package-1.0-py3-none-any.whl", settings)
    assert path == str(tmp_path / "files" / "some_package-1.0-py3-none-any.whl")
