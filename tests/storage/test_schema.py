"""`schema.sql` makes exactly the tables that the program works with; a home of another version stays as it is (SPEC
11.2)."""

import hashlib
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from sqlmodel import SQLModel

import engine.engine  # noqa: F401 (imports every table)
from engine.hierarchy.profile_text import PROFILE_SECTIONS
from engine.learning.decisions.training_runs import RunState
from engine.model import (
    BubbleState,
    ChangeState,
    DecidedBy,
    DecisionSignal,
    PermissionAnswer,
    Refusal,
    Relation,
    SessionState,
    TriggerType,
)
from engine.model.adaptation import CandidateStatus, CandidateType, RecordKind
from engine.storage.database import SCHEMA_FILE, SCHEMA_VERSION, create_or_check, read_stored_version
from tests.support.checks import refused

ENUM_COLUMNS: dict[tuple[str, str], Iterable[str]] = {
    ("bubbles", "state"): BubbleState,
    ("candidates", "status"): CandidateStatus,
    ("candidates", "type"): CandidateType,
    ("change_sets", "state"): ChangeState,
    ("crosspoll_log", "trigger_type"): TriggerType,
    ("decisions", "decided_by"): DecidedBy,
    ("decisions", "signal"): DecisionSignal,
    ("learning_records", "kind"): RecordKind,
    ("permission_requests", "answer"): PermissionAnswer,
    ("permits", "trigger_type"): TriggerType,
    ("predictions", "decided_by"): DecidedBy,
    ("sessions", "state"): SessionState,
    ("task_edges", "relation"): Relation,
    ("training_runs", "method"): ("sft", "dpo"),
    ("training_runs", "state"): RunState,
    ("profile_entries", "section"): PROFILE_SECTIONS,
}
"""What the columns that hold a value of an enum may hold."""


def read_columns(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Name, type, whether it may be empty, and place in the key of each column, by table. Defaults, rules and indexes
    stand in `schema.sql` alone."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            table: sorted(
                (name, kind, required, key)
                for _, name, kind, required, _, key in connection.execute(f"PRAGMA table_info({table})")
            )
            for (table,) in tables
        }


def test_the_schema_has_the_columns_of_the_tables(tmp_path: Path):
    create_or_check(tmp_path / "made.db")
    by_classes = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'by_classes.db'}")
    SQLModel.metadata.create_all(by_classes)
    by_classes.dispose()
    columns, expected = read_columns(tmp_path / "made.db"), read_columns(tmp_path / "by_classes.db")
    assert {table: columns.get(table) for table in expected} == expected


@pytest.mark.parametrize("table, column", ENUM_COLUMNS)
def test_a_column_of_an_enum_may_hold_its_values_and_no_others(table: str, column: str):
    script = SCHEMA_FILE.read_text(encoding="utf-8")
    statement = script.partition(f"CREATE TABLE {table} (")[2].partition("\n);")[0]
    (listed,) = re.findall(rf"\b{column} IN\s*\(([^)]*)\)", statement)
    assert re.findall(r"'([^']*)'", listed) == list(ENUM_COLUMNS[table, column])


def test_the_schema_changes_only_together_with_its_version():
    """After a change of `schema.sql` raise `SCHEMA_VERSION`, and write both here. Earlier homes are refused."""
    digest = hashlib.sha256(SCHEMA_FILE.read_bytes()).hexdigest()[:16]
    assert SCHEMA_VERSION == 9
    assert digest == "2f5b3c9e2f02f655"


def test_a_killed_start_leaves_no_half_database(tmp_path: Path):
    path = tmp_path / "clawpy.db"
    (tmp_path / "clawpy.db.new").write_bytes(b"half of it")
    create_or_check(path)
    assert read_stored_version(path) == SCHEMA_VERSION
    assert [file.name for file in tmp_path.iterdir()] == ["clawpy.db"]


def test_an_empty_database_is_damaged(tmp_path: Path):
    path = tmp_path / "clawpy.db"
    path.touch()
    with pytest.raises(Refusal, match="is empty"):
        create_or_check(path)


@pytest.mark.parametrize("version, code", [(0, "older_home"), (SCHEMA_VERSION, ""), (SCHEMA_VERSION + 1, "newer_home")])
def test_only_a_home_of_this_version_is_opened_and_none_is_changed(tmp_path: Path, version: int, code: str):
    path = tmp_path / "clawpy.db"
    create_or_check(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("INSERT INTO engine_state VALUES ('of a killed engine', '1')")
        connection.commit()
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        assert before["clawpy.db-wal"]
        if code:
            refusal = refused(code, lambda: create_or_check(path))
            assert "--home DIR" in refusal.fix
        else:
            create_or_check(path)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
