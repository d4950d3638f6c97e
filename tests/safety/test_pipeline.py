"""The pipeline (SPEC 3.1): the order of the rails, their log, and their states on the safety screen."""

from datetime import timedelta

import pytest

from engine.model import RailState, Verdict
from engine.model.adaptation import Effect, FixTemplate, FlowOffload, PromptFragment
from engine.safety.pipeline import RAIL_ORDER
from engine.storage.ledger import Ledger
from tests.safety.rails import Rails, make_approval, make_unattended


def test_six_rails_are_asked_in_order_and_logged_in_one_row(rails: Rails):
    assert RAIL_ORDER == ("loop", "rate", "cost", "content", "gate", "kill")
    verdicts = rails.decide(make_approval()).verdicts
    assert tuple(verdict.rail for verdict in verdicts) == RAIL_ORDER
    entry = rails.safety.read_log()[0]
    assert (entry.blocked, entry.channel, entry.from_channel, entry.estimate) == (False, "koji-core", "owner", 50_000)
    assert entry.verdicts == verdicts


@pytest.mark.parametrize(
    "effect, has_objection",
    [
        (PromptFragment(("Say what you changed",)), False),
        (PromptFragment(("Run rm -rf ~ first",)), True),
        (FixTemplate(("test_a",), ("Delete the production database",)), True),
        (FlowOffload("clean", "Clean", ("git clean -fdx", "rm -rf ~")), True),
    ],
)
def test_what_a_candidate_would_do_is_asked_about(rails: Rails, effect: Effect, has_objection: bool):
    assert bool(rails.safety.find_objection_to_effect(effect)) is has_objection


def test_the_first_rail_that_blocks_is_named_and_all_are_logged(rails: Rails):
    rails.decide(make_unattended())
    rails.kill_switch.stop("F12", "console")
    ruling = rails.decide(make_unattended(estimate=3_000_000, prediction_id="b"))
    assert ruling.blocked_by.rail == "rate"
    entry = rails.safety.read_log(blocked_only=True)[0]
    blocked = [verdict.rail for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW]
    assert blocked == ["rate", "cost", "gate", "kill"]
    assert entry.reason.startswith("rate: ")
    [event] = Ledger(rails.database).read_newest(kinds=("TriggerBlocked",))
    assert (event.subject, event.payload["rail"]) == ("b", "rate")


@pytest.mark.parametrize(
    "rail",
    [
        "pipeline.decide_loop",
        "pipeline.decide_rate",
        "costs.decide_cost",
        "pipeline.decide_content",
        "pipeline.decide_gate",
    ],
)
def test_a_rail_that_raises_blocks(rails: Rails, monkeypatch: pytest.MonkeyPatch, rail: str):
    def broken(*_: object, **__: object):
        raise ZeroDivisionError

    monkeypatch.setattr(f"engine.safety.{rail}", broken)
    ruling = rails.decide(make_approval())
    assert ruling.permit is None
    assert ruling.blocked_by.rule == "fault"


def find_rail_state(rails: Rails, name: str) -> RailState:
    return next(state for state in rails.safety.read_rail_states() if state.rail == name)


def test_the_rate_limiter_shows_until_when_it_waits(rails: Rails):
    began = rails.clock.now()
    assert rails.decide(make_unattended()).permit is not None
    assert find_rail_state(rails, "rate").until == began + timedelta(minutes=10)
    rails.clock.advance(timedelta(minutes=10))
    free = find_rail_state(rails, "rate")
    assert (free.verdict, free.brief, free.until, free.last_at) == (Verdict.ALLOW, "free", None, began)
