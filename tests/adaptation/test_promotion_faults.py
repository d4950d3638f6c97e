"""Promotion and roll-back, cut off between any two steps: the status and the behaviour are both old, or both new."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pytest

from engine.adaptation import candidates as table
from engine.adaptation.candidates import Candidates
from engine.adaptation.deciding import Deciding
from engine.clock import FakeClock
from engine.events import EventBus
from engine.memory.ledger import append
from engine.storage.database import Database, Transaction
from engine.values.adaptation import Candidate, CandidateStatus, Effect, EffectPreview, Overlay
from tests.adaptation.overlay_world import World
from tests.adaptation.test_overlays import EFFECTS, FRAGMENT
from tests.support.forked import Nursery

T = TypeVar("T")


class Breaking:
    """The overlay store; `breaks` is called before its next write, or after it."""

    def __init__(self, world: World, breaks: Callable[[], None], *, after: bool) -> None:
        self._overlays = world.overlays
        self._breaks, self._after = breaks, after

    def put(self, tx: Transaction, candidate: Candidate, now: datetime) -> Overlay:
        return self._broken(lambda: self._overlays.put(tx, candidate, now))

    def withdraw(self, tx: Transaction, candidate_id: str, now: datetime) -> object:
        return self._broken(lambda: self._overlays.withdraw(tx, candidate_id, now))

    def of(self, candidate_id: str) -> list[Overlay]:
        return list(self._overlays.of(candidate_id))

    def preview(self, candidate: Candidate) -> EffectPreview:
        return self._overlays.preview(candidate)

    def _broken(self, write: Callable[[], T]) -> T:
        if not self._after:
            self._breaks()
        done = write()
        self._breaks()
        return done


def reviewed(world: World, effect: Effect) -> str:
    """A candidate that waits for the operator; its id."""
    one = world.candidate(effect, id="cand_1")

    def work(tx: Transaction) -> None:
        row = table.add(tx, one, "drafted")
        assert row is not None
        row.status = CandidateStatus.REVIEW.value

    world.database.write(work)
    return one.id


def state(world: World) -> tuple[CandidateStatus, int]:
    """What the candidate's status says, and how many effects are in force."""
    return Candidates(world.database).get("cand_1").value.status, len(world.overlays.every())


def no_power() -> None:
    raise RuntimeError("the power went")


@pytest.mark.parametrize("after", [False, True], ids=["before the effect", "after it"])
@pytest.mark.parametrize("effect", EFFECTS, ids=lambda one: one.kind.value)
def test_an_exception_leaves_the_old(database: Database, clock: FakeClock, effect: Effect, after: bool) -> None:
    world = World(database, clock)
    one, candidates = reviewed(world, effect), Candidates(database)
    sound = Deciding(database, candidates, world.overlays)
    broken = Deciding(database, candidates, Breaking(world, no_power, after=after))
    assert state(world) == (CandidateStatus.REVIEW, 0)
    with pytest.raises(RuntimeError):
        broken.approve(one)
    assert state(world) == (CandidateStatus.REVIEW, 0)
    sound.approve(one)
    assert state(world) == (CandidateStatus.PROMOTED, 1)
    with pytest.raises(RuntimeError):
        broken.roll_back(one)
    assert state(world) == (CandidateStatus.PROMOTED, 1)
    sound.roll_back(one)
    assert state(world) == (CandidateStatus.ROLLED_BACK, 0)


KILLED = """
    import os, sys
    from pathlib import Path
    from engine.adaptation.candidates import Candidates
    from engine.adaptation.deciding import Deciding
    from engine.clock import SystemClock
    from engine.events import EventBus
    from engine.memory.ledger import append
    from engine.storage.database import Database
    from tests.adaptation.overlay_world import World
    from tests.adaptation.test_promotion_faults import Breaking

    database = Database(Path(sys.argv[1]), clock=SystemClock(), bus=EventBus(), recorder=append, durable=False)
    world, candidates = World(database, SystemClock()), Candidates(database)
    killed = Deciding(database, candidates, Breaking(world, lambda: os._exit(9), after=True))
    if sys.argv[2] == "roll_back":
        Deciding(database, candidates, world.overlays).approve("cand_1")
    getattr(killed, sys.argv[2])("cand_1")
"""


def test_a_kill_leaves_the_old_or_the_new(
    tmp_path: Path, migrated: Callable[[], bytes], clock: FakeClock, bus: EventBus, nursery: Nursery
) -> None:
    path = tmp_path / "killed.db"
    path.write_bytes(migrated())
    database = Database(path, clock=clock, bus=bus, recorder=append)
    with closing(database):
        reviewed(World(database, clock), FRAGMENT)

    def after_kill(of: str) -> tuple[CandidateStatus, int]:
        with nursery.python(textwrap.dedent(KILLED), str(path), of, folder=tmp_path) as killed:
            assert killed.wait() == 9, killed.communicate()
        database = Database(path, clock=clock, bus=bus, recorder=append)
        with closing(database):
            return state(World(database, clock))

    assert after_kill("approve") == (CandidateStatus.REVIEW, 0)
    assert after_kill("roll_back") == (CandidateStatus.PROMOTED, 1)
