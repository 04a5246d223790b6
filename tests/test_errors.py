"""The error tree: its picture, its codes, and the one table of statuses."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from kept import errors, remote_errors
from kept.error_statuses import STATUSES, status_of
from kept.errors import KeptError, StoreBusy, WriteFailed
from kept.remote_errors import QueueFull


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
def test_the_table_of_statuses_is_total(cls):
    """Every family has a row; only KeptError itself falls back to the general one."""
    status = status_of(bare(cls))
    assert 1 <= status.exit_code < 64
    assert (status.exit_code == 1) == (cls is KeptError), f"{cls.__name__} needs a row in STATUSES"
    assert status.http in (400, 403, 404, 409, 413, 429, 500, 503)
    assert status.jsonrpc in (-32602, -32603)


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_http_says_try_later_exactly_when_an_error_is_retryable(cls):
    assert (status_of(bare(cls)).http in (429, 503)) == cls.retryable


def test_no_row_repeats_what_it_would_inherit():
    for cls in STATUSES:
        inherited = next((STATUSES[parent] for parent in cls.__mro__[1:] if parent in STATUSES), None)
        assert STATUSES[cls] != inherited, f"{cls.__name__}: delete the row"


def test_the_statuses_that_clients_rely_on():
    assert status_of(WriteFailed("disk full")).http == 503
    assert status_of(QueueFull("full")).http == 503
    assert status_of(StoreBusy("busy")).exit_code == 5
    assert status_of(KeptError("x")) == (1, 500, -32603)
