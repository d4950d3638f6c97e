"""The decorator `frozen` for value classes. It makes dataclasses of the standard library, like `frozen` of attrs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make `cls` a dataclass whose instances cannot change and have no `__dict__`."""
    return dataclass(frozen=True, slots=True)(cls)
