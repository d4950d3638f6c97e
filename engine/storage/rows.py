"""Rows of tables: column types, and ways to read and write rows that cost less than the ORM's.

Building a `select` costs more than SQLite needs to answer it, and so does what the ORM does with the answer. So what is
asked often is a module's constant, with `bindparam`s or as plain SQL, and is read as tuples by `ask`, or as objects by
`load_all` and `load`.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy
from sqlalchemy import (
    JSON,
    Column,
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
    or_,
)
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.orm import ClassManager, class_mapper, make_transient_to_detached
from sqlalchemy.orm.util import identity_key
from sqlalchemy.types import TypeEngine
from sqlmodel import Field, Session, SQLModel, select

if TYPE_CHECKING:
    from pydantic import TypeAdapter


# Column types


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


DIALECT = pysqlite.dialect(paramstyle="named")

DRIVER = "driver"
"""Key in a session's `info`: SQLite's own connection, which is in the session's transaction."""

READS = "reads"
"""Key in a session's `info`: whether the session only reads. Rows are then not attached to it, changes not tracked."""


def driver_of(session: Session) -> sqlite3.Connection:
    """SQLite's own connection in the transaction of a session, for plain statements. Raises `sqlite3.ProgrammingError`
    after an error rolled the transaction back: each statement would commit by itself."""
    driver: sqlite3.Connection = session.info[DRIVER]
    if not driver.in_transaction:
        raise sqlite3.ProgrammingError("this transaction was rolled back by an error; nothing more is written")
    return driver


class Row(SQLModel):
    """Base class of table rows. Values are not validated."""

    model_config = {"defer_build": True}  # the validator is never built


MAX_COMPILED = 2_000
"""Maximum number of statements that are kept compiled: more than there are constants."""

Convert = Callable[[Any], Any]
AnyRow = TypeVar("AnyRow", bound=SQLModel)
T = TypeVar("T")


def value_of(row: Row, kind: Callable[..., T], /, **others: Any) -> T:
    """The value of the dataclass `kind` that a row stands for: its fields are the row's columns of the same names, and
    `others`."""
    return kind(
        **{name: getattr(row, name) for name in _shared_fields(type(row), kind) if name not in others}, **others
    )


@cache
def _shared_fields(row: type[Row], kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if hasattr(row, field.name))


class Rows(list[tuple[Any, ...]]):
    """The rows that a statement found, in its order, as the values of its columns."""

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


def ask(session: Session, statement: Executable | str, values: Mapping[str, Any] | None = None) -> Rows:
    """Execute a module's constant in the session's transaction; what the session has not written yet is written before.

    Plain SQL takes and gives what the driver does: an instant is text, as `as_stored` has it.
    """
    if not session.info[READS]:
        session.flush()
    if isinstance(statement, str):
        return Rows(driver_of(session).execute(statement, values or {}))
    text, constants, conversions = _compiled(statement)
    parameters = constants | {name: _parameter(value) for name, value in (values or {}).items()}
    rows = Rows(driver_of(session).execute(text, parameters))
    return Rows(_converted(row, conversions) for row in rows) if conversions else rows


def _converted(row: tuple[Any, ...], conversions: Sequence[tuple[int, Convert]]) -> tuple[Any, ...]:
    values = list(row)
    for place, convert in conversions:
        values[place] = convert(values[place])
    return tuple(values)


@lru_cache(MAX_COMPILED)
def _compiled(statement: Executable) -> tuple[str, dict[str, Any], Sequence[tuple[int, Convert]]]:
    """A `select` as SQLite's driver takes it, the values of its constants, and the conversions of its columns, each
    with the column's place."""
    assert isinstance(statement, Select)
    with_values = statement.params(statement.compile(dialect=DIALECT).params)  # what has none yet would be refused
    expanded = with_values.compile(dialect=DIALECT).construct_expanded_state()
    constants = {name: _parameter(value) for name, value in expanded.parameters.items()}
    types = [column.type.dialect_impl(DIALECT) for column in statement.selected_columns]
    conversions = [
        (place, convert) for place, type in enumerate(types) if (convert := type.result_processor(DIALECT, None))
    ]
    return expanded.statement, constants, conversions


