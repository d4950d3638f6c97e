"""kill -9 in the middle of approve, run, land and undo, at random instants (SPEC 11.3).

    pytest -m faults -s tests/faults/test_kill_sweep.py

Each round forks a child that does a whole lap on a real repository and a real home, and is killed at an instant
drawn over the length of a lap. The next start must find: every answered decision, no session that ran twice, no
half landing, nothing left running, and a message on what was interrupted. `CLAWPY_KILLS` sets the number of rounds.
"""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from sqlmodel import col, select

from engine.engine import Engine
from engine.events.engine import EngineStarted
from engine.execution.session_store import SessionRow
from engine.home import Home
from engine.model import Card, ChangeSet, ChangeState, SessionState, Status
from engine.safety.permits import PermitRow
from tests.execution.changesets.landing_world import FileStates, read_file_states
from tests.faults.kill import fork_child
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

pytestmark = pytest.mark.faults

ROUNDS = int(os.environ.get("CLAWPY_KILLS", "200"))
FLOW = "draft_changelog"
LATEST = 2.0
"""Kills come until this many times the length of the first lap, because later laps may be slower."""


@dataclass
class Lap:
    """The folders of one round, and the stages that the child acknowledged."""

    home: Home
    repository: Path
    acknowledgements: Path

    def acknowledge(self, stage: str, **facts: str):
        descriptor = os.open(self.acknowledgements, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, (json.dumps({"stage": stage, **facts}) + "\n").encode())
        os.close(descriptor)

    def read_acknowledgements(self) -> dict[str, dict[str, str]]:
        if not self.acknowledgements.exists():
            return {}
        return {entry["stage"]: entry for entry in map(json.loads, self.acknowledgements.read_text().splitlines())}


def find_changelog_card(engine: Engine) -> Card:
    return next(card for card in engine.cards.list_pending() if card.assignment.flow == FLOW)


def run_lap(lap: Lap):
    """Approve a card, wait for its session, land the changes, undo the landing."""
    engine = open_idle_engine(lap.home, lap.repository)
    card = find_changelog_card(engine)
    lap.acknowledge("started")
    engine.cards.approve(card.id)
    lap.acknowledge("approved", card=card.id)
    session = engine.sessions.find_of_card(card.id)
    ended = engine.sessions.wait(session.id, timeout=60)
    lap.acknowledge("ran", session=session.id)
    change = engine.changes.find_of_session(ended.id)
    assert change is not None, ended
    engine.changes.land(change.id)
    lap.acknowledge("landed", change=change.id)
    engine.changes.undo(change.id)
    lap.acknowledge("undone", change=change.id)
    engine.close()
    lap.acknowledge("closed")


def run_in_child(work: Callable[..., object], *arguments: object, about: str = ""):
    """Run `work` in a child to its end, which must be a good one."""
    assert os.waitpid(fork_child(work, *arguments), 0)[1] == 0, about


def check(lap: Lap, before: FileStates):
    """Open the home again, and check every guarantee."""
    acknowledged = set(lap.read_acknowledgements())
    engine = open_idle_engine(lap.home, lap.repository)
    try:
        started = next(event for event in engine.ledger.read_newest(20, kinds=(EngineStarted.__name__,)))
        has_message = bool(started.payload["recovered"])
        for session in engine.sessions.list_newest():
            if not session.state.is_over:
                engine.sessions.wait(session.id, timeout=60)
        check_decisions(engine, acknowledged, has_message=has_message)
        sessions = engine.sessions.list_newest()
        change = engine.changes.find_of_session(sessions[0].id) if sessions else None
        check_files(lap, change, before, acknowledged)
        if change is not None and change.state is ChangeState.WAITING:
            check_landing_and_undo(engine, lap, change, before)
    finally:
        engine.close()


