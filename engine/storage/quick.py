"""Statements that are asked often: built once, compiled once, given to SQLite's driver as text and plain values.

Building a `select` costs more than SQLite needs to answer it, and so does SQLAlchemy's way from one to the driver and
back. So what is asked on every decision is a module's constant, with `bindparam`s, and is executed here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Executable
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.sql import Insert, Select
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler
from sqlmodel import Session

_DIALECT = pysqlite.dialect()

DRIVER = "driver"
"""Under this name a session's `info` has SQLite's connection, when that is in the session's transaction already."""


class Rows(list[tuple[Any, ...]]):
    """What a statement found, in its order, each row with the values of its columns."""

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


def ask(session: Session, statement: Executable, values: Mapping[str, Any] | None = None) -> Rows:
    """Execute a module's constant in the session's transaction; what the session has not written yet is, first.

    An insert names the same columns each time. Raises what the driver raises.
    """
    session.flush()
    driver = session.info.get(DRIVER)
    return run(driver_of(session.connection()) if driver is None else driver, statement, values)


def run(driver: sqlite3.Connection, statement: Executable, values: Mapping[str, Any] | None = None) -> Rows:
    """The same, in whatever transaction `driver` is in."""
    given = values or {}
    prepared = _known.get(statement)
    if prepared is None:
        prepared = _known[statement] = _Prepared(statement, given)
    return prepared.run(driver, given)


def driver_of(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection beneath SQLAlchemy's."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


class _Prepared:
    """A statement as the driver takes it, and how values become columns and columns values."""

    def __init__(self, statement: Executable, values: Mapping[str, Any]) -> None:
        assert isinstance(statement, Select | Insert)
        compiled = statement.compile(
            dialect=_DIALECT, column_keys=list(values) if isinstance(statement, Insert) else None
        )
        assert isinstance(compiled, SQLCompiler)
        self._compiled = compiled
        self._in = {
            name: bind.type.dialect_impl(_DIALECT).bind_processor(_DIALECT) for name, bind in compiled.binds.items()
        }
        columns = statement.selected_columns if isinstance(statement, Select) else ()
        self._out = [
            (place, convert)
            for place, column in enumerate(columns)
            if (convert := column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None)) is not None
        ]
        first = compiled.construct_expanded_state(values)
        self._expands = any(bind.key in values for bind in compiled.post_compile_params)
        self._text = first.statement
        self._order = self._ordered(first)
        self._fixed = {name: value for name, value in first.parameters.items() if name not in values}

    def run(self, driver: sqlite3.Connection, values: Mapping[str, Any]) -> Rows:
        text, order, given, fixed = self._text, self._order, values, self._fixed
        if self._expands:  # an `IN` of as many values as there are this time
            state = self._compiled.construct_expanded_state(values)
            text, order, given = state.statement, self._ordered(state), state.parameters
        bound = [
            value if convert is None else convert(value)
            for name, convert in order
            for value in (given[name] if name in given else fixed[name],)
        ]
        found = driver.execute(text, bound).fetchall()
        if not self._out:
            return Rows(found)
        rows = Rows()
        for one in found:
            row = list(one)
            for place, convert in self._out:
                row[place] = convert(row[place])
            rows.append(tuple(row))
        return rows

    def _ordered(self, state: ExpandedState) -> list[tuple[str, Callable[[Any], Any] | None]]:
        """The parameters in the order of their question marks, each with what makes a column's value of it."""
        one_of = {each: name for name, several in state.parameter_expansion.items() for each in several}
        return [(name, self._in.get(one_of.get(name, name))) for name in state.positiontup or ()]


_known: WeakKeyDictionary[Executable, _Prepared] = WeakKeyDictionary()
