"""The caps of an hour, a day and a month, at their boundaries and across changes of the clock (SPEC 3.4)."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.model import CostState, HoldKind, Refusal, SessionState
from engine.safety.costs import AgentBudget, decide_cost
from engine.safety.kill_switch import BY_COST_CAP
from engine.safety.pipeline import CrosspollLog
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.wording import MICRO
from tests.safety.rails import Rails, make_approval, make_ended_session, make_rails, start_session

NOTHING_SPENT = CostState(hour=0, day=0, month=0, hour_cap=2 * MICRO, day_cap=20 * MICRO, month_cap=200 * MICRO)
NO_BUDGET = AgentBudget("a")


@pytest.mark.parametrize("window", ["hour", "day", "month"])
def test_a_cap_may_be_reached_but_not_passed(window: str):
    cap = getattr(NOTHING_SPENT, f"{window}_cap")
    assert decide_cost(replace(NOTHING_SPENT, **{window: cap - 50_000}), 50_000, NO_BUDGET).verdict == "allow"
    blocked = decide_cost(replace(NOTHING_SPENT, **{window: cap - 49_999}), 50_000, NO_BUDGET)
    assert (blocked.verdict, blocked.rule) == ("block", window)


def test_an_agent_has_its_own_budget():
    assert decide_cost(NOTHING_SPENT, 10, AgentBudget("a", 90, 100)).verdict == "allow"
    assert decide_cost(NOTHING_SPENT, 11, AgentBudget("a", 90, 100)).rule == "agent-budget"


def test_an_estimate_below_zero_is_blocked():
    assert decide_cost(NOTHING_SPENT, -1, NO_BUDGET).verdict == "block"


def test_the_cap_of_a_day_warns_at_eighty_percent_and_once_when_it_is_reached(rails: Rails):
    rails.settings.change(cross_poll_cost_cap_per_hour=1000.0)
    rails.decide(make_approval(prediction_id="a", estimate=15_999_999))
    ledger = Ledger(rails.database)
    assert ledger.read_newest(kinds=("CostWarned",)) == []
    for name in ("b", "beyond"):
        assert rails.decide(make_approval(prediction_id=name, estimate=1)).permit
        assert len(ledger.read_newest(kinds=("CostWarned",))) == 1
    for _ in range(2):
        assert rails.decide(make_approval(prediction_id="c", estimate=5_000_000)).permit is None
    assert len(ledger.read_newest(kinds=("CostWarned",))) == 2
    [pause] = rails.kill_switch.list_holds()
    assert (pause.word, pause.by) == (HoldKind.PAUSE, BY_COST_CAP)


def test_the_cap_of_a_month_stops_everything_until_it_is_resumed(rails: Rails):
    rails.settings.change(cross_poll_cost_cap_per_month=0.10)
    assert rails.decide(make_approval(estimate=60_000)).permit
    assert rails.decide(make_approval(prediction_id="b", estimate=60_000)).permit is None
    assert rails.list_hold_words() == ["month"]
    # The next month begins; it stays stopped.
    rails.clock.advance(timedelta(days=40))
    blocked = rails.decide(make_approval(prediction_id="c", estimate=10))
    assert blocked.blocked_by.rail == "kill"
    rails.kill_switch.resume("month")
    assert rails.decide(make_approval(prediction_id="d", estimate=10)).permit


@pytest.mark.parametrize("price, holds", [(100_000, []), (100_001, ["month"])])
def test_a_price_above_its_estimate_places_the_month_stop_beyond_the_cap(rails: Rails, price: int, holds: list[str]):
    rails.settings.change(cross_poll_cost_cap_per_month=0.10)
    rails.decide(make_approval(estimate=60_000))
    rails.write(rails.safety.session_ended, make_ended_session("pred_1", price))
    assert rails.list_hold_words() == holds


def test_an_exceeded_budget_of_an_agent_is_recorded_for_sessions_and_other_calls(
    database: Database, clock: FakeClock, tmp_path: Path
):
    rails = make_rails(database, clock, tmp_path, find_agent_budget=lambda agent: 70_000)
    assert rails.decide(make_approval()).permit
    assert rails.decide(make_approval(prediction_id="b")).permit is None
    with pytest.raises(Refusal, match="today"):
        database.write(lambda tx: rails.costs.reserve_call(tx, "summary", 80_000, agent="cto"))
    database.write(lambda tx: None)  # the event of a refused call is written after it
    breaches = [
        (fact.subject, fact.payload["spent"]) for fact in Ledger(database).read_newest(kinds=("BudgetExceeded",))
    ]
    assert sorted(breaches) == [("backend_builder", 50_000), ("cto", 0)]


def test_other_paid_calls_count_in_the_same_caps(rails: Rails):
    rails.settings.change(cross_poll_cost_cap_per_hour=0.10)
    entry = rails.write(rails.costs.reserve_call, "twin", 60_000)
    with pytest.raises(Refusal, match="hour"):
        rails.write(rails.costs.reserve_call, "judge", 60_000)
    assert rails.decide(make_approval(estimate=60_000)).blocked_by is not None
    for amount in (10_000, 60_000):  # once settled a price stays
        rails.write(rails.costs.settle, entry, amount)
    rails.write(rails.costs.release, entry)
    assert rails.costs.read_state().hour == 10_000
    assert rails.decide(make_approval(estimate=60_000)).permit


def test_a_reservation_counts_until_it_is_settled_with_the_real_price(rails: Rails):
    rails.decide(make_approval(estimate=50_000))
    assert rails.costs.read_state().hour == 50_000
    ended = make_ended_session("pred_1", 20_000)
    rails.write(rails.costs.session_started, ended)
    rails.write(rails.safety.session_ended, ended)
    rails.write(rails.safety.session_ended, ended)
    assert rails.costs.read_state().hour == 20_000
    with rails.database.read() as session:
        results = {row.prediction_id: row.result for row in session.exec(select(CrosspollLog))}
    assert results == {
        "old": None,
        "pred_1": {"session": "auto_1", "state": "succeeded", "summary": "done", "cost": 0.02},
    }
    rails.clock.advance(timedelta(minutes=60, microseconds=1))
    assert (rails.costs.read_state().hour, rails.costs.read_state().day) == (0, 20_000)


def test_a_running_session_cannot_pass_a_cap(rails: Rails):
    start_session(rails)
    cap = rails.costs.read_state().hour_cap
    assert rails.costs.raise_reservation("auto_1", cap) == "", "a cap may be reached"
    assert "the hour's cap" in rails.costs.raise_reservation("auto_1", cap + 1)
    assert rails.costs.read_state().hour == cap, "and nothing was changed"


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
    assert rails.costs.read_state().day == 230_000
    assert rails.safety.recover(sessions.get, frozenset()) == 0


def test_after_a_restart_a_call_costs_its_reservation_unless_it_goes_on_elsewhere(rails: Rails):
    costs = rails.costs
    entry = rails.write(costs.reserve_call, "training", 70_000)
    rails.write(costs.reserve_call, "twin", 10_000)
    assert rails.safety.recover(lambda prediction_id: None, {entry}) == 1
    rails.write(costs.settle, entry, 90_000)
    assert costs.read_state().day == 100_000
