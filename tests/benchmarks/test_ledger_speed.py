"""How long queries of a ledger with a million rows take, and how fast events are recorded in it (SPEC 4.2).

    pytest tests/benchmarks/test_ledger_speed.py -m benchmark -s

`CLAWPY_LEDGER` (1000000) is the number of rows.
"""

import os
import random
from datetime import timedelta

from engine.clock import FakeClock
from engine.events import SettingChanged
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.benchmarks.measuring import compute_p95, print_table, time_call, time_in_turns

LEDGER = int(os.environ.get("CLAWPY_LEDGER", "1000000"))
BATCH = 50_000
QUERIES = 100
GROUPS, GROUP_SIZE = 80, 50
"""Transactions that are timed, and the events of each."""

LEDGER_BAR, EVENTS_BAR = 0.020, 2_000.0
"""Maximum seconds of a query of the ledger at p95, and minimum number of events that are written a second."""

KINDS = [f"Kind{number}" for number in range(30)]


def fill_ledger(database: Database, clock: FakeClock):
    """Write `LEDGER` rows of the last 90 days."""
    begin, step = clock.now() - timedelta(days=90), timedelta(days=90) / LEDGER
    insert = "INSERT INTO memory_events (at, kind, subject, workspace, payload) VALUES (?, ?, ?, ?, ?)"
    for start in range(0, LEDGER, BATCH):
        rows = [
            (
                (begin + number * step).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                KINDS[number % len(KINDS)],
                f"s{number % 5000}",
                f"/w{number % 3}",
                f'{{"n": {number}}}',
            )
            for number in range(start, min(start + BATCH, LEDGER))
        ]
        database.write(lambda tx, rows=rows: tx.session.connection().exec_driver_sql(insert, rows))


def record_groups(database: Database):
    events = [SettingChanged(subject="x", value="y")] * GROUP_SIZE
    for _ in range(GROUPS):
        database.write(lambda tx: [tx.record(event) for event in events])


def test_a_ledger_of_a_million_rows_is_queried_and_written_quickly(database: Database, clock: FakeClock):
    fill_ledger(database, clock)
    ledger = Ledger(database)
    chance = random.Random(3)
    queries = {
        "latest 50": lambda: ledger.latest(50),
        "latest 50 of one kind": lambda: ledger.latest(50, kinds=(chance.choice(KINDS),)),
    }
    measured = time_in_turns(queries, QUERIES)
    print_table(f"ledger with {LEDGER:,} rows (bar {LEDGER_BAR * 1e3:.0f})", measured)
    events_per_second = GROUPS * GROUP_SIZE / time_call(lambda: record_groups(database))
    print(f"  durable events in groups of {GROUP_SIZE} {events_per_second:10,.0f}/s   (bar {EVENTS_BAR:,.0f})")
    assert all(compute_p95(seconds) < LEDGER_BAR for seconds in measured.values())
    assert events_per_second >= EVENTS_BAR
