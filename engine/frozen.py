"""The decorator of value classes: `frozen`, named after that of attrs, for dataclasses of the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes `cls` a dataclass whose instances never change and have no `__dict__`."""
    return dataclass(frozen=True, slots=True)(cls)
