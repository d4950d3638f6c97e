"""How long one decision of the rails takes with a long history (SPEC 3.1): under 2 ms of the processor, p95.

pytest tests/benchmarks/test_pipeline_speed.py -m benchmark -s
"""

import time
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path

from engine.clock import FakeClock
from engine.model import Trigger
from engine.safety.costs import CostEntry, Costs
from engine.safety.pipeline import CrosspollLog, Pipeline
from engine.storage.database import Database, Transaction
from tests.benchmarks.measuring import compute_p95, print_table, time_call
from tests.safety.rails import WORKSPACE, make_approval, make_rails

ROWS, COSTS = 100_000, 4_000
"""Rows of the log of triggers, and of costs, in a month."""

DECISIONS, WARM = 300, 20
"""Decisions that are made, and the first of them, which are not timed."""

BAR_SECONDS = 0.002
"""Maximum seconds of the processor for a decision at p95."""


def fill_history(transaction: Transaction, begin: datetime):
    """Write a month of triggers and costs."""
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
            for number in range(COSTS)
        ],
    )  # fmt: skip


def time_decision(pipeline: Pipeline, costs: Costs, trigger: Trigger, transaction: Transaction) -> tuple[float, float]:
    """Seconds of the processor for asking the rails about a trigger, and for deciding and writing it."""
    session = transaction.session
    spent = cache(lambda: costs.read_state_within(session))

    def decide_and_write():
        pipeline.decide(transaction, trigger)
        session.flush()

    asking = time_call(
        lambda: pipeline._ask_all(session, trigger, transaction.now, spent, decided=True), time.thread_time
    )
    return asking, time_call(decide_and_write, time.thread_time)


def test_a_decision_with_a_hundred_thousand_earlier_ones_is_quick(database: Database, clock: FakeClock, tmp_path: Path):
    rails = make_rails(database, clock, tmp_path)
    rails.settings.change(cross_poll_cost_cap_per_hour=1e6, cross_poll_cost_cap_per_day=1e6)

    begin = clock.now() - timedelta(days=30)
    database.write(lambda transaction: fill_history(transaction, begin))
    times = []
    for number in range(DECISIONS):
        trigger = make_approval(prediction_id=f"new{number}", estimate=1)
        measure = partial(time_decision, rails.safety.pipeline, rails.safety.costs, trigger)
        times.append(database.write(measure))
    asked, decided = zip(*times[WARM:], strict=True)
    print_table(
        "processor time of a decision",
        {"the six rails": asked, "with log, permit, reservation, link, events": decided},
    )
    assert compute_p95(decided) < BAR_SECONDS
