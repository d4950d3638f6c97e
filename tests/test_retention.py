"""Rows are deleted after the days in the settings, by table and workspace. Sums by day, and rows that are still needed,
stay (SPEC 4.2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from engine import retention
from engine.clock import FakeClock
from engine.config import FixedSettings, Settings
from engine.config.settings_file import BadConfig, describe_accepted, parse_key, read_settings
from engine.events import ChangeSetLanded
from engine.learning.candidates.adaptation import LAST_PROCESSED
from engine.model.adaptation import RecordKind
from engine.retention import Retention
from engine.storage import state
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.rows import as_stored, ask

DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)
SHOP, BLOG = "/srv/shop", "/srv/blog"
READER = "test.reader"
"""Under this key is how far a follower has read, once `read_to` said so."""
EVENTS = "[retention]\nmemoryEvents = 90"


def settings(document: str = "") -> Settings:
    return read_settings(document, file="config.toml", environment={})


def retention_with(database: Database, clock: FakeClock, document: str = "") -> Retention:
    return Retention(database, clock, FixedSettings(settings(document)), {READER})


def put(database: Database, table: str, **values: Any) -> None:
    """Insert a row; what must be there and is not named is empty."""
    columns = {name: as_stored(value) if isinstance(value, datetime) else value for name, value in values.items()}
    empty = {"INTEGER": 0, "BOOLEAN": 0, "FLOAT": 0, "JSON": "[]"}
    for _, name, kind, needed, default, key in rows(database, f"PRAGMA table_info({table})"):
        if needed and not key and default is None:
            columns.setdefault(name, empty.get(kind, ""))
    names, marks = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    database.write(lambda tx: tx.driver.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", columns))


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.read() as session:
        return ask(session, query)


def keys(database: Database, table: str, key: str = "id") -> list[Any]:
    return [name for (name,) in rows(database, f"SELECT {key} FROM {table} ORDER BY {key}")]


def sums(database: Database, table: str) -> dict[str, tuple[int, int]]:
    """The deleted rows of a table by day: their number and micro-dollars."""
    query = f"SELECT day, sum(number), sum(microusd) FROM table_days WHERE \"table\" = '{table}' GROUP BY day"
    return {day: (number, money) for day, number, money in rows(database, query)}


def land_changes(database: Database, *subjects: str, workspace: str = SHOP) -> None:
    database.write(
        lambda tx: [
            tx.record(ChangeSetLanded(subject=subject, workspace=workspace, session_id=subject, files=1))
            for subject in subjects
        ]
    )


def cost(database: Database, id: int, at: datetime, **values: Any) -> None:
    fixed = {"purpose": "judge", "state": "settled", "amount_microusd": 100, "workspace": SHOP}
    put(database, "cost_entries", **{"id": id, "at": at, **fixed, **values})


def record(database: Database, seq: int, at: datetime, *, fact: int = 0, workspace: str = SHOP) -> None:
    kinds = {"kind": RecordKind.HUMAN_APPROVAL.value, "scope_type": "workspace"}
    put(database, "learning_records", seq=seq, id=f"r{seq}", at=at, fact=fact, workspace=workspace, **kinds)


def validation_run(database: Database, id: int, at: datetime, *, failed: int = 0, session: str = "s") -> None:
    put(database, "validation_runs", id=id, session_id=session, workspace=SHOP, ran_at=at, failed=failed)


def log_entry(database: Database, id: int, at: datetime, *, blocked: bool = True, card: str = "p1") -> None:
    named = {"prediction_id": card, "trigger_type": "manual", "workspace": SHOP}
    put(database, "crosspoll_log", id=id, created_at=at, blocked=blocked, **named)


def session(database: Database, id: str, state: str) -> None:
    put(database, "sessions", id=id, state=state, mode="approved", permit_id=id)


def card(database: Database, id: str, status: str) -> None:
    put(database, "predictions", id=id, status=status, source="operator", subject=id, fingerprint=id, decided_by=None)


def set_digested(database: Database, seq: int = 100) -> None:
    database.write(lambda tx: state.put(tx, LAST_PROCESSED, seq))


def read_to(database: Database, id: int) -> None:
    """A follower with a cursor of its own has read up to there."""
    database.write(lambda tx: state.put(tx, READER, id))


def read_all(database: Database) -> None:
    read_to(database, max(keys(database, "memory_events"), default=0))


def test_by_default_only_learning_records_are_deleted_after_half_a_year() -> None:
    rounds = settings().retention
    assert rounds.model_dump() == {
        "memory_events": 0, "learning_records": 180, "validation_runs": 0, "cost_entries": 0, "crosspoll_log": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "least"),
    [("memoryEvents", 35), ("learningRecords", 90), ("validationRuns", 35), ("costEntries", 35), ("crosspollLog", 35)],
)
@pytest.mark.parametrize("section", ["retention", 'workspaces."/srv/shop".retention'])
def test_a_table_accepts_its_fewest_days_and_no_less(section: str, table: str, least: int) -> None:
    assert settings(f"[{section}]\n{table} = {least}\n")
    assert settings(f"[{section}]\n{table} = 0\n")
    for wrong in (least - 1, 1, -1, 36_501):
        with pytest.raises(BadConfig, match=rf"config.toml:2: .*{wrong} is not accepted; expected 0 .*{least} to"):
            settings(f"[{section}]\n{table} = {wrong}\n")
    assert str(least) in describe_accepted(parse_key(f"{section}.{table}"))


def test_a_workspace_may_have_days_of_its_own() -> None:
    rounds = settings('[retention]\nmemoryEvents = 90\n[workspaces."/srv/shop".retention]\ncostEntries = 60\n')
    assert rounds.kept_days("memory_events", SHOP) == 90
    assert (rounds.kept_days("cost_entries", SHOP), rounds.kept_days("cost_entries", BLOG)) == (60, 0)


def test_an_event_of_exactly_its_days_stays_and_an_older_one_is_deleted(database: Database, clock: FakeClock) -> None:
    land_changes(database, "older")
    clock.advance(INSTANT)
    land_changes(database, "exact")
    clock.advance(90 * DAY)
    land_changes(database, "new")
    read_all(database)
    assert retention_with(database, clock, EVENTS).round() == {"memory_events": 1}
    assert keys(database, "memory_events", "subject") == ["", "exact", "new"]
    [notified] = Ledger(database).latest(1)
    assert (notified.kind, notified.payload) == ("RowsLetGo", {"rows": {"memory_events": 1}})
    written = database.commits
    assert retention_with(database, clock, EVENTS).round() == {}, "again changes nothing"
    assert database.commits == written


def test_events_that_a_consumer_has_not_read_stay(database: Database, clock: FakeClock) -> None:
    land_changes(database, "read")
    clock.advance(400 * DAY)
    land_changes(database, "unread", "new")
    clock.advance(400 * DAY)
    assert retention_with(database, clock, EVENTS).round() == {}, "nothing is known of the consumer"
    read_to(database, 1)
    assert retention_with(database, clock, EVENTS).round() == {"memory_events": 1}
    assert keys(database, "memory_events", "subject") == ["", "new", "unread"]


def test_days_are_counted_back_from_the_first_event_that_a_consumer_has_not_read(
    database: Database, clock: FakeClock
) -> None:
    """A consumer may look back from the fact that it reads, for example to the beginning of a session."""
    land_changes(database, "too old")
    clock.advance(INSTANT)
    land_changes(database, "90 days before")
    clock.advance(90 * DAY)
    land_changes(database, "unread")
    read_to(database, 2)
    clock.advance(400 * DAY)
    assert retention_with(database, clock, EVENTS).round() == {"memory_events": 1}
    assert keys(database, "memory_events", "subject") == ["", "90 days before", "unread"]


def test_the_newest_event_stays_however_old(database: Database, clock: FakeClock) -> None:
    land_changes(database, "a", "b")
    read_all(database)
    clock.advance(400 * DAY)
    assert retention_with(database, clock, EVENTS).round() == {"memory_events": 1}
    assert keys(database, "memory_events", "subject")[-1] == "b"


def test_events_that_something_refers_to_stay(database: Database, clock: FakeClock) -> None:
    land_changes(database, "told", "sent", "evidence", "running", "ended", "open", "decided")
    notified, sent, evidence = keys(database, "memory_events")[:3]
    for fact, standing in ((notified, "waiting"), (sent, "sent")):
        put(database, "notifications", fact_id=fact, surface="phone", standing=standing)
    record(database, 1, clock.now(), fact=evidence)
    session(database, "running", "running")
    session(database, "ended", "succeeded")
    card(database, "open", "pending")
    card(database, "decided", "executed")
    clock.advance(100 * DAY)
    land_changes(database, "new")
    read_all(database)
    assert retention_with(database, clock, EVENTS).round() == {"memory_events": 3}
    assert {"told", "evidence", "running", "open"} <= set(keys(database, "memory_events", "subject"))


def test_deleted_costs_stay_in_sums_by_day(database: Database, clock: FakeClock) -> None:
    first = clock.now()
    cost(database, 1, first, amount_microusd=70)
    cost(database, 2, first, amount_microusd=30, purpose="twin")
    cost(database, 3, first, amount_microusd=0, state="released", prediction_id="p1")
    clock.advance(DAY)
    cost(database, 4, clock.now(), amount_microusd=5)
    cost(database, 5, clock.now())
    clock.advance(35 * DAY)
    rounds = retention_with(database, clock, "[retention]\ncostEntries = 35")
    assert rounds.round() == {"cost_entries": 3}, "a day of exactly 35 stays"
    assert sums(database, "cost_entries") == {"2026-01-05": (3, 100)}
    clock.advance(INSTANT)
    assert rounds.round() == {"cost_entries": 1}
    assert sums(database, "cost_entries") == {"2026-01-05": (3, 100), "2026-01-06": (1, 5)}
    first_day = rows(database, "SELECT kind, number, microusd FROM table_days WHERE day < '2026-01-06' ORDER BY kind")
    assert first_day == [("judge", 1, 70), ("released", 1, 0), ("twin", 1, 30)]


def test_costs_that_count_stay(database: Database, clock: FakeClock) -> None:
    at = clock.now()
    cost(database, 1, at, state="reserved")
    cost(database, 2, at, prediction_id="p1")
    cost(database, 3, at, session_id="running")
    cost(database, 4, at, purpose="training")
    cost(database, 5, at)
    cost(database, 6, at)
    session(database, "running", "running")
    put(database, "training_runs", id="t", state="adopted", method="dpo", cost_entry=4)
    clock.advance(400 * DAY)
    assert retention_with(database, clock, "[retention]\ncostEntries = 35").round() == {"cost_entries": 1}
    assert keys(database, "cost_entries") == [1, 2, 3, 4, 6], "the last stays, so that no number is columns twice"


def test_learning_records_that_candidates_name_stay(database: Database, clock: FakeClock) -> None:
    for seq in range(1, 8):
        record(database, seq, clock.now(), workspace=BLOG if seq == 6 else SHOP)
    named = {"drafted_from": '["r1"]', "corroborated_by": '["r2"]', "against": '["r3"]'}
    kinds = {"type": "prompt_fragment", "scope_type": "workspace", "status": "rejected"}
    put(database, "candidates", id="c", **named, **kinds)
    clock.advance(180 * DAY)
    set_digested(database, 4)
    assert retention_with(database, clock).round() == {}
    clock.advance(INSTANT)
    assert retention_with(database, clock).round() == {"learning_records": 1}
    set_digested(database)
    own = retention_with(database, clock, f'[workspaces."{BLOG}".retention]\nlearningRecords = 0')
    assert own.round() == {"learning_records": 1}
    assert keys(database, "learning_records", "seq") == [1, 2, 3, 6, 7]
    assert sums(database, "learning_records") == {"2026-01-05": (2, 0)}


def test_the_newest_validation_runs_and_those_of_open_sessions_stay(database: Database, clock: FakeClock) -> None:
    session(database, "running", "running")
    validation_run(database, 1, clock.now(), session="running")
    validation_run(database, 2, clock.now(), failed=1)
    validation_run(database, 3, clock.now())
    for id in range(4, 4 + retention.MAX_RUNS):
        validation_run(database, id, clock.now())
    clock.advance(60 * DAY)
    rounds = retention_with(database, clock, "[retention]\nvalidationRuns = 59")
    assert rounds.round() == {"validation_runs": 2}
    assert keys(database, "validation_runs")[:2] == [1, 4]
    assert rows(database, "SELECT kind, number FROM table_days ORDER BY kind") == [("green", 1), ("red", 1)]


def test_only_blocked_triggers_of_decided_cards_are_deleted(database: Database, clock: FakeClock) -> None:
    at = clock.now()
    card(database, "open", "pending")
    log_entry(database, 1, at)
    log_entry(database, 2, at, blocked=False)
    log_entry(database, 3, at, card="open")
    log_entry(database, 4, at)
    clock.advance(36 * DAY)
    assert retention_with(database, clock, "[retention]\ncrosspollLog = 35").round() == {"crosspoll_log": 1}
    assert keys(database, "crosspoll_log") == [2, 3, 4]


def test_rows_are_deleted_in_small_batches_and_the_rest_in_the_next_round(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "MAX_BATCHES", 3)
    for id in range(1, 10):
        cost(database, id, clock.now())
    clock.advance(40 * DAY)
    rounds = retention_with(database, clock, "[retention]\ncostEntries = 35")
    before = database.commits
    assert rounds.round() == {"cost_entries": 6}
    assert database.commits - before == 4, "three batches and what is notified of them"
    assert rounds.round() == {"cost_entries": 2}
    assert sums(database, "cost_entries") == {"2026-01-05": (8, 800)}
