"""How long guidance for a worker below ten leaders takes among 1,000 agents (SPEC 1.5): under 5 ms warm, 50 ms cold.

Warm is a prompt like the one before; cold is the first one of an engine, with no folder, profile or block read yet (the
tokenizer, which every prompt needs anyway, is loaded).

pytest tests/benchmarks/test_guidance_speed.py -m benchmark -s
"""

import statistics
from functools import partial
from pathlib import Path

import pytest

from engine import files, tokenizer
from engine.clock import FakeClock
from engine.model import ProfileEdit
from engine.storage.database import Database
from tests.benchmarks.measuring import compute_p95, print_table, time_call
from tests.hierarchy.guidance_world import Organisation, make_world

AGENTS, DEPTH, PATTERNS = 1_000, 10, 40
"""Agents, leaders above the worker, and patterns of each leader."""

WARM_PROMPTS = 500
"""Prompts that are timed after another one."""

COLD_STARTS = 15
"""Prompts that are timed as the first of an engine."""

SENTENCE = "when the schema changes, migrate first, then run the tests of what reads it, number {n} of {who}"


def make_leaders(world: Organisation):
    """Ten leaders above one worker, each with a long soul; the other agents beside them."""
    above = "owner"
    for number in range(DEPTH):
        name = f"leader_{number}"
        rules = [f"- {SENTENCE.format(n=n, who=name)}" for n in range(12)]
        soul = "\n".join(["## Principles", *rules, "## Guardrails", *rules])
        world.write_agent(name, above, 1 + min(2, number), soul=soul)
        above = name
    world.write_agent("bottom", above, 5)
    for number in range(AGENTS - DEPTH - 1):
        world.write_agent(f"agent_{number}", f"leader_{number % DEPTH}", 4)
    profiles = world.profiles

    def write_patterns(tx: object):
        for number in range(DEPTH):
            for n in range(PATTERNS):
                text = SENTENCE.format(n=n, who=f"pattern {number}")
                profiles.add_version(tx, f"leader_{number}", ProfileEdit("patterns", (text,), f"p_{n}"))

    world.database.write(write_patterns)


def test_guidance_at_the_bottom_of_a_deep_chain_is_made_quickly(
    tmp_path: Path, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    # Files that were just written are cached, as if they were old.
    monkeypatch.setattr(files, "MIN_UNCHANGED_NS", 0)
    world = make_world(tmp_path, database, clock, members=())
    make_leaders(world)
    tokenizer.count("load")
    cold = []
    for _ in range(COLD_STARTS):
        tokenizer.count.cache_clear()
        cascade = make_world(tmp_path, database, clock, members=()).cascade
        cold.append(time_call(partial(cascade.guidance, "bottom")))
        guidance = cascade.guidance("bottom")
        assert len(guidance.chain) == DEPTH
        assert 0 < guidance.tokens <= 800
    warm = [time_call(lambda: cascade.guidance("bottom")) for _ in range(WARM_PROMPTS)]
    print_table("guidance at the bottom", {"warm": warm, "cold": cold})
    assert compute_p95(warm) < 0.005
    assert statistics.median(cold) < 0.050
