"""The page about local models names what there is."""

from __future__ import annotations

from dataclasses import fields

from kept.config import LocalModelSettings
from kept.embedding.local_model import _ONNX_NAMES
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "tasks" / "local-models.md"


def test_every_setting_of_a_local_model_is_documented_with_its_default():
    page = PAGE.read_text(encoding="utf-8")
    for spec in fields(LocalModelSettings):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{spec.name}` |"))
        shown = {None: ("none", "null"), "auto": ("`auto`",)}.get(spec.default, (str(spec.default),))
        assert row.split("|")[2].strip() in shown


def test_every_name_that_a_model_is_found_under_is_documented():
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in _ONNX_NAMES if f"`{name}`" not in page] == []
