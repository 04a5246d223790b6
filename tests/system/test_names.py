"""One name for one thing, in the whole tree."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.repository import SOURCE

SAME_ROLE = {
    *("base", "registry"),
    *("gemini", "openai", "voyage"),  # a provider, in the packages for chat models, embeddings and batches
    *("agents", "doctor", "gateway", "index", "status"),  # a command, beside what it calls
    *("filter_sql", "generation", "vectors"),
}
"""Module names that may repeat: the same role in parallel packages, such as the two kinds of index."""

MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def repeated(names: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {name: [str(path.relative_to(SOURCE)) for path in paths] for name, paths in names.items() if len(paths) > 1}


def test_no_two_classes_share_a_name():
    classes = defaultdict(list)
    for path in MODULES:
        for node in tree_of(path).body:
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
    tree = tree_of(SOURCE / "config" / "schema.py")
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name in classes if not name.endswith("Settings")] == []


VAGUE = {"begun", "drawn", "found", "given", "gone", "got", "kept", "made", "one", "said", "thing", "told"}
"""Names that say how a value came about, and not what it is."""


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the variables and arguments of functions, with their lines. Fields of a class are not variables."""
    nodes = [(tree, False)]
    while nodes:
        node, is_in_function = nodes.pop()
        is_in_function = is_in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_in_function and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif is_in_function and isinstance(node, ast.arg):
            yield node.arg, node.lineno
        nodes += ((child, is_in_function) for child in ast.iter_child_nodes(node))


def test_variables_are_named_by_what_they_are():
    vague = [
        f"{path.relative_to(SOURCE)}:{line} {name}"
        for path in MODULES
        for name, line in bound_names(tree_of(path))
        if name in VAGUE
    ]
    assert vague == []


NOT_VERBS = {"A", "All", "An", "How", "That", "The", "These", "This", "What", "Where", "Whether", "Which", "Who"}


def test_docstrings_of_functions_begin_with_a_verb():
    wrong = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node):
                first = (ast.get_docstring(node) or "Return").split()[0].strip(".,:;")
                if first in NOT_VERBS or (first.endswith("s") and not first.endswith("ss") and first.isalpha()):
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}: {first}")
    assert wrong == []


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


WITHOUT_MAP = {".", "cli", "sessions/importers"}
"""Packages whose docstring lists no modules: these are named after commands, pages, programs and parts of a model."""


def test_the_docstring_of_a_package_names_its_modules():
    missing = {}
    for init in SOURCE.rglob("__init__.py"):
        text = ast.get_docstring(tree_of(init)) or ""
        folder = init.parent
        modules = [path.stem for path in folder.glob("*.py") if path != init]
        modules += [path.parent.name for path in folder.glob("*/__init__.py")]
        left_out = [name for name in modules if not re.search(rf"\b{name}\b", text)]
        if left_out and str(folder.relative_to(SOURCE)) not in WITHOUT_MAP:
            missing[str(folder.relative_to(SOURCE))] = left_out
    assert missing == {}, "name these modules in the docstring of their package, where a newcomer looks for them"
