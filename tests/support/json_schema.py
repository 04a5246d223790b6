"""Check the JSON of a command against docs/reference/json.schema.json."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.repository import ROOT

SCHEMA = json.loads((ROOT / "docs/reference/json.schema.json").read_text())


def check(name: str, value: Any) -> None:
    schema = {"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{name}"}
    problems = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(value)]
    assert not problems, f"{name}: describe it in docs/reference/json.schema.json. {problems}"
