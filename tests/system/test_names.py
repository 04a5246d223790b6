"""One name for one thing, in the whole tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.support.repository import SOURCE

SAME_ROLE = {
    "base",
    "registry",
    # a provider, in the packages for chat models, embeddings and batches
    "gemini",
    "openai",
    "voyage",
    # a command, beside what it calls
    "agents",
    "projects",
    "doctor",
    "gateway",
    "index",
    "status",
    "undo",
    "watch",
}
"""Module names that may repeat: the same role in parallel packages."""

MODULES = sorted(SOURCE.rglob("*.py"))


def repeated(names: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {name: [str(path.relative_to(SOURCE)) for path in paths] for name, paths in names.items() if len(paths) > 1}


def test_no_two_classes_share_a_name():
    classes = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path)
    assert repeated(classes) == {}


def test_no_two_modules_share_a_name_unless_they_have_the_same_role():
    modules = defaultdict(list)
    for path in MODULES:
        if path.name != "__init__.py":
            modules[path.stem].append(path)
    assert set(repeated(modules)) - SAME_ROLE == set()


def test_classes_of_settings_say_that_they_are():
    tree = ast.parse((SOURCE / "config" / "schema.py").read_text(encoding="utf-8"))
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name in classes if not name.endswith("Settings")] == ["Config"]
