"""Checking what a model wants to give to a tool, against the tool's own schema and in words it can act on.

Only as much of JSON Schema as the tools use. What a schema here may say, this must know: a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kept.errors import UsageError
from kept.tools.catalogue import Tool
from kept.tools.schema import Schema

_KINDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def check_arguments(tool: Tool, given: object) -> dict[str, Any]:
    """The arguments that were given, or a refusal. One that is null counts as not given."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{tool.name}: the arguments have to be an object.", hint=_takes(tool))
    properties: dict[str, Schema] = tool.parameters["properties"]
    for name in given:
        if name not in properties:
            raise UsageError(f"{tool.name}: there is no argument '{name}'.{_near(name, properties)}", hint=_takes(tool))
    wanted = {name: value for name, value in given.items() if value is not None}
    for name in tool.parameters["required"]:
        if name not in wanted:
            raise UsageError(f"{tool.name}: '{name}' is missing.", hint=str(properties[name]["description"]))
    return {name: _checked(f"{tool.name}: '{name}'", properties[name], value) for name, value in wanted.items()}


def _checked(where: str, schema: Schema, value: Any) -> Any:
    kind = schema["type"]
    hint = str(schema["description"])
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON knows one kind of number
    if not _is_of_kind(kind, value):
        raise UsageError(f"{where} has to be {_KINDS[kind]}.", hint=hint)
    if "enum" in schema and value not in schema["enum"]:
        raise UsageError(f"{where} has to be one of: {', '.join(schema['enum'])}.", hint=hint)
    if isinstance(value, str):
        if not value.strip() and schema.get("minLength"):
            raise UsageError(f"{where} is empty.", hint=hint)
        if len(value) > schema.get("maxLength", len(value)):
            raise UsageError(f"{where} is too long: at most {schema['maxLength']:,} characters.", hint=hint)
    elif "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        raise UsageError(f"{where} has to be from {schema['minimum']} to {schema['maximum']:,}.", hint=hint)
    return value


def _is_of_kind(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case _:
            return isinstance(value, bool)


def _near(name: object, properties: dict[str, Schema]) -> str:
    import difflib

    plain = {one.lower(): one for one in properties}
    near = difflib.get_close_matches(str(name).replace("_", "").lower(), plain, n=1)
    return f" Did you mean '{plain[near[0]]}'?" if near else ""


def _takes(tool: Tool) -> str:
    names = ", ".join(tool.parameters["properties"])
    return f"It takes: {names}." if names else "It takes no arguments."
