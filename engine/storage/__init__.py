"""Storage of the truth, one SQLite database with one writer (SPEC 4.2, 4.10, 11.2, 11.3); here what every table is
made of: rows, the types of their columns, and a shorter way than the ORM's to read and write them.

    ask(session, "SELECT id FROM tasks")                                          # tuples
    load_all(session, TaskRow, "WHERE state = :state", {"state": "open"})         # objects; changes are written
    read_all(session, TaskRow, "WHERE state = :state", {"state": "open"})         # objects that are only read
    load(session, TaskRow, "task_1")                                              # one object, by its key
    insert(session, TaskRow(...))                                                 # write a new row at once

To build a `select`, and to make objects of its result, takes longer than SQLite needs to answer it. So statements are
SQL, for SQLite's own connection, in the transaction of the session. They can be mixed with the ORM. A statement that
is written in two places is a constant of its module.

The package may import config, events, git, clock and model.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

import sqlalchemy
from sqlalchemy import JSON, Column, Dialect, Integer, String, Table, TypeDecorator
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.orm import ClassManager, class_mapper, make_transient_to_detached
from sqlalchemy.orm.util import identity_key
from sqlalchemy.types import TypeEngine
from sqlmodel import Field, Session, SQLModel

from engine.frozen import frozen
from engine.model import Refusal
from engine.text import sanitise

if TYPE_CHECKING:
    from pydantic import TypeAdapter


# -- column types


def as_stored(value: datetime) -> str:
    """An instant as it is stored: ISO 8601 in UTC with microseconds, so that the order of texts is the order in time.
    Raises ValueError for an instant without a time zone."""
    if value.tzinfo is None:
        raise ValueError(f"naive datetime {value!r}: give it a time zone")
    instant = value if value.tzinfo is UTC else value.astimezone(UTC)
    return instant.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


class UtcDateTime(TypeDecorator[datetime]):
    """An instant, stored as `as_stored` says. SQLAlchemy's own DateTime for SQLite drops the offset without an error.

    It overrides the processors, which are called for every instant, because they cost less than `process_bind_param`
    and `process_result_value`.
    """

    impl = String(32)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], str | None]:
        return lambda value: None if value is None else as_stored(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], datetime | None]:
        return lambda value: None if value is None else datetime.fromisoformat(value)


class EnumText(TypeDecorator[Any]):
    """A member of an enum of strings or of whole numbers, stored as its value. Such a member is a string or a number
    itself, so that nothing is converted when it is written."""

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
    """A value of the type `kind`, for example a tuple of a frozen class, stored as JSON."""

    impl = JSON
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str | None]:
        return lambda value: None if value is None else _make_adapter(self.kind).dump_json(value).decode()

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], Any]:
        return lambda text: None if text is None else _make_adapter(self.kind).validate_json(text)


@cache
def _make_adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # not before it is needed

    return TypeAdapter(kind)


def _choose_column_type(annotation: Any) -> TypeEngine[Any] | None:
    """The type of the column of a field that is annotated so, None for a type that SQLModel knows."""
    parts = get_args(annotation)
    kind = parts[0] if NoneType in parts else annotation
    if kind is datetime:
        return UtcDateTime()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return EnumText(kind)
    if kind in (str, int, float, bool, bytes):
        return None
    return JSON() if kind is Any or get_origin(kind) in (dict, list) else JsonValue(kind)


# -- rows and values


def shallow_dict(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name. Unlike `dataclasses.asdict` it does not copy their values."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class Row(SQLModel):
    """Base class of table rows. Values are not validated.

    The annotation of a field decides how it is stored: an instant as `UtcDateTime`, a member of an enum as `EnumText`,
    a dict or a list as JSON, and any other value, for example a tuple of a frozen class, as `JsonValue`.
    """

    model_config = {"defer_build": True}  # the validator is never built

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        for field in cls.model_fields.values():
            if (stored := _choose_column_type(field.annotation)) is not None:
                # The first item is SQLModel's own (since 0.0.32); a field that is only annotated has none yet.
                field.metadata = field.metadata or Field().metadata
                field.metadata[0].sa_type = stored


AnyRow = TypeVar("AnyRow", bound=SQLModel)
T = TypeVar("T")


def value_of(row: Row, kind: Callable[..., T], /, **others: Any) -> T:
    """A value of the dataclass `kind`, made of a row: a field is in `others`, or else it is the attribute of the row
    with the same name."""
    return kind(
        **{name: getattr(row, name) for name in _find_shared_fields(type(row), kind) if name not in others}, **others
    )


@cache
def _find_shared_fields(row: type[Row], kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if hasattr(row, field.name))


# -- statements

DIALECT = pysqlite.dialect()
"""The dialect whose types convert values."""

DRIVER = "driver"
"""Key in a session's `info`: SQLite's own connection, which is in the session's transaction."""

