"""What the documentation says is so, and everything there is, is in it."""

import re
import subprocess
import sys

import click
import pytest

from kept.cli.root import COMMANDS, cli
from kept.config.read import settings_of
from kept.config.schema import Settings
from tests.support.repository import ROOT

DOCS = sorted(ROOT.glob("docs/**/*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]


def every_command() -> list[tuple[str, click.Command]]:
    found = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [(f"{name} {inner}", one) for inner, one in command.commands.items()]
        else:
            found.append((name, command))
    return found


def test_every_command_and_option_is_documented():
    page = (ROOT / "docs/reference/cli.md").read_text()
    for name, command in every_command():
        row = next((line for line in page.splitlines() if line.startswith(f"| `{name}")), "")
        assert row, f"'{name}' is not in docs/reference/cli.md"
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert any(spelling in row for spelling in option.opts), f"{name}: {option.opts}"
    for option in cli.params:
        assert f"`{option.opts[0]}" in page


def test_every_setting_is_documented_with_its_default():
    page = (ROOT / "docs/reference/config.md").read_text()
    for name, value, _ in settings_of(Settings()):
        row = re.search(rf"^\| `{re.escape(name)}` \| (.*?) \|", page, re.MULTILINE)
        assert row, f"{name} is not in docs/reference/config.md"
        if isinstance(value, bool | int | float):
            assert row.group(1).replace(",", "") == str(value).lower(), name


def test_the_readme_is_short_and_begins_with_its_two_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) < 700
    assert text.index("make demo") < text.index("make test") < 700


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


# Those that need a model are run against one in tests/tools.
ALONE = sorted(path for path in ROOT.glob("examples/*.py") if not path.stem.endswith("_tools"))


@pytest.mark.parametrize("example", ALONE, ids=lambda path: path.name)
def test_every_example_runs(example, tmp_path):
    done = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""
