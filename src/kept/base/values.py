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
    """Compile the `__init__` that `dataclass` would generate when the first instance of a class is created. Call it.
    It has one argument per field, with its default if any."""
    cls: Any = type(self)
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
    cls.__init__ = names["__init__"]
    cls.__init__(self, *args, **kwargs)


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    names = self.__dataclass_fields__
    return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]


def _hash(self: Any) -> int:
    return hash(tuple([getattr(self, name) for name in self.__dataclass_fields__]))


def _show(self: Any) -> str:
    names = (spec.name for spec in dataclasses.fields(self) if spec.repr)  # fields with secrets set repr=False
    parts = (f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _rebuild(self: Any) -> tuple[type, tuple[Any, ...]]:
    return type(self), tuple([getattr(self, name) for name in self.__dataclass_fields__])


def _refuse_change(self: Any, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot change field {name!r}")


class _Signature:
    """Signature of a class, for `help` and `inspect`. It is made when it is read."""

    def __get__(self, instance: object, owner: Any) -> Any:
        from inspect import Parameter, Signature

        parameters = []
        for spec in dataclasses.fields(owner):
            default = Parameter.empty if spec.default is spec.default_factory is MISSING else spec.default
            parameters.append(Parameter(spec.name, Parameter.POSITIONAL_OR_KEYWORD, default=default))
        return Signature(parameters)


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
