"""Frozen values that cost little to define.

`dataclass` writes and compiles half a dozen methods for every class while its module is imported: 0.7 ms a class, and
with sixty classes a quarter of a whole search. `frozen` makes the same slotted, frozen dataclass (`fields`, `replace`
and `asdict` work on it), but all classes share these methods, and `__init__` is compiled when the first one is made.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, field
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one, `dataclass` would work out a signature to put there
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in _SHARED.items():
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made


def _init_once(self: Any, *args: Any, **given: Any) -> None:
    """Stands in for `__init__` until the first value of a class is made."""
    kind = type(self)
    kind.__init__ = _compile_init(kind)
    kind.__init__(self, *args, **given)


def _compile_init(kind: type) -> Any:
    """An `__init__` as `dataclass` writes it: an argument for each field, and defaults where there are any."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    arguments, body = [], []
    for spec in dataclasses.fields(kind):
        name = taken = spec.name
        if spec.default_factory is not MISSING:
            names[f"_make_{name}"] = spec.default_factory
            arguments.append(f"{name}=_missing")
            taken = f"_make_{name}() if {name} is _missing else {name}"
        elif spec.default is not MISSING:
            names[f"_default_{name}"] = spec.default
            arguments.append(f"{name}=_default_{name}")
        else:
            arguments.append(name)
        body.append(f"    _set(self, {name!r}, {taken})\n")
    exec(f"def __init__(self, {', '.join(arguments)}):\n{''.join(body) or '    pass'}", names)
    return names["__init__"]


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__dataclass_fields__])


def _equal(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _show(self: Any) -> str:
    shown = (spec.name for spec in dataclasses.fields(self) if spec.repr)  # a secret is not
    parts = (f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _rebuild(self: Any) -> tuple[type, tuple[Any, ...]]:
    return type(self), _values(self)


def _refuse_set(self: Any, name: str, new: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {
    "__init__": _init_once,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _show,
    "__reduce__": _rebuild,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
}
