"""How long sensing three workspaces takes, one of them with 50,000 commits. Bar: under 500 ms p95, warm.

    pytest tests/benchmarks/test_cycle_speed.py -m benchmark -s

`whole cycle` is `engine.predictions.run_cycle` of a real engine that serves all three: sense, propose, weigh, ask the
rails, store. `sense + propose` is the part before it weighs; `after a commit` is the same when HEAD of the large
repository has moved, so that nothing of its history is known. The baseline is one full `git log` walk.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, Home, open_engine
from engine.clock import FakeClock
from engine.config import FixedSettings
from engine.git import Git
from engine.prediction.context_reader import ContextReader
from engine.prediction.templates import propose
from tests.conftest import Repository
from tests.prediction.sensing import NOW, PYTEST, World

COMMITS = 50_000
FILES = 2_000
ROUNDS = 40
BAR_SECONDS = 0.5


def large_repository(path: Path, commits: int, files: int) -> Repository:
    """`commits` commits over `files` files, with a tag every 5,000 and 50 branches, made by one fast-import."""
    repository = Repository(path)
    start = int((NOW - timedelta(days=2000)).timestamp())
    stream: list[str] = []
    for number in range(1, commits + 1):
        text = f"value = {number}\n"
        stream.append(
            f"commit refs/heads/main\nmark :{number}\ncommitter A <a@b.org> {start + number * 3400} +0000\n"
            f"data {len(f'c{number}')}\nc{number}\n"
            f"M 100644 inline src/pack{number % 40}/module{number % files}.py\ndata {len(text)}\n{text}\n"
        )
        if number % 5_000 == 0:
            stream.append(f"reset refs/tags/v{number // 5_000}\nfrom :{number}\n\n")
        if number % (commits // 50) == 0:
            stream.append(f"reset refs/heads/topic-{number}\nfrom :{number}\n\n")
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=path, input="".join(stream).encode(), check=True, capture_output=True
    )
    repository.git("reset", "-q", "--hard", "main")
    return repository


def timed(rounds: int, work: Callable[[], object]) -> list[float]:
    """Seconds of each of `rounds` calls."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of `values` lie."""
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


@pytest.mark.benchmark
def test_cycle_over_three_workspaces(tmp_path: Path) -> None:
    large = large_repository(tmp_path / "large", COMMITS, FILES)
    small = [large_repository(tmp_path / name, 500, 100) for name in ("shop", "site")]
    paths = [str(repository.path) for repository in (large, *small)]
    world = World(large.path)

    def reader() -> ContextReader:
        return ContextReader(
            clock=FakeClock(NOW),
            settings=FixedSettings(),
            runs=world,
            tasks=NoHistory(),
            sessions=NoHistory(),
            find_tool=lambda folder: PYTEST,
        )

    def cycle(with_reader: ContextReader) -> int:
        contexts = with_reader.read_all(paths, last_input=None)
        assert all(context.git is not None for context in contexts)
        return sum(len(propose(context)) for context in contexts)

    warm_reader = reader()
    assert cycle(warm_reader) >= 9
    edits = iter(range(10_000))

    def warm() -> None:
        large.write("src/pack1/module1.py", f"value = {next(edits)}\n")
        cycle(warm_reader)

    def after_commit() -> None:
        large.git("commit", "-q", "--allow-empty", "-m", "next")
        start = time.perf_counter()
        cycle(warm_reader)
        moved.append(time.perf_counter() - start)

    moved: list[float] = []
    for _ in range(ROUNDS):
        after_commit()
    engine = open_engine(Home.locate(tmp_path / "home"), workspaces=paths, start_schedule=False)
    try:
        whole, whole_moved = whole_cycles(engine, large, edits)
    finally:
        engine.close()
    rows = {
        "whole cycle, warm": whole,
        "whole cycle, after a commit": whole_moved,
        "sense + propose, warm": timed(ROUNDS, warm),
        "sense + propose, after a commit": moved,
        "sense + propose, first time": timed(5, lambda: cycle(reader())),
        "baseline: git log of everything": timed(5, lambda: Git(large.path).output("log", "--format=%H %ct %s")),
    }
    baseline = statistics.median(rows["baseline: git log of everything"])
    print(f"\n3 workspaces, one with {COMMITS:,} commits and {FILES:,} files; ms")
    print(f"{'':34}{'p50':>8}{'p95':>8}{'p50 : baseline':>16}")
    for name, seconds in rows.items():
        p50, p95 = statistics.median(seconds), percentile(seconds, 0.95)
        print(f"{name:34}{p50 * 1000:8.1f}{p95 * 1000:8.1f}{p50 / baseline:16.2f}")
    for name in rows:
        if "warm" in name or "after" in name:
            assert percentile(rows[name], 0.95) < BAR_SECONDS, name


def whole_cycles(engine: Engine, large: Repository, edits: Iterator[int]) -> tuple[list[float], list[float]]:
    """Seconds of whole cycles with an edit before each, and with a commit before each. Half of the cards are decided
    in between, so that there is always something to weigh and to store."""
    first = engine.predictions.run_cycle(requested=True)
    assert first.created
    assert not first.errors

    def cycle() -> float:
        start = time.perf_counter()
        report = engine.predictions.run_cycle(requested=True)
        took = time.perf_counter() - start
        assert not report.errors
        for card in engine.cards.pending()[::2]:
            engine.cards.dismiss(card.id)
        return took

    warm, moved = [], []
    for _ in range(ROUNDS):
        large.write("src/pack1/module1.py", f"value = {next(edits)}\n")
        warm.append(cycle())
    for _ in range(ROUNDS):
        large.git("commit", "-q", "--allow-empty", "-m", "next")
        moved.append(cycle())
    return warm, moved


class NoHistory:
    """No tasks, no sessions."""

    def list(self, *, workspace: str, limit: int = 0) -> list[Any]:
        return []
