"""Permits (SPEC 3.1): how long and for what one is valid, and that every session has one of the pipeline."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from engine.api.control import ask
from engine.api.operations import dispatch
from engine.autonomy.autonomy import CARD_JOB, STATE_JOB
from engine.autonomy.heartbeat import HEARTBEAT_JOB
from engine.clock import FakeClock
from engine.engine import Engine
from engine.execution.session_store import SessionRow
from engine.lock import read_holder
from engine.model import Refusal, TriggerType
from engine.safety.permits import PERMIT_LIFETIME, PermitRow
from engine.safety.pipeline import CrosspollLog
from tests.autonomy.autonomy_world import AutonomyWorld
from tests.safety.rails import Rails, make_approval


def find_refusal_code(rails: Rails, permit: object, digest: str) -> str:
    with pytest.raises(Refusal) as refused:
        rails.write(rails.safety.permits.consume, permit, digest)
    return refused.value.code


def test_a_permit_is_used_once_for_what_it_was_given(rails: Rails):
    permit = rails.decide(make_approval()).permit
    assert find_refusal_code(rails, permit, "other") == "permit_mismatch"
    assert find_refusal_code(rails, replace(permit, id="permit_none"), permit.digest) == "permit_unknown"
    for other in (replace(permit, prediction_id="x"), replace(permit, trigger_type=TriggerType.CRON)):
        assert find_refusal_code(rails, other, permit.digest) == "permit_mismatch"
    assert rails.safety.permits.read_unconsumed() == [permit]
    rails.write(rails.safety.permits.consume, permit, permit.digest)
    assert find_refusal_code(rails, permit, permit.digest) == "permit_used"
    assert rails.safety.permits.read_unconsumed() == []
    revoked = rails.decide(make_approval(prediction_id="b")).permit
    rails.write(rails.safety.pipeline.revoke, "b")
    assert find_refusal_code(rails, revoked, revoked.digest) == "permit_used"


def test_a_permit_lives_fifteen_minutes(rails: Rails):
    first = rails.decide(make_approval()).permit
    second = rails.decide(make_approval(prediction_id="b")).permit
    assert first
    assert second
    rails.clock.advance(PERMIT_LIFETIME - timedelta(microseconds=1))
    rails.write(rails.safety.permits.consume, first, first.digest)
    rails.clock.advance(timedelta(microseconds=1))
    assert timedelta(minutes=15) == PERMIT_LIFETIME
    assert find_refusal_code(rails, second, second.digest) == "permit_expired"
    # The next decision gives its reservation back.
    before = rails.costs.read_state().day
    rails.decide(make_approval(prediction_id="c", estimate=0))
    assert rails.costs.read_state().day == before - 50_000


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


@pytest.mark.long
def test_every_session_has_a_permit_of_the_pipeline_whatever_started_it(world: AutonomyWorld):
    engine = world.engine
    world.earn_trust()  # an own prompt, approved
    assert count_sessions_with_permits(engine) == 1
    engine.autonomy.schedule.run(CARD_JOB)
    engine.autonomy.schedule.run(STATE_JOB)
    engine.autonomy.schedule.run(HEARTBEAT_JOB)
    engine.checks.run(requested=True)
    assert count_sessions_with_permits(engine) == 1, "cycles, chores and heartbeats start nothing"
    by_verb = engine.cards.propose("report_branches days=7", workspace=world.workspace)
    dispatch(engine, "approve", {"id": by_verb.id, "wait": True})
    assert count_sessions_with_permits(engine) == 2
    over_socket = engine.cards.propose("report_branches days=8", workspace=world.workspace)
    holder = read_holder(world.home)
    ask(holder.address, "approve", {"id": over_socket.id, "wait": True})
    assert count_sessions_with_permits(engine) == 3
    world.be_inactive()
    world.wait_for_session(world.run_cycle().acted)
    assert count_sessions_with_permits(engine) == 4
    world.be_inactive()
    assert world.run_cycle().acted == ""
    assert count_sessions_with_permits(engine) == 4, "no card was left"
