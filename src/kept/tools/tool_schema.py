"""The small part of JSON Schema that tools use: functions that write it, and the check of a value against it.

The check knows only this part. A test checks that it knows all of it.
"""

from __future__ import annotations

import math
from typing import Any

from kept.errors import UsageError

Schema = dict[str, Any]
_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": int | float, "boolean": bool}
_TYPE_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def whole(description: str, **more: Any) -> Schema:
    return {"type": "integer", "description": description, **more}


def number(description: str, **more: Any) -> Schema:
    return {"type": "number", "description": description, **more}


def or_null(schema: Schema) -> Schema:
    """Allow null. Written as two alternatives, since some clients cannot read a list of types."""
    return {"anyOf": [{"type": schema["type"]}, {"type": "null"}], "description": schema["description"]}


def closed(properties: dict[str, Schema], *, required: tuple[str, ...] | None = None) -> Schema:
    """Return the schema of an object with these properties and no others. All are required by default."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def many(items: Schema, description: str = "") -> Schema:
    return {"type": "array", "items": items, **({"description": description} if description else {})}


def check_value(where: str, schema: Schema, value: Any) -> Any:
    """Return a value that fits the schema of an argument. Raise UsageError, with ``where`` in front, if it does not."""
    type_name = schema["type"]
    hint = str(schema["description"])
    if type_name == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one type for all numbers
    is_type = isinstance(value, _TYPES[type_name]) and isinstance(value, bool) == (type_name == "boolean")
    if not is_type or (isinstance(value, float) and not math.isfinite(value)):
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
