"""The small part of JSON Schema that tools use. `check_arguments` knows only this part, and a test checks that it knows
all of it."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


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
