"""What people type: options anywhere, text with dashes, and help."""

import re
import shlex
from pathlib import Path

import click
import pytest

from kept.cli.root import COMMANDS, GROUPS, cli
from tests.support.commands import run_python
from tests.support.files import write_file
from tests.support.terminals import run_on_terminal, without_styles


@pytest.mark.parametrize(
    "args",
    [
        ["status", "--home", "{home}", "--workspace", "{folder}", "--agent", "ada"],
        ["--home", "{home}", "status", "--agent", "ada", "--json", "--workspace={folder}"],
    ],
)
def test_global_options_are_accepted_after_the_command(kept, tmp_path, args):
    folder, other_home = tmp_path / "w", tmp_path / "h"
    (other_home / "agents/ada").mkdir(parents=True)
    write_file(folder / "MEMORY.md", "lighthouse")
    args = [arg.format(home=other_home, folder=folder) for arg in args]
    shown = kept(*args, *([] if "--json" in args else ["--json"])).json
    assert shown["workspaceDir"] == str(folder)
    assert shown["dbPath"] == str(other_home / "agents/ada/index.sqlite")


def test_they_are_accepted_after_the_command_of_a_group_and_settings_add_up(kept, workspace):
    ended = kept(
        "--set", "memory_search.provider=none", "config", "explain", "memory_search", "--json",
        "--set", "memory_search.query.max_results=3",
    )  # fmt: skip
    rows = {row["setting"]: row["value"] for row in ended.json["settings"]}
    assert (rows["memory_search.provider"], rows["memory_search.query.max_results"]) == ("none", 3)
    ended = kept("search", "x", "--set", "nonsense")
    assert (ended.code, "KEY=VALUE" in ended.err) == (2, True)


def test_text_that_begins_with_a_dash_comes_after_two(kept, workspace):
    write_file(workspace / "MEMORY.md", "lighthouse\n")
    ended = kept("search", "--", "rm", "-rf", "/")
    assert (ended.code, ended.out, ended.err) == (0, "Nothing found.\n", "")
    assert kept("add", "--to", "memory/a.md", "--", "-v means verbose").code == 0
    assert (workspace / "memory/a.md").read_text() == "-v means verbose\n"
    assert kept("add", "- buy milk", "--to", "memory/b.md").code == 0, "an item of a list"
    ended = kept("add", "x", "--jsno")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "put '--' before it" in ended.err


def test_add_at_a_terminal_does_not_wait_for_input(environment, workspace):
    shown = run_on_terminal(["add"], {**environment, "KEPT_WORKSPACE": str(workspace)})
    assert "nothing to remember" in shown


@pytest.mark.parametrize("option", ["-n", "--max-results", "--limit"])
def test_the_number_of_results_has_one_name_everywhere(kept, workspace, option):
    write_file(workspace / "memory/a.md", "lighthouse one\n")
    write_file(workspace / "memory/b.md", "lighthouse two\n")
    assert len(kept("search", "lighthouse", option, "1", "--json").json["results"]) == 1
    assert len(kept("list", option, "1", "--json").json["files"]) == 1
    assert len(kept("list", "--changed", option, "1", "--json").json["files"]) == 1
    assert kept("sessions", "list", option, "1", "--json").code == 0


def paths_of(name: str, command: click.Command) -> list[str]:
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    return [name, *(path for child, leaf in inner for path in paths_of(f"{name} {child}", leaf))]


def test_the_overview_is_short():
    listed = [name for names in GROUPS.values() for name in names]
    assert {*COMMANDS} - {*listed} == {"hook", "help"}
    commands = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    paths = {name: paths_of(name, command) for name, command in commands.items() if command}
    assert len(listed) <= 30
    assert sum(len(paths[name]) for name in listed) <= 80


def test_every_example_in_a_help_is_a_command():
    examples = [line for name in COMMANDS for line in examples_of(cli.get_command(click.Context(cli), name))]
    assert len(examples) > 40
    for example in examples:
        words = shlex.split(example.rpartition("| ")[2])
        context = cli.make_context("kept", words[1:])
        args, command = [*context._protected_args, *context.args], cli
        while isinstance(command, click.Group) and args and (inner := command.get_command(context, args[0])):
            command, args = inner, args[1:]
        command.make_context("x", args, parent=context) if args or not isinstance(command, click.Group) else None


def examples_of(command: click.Command) -> list[str]:
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    own = re.findall(r"^ *((?:.*\| )?kept .*)$", (command.help or "").partition("\b")[2], re.MULTILINE)
    return [*own, *(example for leaf in inner for example in examples_of(leaf))]


def test_no_summary_is_cut_and_the_help_fits_80_columns(environment):
    shown = without_styles(run_on_terminal(["--help"], environment))
    assert "..." not in shown.replace("COMMAND ...", "")
    assert max(map(len, shown.split("\n"))) <= 80
    for title in GROUPS:
        assert f"\n{title}:\n" in shown


def test_help_of_a_command_is_the_same_by_both_ways(kept):
    for path in (["search"], ["config", "set"], ["sessions"]):
        ended = kept("help", *path)
        assert ended.code == 0
        assert ended.out == kept(*path, "--help").out
    assert kept("help").out == kept("--help").out
    ended = kept("help", "serach")
    assert (ended.code, "Did you mean 'search'?" in ended.err) == (2, True)
    assert kept("help", "config", "nothing").code == 2


def test_the_first_screen_has_ten_lines(kept):
    ended = kept()
    assert (ended.code, ended.err.count("\n")) == (2, 10)
    assert "kept --help" in ended.err


def test_a_search_imports_no_other_command_and_nothing_that_its_words_do_not_need(environment, workspace, tmp_path):
    write_file(workspace / "MEMORY.md", "The quarterly report is late.\n")
    imported = modules_of(["search", "quarterly report"], environment, workspace, tmp_path)
    unneeded = {"kept.cli.help", "kept.cli.config", "difflib", "kept.search.expansion", "onnxruntime"}
    assert not imported & {*unneeded, "kept.embedding.onnx"}


def modules_of(args: list[str], environment: dict[str, str], workspace: Path, tmp_path: Path) -> set[str]:
    """Return the modules that a command has imported by its end; of other packages, the first part of the name."""
    script = (
        "import atexit, sys; sys.argv[0] = 'kept'\n"
        "from kept.cli import main\n"
        "atexit.register(lambda: print('\\nMODULES', *sys.modules, file=sys.__stderr__))\n"
        "main()"
    )
    env = {**environment, "KEPT_WORKSPACE": str(workspace)}
    ended = run_python(script, *args, env=env, cwd=tmp_path)
    names = ended.stderr.rpartition("MODULES")[2].split()
    assert names, ended.stderr
    return {name if name.startswith("kept.") else name.partition(".")[0] for name in names}


@pytest.mark.parametrize("args", [["mcp"], ["gateway"], ["web"], ["help"], ["hook", "capture"]])
def test_a_command_without_json_refuses_the_option(kept, args):
    for line in (["--json", *args], [*args, "--json"]):
        ended = kept(*line)
        assert ended.code == 2
        assert "has no JSON output" in ended.json["error"]["message"]
