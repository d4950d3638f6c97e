"""Guidance for a worker at the bottom of a 10-deep chain among 1,000 agents: under 5 ms p95 warm, 50 ms cold.

Warm is a prompt like the one before; cold is the first one of an engine, with no folder, profile or block read yet (the
tokenizer, which every prompt needs anyway, is loaded).

pytest tests/benchmarks/test_guidance_speed.py -m benchmark -s
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from engine import tokenizer
from engine.clock import FakeClock
from engine.hierarchy import cascade_config
from engine.hierarchy.agents import Agents
from engine.hierarchy.wisdom import Wisdom
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.hierarchy.wisdom_world import World, make_world

pytestmark = pytest.mark.benchmark

AGENTS, DEPTH, PATTERNS, WARM, COLD = 1_000, 10, 40, 500, 15

SENTENCE = "when the schema changes, migrate first, then run the tests of what reads it, number {n} of {who}"


def fill(world: World) -> None:
    """Ten leaders above one worker, each with a long soul; the other agents beside them."""
    above = "owner"
    for number in range(DEPTH):
        name = f"leader_{number}"
        said = [SENTENCE.format(n=n, who=name) for n in range(12)]
        soul = "\n".join(
            ["## Principles", *(f"- {one}" for one in said), "## Guardrails", *(f"- {one}" for one in said)]
        )
        world.member(name, above, 1 + min(2, number), soul=soul)
        above = name
    world.member("bottom", above, 5)
    for number in range(AGENTS - DEPTH - 1):
        world.member(f"agent_{number}", f"leader_{number % DEPTH}", 4)
    profiles = world.wisdom._profiles

    def learnt(tx: object) -> None:
        for number in range(DEPTH):
            for n in range(PATTERNS):
                text = SENTENCE.format(n=n, who=f"pattern {number}")
                profiles.write(tx, f"leader_{number}", "patterns", f"p_{n}", {"text": text})  # type: ignore[arg-type]

    world.database.write(learnt)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def test_guidance_at_the_bottom_of_a_deep_chain(
    tmp_path: Path, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cascade_config, "SETTLED_NS", 0
    )  # what was written just now is read once, as if it lay there for long
    world = make_world(tmp_path, database, clock, members=())
    fill(world)
    tokenizer.count("load")
    cold = []
    for _ in range(COLD):
        tokenizer.count.cache_clear()
        agents = Agents(world.folder, cascade_config=world.config, settings=world.agents._settings, database=database)
        wisdom = Wisdom(
            database, agents, clock=clock, randomness=world.wisdom._bubbles._randomness,
            facts=Ledger(database),
        )  # fmt: skip
        begin = time.perf_counter()
        told = wisdom.guidance("bottom")
        cold.append((time.perf_counter() - begin) * 1000)
        assert len(told.chain) == DEPTH
        assert 0 < told.tokens <= 800
    warm = []
    for _ in range(WARM):
        begin = time.perf_counter()
        wisdom.guidance("bottom")
        warm.append((time.perf_counter() - begin) * 1000)
    print(f"\n{'':6} {'p50':>8} {'p95':>8} {'most':>8}  ms")
    for name, times in (("warm", warm), ("cold", cold)):
        print(f"{name:6} {statistics.median(times):8.2f} {percentile(times, 0.95):8.2f} {max(times):8.2f}")
    assert percentile(warm, 0.95) < 5
    assert statistics.median(cold) < 50
