"""Column types that SQLite needs help with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import JSON, Column, Dialect, Integer, String, TypeDecorator
from sqlalchemy.types import TypeEngine
from sqlmodel import Field

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def as_stored(value: datetime) -> str:
    """An aware instant as ISO 8601 in UTC with microseconds, so that text order is time order. Raises ValueError for a
    naive one."""
    if value.tzinfo is None:
        raise ValueError(f"naive datetime {value!r}: give it a time zone")
    instant = value if value.tzinfo is UTC else value.astimezone(UTC)
    return instant.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


def _to_stored(value: datetime | None) -> str | None:
    return None if value is None else as_stored(value)


def _from_stored(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant as `as_stored` has it. SQLite's own DateTime drops the offset without a word.

    Overrides the processors instead of the methods: they are called for every instant that is written and read.
    """

    impl = String(32)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], str | None]:
        return _to_stored

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], datetime | None]:
        return _from_stored


class EnumText(TypeDecorator[Any]):
    """A member of an enum of strings or of whole numbers, as its value, which it is itself."""

    impl: Any = String
    cache_ok = True

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__()
        self.kind = kind
        if issubclass(kind, int):
            self.impl = Integer()

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Enum | None]:
        return lambda value: None if value is None else self.kind(value)


class JsonValue(TypeDecorator[Any]):
    """A value whose type is given, such as a tuple of a frozen class, as JSON."""

    impl = JSON
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str | None]:
        return lambda value: None if value is None else _adapter(self.kind).dump_json(value).decode()

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], Any]:
        return lambda text: None if text is None else _adapter(self.kind).validate_json(text)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # not before it is needed

    return TypeAdapter(kind)


def utc_field(*, nullable: bool = False) -> Any:
    """The column of an instant; None by default if it may be null."""
    return _field(UtcDateTime(), **({"default": None} if nullable else {}))


def enum_field(kind: type[Enum], **options: Any) -> Any:
    """The column of a member of an enum; `options` are those of `Field`."""
    return _field(EnumText(kind), **options)


def json_field(kind: Any = None, **options: Any) -> Any:
    """The column of a JSON value, of this type if it is one of the model; `options` are those of `Field`."""
    return _field(JSON() if kind is None else JsonValue(kind), **options)


def _field(stored: TypeEngine[Any], **options: Any) -> Any:
    """A field with a column of its own, which may be null where the default is None."""
    return Field(sa_column=Column(stored, nullable=options.get("default", ()) is None), **options)


def shallow_dict(value: Any) -> dict[str, Any]:
    """A dataclass whose fields are plain values as a JSON column takes it: `asdict`, without copies of what nobody
    changes."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
