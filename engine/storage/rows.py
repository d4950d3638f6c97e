"""Rows of tables: the types of their columns, and a shorter way than the ORM's to read and write them.

To build a `select`, and to make objects of its result, takes longer than SQLite needs to answer it. A statement that is
executed often is therefore a constant of its module, and one of these functions executes it:

    _OPEN = select_all(TaskRow).where(col(TaskRow.state) == bindparam("state"))

    ask(session, "SELECT id FROM tasks")                    # tuples, of plain SQL or of a `select`
    load_all(session, TaskRow, _OPEN, {"state": "open"})    # objects; what is changed in them is written
    read_all(session, TaskRow, _OPEN, {"state": "open"})    # objects that are only read
    load(session, TaskRow, "task_1")                        # one object, by its key
    insert(session, TaskRow(...))                           # write a new row at once

All of them use SQLite's own connection, in the transaction of the session, so that they can be mixed with the ORM. A
`select` is compiled to SQL once. What is executed seldom uses the ORM: `session.exec(select(...))`, `session.add`.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import sqlalchemy
from sqlalchemy import (
    JSON,
    ColumnElement,
    Dialect,
    Executable,
    Integer,
    Select,
    String,
    Table,
    TypeDecorator,
    bindparam,
    func,
    literal_column,
    or_,
)
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.orm import ClassManager, class_mapper, make_transient_to_detached
from sqlalchemy.orm.util import identity_key
from sqlalchemy.types import TypeEngine
from sqlmodel import Field, Session, SQLModel, desc, select

from engine.frozen import frozen
from engine.model import Refusal, sanitise

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


def _to_stored(value: datetime | None) -> str | None:
    return None if value is None else as_stored(value)


def _from_stored(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant, stored as `as_stored` says. SQLAlchemy's own DateTime for SQLite drops the offset without an error.

    It overrides the processors, which are called for every instant, because they cost less than `process_bind_param`
    and `process_result_value`.
    """

    impl = String(32)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], str | None]:
        return _to_stored

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], datetime | None]:
        return _from_stored


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

DIALECT = pysqlite.dialect(paramstyle="named")
"""The dialect in which statements are compiled: with named parameters."""

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


MAX_COMPILED = 2_000
"""Maximum number of statements that are kept compiled: more than there are constants."""

Convert = Callable[[Any], Any]
"""Converts a value of a column between its stored form and that of Python."""


class Answer(list[tuple[Any, ...]]):
    """What a statement found: of each row, in order, the values of its columns."""

    def first(self) -> tuple[Any, ...] | None:
        """The first row, None when there is none."""
        return self[0] if self else None

    def one(self) -> tuple[Any, ...]:
        """The only row. Raises ValueError when there are none or several."""
        (row,) = self
        return row

    def scalar(self) -> Any:
        """The first column of the first row, None when there is none."""
        return self[0][0] if self else None


def ask(session: Session, statement: Executable | str, values: Mapping[str, Any] | None = None) -> Answer:
    """Execute a statement in the session's transaction. Changes of the session's objects are written first.

    The values of a `select` are converted by the types of its columns. Plain SQL takes and returns what is stored: an
    instant is text, as `as_stored` makes it.
    """
    if not session.info[READ_ONLY]:
        session.flush()
    if isinstance(statement, str):
        return Answer(driver_of(session).execute(statement, values or {}))
    compiled = _compile(statement)
    parameters = compiled.constants | {name: _to_parameter(value) for name, value in (values or {}).items()}
    rows = Answer(driver_of(session).execute(compiled.sql, parameters))
    return Answer(map(compiled.convert_row, rows)) if compiled.conversions else rows