def _parameter(value: Any) -> Any:
    return as_stored(value) if isinstance(value, datetime) else value


def insert(session: Session, row: SQLModel) -> None:
    """Write a new row now; a key that SQLite makes is given to it. It is no object of the session."""
    statement, columns = _insert_statement(type(row))
    values = [row.__dict__.get(name) for name, _ in columns]
    stored = [value if bind is None else bind(value) for value, (_, bind) in zip(values, columns, strict=True)]
    cursor = driver_of(session).execute(statement, stored)
    key = next(iter(table_of(type(row)).primary_key)).key
    if row.__dict__.get(key) is None:
        setattr(row, key, cursor.lastrowid)


@cache
def _insert_statement(model: type[SQLModel]) -> tuple[str, list[tuple[str, Convert | None]]]:
    """The statement, and name and conversion of each value: half of what SQLAlchemy would take each time."""
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
    """The beginning of a statement for `load_all`: all columns of a table, and no other."""
    return sqlalchemy.select(*table_of(model).columns)


def each_of(name: str) -> Select[Any]:
    """For an `IN` of as many values as there are: the parameter `name` is a JSON array of them. The statement stays the
    same, as it does not with an expanding parameter."""
    return sqlalchemy.select(func.json_each(bindparam(name)).table_valued("value").c.value)


def load_all(
    session: Session, model: type[AnyRow], statement: Select[Any], values: Mapping[str, Any] | None = None
) -> list[AnyRow]:
    """The rows that a constant made of `select_all(model)` finds, as objects of the session: what is changed in them is
    written, and a row that the session has already is the same object. A session that only reads attaches none."""
    rows = read_all(session, model, statement, values)
    return rows if session.info[READS] else [_attached(session, row) for row in rows]


def _attached(session: Session, row: AnyRow) -> AnyRow:
    known = session.identity_map.get(identity_key(instance=row))
    if known is None:
        make_transient_to_detached(row)
        session.add(row)
    return row if known is None else known


def read_all(
    session: Session, model: type[AnyRow], statement: Select[Any], values: Mapping[str, Any] | None = None
) -> list[AnyRow]:
    """The same rows only to read: a third of the cost in a session that writes. What is changed in them is lost."""
    return [_instance(model, row) for row in ask(session, statement, values)]


def _instance(model: type[AnyRow], values: tuple[Any, ...]) -> AnyRow:
    manager, names = _mapping_of(model)
    instance: AnyRow = manager.new_instance()
    instance.__dict__.update(zip(names, values, strict=True))
    return instance


@cache
def _mapping_of(model: type[AnyRow]) -> tuple[ClassManager[AnyRow], list[str]]:
    return class_mapper(model).class_manager, [column.key for column in table_of(model).columns]


def load(session: Session, model: type[AnyRow], key: str | int) -> AnyRow | None:
    """The row with this key, an object as in `load_all`, or None. The table must have a key of one column."""
    return next(iter(load_all(session, model, _by_key(model), {"key": key})), None)


@cache
def _by_key(model: type[SQLModel]) -> Select[Any]:
    (key,) = table_of(model).primary_key
    return select_all(model).where(key == bindparam("key"))


MAX_PREFIX_MATCHES = 20
"""Maximum number of matches of a prefix that are returned: one, or a few to show that it is too short."""


def ids_with_prefix(session: Session, column: Any, prefix: str) -> list[str]:
    """Up to `MAX_PREFIX_MATCHES` ids of this column that begin so, of all there ever were, in either case."""
    if not prefix:
        return []
    bare = func.substr(column, func.instr(column, "_") + 1)
    begins: ColumnElement[bool] = or_(
        column.startswith(prefix, autoescape=True), bare.startswith(prefix, autoescape=True)
    )
    return list(session.exec(select(column).where(begins).order_by(column).limit(MAX_PREFIX_MATCHES)))
