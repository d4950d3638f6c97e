"""SPEC 3.1: the order, the log, fail closed, and permits as the only way to start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlmodel import select

from engine.model import MICRO, Assignment, DecidedBy, RailState, Refusal, StopLevel, Trigger, TriggerType, Verdict
from engine.safety import costs, trigger_history
from engine.safety import pipeline as pipeline_module
from engine.safety.costs import burn
from engine.safety.pipeline import PERMIT_LIFETIME, RAIL_ORDER, CrosspollLog, PermitRow
from engine.safety.stop_file import request_stop
from engine.storage.ledger import Ledger
from tests.safety.helpers import WORKSPACE, Rails, approval, on, unattended


def refusal(rails: Rails, permit: object, digest: str) -> str:
    with pytest.raises(Refusal) as refused:
        rails.database.write(lambda tx: rails.safety.permits.consume(tx, permit, digest))  # type: ignore[arg-type]
    return refused.value.code


def test_six_rails_in_order_and_one_row(rails: Rails) -> None:
    ruling = rails.decide(approval())
    assert tuple(verdict.rail for verdict in ruling.verdicts) == RAIL_ORDER
    assert RAIL_ORDER == ("loop", "rate", "cost", "content", "gate", "kill")
    entry = rails.safety.log()[0]
    assert (entry.blocked, entry.channel, entry.from_channel, entry.estimate) == (False, "koji-core", "owner", 50_000)
    assert tuple(verdict.rail for verdict in entry.verdicts) == RAIL_ORDER


def test_the_first_rail_that_blocks_is_named_and_all_are_logged(rails: Rails) -> None:
    rails.decide(unattended())
    rails.safety.stop("F12", "console")
    ruling = rails.decide(unattended(estimate=3_000_000, prediction_id="b"))
    assert ruling.blocked_by is not None
    assert ruling.blocked_by.rail == "rate"
    entry = rails.safety.log(blocked_only=True)[0]
    blocked = [verdict.rail for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW]
    assert blocked == ["rate", "cost", "gate", "kill"]
    assert entry.reason.startswith("rate: ")
    [event] = Ledger(rails.database).latest(kinds=("TriggerBlocked",))
    assert (event.subject, event.payload["rail"]) == ("b", "rate")


@pytest.mark.parametrize("rail", ["decide_rate", "decide_loop", "decide_cost", "decide_content", "decide_gate"])
def test_a_rail_that_raises_blocks(rails: Rails, monkeypatch: pytest.MonkeyPatch, rail: str) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    for module in (pipeline_module, trigger_history, costs):
        if hasattr(module, rail):
            monkeypatch.setattr(module, rail, broken)
    ruling = rails.decide(approval())
    assert ruling.permit is None
    assert ruling.blocked_by is not None
    assert ruling.blocked_by.rule == "fault"


def test_preview_changes_nothing_and_says_what_the_gate_asks(rails: Rails) -> None:
    verdicts = rails.safety.pipeline.preview(approval())
    assert verdicts[4].verdict is Verdict.ASK
    assert "low-confidence" in verdicts[4].rule
    assert all(entry.prediction_id == "old" for entry in rails.safety.log())
    assert rails.safety.costs.state().hour == 0


def test_a_permit_is_used_once_for_what_it_was_given(rails: Rails) -> None:
    permit = rails.decide(approval()).permit
    assert permit
    assert refusal(rails, permit, "other") == "permit_mismatch"
    assert refusal(rails, replace(permit, id="permit_none"), permit.digest) == "permit_unknown"
    assert refusal(rails, replace(permit, prediction_id="x"), permit.digest) == "permit_mismatch"
    assert rails.safety.permits.unconsumed() == [permit]
    rails.database.write(lambda tx: rails.safety.permits.consume(tx, permit, permit.digest))
    assert refusal(rails, permit, permit.digest) == "permit_used"
    assert rails.safety.permits.unconsumed() == []


def test_a_permit_lives_fifteen_minutes(rails: Rails) -> None:
    first = rails.decide(approval()).permit
    second = rails.decide(approval(prediction_id="b")).permit
    assert first
    assert second
    rails.clock.advance(PERMIT_LIFETIME - timedelta(microseconds=1))
    rails.database.write(lambda tx: rails.safety.permits.consume(tx, first, first.digest))
    rails.clock.advance(timedelta(microseconds=1))
    assert timedelta(minutes=15) == PERMIT_LIFETIME
    assert refusal(rails, second, second.digest) == "permit_expired"
    # The next decision gives its reservation back.
    before = rails.safety.costs.state().day
    rails.decide(approval(prediction_id="c", estimate=0))
    assert rails.safety.costs.state().day == before - 50_000


def prose(text: str, **changes: object) -> Trigger:
    return approval(assignment=Assignment(text, "koji-core", WORKSPACE, "model"), **changes)


def test_an_ask_needs_the_very_digest_that_was_seen(rails: Rails) -> None:
    trigger = prose("send an email to the customer")
    assert rails.decide(trigger).permit is None
    assert rails.decide(replace(trigger, acknowledged_digest=prose("other").assignment.digest)).permit is None
    engine_itself = replace(
        trigger,
        type=TriggerType.AUTONOMOUS,
        decided_by=DecidedBy.AUTONOMY,
        acknowledged_digest=trigger.assignment.digest,
    )
    assert rails.decide(engine_itself).permit is None
    assert rails.decide(replace(trigger, acknowledged_digest=trigger.assignment.digest)).permit


def test_a_block_is_lifted_once_for_one_digest(rails: Rails) -> None:
    trigger = prose("run `rm -rf /` please")
    with pytest.raises(Refusal):
        rails.safety.allow_once("pred_1")
    seen = replace(trigger, acknowledged_digest=trigger.assignment.digest)
    blocked = rails.decide(seen).blocked_by
    assert blocked is not None
    assert blocked.reason == "deletes everything below /"
    rails.safety.allow_once("pred_1")
    assert rails.decide(prose("run `rm -rf /home` please")).permit is None
    assert rails.decide(replace(trigger, type=TriggerType.AUTONOMOUS, decided_by=DecidedBy.AUTONOMY)).permit is None
    assert rails.decide(trigger).permit
    assert rails.decide(trigger).permit is None


TRIGGERS = st.builds(
    Trigger,
    prediction_id=st.sampled_from(["a", "b", "c"]),
    type=st.sampled_from(TriggerType),
    assignment=st.builds(
        Assignment,
        st.sampled_from(["run the tests", "rm -rf /", "send an email to the customer", "push to main"]),
        st.sampled_from(["koji-core", "garden", "nowhere"]),
        st.sampled_from([WORKSPACE, "/other"]),
        st.just("flow"),
    ),
    agent=st.just("a"),
    confidence=st.floats(0, 1),
    estimate=st.integers(0, 2_500_000),
    decided_by=st.sampled_from(DecidedBy),
    from_channel=st.sampled_from(["owner", "koji-core", "garden", "research"]),
    phase=st.integers(0, 2),
    approval_bound=st.floats(0, 1),
    force=st.booleans(),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trigger=TRIGGERS, enabled=st.booleans(), quiet=st.booleans(), minutes=st.integers(0, 20))
def test_no_permit_without_a_row_in_which_every_rail_allows(
    rails: Rails, trigger: Trigger, enabled: bool, quiet: bool, minutes: int
) -> None:
    rails.clock.advance(timedelta(minutes=minutes))
    rails.settings.change(cross_poll_enabled=enabled)
    rails.quiet = quiet
    ruling = rails.decide(trigger)
    assert (ruling.permit is None) == (ruling.blocked_by is not None)
    with rails.database.read() as session:
        permits = {row.id for row in session.exec(select(PermitRow))}
        rows = {row.permit_id: row for row in session.exec(select(CrosspollLog)) if row.permit_id}
    assert permits == set(rows)
    if ruling.permit:
        row = rows[ruling.permit.id]
        assert all(verdict.verdict is Verdict.ALLOW for verdict in row.verdicts)
        assert row.digest == trigger.assignment.digest == ruling.permit.digest
        assert enabled
        by_operator = trigger.type is TriggerType.MANUAL and trigger.decided_by is not DecidedBy.AUTONOMY
        assert by_operator or (trigger.confidence >= 0.8 and trigger.phase > 0 and not quiet)


# What the safety screen reads of the rails: true to what they decide, and fast with a long log.


NOW = datetime(2026, 3, 10, 14, 12, tzinfo=UTC)


def rail(rails: Rails, name: str) -> RailState:
    return next(state for state in rails.safety.rails() if state.rail == name)


def level(rails: Rails, name: str) -> StopLevel:
    return next(stop_level for stop_level in rails.safety.levels() if stop_level.name == name)


def test_the_rate_limiter_says_until_when_it_waits(rails: Rails) -> None:
    began = rails.clock.now()
    assert rails.decide(unattended()).permit is not None
    assert rail(rails, "rate").until == began + timedelta(minutes=10)
    rails.clock.advance(timedelta(minutes=10))
    free = rail(rails, "rate")
    assert (free.verdict, free.brief, free.until, free.last_at) == (Verdict.ALLOW, "free", None, began)


def test_a_pause_stops_what_runs_by_itself_for_two_hours_and_a_stop_has_no_end(rails: Rails) -> None:
    switch = rails.safety.kill_switch
    rails.database.write(lambda tx: switch.place(tx, "pause", "3 rejections in a row"))
    paused = rail(rails, "kill")
    assert (paused.verdict, paused.until) == (Verdict.BLOCK, rails.clock.now() + timedelta(hours=2))
    assert (switch.current_verdict().verdict, switch.current_verdict(by_operator=True).verdict) == (
        Verdict.BLOCK,
        Verdict.ALLOW,
    )
    rails.safety.stop("lunch", "operator")
    assert (rail(rails, "kill").brief, rail(rails, "kill").until) == ("stop", None)


def test_the_newest_decision_is_every_rails_last_word_and_the_first_that_stopped_counts(rails: Rails) -> None:
    rails.decide(approval("clean up with rm -rf /"))
    content, gate = rail(rails, "content"), rail(rails, "gate")
    assert content.last is not None
    assert content.last.verdict is Verdict.BLOCK
    assert content.last_at == rails.clock.now()
    assert (content.stopped, gate.stopped) == (1, 0)
    rails.clock.advance(timedelta(hours=24))
    assert rail(rails, "content").stopped == 0


def test_what_was_allowed_once_is_told_until_it_is_used(rails: Rails) -> None:
    trigger = approval("clean up with rm -rf /")
    rails.decide(trigger)
    assert not rails.safety.log()[0].lifted
    rails.safety.allow_once(trigger.prediction_id)
    assert rail(rails, "content").brief == "1 lifted"
    assert rails.safety.log(blocked_only=True)[0].lifted
    assert rails.decide(trigger).permit is not None
    assert rail(rails, "content").brief == "on"
    assert not rails.safety.log(blocked_only=True)[0].lifted


def test_whatever_stops_everything_is_told_and_a_pause_or_a_spent_month_is_none_of_it(rails: Rails, tmp_path) -> None:
    """SPEC 3.7: what was begun and costs elsewhere ends at every one of the four levels, and at no other hold."""
    switch = rails.safety.kill_switch
    for word in ("pause", "month"):
        rails.database.write(lambda tx, word=word: switch.place(tx, word, "the cap is reached"))
    assert switch.current_verdict().verdict is Verdict.BLOCK
    assert switch.kill_reason() == ""
    rails.settings.change(cross_poll_enabled=False)
    assert switch.kill_reason() == "crossPollEnabled is false"
    rails.settings.change(cross_poll_enabled=True)
    switch.set_enabled(False)
    assert switch.kill_reason() == "switched off for this run"
    switch.set_enabled(True)
    request_stop(tmp_path / "data", "enough", "clawpy stop")
    switch.poll()
    assert switch.kill_reason() == "enough"
    rails.safety.resume("stop")
    assert switch.kill_reason() == ""
    rails.safety.stop("F12 pressed", "operator")
    assert switch.kill_reason() == "F12 pressed"


def test_the_four_levels_are_told_apart(rails: Rails, tmp_path) -> None:
    names = [stop_level.name for stop_level in rails.safety.levels()]
    assert names == ["config", "api", "key", "outside"]
    assert not any(stop_level.thrown for stop_level in rails.safety.levels())
    rails.safety.stop("F12 pressed", "operator")
    assert level(rails, "key").thrown
    assert not level(rails, "outside").thrown
    assert rail(rails, "kill").brief == "stop"
    rails.safety.resume("stop")
    request_stop(tmp_path / "data")
    rails.safety.kill_switch.poll()
    assert level(rails, "outside").thrown
    assert not level(rails, "key").thrown
    rails.safety.resume("stop")
    rails.safety.kill_switch.set_enabled(False)
    assert level(rails, "api").thrown
    rails.settings.change(cross_poll_enabled=False)
    assert level(rails, "config").thrown


def test_the_chain_tells_depth_runs_and_how_long_an_answer_is_blocked(rails: Rails) -> None:
    rails.decide(approval())
    rails.clock.advance(timedelta(minutes=10))
    rails.know_pairs(("koji-core", "garden"))
    assert rails.decide(on("garden", unattended(from_channel="koji-core"))).permit is not None
    newest, first = rails.safety.chain()
    assert (newest.from_channel, newest.to_channel, newest.depth, newest.runs) == ("koji-core", "garden", 2, 1)
    assert newest.answer_until == rails.clock.now() + timedelta(minutes=5)
    assert (first.from_channel, first.depth, first.runs, first.answer_until) == ("owner", 1, 0, None)
    rails.clock.advance(timedelta(minutes=5))
    assert rails.safety.chain(limit=1)[0].answer_until is None


# Burn


def test_what_is_reserved_is_told_apart_from_what_was_spent(rails: Rails) -> None:
    rails.decide(approval(estimate=60_000))
    costs = rails.safety.costs
    entry = rails.database.write(lambda tx: costs.reserve_call(tx, "twin", 50_000))
    rails.database.write(lambda tx: costs.settle(tx, entry, 10_000))
    burns = [(burn.window, burn.spent, sum(burn.buckets), burn.reserved) for burn in costs.history()]
    assert burns == [(window, 10_000, 10_000, 60_000) for window in ("hour", "day", "month")]
    assert costs.settled_since(rails.clock.now() - timedelta(minutes=1)) == 10_000


def test_the_hour_has_five_minute_buckets_that_end_now() -> None:
    spent = [(NOW - timedelta(minutes=61), 9), (NOW - timedelta(hours=1), 1), (NOW - timedelta(minutes=3), 2), (NOW, 4)]
    hour = burn("hour", NOW, spent, 0, MICRO)
    assert hour.buckets == (1, *[0] * 10, 6)
    assert (hour.spent, hour.elapsed) == (7, 12)


def test_the_cap_is_reached_at_the_pace_of_late() -> None:
    day = burn("day", NOW, [(NOW - timedelta(hours=1), 3 * MICRO)], MICRO, 10 * MICRO)
    assert day.pace == MICRO
    assert day.reached_at == NOW + timedelta(hours=6)
    late = burn("day", NOW, [(NOW - timedelta(hours=1), 3 * MICRO)], MICRO, 14 * MICRO)
    assert late.reached_at is None  # midnight comes first
    assert burn("day", NOW, [], MICRO, MICRO).reached_at == NOW
    assert burn("day", NOW, [], 0, MICRO).reached_at is None
