"""Which repository a folder belongs to, without running git."""

import os

import pytest

from kept.base.git_remote import find_remote, find_root, normalise_remote, repository_keys
from tests.support.files import write_file

SAME = [
    "git@github.com:ada/otter.git",
    "github.com:ada/otter",
    "https://github.com/ada/otter",
    "https://ada:token@GitHub.com:443/ada/otter.git/",
    "http://github.com/ada/otter.git",
    "ssh://git@github.com:2222/ada/otter.git",
    "git://github.com/ada/otter.git",
    " github.com/ada/otter ",
]


@pytest.mark.parametrize("url", SAME)
def test_all_addresses_of_one_repository_are_the_same(url):
    assert normalise_remote(url) == "github.com/ada/otter"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://host:8443/a/b", "host:8443/a/b"),
        ("host:8443/a/b", "host:8443/a/b"),
        ("git@host:~ada/x.git", "host/~ada/x"),
        ("https://[::1]/a/b.git", "[::1]/a/b"),
        ("/srv/git/otter.git", "file:/srv/git/otter"),
        ("file:///srv/git/otter.git", "file:/srv/git/otter"),
        ("file:/srv/git/otter", "file:/srv/git/otter"),
        ("../otter.git", "file:/code/otter"),
        ("https://host/Ada/Otter", "host/Ada/Otter"),
        ("https://host/", None),
        ("nonsense", None),
        ("", None),
        ("/", None),
    ],
)
def test_an_address_has_one_key_which_is_its_own_key(url, key):
    assert normalise_remote(url, root="/code/clone") == key
    assert key is None or normalise_remote(key) == key


def config(url: str, name: str = "origin") -> str:
    return f'[core]\n\tbare = false\n[remote "{name}"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/x/*\n'


def test_origin_comes_before_other_remotes(tmp_path):
    write_file(tmp_path / ".git/config", config("https://h/up/x", "upstream") + config("https://h/ada/x"))
    assert find_remote(str(tmp_path)) == "h/ada/x"
    write_file(tmp_path / ".git/config", config("https://h/up/x", "upstream"))
    assert find_remote(str(tmp_path)) == "h/up/x"
    write_file(tmp_path / ".git/config", '[remote "origin"] url = https://h/one/line\n[branch "x"]\nurl = no\n')
    assert find_remote(str(tmp_path)) == "h/one/line"


def test_a_linked_working_tree_and_a_submodule_have_the_remote_that_git_finds(tmp_path):
    write_file(tmp_path / "main/.git/config", config("https://h/ada/x"))
    write_file(tmp_path / "main/.git/worktrees/w/commondir", "../..\n")
    write_file(tmp_path / "linked/.git", f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    write_file(tmp_path / "main/.git/modules/sub/config", config("https://h/ada/sub"))
    write_file(tmp_path / "main/sub/.git", "gitdir: ../.git/modules/sub\n")
    assert find_remote(str(tmp_path / "linked")) == "h/ada/x"
    assert find_remote(str(tmp_path / "main/sub")) == "h/ada/sub"
    assert [*repository_keys(str(tmp_path / "main/sub/src"))][:3] == ["folder:src", "h/ada/sub", "h/ada/x"]
    assert find_root(str(tmp_path / "main/sub/src")) == str(tmp_path / "main/sub")


def test_a_broken_git_folder_is_no_repository(tmp_path):
    write_file(tmp_path / "a/.git", "nonsense")
    write_file(tmp_path / "b/.git", "gitdir: /nowhere")
    os.mkfifo(tmp_path / "c")
    write_file(tmp_path / "d/.git/config", b"\xff\xfe[remote")
    for name in "abcd":
        assert find_remote(str(tmp_path / name)) is None
