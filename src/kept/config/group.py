"""What all groups of settings have in common."""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Group:
    """A frozen dataclass whose methods are written once, here, for all groups.

    `@dataclass` compiles them anew for every class: 15 ms for two dozen of them, a tenth of a whole search.
    """

    def __init_subclass__(cls) -> None:
        cls.__doc__ = cls.__doc__ or ""  # where there is none, a signature would be made up
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: Any) -> None:
        for spec in fields(self):  # type: ignore[arg-type]
            if spec.name in values:
                self.__dict__[spec.name] = values.pop(spec.name)
            elif spec.default_factory is not MISSING:
                self.__dict__[spec.name] = spec.default_factory()
            # The other defaults are found on the class.
        if values:
            raise TypeError(f"{type(self).__name__} has no setting {min(values)!r}")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        given = ", ".join(f"{spec.name}={getattr(self, spec.name)!r}" for spec in fields(self) if spec.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({given})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, spec.name) for spec in fields(self))  # type: ignore[arg-type]