READ_ONLY = "read_only"
"""Key in a session's `info`: whether the session only reads. Such a session does not track changes of its rows."""


def driver_of(session: Session) -> sqlite3.Connection:
    """SQLite's own connection in the transaction of a session, for plain statements. Raises `sqlite3.ProgrammingError`
    if an error has rolled the transaction back, because each statement would then commit by itself."""
    driver: sqlite3.Connection = session.info[DRIVER]
    if not driver.in_transaction:
        raise sqlite3.ProgrammingError("this transaction was rolled back by an error; nothing more is written")
    return driver


Convert = Callable[[Any], Any]
"""Converts a value of a column between its stored form and that of Python."""


class FoundRows(list[tuple[Any, ...]]):
    """What a statement found: of each row, in order, the values of its columns."""

    def scalar(self) -> Any:
        """The first column of the first row, None when there is none."""
        return self[0][0] if self else None


def ask(session: Session, statement: str, values: Mapping[str, Any] | None = None) -> FoundRows:
    """Execute SQL in the session's transaction. Changes of the session's objects are written first.

    It returns what is stored, such as the text of an instant. An instant among the `values` becomes such a text, and a
    tuple, a list or a set a JSON array, for `IN (SELECT value FROM json_each(:name))`.
    """
    if not session.info[READ_ONLY]:
        session.flush()
    parameters = {name: _to_parameter(value) for name, value in (values or {}).items()}
    return FoundRows(driver_of(session).execute(statement, parameters))


def _to_parameter(value: Any) -> Any:
    if isinstance(value, datetime):
        return as_stored(value)
    return json.dumps(list(value)) if isinstance(value, tuple | list | set | frozenset) else value


def insert(session: Session, row: SQLModel) -> None:
    """Write a new row now, and give it the key if SQLite makes that. It does not become an object of the session, so
    later changes of it are not written."""
    statement, columns = _insert_statement(type(row))
    values = [row.__dict__.get(name) for name, _ in columns]
    stored = [value if convert is None else convert(value) for value, (_, convert) in zip(values, columns, strict=True)]
    cursor = driver_of(session).execute(statement, stored)
    (key,) = table_of(type(row)).primary_key
    if row.__dict__.get(key.key) is None:
        setattr(row, key.key, cursor.lastrowid)


@cache
def _insert_statement(model: type[SQLModel]) -> tuple[str, Sequence[tuple[str, Convert | None]]]:
    """The SQL, and the name and the conversion of each column."""
    columns = _list_columns(model)
    names, marks = ", ".join(f'"{column.name}"' for _, column in columns), ", ".join("?" for _ in columns)
    statement = f"INSERT INTO {table_of(model).name} ({names}) VALUES ({marks})"
    return statement, [(attribute, column.type.bind_processor(DIALECT)) for attribute, column in columns]


def _list_columns(model: type[SQLModel]) -> Sequence[tuple[str, Column[Any]]]:
    """The columns of a class, each with the name of its attribute, which may be another one than its own."""
    mapper = class_mapper(model)
    return [(mapper.get_property_by_column(column).key, column) for column in table_of(model).columns]


@cache
def table_of(model: type[SQLModel]) -> Table:
    """The table of a class."""
    table = sqlalchemy.inspect(model).local_table
    assert isinstance(table, Table)
    return table


# -- objects


def load_all(
    session: Session, model: type[AnyRow], clauses: str, values: Mapping[str, Any] | None = None
) -> list[AnyRow]:
    """The rows that `SELECT ... FROM TABLE` with these clauses finds, as objects of the session: what is changed in
    them is written, and a row that the session already has is the same object. A session that only reads gets them as
    from `read_all`."""
    rows = read_all(session, model, clauses, values)
    return rows if session.info[READ_ONLY] else [_attach(session, row) for row in rows]


def _attach(session: Session, row: AnyRow) -> AnyRow:
    """The session's object for a row that was read."""
    known = session.identity_map.get(identity_key(instance=row))
    if known is not None:
        return known
    make_transient_to_detached(row)  # to the session it looks like a row that an earlier session has read
    session.add(row)
    return row


