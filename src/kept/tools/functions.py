"""The tools as plain Python functions, for frameworks that turn functions into tools by their signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kept.tools.tool_definitions import TOOLS, Tool

if TYPE_CHECKING:
    from kept.tools.toolbox import Toolbox

_TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


def plain_functions(toolbox: Toolbox) -> list[Callable[..., str]]:
    """Return a function for each tool, with its name, a docstring and typed arguments in snake_case. Each returns the
    text for a model; an error is returned as text too."""
    return [_function(toolbox, tool) for tool in TOOLS]


def _function(toolbox: Toolbox, tool: Tool) -> Callable[..., str]:
    names = {_python_name(name): name for name in tool.parameters["properties"]}
    signature = _signature(tool, names)

    def call(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        return toolbox.run(tool.name, {names[name]: value for name, value in bound.arguments.items()}).text

    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = _docstring(tool, names)
    call.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()} | {
        "return": str
    }
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _signature(tool: Tool, names: dict[str, str]) -> inspect.Signature:
    required = tool.parameters["required"]
    parameters = []
    for python, name in names.items():
        kind: Any = _TYPES[tool.parameters["properties"][name]["type"]]
        is_required = name in required
        parameters.append(
            inspect.Parameter(
                python,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if is_required else None,
                annotation=kind if is_required else kind | None,
            )
        )
    return inspect.Signature(parameters, return_annotation=str)


def _docstring(tool: Tool, names: dict[str, str]) -> str:
    properties = tool.parameters["properties"]
    lines = [f"    {python}: {properties[name]['description']}" for python, name in names.items()]
    return "\n".join([tool.description, *(["", "Args:", *lines] if lines else [])])


def _python_name(name: str) -> str:
    """Return the name in snake_case: maxResults → max_results. A Python keyword gets a trailing underscore."""
    plain = _WORD_START.sub("_", name).lower()
    return f"{plain}_" if plain == "from" else plain
