"""A simulated month of the real engine (ARCHITECTURE rule 7) takes under 16 s of processor time, and every rail blocks.

pytest tests/benchmarks/test_simulate.py -m benchmark -s
"""

import json
from collections import Counter

from engine.simulation.simulate import simulate
from tests.benchmarks.measuring import Measured

RAILS = ("loop", "rate", "cost", "content", "gate", "kill")


def test_a_month_takes_less_than_sixteen_seconds():
    simulate(1, 1)
    month = Measured(lambda: simulate(30, 1))
    print(f"\n30 days: {month.seconds:.1f} s wall, {month.processor:.1f} s of processor", end="")
    assert month.processor < 16


def test_over_twenty_seeds_every_rail_blocks_and_every_block_is_shown_with_its_rail():
    total = Counter()
    seeds_without_block = Counter()
    for seed in range(1, 21):
        document = json.loads(json.dumps(simulate(30, seed)))
        counts = {rail["rail"]: rail["blocked"] for rail in document["rails"]}
        total.update(counts)
        seeds_without_block.update(name for name, count in counts.items() if not count)
        assert Counter(block["rail"] for block in document["blocked"]) == Counter(counts)
        assert all(block["rail"] in RAILS and block["reason"] for block in document["blocked"])
        cost = document["cost"]
        assert all(cost["peaks"][window] <= cost["caps"][window] for window in ("hour", "day", "month"))
        print(f"\nseed {seed:>2}: " + ", ".join(f"{name} {counts[name]}" for name in RAILS), end="")
    print(f"\nin all: {dict(total)}; seeds in which a rail never blocked: {dict(seeds_without_block)}")
    assert all(total[name] for name in RAILS)
