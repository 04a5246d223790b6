"""The tests mirror src/kept, and share code only through tests.support."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository import ROOT, SOURCE

TESTS = ROOT / "tests"
NOT_MIRRORED = {"support", "system"}
FOLDERS = [folder for folder in sorted(TESTS.iterdir()) if folder.is_dir() and folder.name != "node"]
FILES = [*TESTS.glob("*.py"), *(file for folder in FOLDERS for file in sorted(folder.rglob("*.py")))]


def test_every_folder_is_named_like_the_package_that_it_tests():
    folders = {file.relative_to(TESTS).parts[0] for file in FILES if file.parent != TESTS}
    packages = {folder.name for folder in SOURCE.iterdir() if folder.is_dir()}
    assert folders - NOT_MIRRORED - packages == set()


def test_every_file_at_the_top_is_named_like_the_module_that_it_tests():
    tested = {file.stem.removeprefix("test_") for file in FILES if file.parent == TESTS}
    modules = {file.stem for file in SOURCE.glob("*.py")}
    assert tested - modules - {"__init__", "conftest"} == set()


def test_every_folder_is_a_package():
    assert {file.parent for file in FILES if not (file.parent / "__init__.py").exists()} == set()


def test_tests_share_code_only_through_the_support_package():
    """Imported by its full name. Never from a conftest, a sibling or another test."""
    wrong = [
        f"{file.relative_to(ROOT)}: {module}"
        for file in FILES
        for module in imported_modules(file)
        if is_test_code(module) and module.split(".")[:2] != ["tests", "support"]
    ]
    assert wrong == []


def test_a_conftest_holds_fixtures_only():
    functions = [
        node
        for file in FILES
        if file.name == "conftest.py"
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    assert functions
    assert [
        node.name for node in functions if not any("fixture" in ast.dump(mark) for mark in node.decorator_list)
    ] == []


def is_test_code(module: str) -> bool:
    return module.startswith((".", "tests.")) or module in ("tests", "conftest")


def imported_modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
