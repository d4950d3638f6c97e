"""How long one decision takes with a long history: under 2 ms of the processor, p95.

pytest tests/benchmarks/test_pipeline_speed.py -m benchmark -s
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import cache
from pathlib import Path

from engine.clock import FakeClock
from engine.safety.costs import CostEntry
from engine.safety.pipeline import CrosspollLog
from engine.storage.database import Database, Transaction
from tests.benchmarks.measuring import p95, print_table, time_call
from tests.safety.helpers import WORKSPACE, approval, make_rails

ROWS, PRICES, DECISIONS, WARM = 100_000, 4_000, 300, 20


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
    asked: list[float] = []
    decided: list[float] = []
    for number in range(DECISIONS):
        trigger = approval(prediction_id=f"new{number}", estimate=1)

        def decide(transaction: Transaction) -> None:
            def ask_all() -> None:
                session = transaction.session
                spent = cache(lambda: rails.safety.costs.spent(session))
                # The six rails with all their facts.
                rails.safety.pipeline._ask_all(session, trigger, transaction.now, spent, decided=True)  # noqa: B023

            def decide_and_write() -> None:
                rails.safety.pipeline.decide(transaction, trigger)  # noqa: B023
                transaction.session.flush()

            asked.append(time_call(ask_all, time.thread_time))
            decided.append(time_call(decide_and_write, time.thread_time))

        database.write(decide)
    rows = {"the six rails": asked[WARM:], "with log, permit, reservation, link, events": decided[WARM:]}
    print_table("processor time of a decision", rows)
    assert p95(decided[WARM:]) < 0.002
