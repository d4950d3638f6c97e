"""Which workspaces are watched, and what follows when one is added or switched off (SPEC 2.9, 7.4)."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from engine.autonomy.autonomy import CARDS, STATE
from engine.clock import FakeClock
from engine.model import Outcome, Refusal, Status
from engine.prediction import workspace_watch
from engine.prediction.workspace_watch import SETTLE_TIME
from tests.autonomy.world import FLOW, World
from tests.conftest import Repository
from tests.support.helpers import wait_until


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
        assert set(engine.card_cycle.last_checked()) == {world.workspace, str(second_repository.path)}
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
        engine.card_cycle.run_cycle()
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
        engine.card_cycle.run_cycle()
        assert {card.kind for card in engine.cards.pending()} >= {engine.cards.get(predicted[-1]).kind}


@pytest.mark.long
def test_a_workspace_whose_files_change_is_checked_within_seconds(
    world: World, second_repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_watch, "POLL_MS", 20)
    with world.opened() as engine:
        engine.watch_workspace(str(second_repository.path))
        engine.card_cycle.run_cycle()
        before = engine.card_cycle.last_checked()

        def is_checked_again() -> bool:
            world.clock.advance(SETTLE_TIME)
            return engine.card_cycle.last_checked() != before

        engine.workspace_watch.start()
        wait_until(engine.workspace_watch.is_watching.is_set)
        second_repository.write("src/rates.py", "RATE = 2\n")
        wait_until(is_checked_again)
        after = engine.card_cycle.last_checked()
        assert [path for path in before if after[path] != before[path]] == [str(second_repository.path)]


def test_while_everything_is_stopped_changed_files_lead_to_no_check(world: World) -> None:
    with world.opened() as engine:
        engine.safety.kill_switch.stop("enough", by="operator")
        engine.workspace_watch._check([world.workspace])
        assert engine.card_cycle.last_checked() == {}
        engine.safety.kill_switch.resume("stop")
        engine.workspace_watch._check([world.workspace])
        assert [*engine.card_cycle.last_checked()] == [world.workspace]