@frozen
class _Compiled:
    """A `select` as SQLite's driver takes it."""

    sql: str
    constants: dict[str, Any]
    """The parameters that have a value in the statement itself, such as the limit."""
    conversions: Sequence[tuple[int, Convert]]
    """The columns whose stored values are converted, by their place in a row."""

    def convert_row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row with its values converted."""
        values = list(row)
        for place, convert in self.conversions:
            values[place] = convert(values[place])
        return tuple(values)


@lru_cache(MAX_COMPILED)
def _compile(statement: Executable) -> _Compiled:
    """Compile a `select`, with the values that it contains itself."""
    assert isinstance(statement, Select)
    # Give the `bindparam`s that wait for a value None: SQLAlchemy refuses to expand a statement without them.
    with_values = statement.params(statement.compile(dialect=DIALECT).params)
    expanded = with_values.compile(dialect=DIALECT).construct_expanded_state()
    types = [column.type.dialect_impl(DIALECT) for column in statement.selected_columns]
    return _Compiled(
        expanded.statement,
        {name: _to_parameter(value) for name, value in expanded.parameters.items()},
        [(place, convert) for place, type in enumerate(types) if (convert := type.result_processor(DIALECT, None))],
    )


def _to_parameter(value: Any) -> Any:
    return as_stored(value) if isinstance(value, datetime) else value


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
    columns = table_of(model).columns
    names, marks = ", ".join(f'"{column.name}"' for column in columns), ", ".join("?" for _ in columns)
    statement = f"INSERT INTO {table_of(model).name} ({names}) VALUES ({marks})"
    return statement, [(column.key, column.type.bind_processor(DIALECT)) for column in columns]


@cache
def table_of(model: type[SQLModel]) -> Table:
    """The table of a class."""
    table = sqlalchemy.inspect(model).local_table
    assert isinstance(table, Table)
    return table


def select_all(model: type[SQLModel]) -> Select[Any]:
    """The beginning of a statement for `load_all` and `read_all`: all columns of a table, and no others."""
    return sqlalchemy.select(*table_of(model).columns)


def select_each(name: str) -> Select[Any]:
    """The values of the parameter `name`, a JSON array, for `column.in_(...)`. So one constant statement serves any
    number of values; with an expanding parameter its SQL would change with the number."""
    return sqlalchemy.select(func.json_each(bindparam(name)).table_valued("value").c.value)


# -- objects


def load_all(
    session: Session, model: type[AnyRow], statement: Select[Any], values: Mapping[str, Any] | None = None
) -> list[AnyRow]:
    """The rows that a `select_all(model)` finds, as objects of the session: what is changed in them is written, and a
    row that the session already has is the same object. A session that only reads gets them as from `read_all`."""
    rows = read_all(session, model, statement, values)
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
    session: Session, model: type[AnyRow], statement: Select[Any], values: Mapping[str, Any] | None = None
) -> list[AnyRow]:
    """The rows that a `select_all(model)` finds, only to read: what is changed in them is not written. It takes a third
    of the time of `load_all` in a session that writes."""
    return [_make_object(model, row) for row in ask(session, statement, values)]


def _make_object(model: type[AnyRow], values: tuple[Any, ...]) -> AnyRow:
    """An object with these values in its columns, without a call of its `__init__`, which would cost most of all."""
    manager, names = _get_mapping(model)
    row: AnyRow = manager.new_instance()
    row.__dict__.update(zip(names, values, strict=True))
    return row


@cache
def _get_mapping(model: type[AnyRow]) -> tuple[ClassManager[AnyRow], Sequence[str]]:
    return class_mapper(model).class_manager, [column.key for column in table_of(model).columns]


def load(session: Session, model: type[AnyRow], key: str | int) -> AnyRow | None:
    """The row with this key as from `load_all`, or None. The table must have a key of one column."""
    return next(iter(load_all(session, model, _select_by_key(model), {"key": key})), None)


@cache
def _select_by_key(model: type[SQLModel]) -> Select[Any]:
    (key,) = table_of(model).primary_key
    return select_all(model).where(key == bindparam("key"))


# -- queries of many tables

MAX_PREFIX_MATCHES = 20
"""Maximum number of matches of a prefix that are returned: one, or a few to show that it is too short."""


def read_newest_rows(session: Session, model: type[AnyRow], limit: int | None, **equal: object) -> list[AnyRow]:
    """Rows with these values in these columns, the newest by `created_at` first; of the same time, the last that was
    stored. A tuple matches each of its values, None matches any. Without a `limit` it returns all."""
    columns: Any = model
    query = select(model).order_by(desc(columns.created_at), desc(literal_column("rowid"))).limit(limit)
    for name, value in equal.items():
        if value is not None:
            query = query.where(getattr(columns, name).in_(value if isinstance(value, tuple) else (value,)))
    return list(session.exec(query))


def find_ids_with_prefix(session: Session, column: Any, prefix: str) -> list[str]:
    """Up to `MAX_PREFIX_MATCHES` ids of this column that begin with `prefix`, with or without their own prefix
    (`pred_`). Case does not matter."""
    if not prefix:
        return []
    bare = func.substr(column, func.instr(column, "_") + 1)
    begins: ColumnElement[bool] = or_(
        column.startswith(prefix, autoescape=True), bare.startswith(prefix, autoescape=True)
    )
    return list(session.exec(select(column).where(begins).order_by(column).limit(MAX_PREFIX_MATCHES)))


def find_by_prefix(session: Session, model: type[AnyRow], prefix: str, *, noun: str, verb: str) -> AnyRow:
    """The row with the id `prefix`, or else the only one whose id begins so; `verb` lists the ids. Raises `Refusal`:
    `unknown_NOUN`, `ambiguous_id`."""
    column: Any = model.id  # type: ignore[attr-defined]
    ids = find_ids_with_prefix(session, column, prefix)
    if not ids:
        raise Refusal(f"unknown_{noun}", f"there is no {noun} {sanitise(prefix)[:60]}", f"see `{verb}`")
    if len(ids) > 1 and prefix not in ids:
        raise Refusal("ambiguous_id", f"{prefix} begins more than one id", "give more of the id")
    return session.exec(select(model).where(column == (prefix if prefix in ids else ids[0]))).one()
