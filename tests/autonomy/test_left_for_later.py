"""What was let through by itself and began only later, after a wait or a restart, begins only if it still may
(SPEC 7.1, 7.3): quiet hours, holds, switched off."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from engine.autonomy.autonomy import ACT
from engine.clock import FakeClock
from engine.engine import Engine
from engine.model import SessionState, Status
from engine.safety.kill_switch import PAUSE
from tests.autonomy.world import World


class Died(BaseException):
    """The process ended here."""


def die(*_: object, **__: object) -> None:
    raise Died


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, clock, monkeypatch)


def quiet(world: World, engine: Engine) -> None:
    engine.autonomy.dnd(timedelta(hours=1))


def paused(world: World, engine: Engine) -> None:
    engine.database.write(lambda tx: engine.safety.kill_switch.place(tx, PAUSE, "test"))


def switched_off(world: World, engine: Engine) -> None:
    engine.settings.set("autonomousModeEnabled", False)


def cards_only(world: World, engine: Engine) -> None:
    world.configure("cards")


def nothing(world: World, engine: Engine) -> None:
    pass


HINDRANCES = pytest.mark.parametrize(
    ("hinder", "word"),
    [(quiet, "quiet hours"), (paused, "pause"), (switched_off, "autonomousModeEnabled"), (cards_only, "`act`"),
     (nothing, "")],
)  # fmt: skip


@pytest.mark.long
@HINDRANCES
def test_what_a_crash_left_with_its_permit(world: World, hinder: Callable[[World, Engine], None], word: str) -> None:
    with world.opened() as engine:
        world.earn()
        world.away()
        engine.cards.approvals._start = die  # type: ignore[method-assign]
        with pytest.raises(Died):
            engine.autonomy.act()
        [card] = [card for card in engine.cards.recent() if card.status is Status.CONFIRMED]
        hinder(world, engine)
    with world.opened() as engine:
        after = engine.cards.get(card.id)
        if not word:
            assert engine.sessions.wait(str(after.session_id), 20).state is SessionState.SUCCEEDED
            return
        assert (after.status, after.session_id) == (Status.PENDING, None)
        assert word in after.note
        assert engine.safety.costs.state().month == 0, "its reservation was given back"


@pytest.mark.long
@HINDRANCES
def test_what_waited_for_its_turn(world: World, hinder: Callable[[World, Engine], None], word: str) -> None:
    with world.opened() as engine:
        world.earn()
        world.away()
        engine.sessions.hold_queue()
        engine.autonomy.schedule.run(ACT)
        [queued] = [session for session in engine.sessions.list() if session.state is SessionState.QUEUED]
        hinder(world, engine)
    with world.opened() as engine:
        ended = engine.sessions.wait(queued.id, 20)
        if not word:
            assert ended.state is SessionState.SUCCEEDED
            return
        assert ended.state is SessionState.CANCELLED
        assert word in ended.error
