"""How long a cycle over three workspaces takes (SPEC 2.9), one of them with 50,000 commits and 20 subprojects.

    pytest tests/benchmarks/test_cycle_speed.py -m benchmark -s

Bars: the first cycle of a new home under 5 s, later ones under 500 ms at p95, after an edit and after a commit. It is
`engine.checks.run` of a real engine that serves all three: sense, propose, weigh, ask the rails, store. The
baseline is one full `git log` walk.
"""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from engine import Engine, Home, open_engine
from engine.git import Git
from tests.benchmarks.large_repository import make_large_repository
from tests.benchmarks.measuring import compute_p95, print_table, time_call

COMMITS, FILES, PROJECTS = 50_000, 2_000, 20
"""The size of the large workspace."""

HOMES = 3
"""New homes whose first cycle is timed."""

ROUNDS = 40
"""Cycles after an edit, and cycles after a commit."""

BAR_SECONDS, FIRST_SECONDS = 0.5, 5.0
"""Maximum seconds of a later cycle at p95, and of the first one."""


def time_cycles(engine: Engine, change: Callable[[], object]) -> list[float]:
    """Seconds of whole cycles with a `change` before each. Half of the cards are decided in between, so that there is
    always something to weigh and to store."""
    seconds = []
    for _ in range(ROUNDS):
        change()
        seconds.append(time_call(engine.checks.run))
        for card in engine.cards.list_pending()[::2]:
            engine.cards.dismiss(card.id)
    return seconds


def test_a_cycle_over_three_workspaces_is_quick(tmp_path: Path):
    large = make_large_repository(tmp_path / "large", COMMITS, FILES, PROJECTS)
    small = [make_large_repository(tmp_path / name, 500, 100) for name in ("shop", "site")]
    paths = [str(repository.path) for repository in (large, *small)]
    first = []
    for number in range(HOMES):
        home = Home.locate(tmp_path / f"home{number}")
        with closing(open_engine(home, workspaces=paths, start_schedule=False)) as engine:
            first.append(time_call(engine.checks.run))
            if number == HOMES - 1:
                edited = time_cycles(engine, lambda: large.write("src/pack1/module1.py", f"{time.monotonic_ns()}\n"))
                committed = time_cycles(engine, lambda: large.git("commit", "-q", "--allow-empty", "-m", "next"))
    walks = [time_call(lambda: Git(large.path).output("log", "--format=%H %ct %s")) for _ in range(5)]
    print(f"\n3 workspaces, one with {COMMITS:,} commits, {FILES:,} files and {PROJECTS} subprojects")
    baseline = "git log of everything"
    rows = {"first": first, "warm, after an edit": edited, "warm, after a commit": committed, baseline: walks}
    print_table("cycle", rows, baseline=baseline)
    assert max(first) < FIRST_SECONDS
    assert compute_p95(edited) < BAR_SECONDS
    assert compute_p95(committed) < BAR_SECONDS
