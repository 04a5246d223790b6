"""Python functions as tools of an agent: the schema comes from the signature, the description from the docstring.

Arguments of a call are checked against the schema before the function runs, so it never sees a wrong type.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, Union

from kept.errors import UsageError
from kept.limits import clip
from kept.llm.base import MALFORMED, ToolSpec
from kept.values import frozen

Permission = Literal["allow", "ask", "deny"]
"""``allow``: the model may call it. ``ask``: a person decides about each call. ``deny``: it is not offered."""
Schema = dict[str, Any]
DEFAULT_TIMEOUT_S = 60.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SIMPLE: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_TIMES: Mapping[Any, str] = {dt.datetime: "date-time", dt.date: "date"}
_ARGS_HEADING = re.compile(r"(?:args|arguments|parameters|params)\s*:\s*", re.IGNORECASE)
_OTHER_HEADING = re.compile(r"(?:returns?|raises|yields|examples?|notes?)\s*:\s*", re.IGNORECASE)
_ARG_LINE = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_FIELD = re.compile(r"\s*:param\s+(?:[\w\[\], .|]+\s+)?(\w+)\s*:\s*(.*)")


@frozen
class ToolAnswer:
    """Result of a tool for the model. An error is a result too: the model reads it and can react."""

    text: str
    is_error: bool = False


class AgentTool(Protocol):
    """Tool of an agent besides those of the memory."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def permission(self) -> Permission: ...

    async def call(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Run the tool. Every failure is an answer."""
        ...


class FunctionTool:
    """Function that a model may call. A function that is not async runs in a thread.

    >>> Agent(memory, sessions, model, tools=[weather, FunctionTool(send_mail, permission="ask", timeout_s=10)])
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        permission: Permission = "allow",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        if not callable(function):
            raise UsageError(f"{function!r:.80} is not a function.", hint="A tool is a Python function.")
        self.permission: Permission = permission
        self._function = function
        self._timeout_s = timeout_s
        self._is_async = _is_async(function)
        tool_name = str(name or getattr(function, "__name__", ""))
        if not _NAME.fullmatch(tool_name):
            raise UsageError(
                f"'{tool_name}' cannot be the name of a tool.", hint="Use letters, digits, '_' and '-', at most 64."
            )
        self._parameters = _readable_parameters(function, tool_name)
        text, descriptions = parse_docstring(inspect.getdoc(function) or "")
        schema = _signature_schema(self._parameters, tool_name, descriptions)
        self.spec = ToolSpec(tool_name, description or text or tool_name.replace("_", " "), schema)

    async def call(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        try:
            values = self._check(arguments)
        except UsageError as exc:
            return ToolAnswer(f"{exc.message} {exc.hint}".strip(), is_error=True)
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._is_async:
                    result = await self._function(**values)
                else:
                    result = await asyncio.to_thread(self._function, **values)
        except TimeoutError:
            # A thread cannot be stopped: the function may still finish.
            doubt = "" if self._is_async else " It may still be carried out."
            return ToolAnswer(f"{self.spec.name} took longer than {self._timeout_s:g} s.{doubt}", is_error=True)
        except Exception as exc:  # noqa: BLE001 - the author's function may raise anything, and the model has to know
            return ToolAnswer(f"{self.spec.name} failed: {type(exc).__name__}: {clip(str(exc), 500)}", is_error=True)
        return ToolAnswer(result_text(result))

    def _check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them."""
        if MALFORMED in arguments:
            raise UsageError(f"{self.spec.name}: the arguments are not a JSON object.")
        unknown = [name for name in arguments if name not in self._parameters]
        if unknown:
            known = ", ".join(self._parameters) or "none"
            raise UsageError(f"{self.spec.name}: there is no argument '{unknown[0]}'.", hint=f"It takes: {known}.")
        values: dict[str, Any] = {}
        for name, (kind, default) in self._parameters.items():
            if name in arguments:
                values[name] = _convert(kind, arguments[name], f"{self.spec.name}: '{name}'")
            elif default is inspect.Parameter.empty:
                raise UsageError(f"{self.spec.name}: '{name}' is missing.")
        return values


def as_tools(items: Sequence[Callable[..., Any] | FunctionTool]) -> list[FunctionTool]:
    """Return tools for functions. Raise UsageError if two have the same name."""
    tools = [item if isinstance(item, FunctionTool) else FunctionTool(item) for item in items]
    names = [tool.spec.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Two tools are called '{name}'.", hint="Wrap one: FunctionTool(function, name='…').")
    return tools


def result_text(result: Any) -> str:
    """Return what a function returned, as text for a model."""
    if result is None:
        return "Done."
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(result)


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is async too
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


# signatures


def _readable_parameters(function: Callable[..., Any], name: str) -> dict[str, tuple[Any, Any]]:
    """Return type and default of each parameter. Raise UsageError for one that a model cannot give."""
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(
            function if inspect.isroutine(function) else type(function).__call__, include_extras=True
        )
    except (TypeError, ValueError, NameError) as exc:
        raise UsageError(f"The signature of '{name}' cannot be read ({exc}).") from exc
    parameters: dict[str, tuple[Any, Any]] = {}
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UsageError(
                f"'{name}' takes '{parameter}', which a model cannot give by name.", hint="Name every argument."
            )
        parameters[parameter.name] = (hints.get(parameter.name, Any), parameter.default)
    return parameters


def _signature_schema(parameters: dict[str, tuple[Any, Any]], name: str, descriptions: Mapping[str, str]) -> Schema:
    properties: dict[str, Schema] = {}
    for parameter, (kind, _) in parameters.items():
        schema = type_schema(kind, f"{name}: '{parameter}'")
        if parameter in descriptions:
            schema["description"] = descriptions[parameter]
        properties[parameter] = schema
    required = [parameter for parameter, (_, default) in parameters.items() if default is inspect.Parameter.empty]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def type_schema(kind: Any, where: str) -> Schema:
    """Return the JSON Schema of a type. Raise UsageError for a type that JSON cannot express."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if kind in _TIMES:
        return {"type": "string", "format": _TIMES[kind]}
    if kind is Any or kind is inspect.Parameter.empty:
        return {}
    if origin is typing.Annotated:
        note = next((item for item in arguments[1:] if isinstance(item, str)), None)
        return {**type_schema(arguments[0], where), **({"description": note} if note else {})}
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if item is type(None) else type_schema(item, where) for item in arguments]}
    if kind in (list, tuple) or origin in (list, tuple, Sequence):
        items = [item for item in arguments if item is not Ellipsis]
        return {"type": "array", "items": type_schema(items[0], where) if items else {}}
    if kind is dict or origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": type_schema(arguments[1], where) if arguments else {}}
    raise UsageError(
        f"{where} has the type {kind!r:.80}, which JSON cannot express.",
        hint="Use str, int, float, bool, date, datetime, list, dict, Literal or an Enum.",
    )


