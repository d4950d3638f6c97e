"""Four weeks of work with everything on, with nothing, and with each ladder of learning (docs/ARCHITECTURE.md) alone.

    pytest tests/benchmarks/test_four_weeks.py -m benchmark -s

There is one task each working day, in a real repository with a real engine (see `closed_loop`). In the first days the
operator adds the rule of the shop to the prompts, and later nothing. The tasks of the later days count.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from engine.execution.runners.model.host_client import ModelHost
from tests.benchmarks.closed_loop import (
    LADDERS,
    MEMORY,
    PHASES_HEADING,
    SEEDS,
    Shop,
    approve_candidates,
    compare_phases,
    has_passed,
)
from tests.benchmarks.shop_model import ShopModel
from tests.benchmarks.shop_tasks import make_tasks
from tests.support.model_server import ModelServer

DAYS, CORRECTED_DAYS = 20, 12
"""Working days of four weeks, and the first of them, in which the operator corrects each task: each rule three
times."""

MAX_CHANCE = 0.01
"""A change that is less likely by chance than this is an effect."""

WAYS: dict[str, Sequence[str]] = {"off": (), "everything": (*LADDERS, MEMORY)}
WAYS |= {ladder: (ladder,) for ladder in (*LADDERS, MEMORY)}
"""The ways of learning that are in use, by the name of a row."""


def live_four_weeks(root: Path, server: ModelServer, model_host: ModelHost, seed: int, on: Sequence[str]) -> list[bool]:
    """Run one task each working day. The operator adds the rule to the prompts of the first `CORRECTED_DAYS`, and
    nothing later. Returns for each later task whether its tests passed at the first try."""
    shop = Shop(root, server, model_host, seed, on)
    tasks = make_tasks(seed, DAYS)
    server.answer = ShopModel(tasks)
    results = []
    with shop.opened():
        for day, task in enumerate(tasks):
            is_corrected = day < CORRECTED_DAYS
            view = shop.work(task, task.rule.correction if is_corrected else "")
            shop.review(view)
            shop.end_day()
            if not is_corrected:
                results.append(has_passed(view))
            if day % 5 == 4:
                if "behaviour" in on:
                    approve_candidates(shop)
                shop.clock.advance(timedelta(days=2))
    return results


def test_four_weeks_with_everything_on_and_each_ladder_alone(
    tmp_path: Path, server: ModelServer, model_host: ModelHost
):
    passed = {way: [] for way in WAYS}
    print("\nseed  on           right at the first try, task by task")
    for way, on in WAYS.items():
        for seed in SEEDS:
            results = live_four_weeks(tmp_path / f"{seed}-{way}", server, model_host, seed, on)
            print(f"{seed:4}  {way:11}  {''.join('+' if result else '-' for result in results)}", flush=True)
            passed[way] += results
    measured = len(passed["off"])
    print(f"\nright at the first try, of {measured} tasks that nobody corrected; three seeds, four weeks each")
    print(PHASES_HEADING)
    chances = {way: compare_phases(passed, "off", way) for way in WAYS if way != "off"}
    for way, chance in chances.items():
        if chance > MAX_CHANCE:
            print(f"{way} alone has no measurable effect")
    assert chances["everything"] <= MAX_CHANCE
