"""SPEC 3.1: the order, the log, fail closed, and permits as the only way to start."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.model import Assignment, DecidedBy, Refusal, Trigger, TriggerType, Verdict
from engine.safety import pipeline as pipeline_module
from engine.safety.permits import LIFETIME
from engine.safety.pipeline import ORDER

from .helpers import WORKSPACE, Rails, approval, unattended


def refusal(rails: Rails, permit: object, digest: str) -> str:
    with pytest.raises(Refusal) as refused:
        rails.database.write(lambda tx: rails.safety.permits.consume(tx, permit, digest))  # type: ignore[arg-type]
    return refused.value.code


def test_six_rails_in_order_and_one_row(rails: Rails) -> None:
    ruling = rails.rule(approval())
    assert tuple(verdict.rail for verdict in ruling.verdicts) == ORDER
    assert ORDER == ("loop", "rate", "cost", "content", "gate", "kill")
    entry = rails.safety.log()[0]
    assert (entry.blocked, entry.channel, entry.from_channel, entry.estimate) == (False, "koji-core", "owner", 50_000)
    assert tuple(verdict.rail for verdict in entry.verdicts) == ORDER


def test_the_first_rail_that_blocks_is_named_and_all_are_logged(rails: Rails) -> None:
    rails.rule(unattended())
    rails.safety.stop("F12", "console")
    ruling = rails.rule(unattended(estimate=3_000_000, prediction_id="b"))
    assert ruling.blocked_by is not None
    assert ruling.blocked_by.rail == "rate"
    entry = rails.safety.log(blocked_only=True)[0]
    blocked = [verdict.rail for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW]
    assert blocked == ["rate", "cost", "gate", "kill"]
    assert entry.reason.startswith("rate: ")


@pytest.mark.parametrize("rail", ["decide_rate", "decide_loop", "decide_cost", "decide_content", "decide_gate"])
def test_a_rail_that_raises_blocks(rails: Rails, monkeypatch: pytest.MonkeyPatch, rail: str) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    for module in (pipeline_module, pipeline_module.rates, pipeline_module.loops, pipeline_module.cost):
        if hasattr(module, rail):
            monkeypatch.setattr(module, rail, broken)
    ruling = rails.rule(approval())
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
    permit = rails.rule(approval()).permit
    assert permit
    assert refusal(rails, permit, "other") == "permit_mismatch"
    assert refusal(rails, replace(permit, id="permit_none"), permit.digest) == "permit_unknown"
    assert refusal(rails, replace(permit, prediction_id="x"), permit.digest) == "permit_mismatch"
    assert rails.safety.permits.unconsumed() == [permit]
    rails.database.write(lambda tx: rails.safety.permits.consume(tx, permit, permit.digest))
    assert refusal(rails, permit, permit.digest) == "permit_used"
    assert rails.safety.permits.unconsumed() == []


def test_a_permit_lives_fifteen_minutes(rails: Rails) -> None:
    first = rails.rule(approval()).permit
    second = rails.rule(approval(prediction_id="b")).permit
    assert first
    assert second
    rails.clock.advance(LIFETIME - timedelta(microseconds=1))
    rails.database.write(lambda tx: rails.safety.permits.consume(tx, first, first.digest))
    rails.clock.advance(timedelta(microseconds=1))
    assert timedelta(minutes=15) == LIFETIME
    assert refusal(rails, second, second.digest) == "permit_expired"
    # The next decision gives its reservation back.
    before = rails.safety.costs.state().day
    rails.rule(approval(prediction_id="c", estimate=0))
    assert rails.safety.costs.state().day == before - 50_000


def test_of_many_threads_one_uses_the_permit(rails: Rails) -> None:
    permit = rails.rule(approval()).permit
    assert permit
    outcomes: list[str] = []

    def use() -> None:
        try:
            rails.database.write(lambda tx: rails.safety.permits.consume(tx, permit, permit.digest))
            outcomes.append("used")
        except Refusal as refused:
            outcomes.append(refused.code)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["permit_used"] * 7 + ["used"]


def prose(text: str, **changes: object) -> Trigger:
    return approval(assignment=Assignment(text, "koji-core", WORKSPACE, "model"), **changes)


def test_an_ask_needs_the_very_digest_that_was_seen(rails: Rails) -> None:
    trigger = prose("send an email to the customer")
    assert rails.rule(trigger).permit is None
    assert rails.rule(replace(trigger, acknowledged_digest=prose("other").assignment.digest)).permit is None
    engine_itself = replace(
        trigger,
        type=TriggerType.AUTONOMOUS,
        decided_by=DecidedBy.AUTONOMY,
        acknowledged_digest=trigger.assignment.digest,
    )
    assert rails.rule(engine_itself).permit is None
    assert rails.rule(replace(trigger, acknowledged_digest=trigger.assignment.digest)).permit


def test_a_block_is_lifted_once_for_one_digest(rails: Rails) -> None:
    trigger = prose("run `rm -rf /` please")
    with pytest.raises(Refusal):
        rails.safety.allow_once("pred_1")
    seen = replace(trigger, acknowledged_digest=trigger.assignment.digest)
    assert rails.rule(seen).permit is None
    rails.safety.allow_once("pred_1")
    assert rails.rule(prose("run `rm -rf /home` please")).permit is None
    assert rails.rule(replace(trigger, type=TriggerType.AUTONOMOUS, decided_by=DecidedBy.AUTONOMY)).permit is None
    assert rails.rule(trigger).permit
    assert rails.rule(trigger).permit is None
