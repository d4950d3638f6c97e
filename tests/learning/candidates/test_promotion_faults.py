"""Promotion and roll-back, killed in the middle: the status and the behaviour are both old, or both new."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.learning.candidates import candidates as table
from engine.learning.candidates.candidates import Candidates
from engine.memory.ledger import append
from engine.model.adaptation import CandidateStatus
from engine.storage.database import Database, Transaction
from tests.learning.candidates.overlay_world import World
from tests.learning.candidates.test_overlays import FRAGMENT
from tests.support.forked import Nursery


def reviewed(world: World) -> None:
    """A candidate that waits for the operator."""

    def work(tx: Transaction) -> None:
        row = table.add(tx, world.candidate(FRAGMENT, id="cand_1"), "drafted")
        assert row is not None
        row.status = CandidateStatus.REVIEW.value

    world.database.write(work)


def state(world: World) -> tuple[CandidateStatus, int]:
    """What the candidate's status says, and how many effects are in force."""
    return Candidates(world.database).get("cand_1").value.status, len(world.overlays.every())


KILLED = """
    import os, sys
    from pathlib import Path
    from engine.learning.candidates.candidates import decide, row_of
    from engine.clock import SystemClock
    from engine.events import EventBus
    from engine.memory.ledger import append
    from engine.storage.database import Database
    from engine.model.adaptation import CandidateMove

    database = Database(Path(sys.argv[1]), clock=SystemClock(), bus=EventBus(), recorder=append, durable=False)
    approve = lambda tx: decide(tx, row_of(tx, "cand_1"), CandidateMove.APPROVE, "operator", "")
    roll_back = lambda tx: decide(tx, row_of(tx, "cand_1"), CandidateMove.ROLL_BACK, "operator", "")

    def killed(tx):
        (roll_back if sys.argv[2] == "roll_back" else approve)(tx)
        tx.session.flush()
        os._exit(9)

    if sys.argv[2] == "roll_back":
        database.write(approve)
    database.write(killed)
"""


@pytest.mark.long
def test_a_kill_leaves_the_old_or_the_new(
    tmp_path: Path, migrated: Callable[[], bytes], clock: FakeClock, bus: EventBus, nursery: Nursery
) -> None:
    path = tmp_path / "killed.db"
    path.write_bytes(migrated())
    database = Database(path, clock=clock, bus=bus, recorder=append)
    with closing(database):
        reviewed(World(database, clock))

    def after_kill(of: str) -> tuple[CandidateStatus, int]:
        with nursery.python(textwrap.dedent(KILLED), str(path), of, folder=tmp_path) as killed:
            assert killed.wait() == 9, killed.communicate()
        database = Database(path, clock=clock, bus=bus, recorder=append)
        with closing(database):
            return state(World(database, clock))

    assert after_kill("approve") == (CandidateStatus.REVIEW, 0)
    assert after_kill("roll_back") == (CandidateStatus.PROMOTED, 1)
