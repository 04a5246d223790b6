"""The error tree: its picture, its codes, and its statuses."""

import re
from types import ModuleType

import pytest

from kept import errors
from kept.base import remote_errors
from kept.base.remote_errors import ConversationFull, QueueFull
from kept.errors import KeptError, NoteNotFound, StoreBusy, WriteFailed
from tests.support.repository import ROOT


def tree(cls: type[KeptError]) -> list[type[KeptError]]:
    return [cls, *(descendant for child in cls.__subclasses__() for descendant in tree(child))]


ERRORS = tree(KeptError)


def bare(cls: type[KeptError]) -> KeptError:
    return cls.__new__(cls)


def picture(module: ModuleType) -> list[str]:
    return re.findall(r"^[ │├└─]*(\w+)", module.__doc__.partition("\n\n")[2].partition("\n\n")[0], re.MULTILINE)


def test_every_error_has_a_code_of_its_own_and_stands_in_the_picture_of_the_tree():
    assert len({cls.code for cls in ERRORS}) == len(ERRORS)
    assert [*picture(errors), *picture(remote_errors)[1:]] == [cls.__name__ for cls in ERRORS]


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_has_statuses_and_http_says_try_later_exactly_when_it_is_retryable(cls):
    error = bare(cls)
    assert (error.exit_code == 1) == (cls is KeptError), f"{cls.__name__} needs an exit code"
    assert error.http in (400, 403, 404, 409, 413, 429, 500, 503)
    assert (error.http in (429, 503)) == cls.retryable


def test_every_exit_code_is_documented():
    page = (ROOT / "docs/reference/cli.md").read_text()
    for error in ERRORS:
        assert f"| {error.exit_code} |" in page


def test_the_statuses_that_clients_rely_on():
    assert (WriteFailed("disk full").http, QueueFull("full").http, StoreBusy("busy").exit_code) == (503, 503, 5)
    assert (KeptError("x").exit_code, KeptError("x").http, KeptError("x").jsonrpc) == (1, 500, -32603)
    assert (NoteNotFound("x").jsonrpc, ConversationFull("x").jsonrpc) == (-32602, -32603)
