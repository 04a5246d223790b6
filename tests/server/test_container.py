"""The container files name only what exists. The image itself is not built here."""

import json
import re
import subprocess
import sys

import click

from kept.cli.root import cli
from kept.config import load_config
from kept.config.gateway_settings import ServeSettings
from tests.support.repository import ROOT

DOCKERFILE = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)


def environment() -> dict[str, str]:
    pairs = re.findall(r"(\w+)=(\S+)", " ".join(instructions("ENV")))
    return dict(pairs)


def test_the_image_copies_files_that_are_there_and_in_the_build_context():
    sources = [part for line in instructions("COPY") if "--from" not in line for part in line.split()[:-1]]
    assert {"src", "pyproject.toml", "hatch_build.py", "docs/reference/config.md"} <= {*sources}
    kept = {
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert {*sources} == kept
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_runs_as_nobody_in_particular_with_settings_that_there_are(tmp_path):
    assert instructions("USER") == ["kept"]
    assert "useradd --system" in DOCKERFILE
    names = environment()
    assert names["KEPT_HOME"].startswith(instructions("VOLUME")[0])
    assert names["KEPT_WORKSPACE"].startswith(instructions("VOLUME")[0])
    environ = {name: value for name, value in names.items() if name.startswith("KEPT_")} | {"KEPT_HOME": str(tmp_path)}
    settings = load_config(environ=environ).config.gateway.serve
    assert settings.host == "0.0.0.0"
    assert instructions("EXPOSE") == [str(ServeSettings().port)]
    program, name, *options = json.loads(instructions("CMD")[-1])
    command = cli.get_command(click.Context(cli), name)
    assert program == "kept"
    assert command.make_context(name, options, resilient_parsing=True).params["log_format"] == "json"


def test_the_check_of_the_image_asks_a_path_that_answers(server):
    (check,) = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, *arguments = json.loads(check)
    assert program == "python"
    for port, code in ((server.port, 0), (1, 1)):
        own = [argument.replace("127.0.0.1:8750", f"127.0.0.1:{port}") for argument in arguments]
        assert subprocess.run([sys.executable, *own], capture_output=True, timeout=60).returncode == code
