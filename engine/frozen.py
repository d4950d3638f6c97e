"""The decorator `frozen` for value classes. It makes dataclasses of the standard library, like `frozen` of attrs.

`dataclass` compiles the source of six methods for each class, which is a tenth of the time until the first frame. Here
those that need no source of their own are made without it: `__eq__`, `__hash__` and `__repr__` work as in a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make `cls` a dataclass whose instances cannot change and have no `__dict__`."""
    made = dataclass(frozen=True, slots=True, repr=False, eq=False)(cls)
    listed = fields(made)  # type: ignore[arg-type]
    compared = _values_of(item for item in listed if item.compare)
    hashed = _values_of(item for item in listed if (item.compare if item.hash is None else item.hash))

    def equals(self: T, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_values(self: T) -> int:
        return hash(hashed(self))

    for name, method in (("__eq__", equals), ("__hash__", hash_values), ("__repr__", _describe)):
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made


def _values_of(listed: Iterable[Field[Any]]) -> Callable[[object], object]:
    """The function that gives the values of these fields."""
    names = [item.name for item in listed]
    return attrgetter(*names) if names else lambda _: ()


def _describe(self: Any) -> str:
    values = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({values})"