# values


def _convert(kind: Any, value: Any, where: str) -> Any:
    """Return a JSON value as a type. Raise UsageError if it is not of that type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if kind in _SIMPLE:
        return _convert_simple(kind, value, where)
    if kind in _TIMES:
        return _convert_time(kind, value, where)
    if origin is typing.Annotated:
        return _convert(arguments[0], value, where)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        return _convert_choice(kind, value, where)
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, where)
    return _convert_collection(kind, origin, arguments, value, where)


def _convert_simple(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is int and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is kind:
        return value
    raise UsageError(f"{where} has to be {_SIMPLE[kind]}, not {value!r:.80}.")


def _convert_time(kind: Any, value: Any, where: str) -> Any:
    try:
        return kind.fromisoformat(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where} has to be a {_TIMES[kind]} in ISO 8601, not {value!r:.80}.") from None


def _convert_choice(kind: Any, value: Any, where: str) -> Any:
    is_enum = isinstance(kind, type)
    allowed = [member.value for member in kind] if is_enum else list(typing.get_args(kind))
    if value not in allowed or isinstance(value, bool) != any(value is item for item in (True, False)):
        raise UsageError(f"{where} has to be one of {', '.join(map(repr, allowed))}, not {value!r:.80}.")
    return kind(value) if is_enum else value


def _convert_union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    error: UsageError | None = None
    for option in options:
        if option is not type(None):
            try:
                return _convert(option, value, where)
            except UsageError as exc:
                error = error or exc
    raise error or UsageError(f"{where} has to be null, not {value!r:.80}.")


def _convert_collection(kind: Any, origin: Any, arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if kind is dict or origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise UsageError(f"{where} has to be an object, not {value!r:.80}.")
        item = arguments[1] if arguments else Any
        return {name: _convert(item, element, f"{where}.{name}") for name, element in value.items()}
    if not isinstance(value, list):
        raise UsageError(f"{where} has to be a list, not {value!r:.80}.")
    item = next((argument for argument in arguments if argument is not Ellipsis), Any)
    elements = [_convert(item, element, f"{where}[{at}]") for at, element in enumerate(value)]
    return tuple(elements) if tuple in (kind, origin) else elements


# docstrings


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description, and what it says about each argument: below "Args:", or after ":param name:"."""
    description: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, current = "text", ""
    for line in text.splitlines():
        if _ARGS_HEADING.fullmatch(line.strip()):
            section, current = "args", ""
        elif _OTHER_HEADING.fullmatch(line.strip()):
            section = "other"
        elif field := _FIELD.fullmatch(line):
            section, current = "fields", field[1]
            arguments[current] = [field[2]]
        elif section == "args" and line and not line[0].isspace():
            section = "text"
            description.append(line)
        elif section == "args" and (named := _ARG_LINE.fullmatch(line)) and _is_item(line, arguments, text):
            current = named[1]
            arguments[current] = [named[2]]
        elif section in ("args", "fields") and current and line.strip():
            arguments[current].append(line.strip())
        elif section == "text":
            description.append(line)
    return "\n".join(description).strip(), {name: " ".join(parts).strip() for name, parts in arguments.items()}


def _is_item(line: str, arguments: Mapping[str, Sequence[str]], text: str) -> bool:
    """Return whether a line names an argument: it is indented like the first of them."""
    if not arguments:
        return True
    first = next(other for other in text.splitlines() if (item := _ARG_LINE.fullmatch(other)) and item[1] in arguments)
    return len(line) - len(line.lstrip()) <= len(first) - len(first.lstrip())
