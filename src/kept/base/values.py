"""`@frozen`: slotted, frozen dataclasses that are cheap to define.

`dataclass` generates and compiles half a dozen methods for every class at import: 0.7 ms each, which for sixty classes
is a quarter of a whole search. `frozen` builds the same slotted, frozen dataclass (`fields`, `replace` and `asdict`
work), but all classes share these methods, and `__init__` is compiled when the first instance is created.

Not supported: `__post_init__`, `InitVar`, and fields with `init=False`, `kw_only=True`, `compare=False` or
`hash=False`. Use a standard dataclass for those.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, field
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    if hasattr(cls, "__post_init__"):
        raise TypeError(f"@frozen does not run {cls.__name__}.__post_init__; use a standard dataclass")
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one, `dataclass` would compute a signature for it
    slotted = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in _SHARED.items():
        if name not in cls.__dict__:
            setattr(slotted, name, method)
    return slotted


def _init_once(self: Any, *args: Any, **kwargs: Any) -> None:
    """Compile the real `__init__` when the first instance of a class is created, then call it."""
    cls = type(self)
    cls.__init__ = _make_init(cls)
    cls.__init__(self, *args, **kwargs)


def _make_init(cls: Any) -> Any:
    """Return the `__init__` that `dataclass` would generate: one argument per field, with its default if any."""
    names: dict[str, Any] = {"_missing": MISSING}
    arguments, body = [], []
    for spec in dataclasses.fields(cls):
        name = value = spec.name
        if spec.default_factory is not MISSING:
            names[f"_make_{name}"] = spec.default_factory
            arguments.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif spec.default is not MISSING:
            names[f"_default_{name}"] = spec.default
            arguments.append(f"{name}=_default_{name}")
        else:
            arguments.append(name)
        names[f"_set_{name}"] = getattr(cls, name).__set__  # of the slot: faster than object.__setattr__
        body.append(f"    _set_{name}(self, {value})\n")
    exec(f"def __init__(self, {', '.join(arguments)}):\n{''.join(body) or '    pass'}", names)
    return names["__init__"]


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__dataclass_fields__])


def _equal(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _show(self: Any) -> str:
    names = (spec.name for spec in dataclasses.fields(self) if spec.repr)  # fields with secrets set repr=False
    parts = (f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _rebuild(self: Any) -> tuple[type, tuple[Any, ...]]:
    return type(self), _values(self)


def _refuse_change(self: Any, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot change field {name!r}")


class _Signature:
    """Signature of a class, for `help` and `inspect`. It is made when it is read."""

    def __get__(self, instance: object, owner: type) -> Any:
        from inspect import signature

        whole = signature(_make_init(owner))
        return whole.replace(parameters=[*whole.parameters.values()][1:])


_SHARED = {
    "__signature__": _Signature(),
    "__init__": _init_once,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _show,
    "__reduce__": _rebuild,
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
}
