"""Migrations make exactly the tables that the program works with, and keep what is in a home."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy
from sqlmodel import SQLModel

import engine.engine  # noqa: F401 (imports every table)
from engine.api.notify.router import CURSOR
from engine.clock import FakeClock
from engine.events import EventBus
from engine.memory.ledger import append
from engine.model import Refusal
from engine.storage import migrations, state
from engine.storage.database import Database


def schema(path: Path) -> dict[str, set[str]]:
    """Every table and index: its statement as a set of lines, so that order and layout do not matter."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
        ).fetchall()
    return {
        name: {re.sub(r"[\s\"]+", " ", line).strip(" ,)") for line in re.split(r",\s*\n|\(\n|, (?=\w+ [A-Z])", sql)}
        for name, sql in rows
    }


@pytest.mark.long
def test_the_migrated_schema_is_the_one_of_the_tables(tmp_path: Path) -> None:
    migrations._upgrade(tmp_path / "migrated.db")
    fresh = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    SQLModel.metadata.create_all(fresh)
    fresh.dispose()
    migrated, wanted = schema(tmp_path / "migrated.db"), schema(tmp_path / "fresh.db")
    assert migrated.keys() == wanted.keys()
    for name, statement in wanted.items():
        assert migrated[name] == statement, name


def everything(path: Path) -> tuple[list[str], dict[str, list[tuple[object, ...]]]]:
    """All statements in their order, and all rows."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY rowid").fetchall()
        rows = {
            name: connection.execute(f'SELECT * FROM "{name}"').fetchall()
            for kind, name, sql in made
            if kind == "table" and not sql.startswith("CREATE VIRTUAL")
        }
    return [f"{kind} {name} {(sql or '').strip()}" for kind, name, sql in made], rows


@pytest.mark.long
def test_a_new_home_is_as_if_every_migration_had_run(tmp_path: Path) -> None:
    """The script that makes it may lag behind the migrations, but says nothing else than they do."""
    created, migrated = tmp_path / "created.db", tmp_path / "migrated.db"
    migrations._create(created)
    revision = migrations.stored_version(created)
    assert revision is not None
    migrations._upgrade(migrated, revision)
    assert sorted(everything(created)[0]) == sorted(everything(migrated)[0])
    assert everything(created)[1] == everything(migrated)[1]

    path = tmp_path / "new.db"
    migrations.bring_up_to_date(path)
    assert migrations.stored_version(path) == migrations.HEAD
    assert not (tmp_path / "backups").exists()


def test_a_script_that_lacks_a_revision_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration may have been put in before the newest one."""
    script = tmp_path / "new.sql"
    script.write_text(migrations.SCRIPT.read_text().replace(" 0007", "", 1))
    monkeypatch.setattr(migrations, "SCRIPT", script)
    monkeypatch.setattr(migrations, "_upgrade", lambda path: path.write_bytes(b"by its migrations"))
    migrations._create(tmp_path / "new.db")
    assert (tmp_path / "new.db").read_bytes() == b"by its migrations"


def test_a_start_that_was_killed_leaves_no_half_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clawpy.db"
    (tmp_path / "clawpy.db.new").write_bytes(b"half of it")
    migrations.bring_up_to_date(path)
    assert migrations.stored_version(path) == migrations.HEAD
    assert [one.name for one in tmp_path.iterdir()] == ["clawpy.db"]


def test_an_empty_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "clawpy.db"
    path.touch()
    with pytest.raises(Refusal, match="is empty"):
        migrations.bring_up_to_date(path)


def test_head_is_the_newest_revision() -> None:
    newest = max(file.name.split("_")[0] for file in (migrations.HERE / "versions").glob("[0-9]*.py"))
    assert newest == migrations.HEAD


def test_a_home_that_is_up_to_date_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "clawpy.db"
    migrations.bring_up_to_date(path)
    before = path.read_bytes()
    migrations.bring_up_to_date(path)
    assert path.read_bytes() == before
    assert not (tmp_path / "backups").exists()


