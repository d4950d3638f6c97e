"""Statements that are asked often: built once, compiled once, given to SQLite's driver as text and plain values.

Building a `select` costs more than SQLite needs to answer it, and so does SQLAlchemy's way from one to the driver and
back. So what is asked on every decision is a module's constant, with `bindparam`s, and is executed here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Executable, bindparam, func, inspect
from sqlalchemy import select as select_columns
from sqlalchemy.orm import configure_mappers
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import Insert, Select
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler
from sqlmodel import Session, SQLModel

from engine.storage.kept import READS
from engine.storage.rows import DIALECT, DRIVER, WriteSession

Row = TypeVar("Row", bound=SQLModel)

MOST_KNOWN = 2_000
"""So many statements are kept ready: more than there are constants."""


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
    """Execute a module's constant in the session's transaction; what the session has not written yet of the tables
    that it touches is, first.

    An insert names the same columns each time. Raises what the driver raises.
    """
    given = values or {}
    prepared = _prepared(statement, given)
    if READS not in session.info and prepared.concerns(session):
        session.flush()
    driver = session.info.get(DRIVER)
    return prepared.run(driver_of(session.connection()) if driver is None else driver, given)


def run(driver: sqlite3.Connection, statement: Executable, values: Mapping[str, Any] | None = None) -> Rows:
    """The same, in whatever transaction `driver` is in."""
    given = values or {}
    return _prepared(statement, given).run(driver, given)


def whole(model: type[SQLModel]) -> Select[Any]:
    """The beginning of a statement for `found`: all columns of a table, and no other."""
    return select_columns(*_entity(model).columns)


def each_of(name: str) -> Select[Any]:
    """For an `IN` of as many values as there are: the parameter `name` is a JSON array of them. The statement stays the
    same, as it does not with an expanding parameter."""
    return select_columns(func.json_each(bindparam(name)).table_valued("value").c.value)


def found(
    session: Session, model: type[Row], statement: Executable, values: Mapping[str, Any] | None = None
) -> list[Row]:
    """The rows that a constant made of `whole(model)` finds, as objects of the session: what is changed in them is
    written, and one that the session has already is that one. The objects of a session that only reads are nobody's."""
    return _entity(model).objects(session, ask(session, statement, values))


def load(session: Session, model: type[Row], key: str | int) -> Row | None:
    """What `session.get` gives for a table with a key of one column: an object as in `found`, or None."""
    entity = _entity(model)
    known = session.identity_map.get(entity.identity(key))
    if isinstance(known, model):
        return known
    return next(iter(entity.objects(session, ask(session, entity.one, {"key": key}))), None)


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
            dialect=DIALECT, column_keys=list(values) if isinstance(statement, Insert) else None
        )
        assert isinstance(compiled, SQLCompiler)
        self._compiled = compiled
        self._tables = str(compiled)
        if isinstance(statement, Insert):  # a row is written after the one it refers to
            self._tables += "".join(f" {key.column.table.name}" for key in statement.table.foreign_keys)
        self._in = {
            name: bind.type.dialect_impl(DIALECT).bind_processor(DIALECT) for name, bind in compiled.binds.items()
        }
        columns = statement.selected_columns if isinstance(statement, Select) else ()
        self._out = [
            (place, convert)
            for place, column in enumerate(columns)
            if (convert := column.type.dialect_impl(DIALECT).result_processor(DIALECT, None)) is not None
        ]
        first = compiled.construct_expanded_state(values)
        self._expands = any(bind.key in values for bind in compiled.post_compile_params)
        self._text = first.statement
        self._fixed = {name: value for name, value in first.parameters.items() if name not in values}
        self._order = self._ordered(first)

    def concerns(self, session: Session) -> bool:
        """Whether the session has changes, not written yet, in a table that is named here."""
        if isinstance(session, WriteSession) and session.clean:
            return False
        return any(
            inspect(one).mapper.local_table.name in self._tables
            for changed in (session.new, session.dirty, session.deleted)
            for one in changed
        )

    def run(self, driver: sqlite3.Connection, values: Mapping[str, Any]) -> Rows:
        text, order, given = self._text, self._order, values
        if self._expands:  # an `IN` of as many values as there are this time
            state = self._compiled.construct_expanded_state(values)
            text, order, given = state.statement, self._ordered(state), state.parameters
        bound = [
            fixed if name not in given else given[name] if convert is None else convert(given[name])
            for name, convert, fixed in order
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

    def _ordered(self, state: ExpandedState) -> list[tuple[str, Callable[[Any], Any] | None, Any]]:
        """The parameters in the order of their question marks: name, what makes a column's value of one that is given,
        and the column's value of one that the statement itself has."""
        one_of = {each: name for name, several in state.parameter_expansion.items() for each in several}
        order: list[tuple[str, Callable[[Any], Any] | None, Any]] = []
        for name in state.positiontup or ():
            convert, value = self._in.get(one_of.get(name, name)), self._fixed.get(name)
            order.append((name, convert, value if convert is None or name not in self._fixed else convert(value)))
        return order


_known: dict[int, tuple[Executable, _Prepared]] = {}
"""By the identity of the statement, which lives as long as it is known here."""


def _prepared(statement: Executable, values: Mapping[str, Any]) -> _Prepared:
    known = _known.get(id(statement))
    if known is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[id(statement)] = (statement, _Prepared(statement, values))
    return known[1]


class _Entity(Generic[Row]):
    """How rows of a table become objects: what the ORM does for any statement, done for one that asks for a table."""

    def __init__(self, model: type[Row]) -> None:
        configure_mappers()  # the ORM does so at its own first statement, which may not have come yet
        self._mapper = inspect(model)
        self.columns = tuple(self._mapper.local_table.columns)
        self._names = [self._mapper.get_property_by_column(column).key for column in self.columns]
        (key,) = self._mapper.primary_key
        self._key = self.columns.index(key)
        self.one = select_columns(*self.columns).where(key == bindparam("key"))

    def identity(self, key: Any) -> Any:
        return self._mapper.identity_key_from_primary_key((key,))

    def objects(self, session: Session, rows: Rows) -> list[Row]:
        reads = READS in session.info
        objects = []
        for row in rows:
            identity = self.identity(row[self._key])
            one = None if reads else session.identity_map.get(identity)
            if one is None:
                one = self._mapper.class_manager.new_instance()
                one.__dict__.update(zip(self._names, row, strict=True))
                state = instance_state(one)
                state.key = identity
                if isinstance(session, WriteSession):
                    session.adopt(state)
                elif not reads:
                    session.add(one)
            objects.append(one)
        return objects


@cache
def _entity(model: type[Row]) -> _Entity[Row]:
    return _Entity(model)
