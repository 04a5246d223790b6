"""Checking the arguments of a call against the tool's schema, with messages that a model can act on.

This knows only the parts of JSON Schema that the tools use. A test checks that it knows all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kept.errors import UsageError
from kept.tools.output_schema import Schema
from kept.tools.tool_definitions import Tool

_TYPE_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def check_arguments(tool: Tool, arguments: object) -> dict[str, Any]:
    """Return the arguments without those that are null. Raise UsageError if the tool does not take them."""
    if not isinstance(arguments, Mapping):
        raise UsageError(f"{tool.name}: the arguments have to be an object.", hint=_takes(tool))
    properties: dict[str, Schema] = tool.parameters["properties"]
    for name in arguments:
        if name not in properties:
            raise UsageError(f"{tool.name}: there is no argument '{name}'.{_near(name, properties)}", hint=_takes(tool))
    present = {name: value for name, value in arguments.items() if value is not None}
    for name in tool.parameters["required"]:
        if name not in present:
            raise UsageError(f"{tool.name}: '{name}' is missing.", hint=str(properties[name]["description"]))
    return {name: _checked(f"{tool.name}: '{name}'", properties[name], value) for name, value in present.items()}


def _checked(where: str, schema: Schema, value: Any) -> Any:
    type_name = schema["type"]
    hint = str(schema["description"])
    if type_name == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one type for all numbers
    if not _has_type(type_name, value):
        raise UsageError(f"{where} has to be {_TYPE_WORDS[type_name]}.", hint=hint)
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


def _has_type(type_name: str, value: Any) -> bool:
    match type_name:
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

    plain = {known.lower(): known for known in properties}
    near = difflib.get_close_matches(str(name).replace("_", "").lower(), plain, n=1)
    return f" Did you mean '{plain[near[0]]}'?" if near else ""


def _takes(tool: Tool) -> str:
    names = ", ".join(tool.parameters["properties"])
    return f"It takes: {names}." if names else "It takes no arguments."
