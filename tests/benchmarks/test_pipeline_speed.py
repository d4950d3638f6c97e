"""How long one decision takes with a long history (a decision in under 2 ms, p95).

pytest tests/benchmarks/test_pipeline_speed.py -m benchmark -s
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.safety.costs import CostEntry
from engine.safety.pipeline import CrosspollLog
from engine.storage.database import Database, Transaction
from tests.safety.helpers import WORKSPACE, approval, make_rails

pytestmark = pytest.mark.benchmark

ROWS, PRICES, DECISIONS = 100_000, 4_000, 300


def test_a_decision_with_a_hundred_thousand_rows_behind_it(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    rails = make_rails(database, clock, tmp_path)
    rails.settings.change(cross_poll_cost_cap_per_hour=1e6, cross_poll_cost_cap_per_day=1e6)

    def fill(transaction: Transaction) -> None:
        begin = clock.now() - timedelta(days=30)
        connection = transaction.session.connection()
        connection.execute(
            CrosspollLog.__table__.insert(),  # type: ignore[attr-defined]
            [
                {
                    "user_id": "local", "prediction_id": f"p{number}", "trigger_type": "autonomous",
                    "target_channel": ("koji-core", "garden", "research")[number % 3], "prompt": "run the tests",
                    "cost_estimate": 0.05, "blocked": number % 7 == 0,
                    "created_at": begin + timedelta(seconds=25 * number),
                    "verdicts": (), "workspace": WORKSPACE, "digest": "", "from_channel": "owner",
                    "decided_by": "autonomy", "unattended": number % 2 == 0, "permit_id": None,
                }
                for number in range(ROWS)
            ],
        )  # fmt: skip
        connection.execute(
            CostEntry.__table__.insert(),  # type: ignore[attr-defined]
            [
                {
                    "purpose": "session", "state": "settled", "amount_microusd": 5, "estimate_microusd": 5,
                    "at": begin + timedelta(minutes=10 * number), "agent": "a", "channel": "koji-core",
                    "runner": "flow", "workspace": WORKSPACE,
                }
                for number in range(PRICES)
            ],
        )  # fmt: skip

    database.write(fill)
    looked: list[tuple[float, float]] = []
    whole: list[tuple[float, float]] = []
    for number in range(DECISIONS):
        trigger = approval(prediction_id=f"new{number}", estimate=1)

        def decide(transaction: Transaction) -> None:
            begin, processor = time.perf_counter(), time.thread_time()
            spent = cache(lambda: rails.safety.costs.spent(transaction.session))
            # The six rails with all their facts.
            rails.safety.pipeline._ask_all(transaction.session, trigger, transaction.now, spent, decided=True)  # noqa: B023
            looked.append((time.perf_counter() - begin, time.thread_time() - processor))
            begin, processor = time.perf_counter(), time.thread_time()
            rails.safety.pipeline.decide(transaction, trigger)  # noqa: B023
            transaction.session.flush()
            whole.append((time.perf_counter() - begin, time.thread_time() - processor))

        database.write(decide)
    for name, measured in (("the six rails", looked), ("with log, permit, reservation, link, events", whole)):
        for kind, seconds in zip(("wall", "processor"), zip(*measured[20:], strict=True), strict=True):
            cuts = statistics.quantiles(seconds, n=100)
            print(
                f"\n{name}, {kind}: p50 {cuts[49] * 1000:.2f} ms, p95 {cuts[94] * 1000:.2f} ms of {DECISIONS}", end=""
            )
    # Processor time of this thread, so that other programs on the machine do not make it fail; wall time is printed.
    assert statistics.quantiles([processor for _, processor in whole[20:]], n=100)[94] < 0.002
