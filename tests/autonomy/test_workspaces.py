"""Which workspaces are watched, and what follows when one is added or switched off (SPEC 2.9, 7.4)."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from engine.autonomy.autonomy import CARDS, STATE
from engine.clock import FakeClock
from engine.model import Outcome, Refusal, Status
from tests.autonomy.world import FLOW, World
from tests.conftest import Repository


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, clock, monkeypatch)


@pytest.fixture
def second_repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "second_repository")
    repository.commit("Begin", {"src/rates.py": "RATE = 1\n"})
    return repository


@pytest.mark.long
def test_a_workspace_that_is_added_later_is_checked_at_once_and_only_once(
    world: World, second_repository: Repository
) -> None:
    with world.opened() as engine:
        engine.autonomy.schedule.run(CARDS)
        engine.watch_workspace(str(second_repository.path / "src"))
        engine.watch_workspace(str(second_repository.path))
        assert engine.workspaces == [world.workspace, str(second_repository.path)]
        engine.autonomy.schedule.run(STATE)
        assert set(engine.predictions.last_checked()) == {world.workspace, str(second_repository.path)}
        added, cycles = (engine.ledger.latest(9, kinds=(item,)) for item in ("WorkspaceAdded", "CycleFinished"))
        assert ([item.subject for item in added], len(cycles)) == ([str(second_repository.path)], 2)
        engine.autonomy.schedule.run(STATE)
        assert len(engine.ledger.latest(9, kinds=("CycleFinished",))) == 2


def test_a_workspace_that_the_settings_switch_off_cannot_be_added(world: World, second_repository: Repository) -> None:
    with world.opened() as engine:
        engine.settings.set(f"workspaces.{json.dumps(str(second_repository.path))}.autonomy", "off")
        with pytest.raises(Refusal, match="switched off"):
            engine.watch_workspace(str(second_repository.path))
        assert engine.workspaces == [world.workspace]


@pytest.mark.parametrize("job", [STATE, CARDS])
def test_cards_of_a_workspace_that_is_switched_off_are_withdrawn_except_your_own(world: World, job: str) -> None:
    with world.opened() as engine:
        engine.predictions.run_cycle()
        predicted = [card.id for card in engine.cards.pending()]
        assert predicted
        asleep = engine.cards.snooze(predicted[0], span=timedelta(hours=2)).id
        engine.cards.mark_shown(predicted)
        own = engine.cards.propose(FLOW, workspace=world.workspace).id
        decided = len(engine.decisions.load_newest())
        key = f"workspaces.{json.dumps(world.workspace)}.autonomy"
        engine.settings.set(key, "off")
        engine.autonomy.schedule.run(job)
        assert [card.id for card in engine.cards.pending(include_snoozed=True)] == [own]
        for card in map(engine.cards.get, (asleep, *predicted)):
            assert (card.status, card.outcome) == (Status.EXPIRED, Outcome.WITHDRAWN)
            assert "off" in card.note
        assert len(engine.decisions.load_newest()) == decided, "that says nothing about the cards"
        engine.settings.set(key, "cards")
        engine.autonomy.schedule.run(job)
        engine.predictions.run_cycle()
        assert {card.kind for card in engine.cards.pending()} >= {engine.cards.get(predicted[-1]).kind}
