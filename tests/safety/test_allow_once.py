"""What an operator allows once: exactly this work, within a day, and nothing that no approval lifts (SPEC 3.5)."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.model import Assignment, DecidedBy, Refusal, Trigger, TriggerType, Verdict
from engine.safety import pipeline as pipeline_module
from engine.safety.pipeline import ALLOWANCE_LIFETIME
from tests.safety.rails import WORKSPACE, Rails, make_approval, make_rails

FORBIDDEN = "run `rm -rf /` please"


def make_prompt_approval(text: str, **changes: object) -> Trigger:
    return make_approval(assignment=Assignment(text, "koji-core", WORKSPACE, "model"), **changes)


def block_and_allow_once(rails: Rails, trigger: Trigger):
    """Have the content filter block a trigger, and the operator allow it once."""
    assert rails.decide(trigger).permit is None
    rails.safety.allow_once(trigger.prediction_id)


def test_an_ask_of_the_content_filter_passes_only_for_the_digest_that_the_operator_saw(rails: Rails):
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


def test_allow_once_lifts_a_content_block_once_for_one_digest(rails: Rails):
    trigger = make_prompt_approval(FORBIDDEN)
    with pytest.raises(Refusal):
        rails.safety.allow_once("pred_1")
    acknowledged = replace(trigger, acknowledged_digest=trigger.assignment.digest)
    blocked = rails.decide(acknowledged).blocked_by
    assert blocked.reason == "deletes everything below /"
    rails.safety.allow_once("pred_1")
    assert rails.decide(make_prompt_approval("run `rm -rf /home` please")).permit is None
    assert rails.decide(replace(trigger, type=TriggerType.AUTONOMOUS, decided_by=DecidedBy.AUTONOMY)).permit is None
    assert rails.decide(trigger).permit
    assert rails.decide(trigger).permit is None


def test_work_that_is_held_back_is_logged_once_a_day(rails: Rails):
    trigger = make_prompt_approval(FORBIDDEN)
    verdicts = rails.safety.pipeline.preview(trigger)
    for hours, count in ((0, 1), (0, 1), (25, 2)):
        rails.clock.advance(timedelta(hours=hours))
        rails.write(rails.safety.pipeline.hold_back, "pred_2", trigger.assignment, verdicts, verdicts[3])
        entries = rails.safety.read_log(blocked_only=True)
        assert [entry.reason for entry in entries] == ["content: deletes everything below /"] * count


def test_an_allowance_lifts_nothing_but_the_session_of_its_own_work(rails: Rails):
    trigger = make_prompt_approval(FORBIDDEN)
    block_and_allow_once(rails, trigger)
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
    assert rails.safety.read_log()[0].verdicts[3].reason == "allowed once: deletes everything below /"
    rails.write(rails.safety.permits.consume, permit, permit.digest)
    assert rails.decide(trigger).permit is None, "it is used"


def test_an_allowance_ends_after_a_day_and_survives_a_restart(rails: Rails):
    trigger = make_prompt_approval(FORBIDDEN)
    block_and_allow_once(rails, trigger)
    rails.clock.advance(ALLOWANCE_LIFETIME - timedelta(microseconds=1))
    again = make_rails(rails.database, rails.clock, rails.data)
    with closing(again.kill_switch):
        assert again.safety.pipeline.preview(trigger)[3].verdict is Verdict.ASK
        assert again.safety.read_log()[0].allowed_once
        assert "1 allowed once" in [state.brief for state in again.safety.read_rail_states()]
        rails.clock.advance(timedelta(microseconds=1))
        assert again.safety.pipeline.preview(trigger)[3].verdict is Verdict.BLOCK
        assert not again.safety.read_log()[0].allowed_once
        assert again.decide(trigger).permit is None


def test_an_unknown_channel_and_a_filter_that_failed_cannot_be_allowed(rails: Rails, monkeypatch: pytest.MonkeyPatch):
    unknown = make_approval(assignment=Assignment("run the tests", "nowhere", WORKSPACE, "flow"))
    with pytest.raises(Refusal, match="no approval lifts this: 'nowhere' is not a registered channel"):
        block_and_allow_once(rails, unknown)
    monkeypatch.setattr(pipeline_module, "check_assignment", lambda *_, **more: 1 / 0)
    with pytest.raises(Refusal, match="no approval lifts this: the rail failed"):
        block_and_allow_once(rails, make_approval(prediction_id="other"))
