"""Changes settings of one agent in a settings file, and leaves every other character as it is.

The YAML parser reports where each value is, so a value is replaced, or a line inserted, at that place. The result is
parsed again: unless it is the old settings with the new values and nothing else, the change is refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kept.config.read import snake
from kept.config.settings_file import read_settings
from kept.errors import ConfigError
from kept.safe_yaml import YamlRefused, load_yaml

_BOM = b"\xef\xbb\xbf"


def plan_entry(path: str, agent_id: str, values: Mapping[str, str]) -> bytes:
    """Return the content of a settings file after setting ``values`` in the agent's entry of agents.list.

    Raise ConfigError if the file cannot be changed without touching anything else.
    """
    raw = read_settings(path) or b""
    try:
        text = raw.removeprefix(_BOM).decode("utf-8")
        expected = _put(load_yaml(text), agent_id, values)
        changed = text
        for key, value in values.items():
            changed = _set_value(changed, agent_id, key, json.dumps(value, ensure_ascii=False))
        is_right = load_yaml(changed) == expected
    except (YamlRefused, UnicodeDecodeError, _NotEditable):
        is_right = False
    if not is_right:
        wanted = ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
        raise ConfigError(
            f"{path}: cannot be changed here without touching other settings.",
            hint=f"Change it by hand: in agents.list, the entry with id {agent_id} needs {wanted}.",
        )
    return (_BOM if raw.startswith(_BOM) else b"") + changed.encode("utf-8")


def plan_entry_removal(path: str, agent_id: str) -> bytes | None:
    """Return the content of a settings file without the agent's entries, or None if it has none.

    Raise ConfigError if the file cannot be changed without touching anything else.
    """
    raw = read_settings(path) or b""
    try:
        text = raw.removeprefix(_BOM).decode("utf-8")
        expected = _without(load_yaml(text), agent_id)
        if expected is None:
            return None
        changed = _cut_entries(text, agent_id)
        is_right = load_yaml(changed) == expected
    except (YamlRefused, UnicodeDecodeError, _NotEditable):
        is_right = False
    if not is_right:
        raise ConfigError(
            f"{path}: cannot be changed here without touching other settings.",
            hint=f"Change it by hand: delete the entry with id {agent_id} from agents.list.",
        )
    return (_BOM if raw.startswith(_BOM) else b"") + changed.encode("utf-8")


def entry_lines(agent_id: str, values: Mapping[str, str], *, indent: str) -> str:
    """Return an entry of agents.list as YAML. JSON strings are valid there, and quote anything a path may contain."""
    lines = [f"{indent}- id: {json.dumps(agent_id)}"]
    lines += [f"{indent}  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


class _NotEditable(Exception):
    pass


@contextmanager
def _refusing_other_shapes() -> Iterator[None]:
    """Raise _NotEditable for a file whose lists and mappings are not those of settings."""
    try:
        yield
    except (TypeError, AttributeError, LookupError):
        raise _NotEditable from None


def _put(tree: Any, agent_id: str, values: Mapping[str, str]) -> Any:
    """Return the settings with the values. Of several entries for an agent, the last one counts."""
    changed = copy.deepcopy(tree) or {}
    with _refusing_other_shapes():
        changed["agents"] = changed.get("agents") or {}
        changed["agents"]["list"] = entries = changed["agents"].get("list") or []
        entry = next((entry for entry in reversed(entries) if str(entry["id"]) == agent_id), None)
        if entry is None:
            entry = {"id": agent_id}
            entries.append(entry)
        for key, value in values.items():
            entry[next((name for name in entry if snake(str(name)) == key), key)] = value
    return changed


def _without(tree: Any, agent_id: str) -> Any:
    """Return the settings without the agent's entries, or None if there are none."""
    changed = copy.deepcopy(tree) or {}
    with _refusing_other_shapes():
        entries = (changed.get("agents") or {}).get("list") or []
        rest = [entry for entry in entries if str(entry["id"]) != agent_id]
        if len(rest) == len(entries):
            return None
        changed["agents"]["list"] = rest or None
    return changed


def _cut_entries(text: str, agent_id: str) -> str:
    import yaml

    while True:
        root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
        _, agents = _find(root, "agents")
        _, entries = _find(agents, "list")
        entry = next((item for item in entries.value if _id_of(item) == agent_id), None) if entries.value else None
        if entry is None:
            return text
        text = _cut_item(text, entries, entries.value.index(entry))


def _cut_item(text: str, entries: Any, number: int) -> str:
    """Return the text without one item of a list."""
    item = entries.value[number]
    if len(entries.value) == 1 and entries.flow_style:
        return f"{text[: entries.start_mark.index]}null{text[entries.end_mark.index :]}"
    if entries.flow_style:  # with the comma before it, or for the first with the one after it
        start = entries.value[number - 1].end_mark.index if number else item.start_mark.index
        end = item.end_mark.index if number else entries.value[1].start_mark.index
        return text[:start] + text[end:]
    start = text.rfind("\n", 0, item.start_mark.index) + 1
    if text[start : item.start_mark.index].strip() not in ("-", ""):
        raise _NotEditable
    end = text.find("\n", _end_of(item))
    return text[:start] + (text[end + 1 :] if end >= 0 else "")


