"""Which workspaces are watched, and what follows when one is added or switched off (SPEC 2.9, 7.4)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.autonomy.autonomy import CARD_JOB, STATE_JOB
from engine.clock import FakeClock
from engine.engine import Engine
from engine.model import Outcome, Status
from engine.prediction.workspace_watch import SETTLE_TIME
from tests.autonomy.autonomy_world import AutonomyWorld
from tests.support.checks import refused
from tests.support.repository import Repository

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AutonomyWorld:
    return AutonomyWorld(tmp_path, clock, monkeypatch)


@pytest.fixture
def engine(world: AutonomyWorld) -> Iterator[Engine]:
    """The open engine of the world."""
    with world.opened() as engine:
        yield engine


@pytest.fixture
def second_repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "second_repository")
    repository.commit("Begin", {"src/rates.py": "RATE = 1\n"})
    return repository


@pytest.mark.long
def test_a_workspace_that_is_added_later_is_checked_at_once_and_only_once(
    world: AutonomyWorld, engine: Engine, second_repository: Repository
):
    engine.autonomy.schedule.run(CARD_JOB)
    engine.watch_workspace(str(second_repository.path / "src"))
    engine.watch_workspace(str(second_repository.path))
    assert engine.workspaces == [world.workspace, str(second_repository.path)]
    engine.autonomy.schedule.run(STATE_JOB)
    assert set(engine.checks.read_last_checked()) == {world.workspace, str(second_repository.path)}
    engine.autonomy.schedule.run(STATE_JOB)
    assert len(engine.ledger.read_newest(9, kinds=("CycleFinished",))) == 2


def test_a_workspace_that_the_settings_switch_off_cannot_be_added(engine: Engine, second_repository: Repository):
    engine.settings.set(f"workspaces.{json.dumps(str(second_repository.path))}.autonomy", "off")
    refused("workspace_off", lambda: engine.watch_workspace(str(second_repository.path)))


def test_the_cards_of_a_workspace_that_is_switched_off_are_withdrawn(world: AutonomyWorld, engine: Engine):
    engine.checks.run()
    cards = engine.cards.list_pending()
    assert cards
    engine.cards.snooze(cards[0].id)
    engine.cards.mark_shown([card.id for card in cards])
    engine.settings.set(f"workspaces.{json.dumps(world.workspace)}.autonomy", "off")
    engine.autonomy.schedule.run(STATE_JOB)
    for card in (engine.cards.get(card.id) for card in cards):
        assert (card.status, card.outcome) == (Status.EXPIRED, Outcome.WITHDRAWN)
        assert card.note == "autonomy is off in this workspace"
    assert engine.decisions.load_newest() == [], "that says nothing about the cards"


def test_changed_files_lead_to_a_check_unless_everything_is_stopped(world: AutonomyWorld, engine: Engine):
    for is_stopped in (True, False):
        if is_stopped:
            engine.safety.kill_switch.stop("enough", by="operator")
        else:
            engine.safety.kill_switch.resume("stop")
        engine.workspace_watch.changed.add(world.workspace, world.clock.now())
        world.clock.advance(SETTLE_TIME)
        assert engine.workspace_watch.check_due() == [world.workspace]
        assert (engine.checks.read_last_checked() == {}) is is_stopped


@pytest.mark.long
def test_a_check_makes_cards_although_the_folder_of_tasks_cannot_be_read(world: AutonomyWorld):
    world.configure(tasksDir="'/no/such/folder'")
    with world.opened() as engine:
        assert engine.checks.run().created
        [fault] = engine.ledger.read_newest(9, kinds=("FaultReported",))
        assert fault.payload["message"].startswith("/no/such/folder cannot be read")
        assert fault.payload["message"].endswith("fix it, or: clawpy config set tasksDir ''")
