"""SPEC 3.1: the order of the rails, the log, and permits as the only way to start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.model import Assignment, DecidedBy, Refusal, Trigger, TriggerType, Verdict
from engine.safety import costs, trigger_history
from engine.safety import pipeline as pipeline_module
from engine.safety.permits import PERMIT_LIFETIME
from engine.safety.pipeline import ALLOWANCE_LIFETIME, RAIL_ORDER
from engine.storage.ledger import Ledger
from tests.safety.helpers import WORKSPACE, Rails, make_approval, make_rails, make_unattended


def refusal_code(rails: Rails, permit: object, digest: str) -> str:
    with pytest.raises(Refusal) as refused:
        rails.write(rails.safety.permits.consume, permit, digest)  # type: ignore[arg-type]
    return refused.value.code


# Rails and log


def test_six_rails_are_asked_in_order_and_logged_in_one_row(rails: Rails) -> None:
    assert RAIL_ORDER == ("loop", "rate", "cost", "content", "gate", "kill")
    verdicts = rails.decide(make_approval()).verdicts
    assert tuple(verdict.rail for verdict in verdicts) == RAIL_ORDER
    entry = rails.safety.log()[0]
    assert (entry.blocked, entry.channel, entry.from_channel, entry.estimate) == (False, "koji-core", "owner", 50_000)
    assert entry.verdicts == verdicts


def test_the_first_rail_that_blocks_is_named_and_all_are_logged(rails: Rails) -> None:
    rails.decide(make_unattended())
    rails.kill_switch.stop("F12", "console")
    ruling = rails.decide(make_unattended(estimate=3_000_000, prediction_id="b"))
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
    ruling = rails.decide(make_approval())
    assert ruling.permit is None
    assert ruling.blocked_by is not None
    assert ruling.blocked_by.rule == "fault"


def test_preview_changes_nothing_and_says_what_the_gate_asks(rails: Rails) -> None:
    gate = rails.gate_verdict(make_approval())
    assert gate.verdict is Verdict.ASK
    assert "low-confidence" in gate.rule
    assert all(entry.prediction_id == "old" for entry in rails.safety.log())
    assert rails.costs.state().hour == 0


# Permits


def test_a_permit_is_used_once_for_what_it_was_given(rails: Rails) -> None:
    permit = rails.decide(make_approval()).permit
    assert permit
    assert refusal_code(rails, permit, "other") == "permit_mismatch"
    assert refusal_code(rails, replace(permit, id="permit_none"), permit.digest) == "permit_unknown"
    for other in (replace(permit, prediction_id="x"), replace(permit, trigger_type=TriggerType.CRON)):
        assert refusal_code(rails, other, permit.digest) == "permit_mismatch"
    assert rails.safety.permits.read_unconsumed() == [permit]
    rails.write(rails.safety.permits.consume, permit, permit.digest)
    assert refusal_code(rails, permit, permit.digest) == "permit_used"
    assert rails.safety.permits.read_unconsumed() == []
    revoked = rails.decide(make_approval(prediction_id="b")).permit
    assert revoked
    rails.write(rails.safety.pipeline.revoke, "b")
    assert refusal_code(rails, revoked, revoked.digest) == "permit_used"


def test_a_permit_lives_fifteen_minutes(rails: Rails) -> None:
    first = rails.decide(make_approval()).permit
    second = rails.decide(make_approval(prediction_id="b")).permit
    assert first
    assert second
    rails.clock.advance(PERMIT_LIFETIME - timedelta(microseconds=1))
    rails.write(rails.safety.permits.consume, first, first.digest)
    rails.clock.advance(timedelta(microseconds=1))
    assert timedelta(minutes=15) == PERMIT_LIFETIME
    assert refusal_code(rails, second, second.digest) == "permit_expired"
    # The next decision gives its reservation back.
    before = rails.costs.state().day
    rails.decide(make_approval(prediction_id="c", estimate=0))
    assert rails.costs.state().day == before - 50_000


# What the operator allows once


def make_prompt_approval(text: str, **changes: object) -> Trigger:
    return make_approval(assignment=Assignment(text, "koji-core", WORKSPACE, "model"), **changes)


def test_an_ask_of_the_content_filter_passes_only_for_the_digest_that_the_operator_saw(rails: Rails) -> None:
    trigger = make_prompt_approval("send an email to the customer")
    assert rails.decide(trigger).permit is None
    assert (
        rails.decide(replace(trigger, acknowledged_digest=make_prompt_approval("other").assignment.digest)).permit
        is None
    )
    engine_itself = replace(
        trigger,
        type=TriggerType.AUTONOMOUS,
        decided_by=DecidedBy.AUTONOMY,
        acknowledged_digest=trigger.assignment.digest,
    )
    assert rails.decide(engine_itself).permit is None
    assert rails.decide(replace(trigger, acknowledged_digest=trigger.assignment.digest)).permit


def test_allow_once_lifts_a_content_block_once_for_one_digest(rails: Rails) -> None:
    trigger = make_prompt_approval("run `rm -rf /` please")
    with pytest.raises(Refusal):
        rails.safety.allow_once("pred_1")
    acknowledged = replace(trigger, acknowledged_digest=trigger.assignment.digest)
    blocked = rails.decide(acknowledged).blocked_by
    assert blocked is not None
    assert blocked.reason == "deletes everything below /"
    rails.safety.allow_once("pred_1")
    assert rails.decide(make_prompt_approval("run `rm -rf /home` please")).permit is None
    assert rails.decide(replace(trigger, type=TriggerType.AUTONOMOUS, decided_by=DecidedBy.AUTONOMY)).permit is None
    assert rails.decide(trigger).permit
    assert rails.decide(trigger).permit is None


def test_work_that_is_held_back_is_logged_once_a_day_until_it_is_allowed_once(rails: Rails) -> None:
    trigger = make_prompt_approval("run `rm -rf /` please")
    verdicts = rails.safety.pipeline.preview(trigger)
    work = ("pred_2", trigger.assignment, verdicts, verdicts[3])
    rails.write(rails.safety.pipeline.hold_back, *work)
    rails.write(rails.safety.pipeline.hold_back, *work)
    [entry] = rails.safety.log(blocked_only=True)
    assert (entry.prediction_id, entry.reason) == ("pred_2", "content: deletes everything below /")
    assert len(Ledger(rails.database).latest(kinds=("TriggerBlocked",))) == 1
    rails.clock.advance(timedelta(hours=25))
    rails.write(rails.safety.pipeline.hold_back, *work)
    assert len(rails.safety.log(blocked_only=True)) == 2

    rails.safety.allow_once("pred_2")
    assert rails.safety.pipeline.preview(trigger)[3].reason == "allowed once: deletes everything below /"


FORBIDDEN = "run `rm -rf /` please"


def block(rails: Rails, trigger: Trigger) -> None:
    """Have the content filter block a trigger, so that it can be allowed once."""
    assert rails.decide(trigger).permit is None
    rails.safety.allow_once(trigger.prediction_id)


def test_an_allowance_lifts_nothing_but_the_session_of_its_own_work(rails: Rails) -> None:
    trigger = make_prompt_approval(FORBIDDEN)
    block(rails, trigger)
    others = [{"workspace": "/other"}, {"agent": "b"}, {"parameters": {"command": ["rm -rf /"]}}]
    assert all(
        rails.decide(replace(trigger, assignment=replace(trigger.assignment, **other))).permit is None
        for other in others
    )
    harmless = rails.decide(make_prompt_approval("run the tests")).permit
    permit = rails.decide(trigger).permit
    assert permit
    assert harmless
    assert [rails.safety.pipeline.is_allowed_once(each.id) for each in (permit, harmless)] == [True, False]
    assert rails.safety.log()[0].verdicts[3].reason == "allowed once: deletes everything below /"
    rails.write(rails.safety.permits.consume, permit, permit.digest)
    assert rails.decide(trigger).permit is None, "it is used"


def test_an_allowance_comes_back_with_an_approval_that_started_nothing(rails: Rails) -> None:
    trigger = make_prompt_approval(FORBIDDEN)
    block(rails, trigger)
    for undo in (
        lambda: rails.write(rails.safety.pipeline.revoke, trigger.prediction_id),
        lambda: rails.clock.advance(PERMIT_LIFETIME),
    ):
        permit = rails.decide(trigger).permit
        assert permit
        undo()
        rails.decide(make_approval(prediction_id="other"))  # ends permits whose time is over
    rails.kill_switch.stop("F12", "console")
    assert rails.decide(trigger).permit is None
    rails.kill_switch.resume("stop")
    permit = rails.decide(trigger).permit
    assert permit
    rails.write(rails.safety.permits.consume, permit, permit.digest)
    rails.write(rails.safety.pipeline.revoke, trigger.prediction_id)
    assert rails.decide(trigger).permit is None, "the work began, so it is used"


def test_a_second_allowance_of_the_same_work_withdraws_nothing(rails: Rails) -> None:
    first, second = (make_prompt_approval(FORBIDDEN, prediction_id=name) for name in ("first", "second"))
    permits = []
    for trigger in (first, second):
        block(rails, trigger)
        permits.append(rails.decide(trigger).permit)
        rails.clock.advance(timedelta(seconds=1))
    assert [permit and rails.safety.pipeline.is_allowed_once(permit.id) for permit in permits] == [True, True]
    assert rails.decide(first).permit is None, "both are used"


def test_an_allowance_ends_after_a_day_and_survives_a_restart(rails: Rails) -> None:
    trigger = make_prompt_approval(FORBIDDEN)
    block(rails, trigger)
    rails.clock.advance(ALLOWANCE_LIFETIME - timedelta(microseconds=1))
    again = make_rails(rails.database, rails.clock, rails.data)
    with closing(again.kill_switch):
        assert again.safety.pipeline.preview(trigger)[3].verdict is Verdict.ASK
        assert again.safety.log()[0].allowed_once
        rails.clock.advance(timedelta(microseconds=1))
        assert again.safety.pipeline.preview(trigger)[3].verdict is Verdict.BLOCK
        assert not again.safety.log()[0].allowed_once
        assert again.decide(trigger).permit is None


def test_an_unknown_channel_and_a_filter_that_failed_cannot_be_allowed(
    rails: Rails, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = make_approval(assignment=Assignment("run the tests", "nowhere", WORKSPACE, "flow"))
    with pytest.raises(Refusal, match="no approval lifts this: 'nowhere' is not a registered channel"):
        block(rails, unknown)
    monkeypatch.setattr(pipeline_module, "check_assignment", lambda *_, **more: 1 / 0)
    with pytest.raises(Refusal, match="no approval lifts this: the rail failed"):
        block(rails, make_approval(prediction_id="other"))