def _set_value(text: str, agent_id: str, key: str, value: str) -> str:
    import yaml

    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    new_line = "\r\n" if "\r\n" in text else "\n"
    if root is None:
        return _append(text, f"agents:\n  list:\n    - id: {json.dumps(agent_id)}\n      {key}: {value}\n", new_line)
    _, agents = _find(root, "agents")
    if agents is None:
        if root.flow_style:
            raise _NotEditable
        return _append(text, f"agents:\n  list:\n    - id: {json.dumps(agent_id)}\n      {key}: {value}\n", new_line)
    name, entries = _find(agents, "list") if _is_mapping(agents) else (None, None)
    if entries is None or _is_empty(entries):
        return _new_list(text, agents, name, entries, agent_id, key, value, new_line)
    entry = next((item for item in reversed(entries.value) if _id_of(item) == agent_id), None)
    if entry is None:
        return _new_entry(text, entries, agent_id, key, value, new_line)
    return _new_value(text, entry, key, value, new_line)


def _new_list(
    text: str, agents: Any, name: Any, entries: Any, agent_id: str, key: str, value: str, new_line: str
) -> str:
    """Add the list to `agents`, which has none or an empty one."""
    if name is not None:
        if entries.start_mark.index != entries.end_mark.index:  # [], null
            start = entries.start_mark.index
            return text[:start] + f"[{_flow_entry(agent_id, key, value)}]" + text[entries.end_mark.index :]
        indent = " " * (name.start_mark.column + 2)
        return _insert(text, name.end_mark.index, _block_entry(indent, agent_id, key, value), new_line)
    if _is_empty(agents) and agents.start_mark.index == agents.end_mark.index:
        return _insert(text, agents.end_mark.index, "  list:\n" + _block_entry("    ", agent_id, key, value), new_line)
    if agents.flow_style or not _is_mapping(agents):
        if not _is_mapping(agents):
            raise _NotEditable
        comma = ", " if agents.value else ""
        at = agents.end_mark.index - 1
        return f"{text[:at]}{comma}list: [{_flow_entry(agent_id, key, value)}]{text[at:]}"
    indent = " " * agents.start_mark.column
    lines = f"{indent}list:\n" + _block_entry(f"{indent}  ", agent_id, key, value)
    return _insert(text, _end_of(agents), lines, new_line)


def _new_entry(text: str, entries: Any, agent_id: str, key: str, value: str, new_line: str) -> str:
    if entries.flow_style:
        at = entries.end_mark.index - 1
        return f"{text[:at]}, {_flow_entry(agent_id, key, value)}{text[at:]}"
    indent = " " * entries.start_mark.column
    return _insert(text, _end_of(entries), _block_entry(indent, agent_id, key, value), new_line)


def _new_value(text: str, entry: Any, key: str, value: str, new_line: str) -> str:
    _, node = _find(entry, key)
    if node is not None:
        start, end = node.start_mark.index, node.end_mark.index
        return f"{text[:start]}{' ' if start == end else ''}{value}{text[end:]}"
    # After the workspace, if there is one, else after the id.
    _, before = max((_find(entry, name) for name in ("id", "workspace")), key=lambda pair: _position(pair[1]))
    if entry.flow_style:
        at = before.end_mark.index
        return f"{text[:at]}, {key}: {value}{text[at:]}"
    return _insert(text, _end_of(before), f"{' ' * entry.start_mark.column}{key}: {value}\n", new_line)


def _position(node: Any) -> int:
    return -1 if node is None else int(node.end_mark.index)


def _block_entry(indent: str, agent_id: str, key: str, value: str) -> str:
    return f"{indent}- id: {json.dumps(agent_id)}\n{indent}  {key}: {value}\n"


def _flow_entry(agent_id: str, key: str, value: str) -> str:
    return f"{{id: {json.dumps(agent_id)}, {key}: {value}}}"


def _find(mapping: Any, key: str) -> tuple[Any, Any]:
    """Return the nodes of a key and of its value, or None twice. Keys may be written in camelCase."""
    if not _is_mapping(mapping):
        return None, None
    return next(((name, node) for name, node in mapping.value if snake(str(name.value)) == key), (None, None))


def _id_of(entry: Any) -> str | None:
    _, node = _find(entry, "id")
    return None if node is None else str(node.value)


def _is_mapping(node: Any) -> bool:
    return str(getattr(node, "id", "")) == "mapping"


def _is_empty(node: Any) -> bool:
    return not node.value or (node.id == "scalar" and node.tag.endswith(":null"))


def _end_of(node: Any) -> int:
    """Return where the text of a node ends. A block collection reports the next token instead, after any comments."""
    while node.id != "scalar" and not node.flow_style and node.value:
        node = node.value[-1][1] if node.id == "mapping" else node.value[-1]
    end: int = node.end_mark.index
    return end


def _insert(text: str, at: int, lines: str, new_line: str) -> str:
    """Insert lines after the line in which position ``at`` is."""
    if at == 0 or text[at - 1] != "\n":
        end = text.find("\n", at)
        if end < 0:
            return _append(text, lines, new_line)
        at = end + 1
    return text[:at] + lines.replace("\n", new_line) + text[at:]


def _append(text: str, lines: str, new_line: str) -> str:
    separator = new_line if text and not text.endswith("\n") else ""
    return text + separator + lines.replace("\n", new_line)
