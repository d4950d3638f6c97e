"""Rows as objects, without the ceremony: how one is made, and how what changed is written.

What the ORM does for any class, with relationships, inheritance and versions, costs several times what SQLite needs
for the row. Ours are plain tables with a key of one column; whatever else there may be one day goes the ORM's way.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ClauseElement, Integer
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import InstanceState, Mapper
from sqlalchemy.orm.exc import StaleDataError
from sqlmodel import Session, SQLModel

DIALECT = pysqlite.dialect()

DRIVER = "driver"
"""Under this name a session's `info` has SQLite's connection, when that is in the session's transaction already."""

Convert = Callable[[Any], Any]

T = TypeVar("T")


class Row(SQLModel):
    """What tables are made of. Values are taken as they are: a table validates nothing, whoever makes it (STACK.md).

    Names that are no columns are passed over, as SQLModel does; a column without a default that is not named is left
    to the database.
    """

    model_config = {"defer_build": True}  # what would validate is never made

    def __init__(self, **values: Any) -> None:
        plain, made, fields = _defaults(type(self))
        row = self.__dict__
        row.update(plain)
        for name, make in made:
            if name not in values:
                row[name] = make()
        for name, value in values.items():
            if name in fields:
                row[name] = value

    def __setattr__(self, name: str, value: Any) -> None:
        """The columns' own descriptors see to it that a change is noticed."""
        object.__setattr__(self, name, value)


@cache
def _defaults(
    model: type[SQLModel],
) -> tuple[Mapping[str, Any], tuple[tuple[str, Callable[[], Any]], ...], frozenset[str]]:
    """What a row has that nobody gave: values, and what makes them; and the names that it has."""
    plain: dict[str, Any] = {}
    made: list[tuple[str, Callable[[], Any]]] = []
    for name, field in model.model_fields.items():
        if field.default_factory is not None:
            made.append((name, field.default_factory))  # type: ignore[arg-type]
        elif not field.is_required():
            hash(field.default)  # one that can be changed in place would be shared by all rows
            plain[name] = field.default
    return plain, tuple(made), frozenset(model.model_fields)


def value_of(row: Row, kind: Callable[..., T], **others: Any) -> T:
    """The value of the dataclass `kind` that a row stands for: its fields are the row's columns of the same names, and
    `others`."""
    return kind(**{name: getattr(row, name) for name in _shared(type(row), kind) if name not in others}, **others)


@cache
def _shared(row: type[Row], kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if hasattr(row, field.name))


class WriteSession(Session):
    """A session that writes rows of plain tables with statements that are made once."""

    @property
    def clean(self) -> bool:
        """Whether there is nothing that is not written yet."""
        return not self._new and not self._deleted and not self.identity_map.check_modified()

    def adopt(self, state: InstanceState[Any]) -> None:
        """Take a row in that was just read, and that the session does not have."""
        assert state.key is not None
        state.session_id = self.hash_key
        self.identity_map._add_unpresent(state, state.key)

    def flush(self, objects: Any = None) -> None:
        """Write what is not written yet: what others refer to first. Raises what SQLAlchemy raises."""
        if self.clean:
            return
        if objects or self._deleted:
            super().flush(objects)
            return
        by_table: dict[_Table, tuple[list[InstanceState[Any]], list[InstanceState[Any]]]] = {}
        driver: sqlite3.Connection = self.info[DRIVER]
        for place, states in enumerate((self.identity_map._dirty_states(), self._new)):
            for state in states:
                table = _table(state.mapper)
                if table is None or not table.takes(state):
                    super().flush(objects)
                    return
                by_table.setdefault(table, ([], []))[place].append(state)
        for table in sorted(by_table, key=lambda one: one.depth):
            changed, new = by_table[table]
            for state in sorted(changed, key=_key):
                table.update(driver, state)
            for state in sorted(new, key=_order):
                table.insert(driver, state)
        written = set(self.identity_map._dirty_states())
        InstanceState._commit_all_states(((state, state.dict) for state in written), self.identity_map)
        self._register_altered(written)
        if self._new:
            self._register_persistent(set(self._new))


