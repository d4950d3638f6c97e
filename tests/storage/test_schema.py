"""`schema.sql` makes exactly the tables that the program works with; a home of another version is left as it is."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from sqlmodel import SQLModel

import engine.engine  # noqa: F401 (imports every table)
from engine.model import Refusal
from engine.storage import schema


def statements(path: Path) -> dict[str, list[str]]:
    """What every table, index and trigger is made of, whatever the order of columns and the layout."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {
        f"{kind} {name}": sorted(part.strip(")") for part in re.split(r",|\(", re.sub(r"[\s\"]+", "", sql)))
        for kind, name, sql in rows
    }


def test_the_schema_is_the_one_of_the_tables(tmp_path: Path) -> None:
    schema.make_or_check(tmp_path / "made.db")
    fresh = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    SQLModel.metadata.create_all(fresh)
    fresh.dispose()
    made, wanted = statements(tmp_path / "made.db"), statements(tmp_path / "fresh.db")
    tables = [name for name in made if name.startswith("table ")]
    assert sorted(tables) == sorted(name for name in wanted if name.startswith("table "))
    for name in tables:
        assert columns(tmp_path / "made.db", name) == columns(tmp_path / "fresh.db", name)
    for (
        name,
        statement,
    ) in wanted.items():  # what a class says of rules and indexes holds; most stand in `schema.sql` alone
        assert not Counter(statement) - Counter(made[name]), name


def columns(path: Path, name: str) -> list[tuple[object, ...]]:
    """Name, type, whether it may be empty, default and place in the key of each column, by name."""
    with closing(sqlite3.connect(path)) as connection:
        return sorted(row[1:] for row in connection.execute(f"PRAGMA table_info({name.split()[1]})"))


def test_a_start_that_was_killed_leaves_no_half_database(tmp_path: Path) -> None:
    path = tmp_path / "clawpy.db"
    (tmp_path / "clawpy.db.new").write_bytes(b"half of it")
    schema.make_or_check(path)
    assert schema.stored_version(path) == schema.VERSION
    assert [file.name for file in tmp_path.iterdir()] == ["clawpy.db"]


def test_an_empty_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "clawpy.db"
    path.touch()
    with pytest.raises(Refusal, match="is empty"):
        schema.make_or_check(path)


@pytest.mark.parametrize(
    ("version", "code"), [(0, "older_home"), (schema.VERSION, ""), (schema.VERSION + 1, "newer_home")]
)
def test_only_a_home_of_this_version_is_opened_and_none_is_changed(tmp_path: Path, version: int, code: str) -> None:
    path = tmp_path / "clawpy.db"
    schema.make_or_check(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("INSERT INTO engine_state VALUES ('of a killed engine', '1')")
        connection.commit()
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        assert before["clawpy.db-wal"]
        if code:
            with pytest.raises(Refusal) as refused:
                schema.make_or_check(path)
            assert refused.value.code == code
            assert "--home DIR" in refused.value.fix
        else:
            schema.make_or_check(path)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
