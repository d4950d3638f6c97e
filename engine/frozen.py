"""The decorator of value classes. It is named after the one of attrs and does the same with the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes `cls` a dataclass whose instances never change and have no `__dict__`."""
    return dataclass(frozen=True, slots=True)(cls)
