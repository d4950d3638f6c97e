"""A repository that no cycle has looked at is looked at without waiting for the next cycle (SPEC 2.9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.autonomy.autonomy import CARDS, STATE
from engine.clock import FakeClock
from engine.model import Refusal
from tests.autonomy.world import World
from tests.conftest import Repository


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, clock, monkeypatch)


@pytest.fixture
def second(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "second")
    repository.commit("Begin", {"src/rates.py": "RATE = 1\n"})
    return repository


@pytest.mark.long
def test_one_that_is_taken_on_later_is_checked_at_once_and_not_again(world: World, second: Repository) -> None:
    with world.opened() as engine:
        engine.autonomy.schedule.run(CARDS)
        engine.watch_workspace(str(second.path / "src"))
        engine.watch_workspace(str(second.path))
        assert engine.workspaces == [world.workspace, str(second.path)]
        engine.autonomy.schedule.run(STATE)
        assert set(engine.predictions.last_checked()) == {world.workspace, str(second.path)}
        added, cycles = (engine.ledger.latest(9, kinds=(item,)) for item in ("WorkspaceAdded", "CycleFinished"))
        assert ([item.subject for item in added], len(cycles)) == ([str(second.path)], 2)
        engine.autonomy.schedule.run(STATE)
        assert len(engine.ledger.latest(9, kinds=("CycleFinished",))) == 2


def test_one_that_the_settings_switch_off_is_refused(world: World, second: Repository) -> None:
    with world.opened() as engine:
        engine.settings.set(f"workspaces.{json.dumps(str(second.path))}.autonomy", "off")
        with pytest.raises(Refusal, match="switched off"):
            engine.watch_workspace(str(second.path))
        assert engine.workspaces == [world.workspace]
