"""How long the figures of the last week take in a home with 100,000 cards, most of them older (SPEC 8.5).

pytest tests/benchmarks/test_insights_speed.py -m benchmark -s
"""

import time
from datetime import timedelta

from engine.clock import FakeClock
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.insights import InsightsReader
from engine.model import DecidedBy, DecisionSignal, Status
from engine.prediction.card_rows import make_decided_card
from engine.storage.database import Database, Transaction
from engine.storage.rows import as_stored
from tests.benchmarks.measuring import print_table, time_call
from tests.learning.decisions.conftest import reader
from tests.support.card_rows import make_card_row

__all__ = ["reader"]

CARDS, DAYS = 100_000, 1_000
"""Cards of the home, and the days in which they were decided."""

PARTS = 20
"""Of so many cards one is dismissed, one ran by itself, and the others were approved."""

READS = 7

WEEK_SHARE = 0.17
"""Maximum time that the figures of a week take, as a share of the time that those of all days take."""


def add_cards(database: Database, clock: FakeClock):
    """Add cards, as many on each day."""
    decisions, at = Decisions(database, clock), clock.now()

    def add_today(tx: Transaction):
        for number in range(CARDS // DAYS):
            part = number % PARTS
            row = make_card_row(
                f"pred_{number}", at, status=Status.DISMISSED if part == 0 else Status.EXECUTED, decided_at=at,
                decided_by=DecidedBy.AUTONOMY if part == 1 else DecidedBy.OPERATOR, text_features=b"x" * 400,
            )  # fmt: skip
            tx.insert(row)
            signal = DecisionSignal.DISMISSED if part == 0 else DecisionSignal.APPROVED
            decisions.record(tx, signal, make_decided_card(row, row.decided_by or DecidedBy.OPERATOR))

    def copy_to_other_days(tx: Transaction):
        for table, key in (("predictions", "id"), ("decisions", "prediction_id")):
            columns = [name for _, name, *_ in tx.driver.execute(f"PRAGMA table_info({table})")]
            values = {name: f'"{name}"' for name in columns} | {key: f"{key} || :day", "decided_at": ":at"}
            if table == "decisions":
                values["id"] = "NULL"
            copy = f"INSERT INTO {table} SELECT {', '.join(values.values())} FROM {table} WHERE decided_at = :today"
            for day in range(1, DAYS):
                instants = {"at": as_stored(at - timedelta(days=day)), "today": as_stored(at)}
                tx.driver.execute(copy, {"day": f"_{day}", **instants})

    database.write(add_today)
    database.write(copy_to_other_days)


def test_the_figures_of_a_week_do_not_read_the_decisions_of_all_days(
    database: Database, clock: FakeClock, reader: InsightsReader
):
    add_cards(database, clock)
    assert reader.read(7).metrics.total == CARDS // DAYS * 7
    seconds = {
        name: [time_call(lambda days=days: reader.read(days), clock=time.thread_time) for _ in range(READS)]
        for name, days in (("week", 7), ("all", None))
    }
    print_table("figures", seconds)
    assert min(seconds["week"]) < WEEK_SHARE * min(seconds["all"])
