"""Money is reserved before work and settled after it, also across a crash (SPEC 3.4)."""

from datetime import timedelta

import pytest
from sqlmodel import select

from engine.model import SessionState
from engine.safety.pipeline import CrosspollLog
from tests.safety.rails import Rails, make_approval, make_ended_session, start_session


def test_a_reservation_counts_until_it_is_settled_with_the_real_price(rails: Rails):
    rails.decide(make_approval(estimate=50_000))
    assert rails.costs.state().hour == 50_000
    ended = make_ended_session("pred_1", 20_000)
    rails.write(rails.costs.session_started, ended)
    rails.write(rails.safety.session_ended, ended)
    rails.write(rails.safety.session_ended, ended)
    assert rails.costs.state().hour == 20_000
    with rails.database.read() as session:
        results = {row.prediction_id: row.result for row in session.exec(select(CrosspollLog))}
    assert results == {
        "old": None,
        "pred_1": {"session": "auto_1", "state": "succeeded", "summary": "done", "cost": 0.02},
    }
    rails.clock.advance(timedelta(minutes=60, microseconds=1))
    assert (rails.costs.state().hour, rails.costs.state().day) == (0, 20_000)


def test_a_session_that_never_started_gives_its_reservation_back(rails: Rails):
    rails.decide(make_approval())
    rails.write(rails.safety.session_ended, make_ended_session("pred_1", 0, started=False))
    assert rails.costs.state().day == 0
    rails.decide(make_approval(prediction_id="pred_2"))
    rails.write(rails.safety.pipeline.revoke, "pred_2")
    assert rails.costs.state().day == 0


def test_a_reservation_is_raised_before_a_call_and_never_lowered(rails: Rails):
    start_session(rails)
    assert rails.costs.raise_reservation("auto_1", 300_000) == ""
    assert rails.costs.state().hour == 300_000
    assert rails.costs.raise_reservation("auto_1", 200_000) == "", "what was reserved stays so"
    assert rails.costs.state().hour == 300_000
    rails.write(rails.safety.session_ended, make_ended_session("pred_1", 280_000))
    assert rails.costs.state().hour == 280_000


def test_a_running_session_cannot_pass_a_cap(rails: Rails):
    start_session(rails)
    cap = rails.costs.state().hour_cap
    assert rails.costs.raise_reservation("auto_1", cap) == "", "a cap may be reached"
    assert "the hour's cap" in rails.costs.raise_reservation("auto_1", cap + 1)
    assert rails.costs.state().hour == cap, "and nothing was changed"


def test_recovery_settles_or_releases_what_a_crash_left_reserved(rails: Rails):
    permits = {}
    for name in ("ended", "running", "waiting", "lost"):
        permits[name] = rails.decide(make_approval(prediction_id=name, estimate=100_000)).permit
    for name in ("ended", "running"):  # what has begun has used its permit up
        permit = permits[name]
        rails.write(rails.safety.permits.consume, permit, permit.digest)
    rails.write(rails.safety.permits.revoke, "lost")
    sessions = {
        "ended": make_ended_session("ended", 30_000),
        "running": make_ended_session("running", 0, state=SessionState.RUNNING),
        # of an earlier approval, which was undone
        "waiting": make_ended_session("waiting", 0, started=False, state=SessionState.CANCELLED),
    }
    assert rails.safety.recover(sessions.get, frozenset()) == 2
    assert rails.costs.state().day == 230_000
    assert rails.safety.recover(sessions.get, frozenset()) == 0


@pytest.mark.parametrize("counted, price", [(0, 100_000), (99_999, 100_000), (130_000, 130_000)])
def test_an_interrupted_session_costs_at_least_its_reservation(rails: Rails, counted: int, price: int):
    rails.decide(make_approval(estimate=100_000))
    ended = make_ended_session("pred_1", counted, state=SessionState.INTERRUPTED)
    rails.write(rails.costs.session_started, ended)
    rails.write(rails.safety.session_ended, ended)
    assert rails.costs.state().day == price
    rails.clock.advance(timedelta(hours=1, microseconds=1))
    assert rails.costs.state().hour == 0, "it is settled, not reserved for ever"


def test_after_a_restart_a_call_costs_its_reservation_unless_it_goes_on_elsewhere(rails: Rails):
    costs = rails.costs
    entry = rails.write(costs.reserve_call, "training", 70_000)
    rails.write(costs.reserve_call, "twin", 10_000)
    assert rails.safety.recover(lambda prediction_id: None, {entry}) == 1
    rails.write(costs.settle, entry, 90_000)
    assert costs.state().day == 100_000
