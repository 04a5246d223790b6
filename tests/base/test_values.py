"""Values made with `frozen` behave as frozen, slotted dataclasses do."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field

import pytest

from kept.base.values import frozen


@frozen
class Point:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)


@frozen
class Pair:
    left: str
    right: str


def test_arguments_and_defaults_are_those_of_a_dataclass():
    for arguments in ({"x": 1}, {"x": 1, "y": 5}, {"x": 1, "tags": ["a"]}):
        assert dataclasses.asdict(Point(**arguments)) == dataclasses.asdict(Reference(**arguments))
    assert Point(1, 3) == Point(x=1, y=3)
    assert Point(1).tags is not Point(1).tags


@pytest.mark.parametrize("arguments", [{}, {"x": 1, "z": 2}, {"y": 1}])
def test_wrong_arguments_are_refused(arguments):
    for _ in range(2):  # the first call is the one that compiles
        with pytest.raises(TypeError):
            Point(**arguments)


def test_a_value_cannot_be_changed():
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2
    with pytest.raises(FrozenInstanceError):
        point.unheard_of = 2
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")


def test_values_are_equal_by_kind_and_fields():
    assert Pair("a", "b") == Pair("a", "b")
    assert Pair("a", "b") != Pair("a", "c")
    assert Pair("a", "b") != ("a", "b")
    assert Point(1) != Reference(1)
    assert len({Pair("a", "b"), Pair("a", "b"), Pair("b", "a")}) == 2
    with pytest.raises(TypeError):
        hash(Point(1))  # it holds a list


def test_values_can_be_shown_copied_replaced_and_matched():
    pair = Pair("a", "b")
    assert repr(pair) == "Pair(left='a', right='b')"
    assert dataclasses.replace(pair, right="c") == Pair("a", "c")
    assert copy.deepcopy(pair) == pair
    assert pickle.loads(pickle.dumps(pair)) == pair
    match pair:
        case Pair(left, right):
            assert (left, right) == ("a", "b")


def test_a_class_with_work_to_do_after_init_is_refused():
    with pytest.raises(TypeError, match="@frozen"):
        frozen(type("Wrong", (), {"__annotations__": {"x": int}, "__post_init__": lambda self: None}))