def check_decisions(engine: Engine, acknowledged: set[str], *, has_message: bool):
    """Check that no decision is lost and nothing ran twice. An interrupted session must be reported (`has_message`),
    and its work must be pending again."""
    sessions = engine.sessions.list_newest()
    *pending_again, card = [card for card in engine.cards.list_recent() if card.assignment.flow == FLOW]
    if "approved" in acknowledged:
        assert card.status in (Status.APPROVED, Status.EXECUTED), card
    with engine.database.read() as reader:
        rows = reader.exec(select(SessionRow)).all()
        permits = reader.exec(select(PermitRow).where(col(PermitRow.consumed_at).is_not(None))).all()
    assert len(rows) <= 1
    assert len(permits) == len(rows)
    if "ran" in acknowledged:
        assert sessions[0].state is SessionState.SUCCEEDED
    assert all(session.state.is_over for session in sessions)
    if sessions and sessions[0].state is SessionState.INTERRUPTED:
        assert has_message
        assert [other.status for other in pending_again] == [Status.PENDING]


def check_files(lap: Lap, change: ChangeSet | None, before: FileStates, acknowledged: set[str]):
    """Check that the changes landed completely or not at all, and that the change set says which."""
    now = read_file_states(lap.repository)
    if change is not None and change.state is ChangeState.LANDED:
        assert now != before
        assert now["CHANGELOG.md"][2].startswith(b"#")
        assert {**now, "CHANGELOG.md": None} == {**before, "CHANGELOG.md": None}
    else:
        assert now == before, (change and change.state, set(now) ^ set(before))
    if "landed" in acknowledged:
        assert change.state in (ChangeState.LANDED, ChangeState.UNDONE)
    if "undone" in acknowledged:
        assert change.state is ChangeState.UNDONE


def check_landing_and_undo(engine: Engine, lap: Lap, change: ChangeSet, before: FileStates):
    """Check that waiting changes can be landed and undone."""
    engine.changes.land(change.id)
    assert read_file_states(lap.repository) != before
    engine.changes.undo(change.id)
    assert read_file_states(lap.repository) == before


def make_round(tmp_path: Path, number: int, template: Repository) -> Lap:
    """A fresh copy of the repository, and a home in which a card waits."""
    root = tmp_path / f"round-{number}"
    repository = root / "shop"
    shutil.copytree(template.path, repository, symlinks=True)
    lap = Lap(Home.locate(root / "home"), repository, root / "acknowledgements")
    run_in_child(prepare, lap)
    return lap


def prepare(lap: Lap):
    """Propose the card of a lap."""
    engine = open_idle_engine(lap.home, lap.repository)
    engine.cards.propose(f"{FLOW} since=v1.0 create=true", workspace=str(lap.repository))
    find_changelog_card(engine)
    engine.close()


def test_a_kill_at_any_instant_loses_nothing(tmp_path: Path):
    template = Repository(tmp_path / "template" / "shop")
    template.commit("feat: cart", {"cart.py": "TOTAL = 0\n"})
    template.git("tag", "v1.0")
    template.commit("fix: rounding", {"cart.py": "TOTAL = 0.0\n"})
    template.commit("feat: coupons", {"coupon.py": "CODE = 'A'\n"})
    template.write("notes.txt", "mine, uncommitted\n")

    # The first lap runs to its end, and gives the length of a lap.
    first = make_round(tmp_path, 0, template)
    began = time.monotonic()
    run_in_child(run_lap, first)
    length = time.monotonic() - began
    assert "undone" in first.read_acknowledgements()

    chance = random.Random(20260105)
    stages = Counter()
    for number in range(1, ROUNDS + 1):
        lap = make_round(tmp_path, number, template)
        before = read_file_states(lap.repository)
        pid = fork_child(run_lap, lap)
        time.sleep(chance.uniform(0.0, LATEST * length))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        stages.update(lap.read_acknowledgements().keys())
        run_in_child(check, lap, before, about=f"round {number}: {lap.read_acknowledgements()}")
        assert not [
            process for process in psutil.process_iter(["cwd"]) if str(lap.repository) in (process.info["cwd"] or "")
        ]
        shutil.rmtree(lap.repository.parent)
    print(f"\n{ROUNDS} kills over a lap of {length:.2f} s; answered before the kill: {dict(stages)}")