class _Table:
    """The statements of one plain table."""

    def __init__(self, mapper: Mapper[Any]) -> None:
        (self._table,) = mapper.tables
        (key,) = mapper.primary_key
        self.depth = _depth(self._table)
        self._columns = {
            mapper.get_property_by_column(column).key: (column.name, _convert(column)) for column in self._table.columns
        }
        self._key = mapper.get_property_by_column(key).key
        self._counts = isinstance(key.type, Integer)
        self._quote = DIALECT.identifier_preparer.quote
        self._texts: dict[tuple[str, ...], str] = {}

    def takes(self, state: InstanceState[Any]) -> bool:
        """Whether this row can be written here: all its columns have values, plain ones, and a stored one its key."""
        row = state.dict
        if any(isinstance(value, ClauseElement) for value in row.values()):
            return False
        if state.key is not None:
            return self._key not in state.committed_state and row.keys() >= state.committed_state.keys()
        return row.keys() >= self._columns.keys() and (self._counts or row[self._key] is not None)

    def insert(self, driver: sqlite3.Connection, state: InstanceState[Any]) -> None:
        """Write a new row; a key that SQLite gives is given to the object."""
        row = state.dict
        has_key = row.get(self._key) is not None
        names = tuple(name for name in self._columns if name in row and (has_key or name != self._key))
        text = self._texts.get(("", *names))
        if text is None:
            columns = ", ".join(self._quote(self._columns[name][0]) for name in names)
            marks = ", ".join("?" * len(names))
            text = f"INSERT INTO {self._quote(self._table.name)} ({columns}) VALUES ({marks})"
            self._texts[("", *names)] = text
        done = _execute(driver, text, [self._value(name, row[name]) for name in names])
        if not has_key:
            row[self._key] = done.lastrowid

    def update(self, driver: sqlite3.Connection, state: InstanceState[Any]) -> None:
        """Write what changed of a row, if anything did."""
        row, before, manager = state.dict, state.committed_state, state.manager
        names = tuple(
            name
            for name in before
            if name in self._columns and manager[name].impl.is_equal(row[name], before[name]) is not True
        )
        if not names:
            return
        text = self._texts.get(names)
        if text is None:
            sets = ", ".join(f"{self._quote(self._columns[name][0])} = ?" for name in names)
            key = self._quote(self._columns[self._key][0])
            text = f"UPDATE {self._quote(self._table.name)} SET {sets} WHERE {key} = ?"
            self._texts[names] = text
        values = [self._value(name, row[name]) for name in names]
        assert state.key is not None
        done = _execute(driver, text, [*values, self._value(self._key, state.key[1][0])])
        if done.rowcount != 1:
            raise StaleDataError(f"{done.rowcount} rows of {self._table.name} have the key {state.key[1][0]!r}")

    def _value(self, name: str, value: Any) -> Any:
        convert = self._columns[name][1]
        return value if convert is None else convert(value)


def _execute(driver: sqlite3.Connection, text: str, values: list[Any]) -> sqlite3.Cursor:
    try:
        return driver.execute(text, values)
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, values, error, sqlite3.Error, dialect=DIALECT) from error


def _convert(column: Any) -> Convert | None:
    convert: Convert | None = column.type.dialect_impl(DIALECT).bind_processor(DIALECT)
    return convert


@cache
def _table(mapper: Mapper[Any]) -> _Table | None:
    """The statements of a class's table; None where there is more to it than one table with a key of one column."""
    plain = (
        len(mapper.tables) == 1
        and len(mapper.primary_key) == 1
        and not mapper.relationships
        and mapper.inherits is None
        and mapper.version_id_col is None
        and all(column.onupdate is None for column in mapper.local_table.columns)
    )
    return _Table(mapper) if plain else None


def _depth(table: Any) -> tuple[int, str]:
    """Where a table stands in the order in which rows can be written: after what it refers to."""
    others = {key.column.table for key in table.foreign_keys} - {table}
    return 1 + max((_depth(other)[0] for other in others), default=0), table.name


def _key(state: InstanceState[Any]) -> Any:
    assert state.key is not None
    return state.key[1]


def _order(state: InstanceState[Any]) -> int:
    return state.insert_order or 0
