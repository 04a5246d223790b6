"""Background services: definitions that the service manager accepts, and what installing and removing one runs."""

import os
import plistlib
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from kept.cli.background_service import property_list, unit_text
from tests.support.commands import KEPT
from tests.support.files import write_file

UNIT = ".config/systemd/user"


@pytest.fixture
def service(kept, tmp_path, environment):
    """Run a command as somebody whose home is Kept's default one, with a systemctl that writes down its calls."""
    user = Path(environment["HOME"])
    program = write_file(
        tmp_path / "bin/systemctl",
        f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\ncase "$2" in is-active) echo active;; esac\n'
        f'test ! -e "{tmp_path}/broken" || {{ echo "Failed to connect to bus" >&2; exit 1; }}\n',
    )
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "KEPT_HOME": str(user / ".kept"), "KEPT_WORKSPACE": ""}

    def run(*args: str, **more: str):
        return kept(*args, env={**env, **more})

    return run


def parsed(text: str) -> ConfigParser:
    unit = ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(text)
    return unit


def verify(text: str, tmp_path: Path, name: str) -> None:
    """Let systemd itself read the unit, where it is installed."""
    if shutil.which("systemd-analyze"):
        unit = write_file(tmp_path / f"units/{name}.service", text)
        checked = subprocess.run(
            ["systemd-analyze", "--user", "verify", str(unit)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("program", ["gateway", "serve", "index"])
def test_installing_writes_a_unit_that_systemd_accepts_and_starts_it(service, tmp_path, environment, program):
    ended = service(program, "--install")
    assert (ended.code, f"kept-{program} runs" in ended.out) == (0, True)
    file = Path(environment["HOME"]) / UNIT / f"kept-{program}.service"
    unit = parsed(file.read_text())
    words = [KEPT, program, *(["--watch"] if program == "index" else [])]
    assert shlex.split(unit["Service"]["ExecStart"]) == words
    assert unit["Service"]["EnvironmentFile"] == f"-{environment['HOME']}/.kept/service.env"
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Install"]["WantedBy"] == "default.target"
    for name in unit["Service"]:
        assert not name.startswith(("Protect", "ReadWrite", "Private", "Inaccessible")), "notes may be anywhere"
    verify(file.read_text(), tmp_path, f"kept-{program}")
    assert "service.env" in ended.err, "variables of the shell do not reach it"
    calls = [f"--user {line}" for line in ("daemon-reload", f"enable {file.name}", f"restart {file.name}")]
    assert (tmp_path / "calls").read_text().splitlines() == calls
    assert (service(program, "--uninstall").code, file.exists()) == (0, False)
    assert f"--user disable --now {file.name}" in (tmp_path / "calls").read_text()
    assert service(program, "--uninstall").code == 0, "once more changes nothing"


def test_home_agent_and_settings_of_the_command_are_in_the_unit(service, tmp_path, environment):
    home = tmp_path / 'ho me$x%y"q'
    write_file(home / "config.yaml", "agents: {list: [{id: coder}]}\n")
    options = ("--agent", "coder", "--set", "memory_search.provider=none")
    service("index", "--install", *options, KEPT_HOME=str(home))
    text = (Path(environment["HOME"]) / UNIT / "kept-index-ho-me-x-y-q-coder.service").read_text()
    verify(text, tmp_path, "kept-index")
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(line.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
    assert words == [KEPT, "--home", str(home), *options, "index", "--watch"]


def test_a_unit_of_somebody_else_is_neither_replaced_nor_removed(service, environment):
    file = write_file(Path(environment["HOME"]) / UNIT / "kept-index.service", "[Service]\nExecStart=/bin/true\n")
    for option in ("--install", "--uninstall"):
        ended = service("index", option)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "not written by Kept" in ended.err
    assert file.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_a_service_manager_that_refuses_is_one_line_with_the_command_to_run(service, tmp_path):
    write_file(tmp_path / "broken", "")
    ended = service("index", "--install")
    assert (ended.code, ended.err.count("\n")) == (12, 1)
    assert "Failed to connect to bus" in ended.err
    assert "Run it yourself: systemctl --user daemon-reload" in ended.err
    assert service("index", "--install", "--force").code == 2


def test_control_characters_in_a_path_stay_inside_their_line():
    text = unit_text("kept-index", ("/k\nExecStop=/bin/evil", "index"), "/e")
    assert [line for line in text.splitlines() if line.startswith("ExecS")] == [
        'ExecStart="/k\\x0aExecStop=/bin/evil" "index"'
    ]


def test_a_property_list_for_launchd_is_valid():
    values = plistlib.loads(property_list("kept-gateway", "org.kept.kept-gateway", ("/bin/kept", "<a&b>")).encode())
    assert values["ProgramArguments"] == ["/bin/kept", "<a&b>"]
    assert values["KeepAlive"] == {"SuccessfulExit": False}
    assert values["EnvironmentVariables"] == {"PATH": os.environ["PATH"]}
