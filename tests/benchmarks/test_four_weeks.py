"""Four weeks of work with everything on, with nothing, and with each ladder of learning (docs/ARCHITECTURE.md) alone.

    pytest tests/benchmarks/test_four_weeks.py -m benchmark -s

There is one task each working day, in a real repository with a real engine (see `shop`). In the first days the
operator adds the rule of the shop to the prompts, and later nothing. The tasks of the later days count.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from engine.execution.runners.model.host_client import ModelHost
from tests.benchmarks.shop import LADDERS, MEMORY, Shop, ShopModel, approve_candidates, has_passed, make_tasks
from tests.support.model_server import ModelServer

DAYS, CORRECTED_DAYS = 20, 12
"""Working days of four weeks, and the first of them, in which the operator corrects each task: each rule three
times."""

MAX_CHANCE = 0.01
"""A change that is less likely by chance than this is an effect."""

WAYS: dict[str, Sequence[str]] = {"off": (), "everything": (*LADDERS, MEMORY)}
WAYS |= {ladder: (ladder,) for ladder in (*LADDERS, MEMORY)}
"""The ways of learning that are in use, by the name of a row."""


SEEDS = (1, 2, 3)

PHASES_HEADING = "\nchange                     before  after   more  fewer   p (sign test, one-sided)"
"""The heading of the rows that `compare_phases` prints."""


def compare_phases(passed: Mapping[str, Sequence[bool]], before: str, after: str) -> float:
    """Compare two phases of `passed` by a one-sided sign test, and print a row. `passed` says of each task whether it
    passed, by phase. Returns the probability that chance alone makes so many more tasks pass."""
    pairs = list(zip(passed[before], passed[after], strict=True))
    more = sum(second and not first for first, second in pairs)
    fewer = sum(first and not second for first, second in pairs)
    changed = more + fewer
    chance = sum(math.comb(changed, count) for count in range(more, changed + 1)) / 2**changed
    rates = (sum(passed[name]) / len(passed[name]) for name in (before, after))
    figures = "  ".join(f"{rate:6.0%}" for rate in rates)
    print(f"{before + ' to ' + after:25}  {figures}  {more:5}  {fewer:5}   {chance:.4f}")
    return chance


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