def read_all(
    session: Session, model: type[AnyRow], clauses: str, values: Mapping[str, Any] | None = None
) -> list[AnyRow]:
    """The rows that `load_all` finds, only to read: what is changed in them is not written. It takes a third of the
    time of `load_all` in a session that writes."""
    mapping = _get_mapping(model)
    return [mapping.make_object(row) for row in ask(session, f"{mapping.selection} {clauses}", values)]


@frozen
class _Mapping(Generic[AnyRow]):
    """How the objects of a class are read."""

    selection: str
    """The beginning of a statement, which selects all columns of the table."""
    manager: ClassManager[AnyRow]
    names: Sequence[str]
    conversions: Sequence[tuple[int, Convert]]
    """The columns whose stored values are converted, by their place in a row."""

    def make_object(self, row: tuple[Any, ...]) -> AnyRow:
        """An object with these values in its columns, without a call of its `__init__`, which would cost most of
        all."""
        values = list(row)
        for place, convert in self.conversions:
            values[place] = convert(values[place])
        instance: AnyRow = self.manager.new_instance()
        instance.__dict__.update(zip(self.names, values, strict=True))
        return instance


@cache
def _get_mapping(model: type[AnyRow]) -> _Mapping[AnyRow]:
    table, columns = table_of(model).name, _list_columns(model)
    names = ", ".join(f'{table}."{column.name}"' for _, column in columns)
    converts = [column.type.dialect_impl(DIALECT).result_processor(DIALECT, None) for _, column in columns]
    return _Mapping(
        f"SELECT {names} FROM {table}",
        class_mapper(model).class_manager,
        [attribute for attribute, _ in columns],
        [(place, convert) for place, convert in enumerate(converts) if convert],
    )


def load_first(session: Session, model: type[AnyRow], clauses: str, values: Mapping[str, Any]) -> AnyRow | None:
    """The first row that `load_all` finds, None if it finds none."""
    return next(iter(load_all(session, model, clauses, values)), None)


def load(session: Session, model: type[AnyRow], key: str | int) -> AnyRow | None:
    """The row with this key as from `load_all`, or None. The table must have a key of one column."""
    (column,) = table_of(model).primary_key
    return load_first(session, model, f"WHERE {column.name} = :key", {"key": key})


# -- queries of many tables

MAX_PREFIX_MATCHES = 20
"""Maximum number of matches of a prefix that are returned: one, or a few to show that it is too short."""


def read_newest_rows(session: Session, model: type[AnyRow], limit: int | None, **equal: object) -> list[AnyRow]:
    """Rows with these values in these columns, the newest by `created_at` first; of the same time, the last that was
    stored. A tuple matches each of its values, None matches any. Without a `limit` it returns all."""
    conditions = (
        f"{name} IN (SELECT value FROM json_each(:{name}))" if isinstance(value, tuple) else f"{name} = :{name}"
        for name, value in equal.items()
        if value is not None
    )
    clauses = f"WHERE {' AND '.join(conditions) or 'TRUE'} ORDER BY created_at DESC, rowid DESC LIMIT :limit"
    return load_all(session, model, clauses, {**equal, "limit": -1 if limit is None else limit})


def find_ids_with_prefix(session: Session, model: type[SQLModel], prefix: str) -> list[str]:
    """Up to `MAX_PREFIX_MATCHES` ids of rows that begin with `prefix`, with or without their own prefix. This alone
    (`pred_`) matches none, nor does "". Case does not matter."""
    statement = f"""
        SELECT id FROM {table_of(model).name} WHERE lower(:prefix) IN (
            lower(substr(id, 1, max(length(:prefix), instr(id, '_') + 1))),
            lower(substr(id, instr(id, '_') + 1, max(length(:prefix), 1)))
        ) ORDER BY id LIMIT :limit
    """
    return [id for (id,) in ask(session, statement, {"prefix": prefix, "limit": MAX_PREFIX_MATCHES})]


def find_by_prefix(session: Session, model: type[AnyRow], prefix: str, *, noun: str, verb: str) -> AnyRow:
    """The row with the id `prefix`, or else the only one whose id begins so; `verb` lists the ids. Raises `Refusal`:
    `unknown_NOUN`, `ambiguous_id`."""
    ids = find_ids_with_prefix(session, model, prefix)
    row = load(session, model, prefix if prefix in ids else next(iter(ids), ""))
    if row is None:
        raise Refusal(f"unknown_{noun}", f"there is no {noun} {sanitise(prefix)[:60]}", f"see `{verb}`")
    if len(ids) > 1 and prefix not in ids:
        raise Refusal("ambiguous_id", f"{prefix} begins more than one id", "give more of the id")
    return row