def test_a_home_from_a_newer_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "clawpy.db"
    migrations.bring_up_to_date(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(Refusal, match="newer version") as refused:
        migrations.bring_up_to_date(path)
    assert refused.value.code == "newer_home"
    assert path.read_bytes() == before


@pytest.mark.long
def test_a_migration_that_fails_leaves_the_former_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the middle rolls back: tables made so far are gone again."""
    from alembic import op

    made: list[str] = []
    create = op.create_table

    def fails_later(name: str, *columns: object, **options: object) -> object:
        made.append(name)
        if len(made) == 3:
            raise RuntimeError("the power went")
        return create(name, *columns, **options)

    monkeypatch.setattr(op, "create_table", fails_later)
    path = tmp_path / "clawpy.db"
    with pytest.raises(RuntimeError, match="power"):
        migrations._upgrade(path)
    assert schema(path) == {}
    monkeypatch.undo()
    migrations.bring_up_to_date(path)
    assert migrations.stored_version(path) == migrations.HEAD


def test_a_copy_is_made_before_anything_changes(tmp_path: Path) -> None:
    path = tmp_path / "clawpy.db"
    migrations.bring_up_to_date(path)
    copy = migrations.back_up(path, "0001")
    assert copy == tmp_path / "backups" / "clawpy-0001.db"
    assert schema(copy) == schema(path)


@pytest.mark.long
def test_events_of_an_older_home_are_in_the_sums_by_day(tmp_path: Path) -> None:
    path = tmp_path / "clawpy.db"
    migrations._upgrade(path, "0010")
    with closing(sqlite3.connect(path)) as connection:
        for hour in (1, 2):
            row = (f"2026-01-05T{hour:02}:00:00.000000Z", "TaskAdded", "t", "/a", "{}")
            connection.execute(
                "INSERT INTO memory_events (at, kind, subject, workspace, payload) VALUES (?, ?, ?, ?, ?)", row
            )
        connection.commit()
    migrations.bring_up_to_date(path)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT kind, day, workspace, number FROM memory_event_days").fetchall()
    assert rows == [("TaskAdded", "2026-01-05", "/a", 2)]


@pytest.mark.long
@pytest.mark.parametrize("events", [0, 3])
def test_what_happened_before_there_were_notifications_is_not_told(tmp_path: Path, events: int) -> None:
    path = tmp_path / "clawpy.db"
    migrations._upgrade(path, "0021")
    with closing(sqlite3.connect(path)) as connection:
        for _ in range(events):
            connection.execute(
                "INSERT INTO memory_events (at, kind, subject, workspace, payload)"
                " VALUES ('2026-01-05T01:00:00.000000Z', 'StateChanged', '', '', '{}')"
            )
        connection.commit()
    migrations.bring_up_to_date(path)
    database = Database(path, clock=FakeClock(datetime(2026, 1, 5, 9, tzinfo=UTC)), bus=EventBus(), recorder=append)
    with database.read() as session:
        assert state.get(session, CURSOR, 0) == events
    database.close()


def test_overlays_become_terms_of_their_candidates(tmp_path: Path) -> None:
    path, at = tmp_path / "clawpy.db", "2026-01-05T01:00:00.000000Z"
    migrations._upgrade(path, "0030")
    with closing(sqlite3.connect(path)) as connection:
        told = {"type": "prompt_fragment", "status": "promoted", "score": 80.0, "effect": "{}", "changed_at": at}
        texts = ("scope_type", "scope_id", "source_label", "dedupe_key", "title", "agent_id", "run_kind", "workspace")
        told |= dict.fromkeys(texts, "") | dict.fromkeys(("drafted_from", "corroborated_by", "against"), "[]")
        told |= {"id": "cand_a", "created_at": at, "history": "[]", "decided_by": "operator", "reason": ""}
        names = ", ".join(told)
        connection.execute(f"INSERT INTO candidates ({names}) VALUES ({', '.join('?' * len(told))})", [*told.values()])
        for number, until in ((1, "2026-01-05T02:00:00.000000Z"), (2, None)):
            effect = f'{{"kind": "prompt_fragment", "guidance": ["{number}"]}}'
            begun = f"2026-01-05T0{number}:00:00.000000Z"
            connection.execute(
                "INSERT INTO overlays (id, candidate_id, type, agent_id, run_kind, workspace, effect, since, until) "
                "VALUES (?, 'cand_a', 'prompt_fragment', '', '', '', ?, ?, ?)",
                (f"over_{number}", effect, begun, until),
            )
            connection.execute(
                "INSERT INTO overlay_runs (overlay_id, session_id, agent, workspace, withheld, propensity, state, at) "
                "VALUES (?, 'sess_1', '', '', 0, 0.2, 'good', ?)",
                (f"over_{number}", at),
            )
        connection.commit()
    migrations.bring_up_to_date(path)
    with closing(sqlite3.connect(path)) as connection:
        (term, since, effect) = connection.execute("SELECT term, since, effect FROM candidates").fetchone()
        runs = connection.execute("SELECT overlay_id FROM overlay_runs ORDER BY 1").fetchall()
    assert (term, since) == (2, "2026-01-05T02:00:00.000000Z")
    assert '["2"]' in effect
    assert runs == [("cand_a.1",), ("cand_a.2",)]
