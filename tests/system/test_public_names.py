"""What `kept` promises to those who import it."""

import ast
import doctest
import inspect
import os
import re
from pathlib import Path

import kept
from kept import Memory
from kept.base import records
from tests.support.commands import run_python


def test_public_names_are_all_there_is_to_be_had():
    from_types = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(inspect.getsource(kept)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kept.")
        for alias in node.names
    }
    assert from_types | {"__version__"} == set(kept.__all__), "what type checkers see is what there is"


def test_whatever_the_public_methods_return_is_public():
    named = set()
    for name, method in inspect.getmembers(Memory, inspect.isfunction):
        if not name.startswith("_"):
            named |= set(re.findall(r"\w+", str(inspect.signature(method).return_annotation)))
    ours = {name for name, value in vars(records).items() if getattr(value, "__module__", "") == "kept.base.records"}
    assert named & ours <= set(kept.__all__)


def test_the_examples_in_the_reference_import_only_public_names(request):
    page = (request.config.rootpath / "docs/reference/python.md").read_text()
    modules = set(re.findall(r"^from (kept[\w.]*) import", page, re.MULTILINE))
    assert modules <= {"kept", "kept.aio", "kept.testing"}


def test_importing_the_package_costs_next_to_nothing():
    code = (
        "import sys; import kept; print([name for name in sys.modules if name.startswith(('kept.', 'apsw', 'click'))])"
    )
    assert run_python(code).stdout == "[]\n"


def examples(request) -> dict[str, str]:
    """Every example of Python that a reader may copy."""
    parse = doctest.DocTestParser().get_examples
    readme = (request.config.rootpath / "README.md").read_text()
    found = {
        "the docstring of kept": (kept.__doc__ or "").partition("\n\n")[2],
        "the docstring of Memory": "".join(example.source for example in parse(Memory.__doc__ or "")),
    }
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL), 1):
        found[f"README.md, example {number}"] = block
    return found


def test_the_examples_run_as_they_stand(request, tmp_path):
    (Path.home() / "notes").mkdir()
    for name, code in examples(request).items():
        lead = "" if "import" in code else "from kept import Memory\n"
        ended = run_python(lead + code, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "error"})
        assert ended.stderr == "", name
        assert re.search(r"memory/\d{4}-\d\d-\d\d\.md#L\d+.*5433", ended.stdout, re.DOTALL) or "README" in name
