"""The pipeline (SPEC 3.1): the order of the rails, the log, and how long and for what a permit is valid."""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.model import Refusal, TriggerType, Verdict
from engine.safety import costs
from engine.safety import pipeline as pipeline_module
from engine.safety.permits import PERMIT_LIFETIME
from engine.safety.pipeline import RAIL_ORDER
from engine.storage.ledger import Ledger
from tests.safety.rails import Rails, make_approval, make_unattended


def find_refusal_code(rails: Rails, permit: object, digest: str) -> str:
    with pytest.raises(Refusal) as refused:
        rails.write(rails.safety.permits.consume, permit, digest)
    return refused.value.code


# Rails and log


def test_six_rails_are_asked_in_order_and_logged_in_one_row(rails: Rails):
    assert RAIL_ORDER == ("loop", "rate", "cost", "content", "gate", "kill")
    verdicts = rails.decide(make_approval()).verdicts
    assert tuple(verdict.rail for verdict in verdicts) == RAIL_ORDER
    entry = rails.safety.log()[0]
    assert (entry.blocked, entry.channel, entry.from_channel, entry.estimate) == (False, "koji-core", "owner", 50_000)
    assert entry.verdicts == verdicts


def test_the_first_rail_that_blocks_is_named_and_all_are_logged(rails: Rails):
    rails.decide(make_unattended())
    rails.kill_switch.stop("F12", "console")
    ruling = rails.decide(make_unattended(estimate=3_000_000, prediction_id="b"))
    assert ruling.blocked_by.rail == "rate"
    entry = rails.safety.log(blocked_only=True)[0]
    blocked = [verdict.rail for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW]
    assert blocked == ["rate", "cost", "gate", "kill"]
    assert entry.reason.startswith("rate: ")
    [event] = Ledger(rails.database).latest(kinds=("TriggerBlocked",))
    assert (event.subject, event.payload["rail"]) == ("b", "rate")


@pytest.mark.parametrize("rail", ["decide_rate", "decide_loop", "decide_cost", "decide_content", "decide_gate"])
def test_a_rail_that_raises_blocks(rails: Rails, monkeypatch: pytest.MonkeyPatch, rail: str):
    def broken(*_: object, **__: object):
        raise ZeroDivisionError

    for module in (pipeline_module, costs):
        if hasattr(module, rail):
            monkeypatch.setattr(module, rail, broken)
    ruling = rails.decide(make_approval())
    assert ruling.permit is None
    assert ruling.blocked_by.rule == "fault"


def test_preview_changes_nothing_and_says_what_the_gate_asks(rails: Rails):
    gate = rails.find_gate_verdict(make_approval())
    assert gate.verdict is Verdict.ASK
    assert "low-confidence" in gate.rule
    assert all(entry.prediction_id == "old" for entry in rails.safety.log())
    assert rails.costs.state().hour == 0


# Permits


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
    before = rails.costs.state().day
    rails.decide(make_approval(prediction_id="c", estimate=0))
    assert rails.costs.state().day == before - 50_000
