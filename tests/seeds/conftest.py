"""Worlds of these tests: with an engine that is open or closed, that may act by itself, or whose memory has vectors."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import DecisionSignal
from tests.seeds.operator_world import OperatorWorld
from tests.support.model_server import ModelServer
from tests.support.model_world import KEY


@pytest.fixture
def closed_world(
    tmp_path: Path,
    clock: FakeClock,
    model_host: ModelHost,
    _no_environment_of_the_developer: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[OperatorWorld]:
    """A world whose engine the test opens."""
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
    for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
        monkeypatch.setenv(name, (clock.now() - timedelta(days=3)).isoformat())
    with ModelServer() as server:
        yield OperatorWorld(tmp_path, clock, server, host=model_host)


@pytest.fixture
def world(closed_world: OperatorWorld) -> Iterator[OperatorWorld]:
    """A world whose engine is open."""
    with closed_world.opened():
        yield closed_world


@pytest.fixture
def trusted_world(closed_world: OperatorWorld) -> Iterator[OperatorWorld]:
    """A world in which the engine may act by itself, in a sandbox of this machine. Its operator dismissed forty
    searches for flaky tests, and approved sixty reports of stale branches. There are three such branches now."""
    if not find_best_sandbox().confines:
        pytest.skip("this machine has no sandbox")
    closed_world.sandbox = None
    closed_world.configure(autonomousModeEnabled=True)
    closed_world.append_config(f'[workspaces."{closed_world.repository.path}"]\nautonomy = "act"\n')
    for name in ("coupons", "refunds", "taxes"):
        closed_world.repository.git("checkout", "-q", "-b", name)
        closed_world.repository.commit(f"Begin {name}", {f"{name}.py": "x = 1\n"}, at="2025-06-01T10:00:00+00:00")
        closed_world.repository.git("checkout", "-q", "main")
    with closed_world.opened():
        closed_world.record_decisions("hunt_flakes", DecisionSignal.DISMISSED, 40)
        closed_world.record_decisions("report_branches", DecisionSignal.APPROVED, 60)
        closed_world.run_flow("report_branches")  # so that this pair of channels has run before
        closed_world.advance(minutes=20)
        yield closed_world


@pytest.fixture
def vector_world(closed_world: OperatorWorld) -> Iterator[OperatorWorld]:
    """A world whose memory has vectors: its index and its embedder run in a process of their own."""
    closed_world.throw_away = False
    with closed_world.opened():
        yield closed_world
