"""The example of a package that adds a provider, as the documentation shows it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.support.files import write_file
from tests.support.repository import ROOT

EXAMPLE = ROOT / "examples" / "embedder_plugin"


def install(site: Path) -> None:
    """As pip would, without a network: the module beside what its metadata says."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    write_file(info / "METADATA", f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]["kept.embedders"]
    write_file(info / "entry_points.txt", "[kept.embedders]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    write_file(site / "kept_letters.py", (EXAMPLE / "kept_letters.py").read_text())


def test_the_example_adds_a_provider_that_indexes_and_searches(workspace, tmp_path, kept):
    install(tmp_path / "site")
    env = {"PYTHONPATH": str(tmp_path / "site"), "KEPT_MEMORY_SEARCH__PROVIDER": "letters"}
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Zebras graze on the savannah.\n- The mill is closed.\n")
    output = kept("search", "zebra", "--json", env=env).json
    assert (output["provider"], output["model"], output["degraded"]) == ("letters", "count-1", [])
    assert output["results"][0]["citation"] == "MEMORY.md#L1-L3"
    assert output["results"][0]["vectorScore"] is not None
    listed = {provider["name"]: provider for provider in kept("models", "--json", env=env).json["providers"]}
    assert (listed["letters"]["inUse"], listed["letters"]["dims"]) == (True, 26)
    assert kept("models", "test", "letters", "--json", env=env).json["dims"] == 26
