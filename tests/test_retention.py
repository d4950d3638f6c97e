"""Rows are deleted after the days in the settings, by table and workspace. Sums by day, and rows that are still needed,
stay (SPEC 4.2)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from engine import retention
from engine.clock import FakeClock
from engine.config.settings import FixedSettings, Settings
from engine.config.settings_file import BadConfig, describe_accepted, parse_key, read_settings
from engine.events.work import ChangeSetLanded
from engine.learning.candidates.adaptation import LAST_PROCESSED_KEY
from engine.model.adaptation import RecordKind
from engine.retention import RowRetention
from engine.storage import as_stored, ask, state
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.support import read_table

TABLE = read_table(__file__)

DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)
SHOP, BLOG = "/srv/shop", "/srv/blog"
READER, OTHER_READER = "test.reader", "test.slower_reader"
"""The keys of the cursors of two consumers; see `mark_read_to`."""

EVENTS = "[retention]\nmemoryEvents = 90"
"""Settings that keep events for 90 days."""


USUAL_VALUES: dict[str, dict[str, Any]] = {
    "cost_entries": {"purpose": "judge", "state": "settled", "amount_microusd": 100, "workspace": SHOP},
    "learning_records": {"kind": RecordKind.HUMAN_APPROVAL.value, "scope_type": "workspace", "workspace": SHOP},
    "validation_runs": {"session_id": "s", "workspace": SHOP, "failed": 0},
    "crosspoll_log": {"prediction_id": "p1", "trigger_type": "manual", "workspace": SHOP, "blocked": True},
    "sessions": {"mode": "approved"},
    "predictions": {"source": "operator", "decided_by": None},
    "notifications": {"surface": "phone"},
    "candidates": {"type": "prompt_fragment", "scope_type": "workspace", "status": "rejected"},
    "training_runs": {"state": "adopted", "method": "dpo"},
}
"""What a row of a table has where a test says nothing else."""


def make_settings(document: str = "") -> Settings:
    return read_settings(document, file="config.toml", environment={})


def make_retention(database: Database, clock: FakeClock, document: str = "") -> RowRetention:
    return RowRetention(database, clock, FixedSettings(make_settings(document)), {READER, OTHER_READER})


def put_row(database: Database, table: str, **values: Any):
    """Insert a row with these values. Other columns get `USUAL_VALUES`, and required ones else empty values."""
    row_values = USUAL_VALUES[table] | values
    columns = {name: as_stored(value) if isinstance(value, datetime) else value for name, value in row_values.items()}
    empty = {"INTEGER": 0, "BOOLEAN": 0, "FLOAT": 0, "JSON": "[]"}
    for _, name, kind, needed, default, key in read_rows(database, f"PRAGMA table_info({table})"):
        if needed and not key and default is None:
            columns.setdefault(name, empty.get(kind, ""))
    names, marks = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    database.write(lambda tx: tx.driver.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", columns))


def read_rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.read() as session:
        return ask(session, query)


def read_keys(database: Database, table: str, key: str = "id") -> list[Any]:
    return [name for (name,) in read_rows(database, f"SELECT {key} FROM {table} ORDER BY {key}")]


def read_sums(database: Database, table: str) -> dict[str, tuple[int, int]]:
    """The number of deleted rows of a table, and their micro-dollars, by day."""
    query = f"SELECT day, sum(number), sum(microusd) FROM table_days WHERE \"table\" = '{table}' GROUP BY day"
    return {day: (number, money) for day, number, money in read_rows(database, query)}


def land_changes(database: Database, *subjects: str):
    database.write(
        lambda tx: [
            tx.record(ChangeSetLanded(subject=subject, workspace=SHOP, session_id=subject, files=1))
            for subject in subjects
        ]
    )


def put_session(database: Database, id: str, status: str):
    put_row(database, "sessions", id=id, state=status, permit_id=id)


def put_card(database: Database, id: str, status: str):
    put_row(database, "predictions", id=id, status=status, subject=id, fingerprint=id)


def set_processed(database: Database, seq: int = 100):
    database.write(lambda tx: state.put(tx, LAST_PROCESSED_KEY, seq))


def mark_read_to(database: Database, id: int, *readers: str):
    """Let the consumers, by default all of them, have read all entries up to `id`."""
    for reader in readers or (READER, OTHER_READER):
        database.write(lambda tx, reader=reader: state.put(tx, reader, id))


def mark_all_read(database: Database, *readers: str):
    mark_read_to(database, max(read_keys(database, "memory_events"), default=0), *readers)


def test_by_default_only_learning_records_are_deleted_after_half_a_year():
    assert make_settings().retention.model_dump() == {
        "memory_events": 0, "learning_records": 180, "validation_runs": 0, "cost_entries": 0, "crosspoll_log": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "table, least",
    TABLE["least_days"],
)
@pytest.mark.parametrize("section", ["retention", 'workspaces."/srv/shop".retention'])
def test_a_table_accepts_its_fewest_days_and_no_less(section: str, table: str, least: int):
    assert make_settings(f"[{section}]\n{table} = {least}\n")
    assert make_settings(f"[{section}]\n{table} = 0\n")
    for wrong in (least - 1, 1, -1, 36_501):
        with pytest.raises(BadConfig, match=rf"config.toml:2: .*{wrong} is not accepted; expected 0 .*{least} to"):
            make_settings(f"[{section}]\n{table} = {wrong}\n")
    assert str(least) in describe_accepted(parse_key(f"{section}.{table}"))


def test_an_event_of_exactly_its_days_stays_and_an_older_one_is_deleted(database: Database, clock: FakeClock):
    land_changes(database, "older")
    clock.advance(INSTANT)
    land_changes(database, "exact")
    clock.advance(90 * DAY)
    land_changes(database, "new")
    mark_all_read(database)
    assert make_retention(database, clock, EVENTS).delete_old_rows() == {"memory_events": 1}
    assert read_keys(database, "memory_events", "subject") == ["", "exact", "new"]
    [event] = Ledger(database).read_newest(1)
    assert (event.kind, event.payload) == ("RowsLetGo", {"rows": {"memory_events": 1}})
    written = database.commits
    assert make_retention(database, clock, EVENTS).delete_old_rows() == {}, "again changes nothing"
    assert database.commits == written


def test_days_are_counted_back_from_the_first_event_that_the_slowest_consumer_has_not_read(
    database: Database, clock: FakeClock
):
    """A consumer may look back from the entry that it reads, for example to the beginning of a session."""
    land_changes(database, "too old")
    clock.advance(INSTANT)
    land_changes(database, "90 days before")
    clock.advance(90 * DAY)
    land_changes(database, "unread")
    clock.advance(400 * DAY)
    assert make_retention(database, clock, EVENTS).delete_old_rows() == {}, "nothing is known of the consumers"
    mark_all_read(database, READER)
    assert make_retention(database, clock, EVENTS).delete_old_rows() == {}, "the other one has read nothing"
    mark_read_to(database, 2, OTHER_READER)
    assert make_retention(database, clock, EVENTS).delete_old_rows() == {"memory_events": 1}
    assert read_keys(database, "memory_events", "subject") == ["", "90 days before", "unread"]


def test_events_that_something_refers_to_stay(database: Database, clock: FakeClock):
    land_changes(database, "unsent", "sent", "evidence", "running", "ended", "open", "decided")
    unsent, sent, evidence = read_keys(database, "memory_events")[:3]
    put_row(database, "notifications", entry_id=unsent, state="waiting")
    put_row(database, "notifications", entry_id=sent, state="sent")
    put_row(database, "learning_records", seq=1, id="r1", at=clock.now(), ledger_id=evidence)
    put_session(database, "running", "running")
    put_session(database, "ended", "succeeded")
    put_card(database, "open", "pending")
    put_card(database, "decided", "executed")
    clock.advance(100 * DAY)
    land_changes(database, "new")
    mark_all_read(database)
    assert make_retention(database, clock, EVENTS).delete_old_rows() == {"memory_events": 3}
    assert {"unsent", "evidence", "running", "open"} <= set(read_keys(database, "memory_events", "subject"))


def test_deleted_costs_stay_in_sums_by_day(database: Database, clock: FakeClock):
    first = clock.now()
    put_row(database, "cost_entries", id=1, at=first, amount_microusd=70)
    put_row(database, "cost_entries", id=2, at=first, amount_microusd=30, purpose="twin")
    put_row(database, "cost_entries", id=3, at=first, amount_microusd=0, state="released", prediction_id="p1")
    clock.advance(DAY)
    put_row(database, "cost_entries", id=4, at=clock.now(), amount_microusd=5)
    put_row(database, "cost_entries", id=5, at=clock.now())
    clock.advance(35 * DAY)
    retention_job = make_retention(database, clock, "[retention]\ncostEntries = 35")
    assert retention_job.delete_old_rows() == {"cost_entries": 3}, "a day of exactly 35 stays"
    assert read_sums(database, "cost_entries") == {"2026-01-05": (3, 100)}
    clock.advance(INSTANT)
    assert retention_job.delete_old_rows() == {"cost_entries": 1}
    assert read_sums(database, "cost_entries") == {"2026-01-05": (3, 100), "2026-01-06": (1, 5)}
    first_day = read_rows(
        database, "SELECT kind, number, microusd FROM table_days WHERE day < '2026-01-06' ORDER BY kind"
    )
    assert first_day == [("judge", 1, 70), ("released", 1, 0), ("twin", 1, 30)]


def test_costs_that_count_stay(database: Database, clock: FakeClock):
    at = clock.now()
    reserved, of_card, of_session, of_training, old, newest = range(1, 7)
    put_row(database, "cost_entries", id=reserved, at=at, state="reserved")
    put_row(database, "cost_entries", id=of_card, at=at, prediction_id="p1")
    put_row(database, "cost_entries", id=of_session, at=at, session_id="running")
    put_row(database, "cost_entries", id=of_training, at=at, purpose="training")
    put_row(database, "cost_entries", id=old, at=at)
    put_row(database, "cost_entries", id=newest, at=at)
    put_session(database, "running", "running")
    put_row(database, "training_runs", id="t", cost_entry=of_training)
    clock.advance(400 * DAY)
    assert make_retention(database, clock, "[retention]\ncostEntries = 35").delete_old_rows() == {"cost_entries": 1}
    kept = [reserved, of_card, of_session, of_training, newest]
    assert read_keys(database, "cost_entries") == kept, "the newest stays, so that no id is used twice"


def test_learning_records_that_candidates_name_stay(database: Database, clock: FakeClock):
    for seq in range(1, 8):
        workspace = BLOG if seq == 6 else SHOP
        put_row(database, "learning_records", seq=seq, id=f"r{seq}", at=clock.now(), workspace=workspace)
    references = {"drafted_from": '["r1"]', "corroborated_by": '["r2"]', "against": '["r3"]'}
    put_row(database, "candidates", id="c", **references)
    clock.advance(180 * DAY)
    set_processed(database, 4)
    assert make_retention(database, clock).delete_old_rows() == {}
    clock.advance(INSTANT)
    assert make_retention(database, clock).delete_old_rows() == {"learning_records": 1}
    set_processed(database)
    own = make_retention(database, clock, f'[workspaces."{BLOG}".retention]\nlearningRecords = 0')
    assert own.delete_old_rows() == {"learning_records": 1}
    assert read_keys(database, "learning_records", "seq") == [1, 2, 3, 6, 7]
    assert read_sums(database, "learning_records") == {"2026-01-05": (2, 0)}


def test_the_newest_validation_runs_and_those_of_open_sessions_stay(database: Database, clock: FakeClock):
    put_session(database, "running", "running")
    put_row(database, "validation_runs", id=1, ran_at=clock.now(), session_id="running")
    put_row(database, "validation_runs", id=2, ran_at=clock.now(), failed=1)
    put_row(database, "validation_runs", id=3, ran_at=clock.now())
    for id in range(4, 4 + retention.KEPT_RUNS):
        put_row(database, "validation_runs", id=id, ran_at=clock.now())
    clock.advance(60 * DAY)
    retention_job = make_retention(database, clock, "[retention]\nvalidationRuns = 59")
    assert retention_job.delete_old_rows() == {"validation_runs": 2}
    assert read_keys(database, "validation_runs")[:2] == [1, 4]
    assert read_rows(database, "SELECT kind, number FROM table_days ORDER BY kind") == [("green", 1), ("red", 1)]


def test_only_blocked_triggers_of_decided_cards_are_deleted(database: Database, clock: FakeClock):
    at = clock.now()
    put_card(database, "open", "pending")
    decided, unblocked, of_open_card, newest = range(1, 5)
    put_row(database, "crosspoll_log", id=decided, created_at=at)
    put_row(database, "crosspoll_log", id=unblocked, created_at=at, blocked=False)
    put_row(database, "crosspoll_log", id=of_open_card, created_at=at, prediction_id="open")
    put_row(database, "crosspoll_log", id=newest, created_at=at)
    clock.advance(36 * DAY)
    assert make_retention(database, clock, "[retention]\ncrosspollLog = 35").delete_old_rows() == {"crosspoll_log": 1}
    assert read_keys(database, "crosspoll_log") == [unblocked, of_open_card, newest]
