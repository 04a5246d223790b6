"""The question whether the only person who may write to an agent is its owner: asked once, at a terminal."""

from __future__ import annotations

import pytest

from kept.config import load_config
from tests.support.files import write_file
from tests.support.serve_process import create_token
from tests.support.terminals import run_on_terminal, without_styles

QUESTION = "Is telegram:5054 the owner?"
ONE = "gateway:\n  http: {enabled: false}\n  telegram: {allow_users: [5054]}\n"


@pytest.fixture
def owner(home):
    write_file(home / "config.yaml", ONE)
    return lambda agent="main": load_config(home=str(home), agent=agent, environ={}).config.agent.session.owner


@pytest.mark.parametrize(("typed", "expected"), [(b"y\n", "telegram:5054"), (b"n\n", "none")])
@pytest.mark.parametrize("command", ["init", "gateway"])
def test_the_only_person_who_is_let_in_is_asked_about_once(environment, home, owner, command, typed, expected):
    (home / "workspace").mkdir(parents=True)
    assert QUESTION in without_styles(run_on_terminal([command], environment, typed=typed))
    assert owner() == expected
    assert QUESTION not in without_styles(run_on_terminal([command], environment, typed=b"y\n"))
    assert owner() == expected


def test_where_something_names_another_nobody_is_asked_about(environment, home, owner):
    create_token(home, "bob", "read", person="http:bob")
    assert QUESTION not in without_styles(run_on_terminal(["init"], environment, typed=b"y\n"))
    assert owner() == "auto"


def test_without_a_terminal_nobody_is_asked_and_nobody_is_the_owner(kept, owner):
    assert QUESTION not in kept("init").err
    assert owner() == "auto"
