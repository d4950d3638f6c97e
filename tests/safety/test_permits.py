"""No path of a whole engine starts work without a permit (SPEC 3.1): own prompt, verb, socket, check, cycle,
schedule, heartbeat."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlmodel import select

from engine.api.control import ask
from engine.api.operations import dispatch
from engine.autonomy.autonomy import ACT_JOB, CARD_JOB, STATE_JOB
from engine.autonomy.heartbeat import PULSE
from engine.clock import FakeClock
from engine.engine import Engine
from engine.execution.session_store import SessionRow
from engine.lock import read_holder
from engine.model import Assignment, Permit, Refusal
from engine.safety.permits import PermitRow
from engine.safety.pipeline import CrosspollLog
from tests.autonomy.autonomy_world import FLOW, AutonomyWorld
from tests.safety.rails import make_approval


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[AutonomyWorld]:
    world = AutonomyWorld(tmp_path, clock, monkeypatch)
    with world.opened():
        yield world


def count_sessions_with_permits(engine: Engine) -> int:
    """The number of sessions. Checks that each has a used permit of its own, that a row of the pipeline belongs to the
    permit, and that every rail allowed exactly what the session was to do."""
    with engine.database.read() as session:
        rows = session.exec(select(SessionRow)).all()
        for row in rows:
            permit = session.get(PermitRow, row.permit_id)
            assert permit.consumed_at is not None
            assert (permit.prediction_id, permit.digest) == (row.prediction_id, row.assignment.digest)
            [logged] = session.exec(select(CrosspollLog).where(CrosspollLog.permit_id == permit.id)).all()
            assert not logged.blocked
            assert [verdict.verdict for verdict in logged.verdicts] == ["allow"] * 6
            assert logged.digest == row.assignment.digest
    assert len({row.permit_id for row in rows}) == len(rows)
    return len(rows)


def issue_permit(world: AutonomyWorld) -> tuple[Permit, Assignment]:
    """A permit as the rails issue it, not used yet."""
    engine = world.engine
    card = engine.cards.propose(FLOW, workspace=world.workspace)
    approval = make_approval(prediction_id=card.id, assignment=card.assignment)
    permit = engine.database.write(lambda tx: engine.safety.pipeline.decide(tx, approval)).permit
    return permit, card.assignment


def find_refusal_of_start(world: AutonomyWorld, permit: Permit, assignment: Assignment) -> str:
    """The refusal's code, or "" when a session was made."""
    before = len(world.engine.sessions.list())
    try:
        view = world.engine.sessions.start(permit, assignment, agent="chronicler", without_sandbox=True)
    except Refusal as refusal:
        assert len(world.engine.sessions.list()) == before
        return refusal.code
    world.engine.sessions.wait(view.id, 20)
    return ""


@pytest.mark.long
def test_every_session_has_a_permit_of_the_pipeline_whatever_started_it(world: AutonomyWorld):
    engine = world.engine
    world.earn()  # an own prompt, approved
    assert count_sessions_with_permits(engine) == 1
    engine.autonomy.schedule.run(CARD_JOB)
    engine.autonomy.schedule.run(STATE_JOB)
    engine.autonomy.schedule.run(PULSE)
    engine.checks.run(requested=True)
    assert count_sessions_with_permits(engine) == 1, "cycles, chores and heartbeats start nothing"
    by_verb = engine.cards.propose("report_branches days=7", workspace=world.workspace)
    dispatch(engine, "approve", {"id": by_verb.id, "wait": True})
    assert count_sessions_with_permits(engine) == 2
    over_socket = engine.cards.propose("report_branches days=8", workspace=world.workspace)
    holder = read_holder(world.home)
    ask(holder.address, "approve", {"id": over_socket.id, "wait": True})
    assert count_sessions_with_permits(engine) == 3
    world.go_away()
    world.wait_for_session(world.run_cycle().acted)
    assert count_sessions_with_permits(engine) == 4
    world.go_away()
    engine.autonomy.schedule.run(ACT_JOB)
    assert count_sessions_with_permits(engine) <= 5


@pytest.mark.long
def test_a_session_starts_only_with_an_unused_permit_for_its_assignment(world: AutonomyWorld):
    permit, assignment = issue_permit(world)
    assert find_refusal_of_start(world, replace(permit, id="permit_forged"), assignment) == "permit_unknown"
    assert (
        find_refusal_of_start(world, permit, replace(assignment, parameters={"since": "HEAD~1"})) == "permit_mismatch"
    )
    assert find_refusal_of_start(world, permit, assignment) == ""
    assert find_refusal_of_start(world, permit, assignment) == "permit_used"
