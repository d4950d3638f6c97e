"""The safety screen shows the verdicts with which the rails decide (SPEC 9.1)."""

from datetime import timedelta

from engine.model import GateRuleName, RailState, Verdict
from engine.safety.safety import GATE_BRIEF
from tests.safety.rails import Rails, make_approval, make_unattended, move_to_channel


def find_rail_state(rails: Rails, name: str) -> RailState:
    return next(state for state in rails.safety.rails() if state.rail == name)


def test_the_rate_limiter_shows_until_when_it_waits(rails: Rails):
    began = rails.clock.now()
    assert rails.decide(make_unattended()).permit is not None
    assert find_rail_state(rails, "rate").until == began + timedelta(minutes=10)
    rails.clock.advance(timedelta(minutes=10))
    free = find_rail_state(rails, "rate")
    assert (free.verdict, free.brief, free.until, free.last_at) == (Verdict.ALLOW, "free", None, began)


def test_a_pause_is_shown_with_its_end_and_a_stop_without_one(rails: Rails):
    kill_switch = rails.kill_switch
    rails.write(kill_switch.place, "pause", "3 dismissals in a row")
    paused = find_rail_state(rails, "kill")
    assert (paused.verdict, paused.until) == (Verdict.BLOCK, rails.clock.now() + timedelta(hours=2))
    assert kill_switch.current_verdict().verdict is Verdict.BLOCK
    assert kill_switch.current_verdict(by_operator=True).verdict is Verdict.ALLOW
    kill_switch.stop("lunch", "operator")
    assert (find_rail_state(rails, "kill").brief, find_rail_state(rails, "kill").until) == ("stop", None)


def test_each_rail_shows_its_last_verdict_and_how_many_triggers_it_blocked_first_today(rails: Rails):
    rails.decide(make_approval("clean up with rm -rf /"))
    content, gate = find_rail_state(rails, "content"), find_rail_state(rails, "gate")
    assert content.last.verdict is Verdict.BLOCK
    assert content.last_at == rails.clock.now()
    assert content.stopped == 1
    assert gate.stopped == 0
    rails.clock.advance(timedelta(hours=24))
    assert find_rail_state(rails, "content").stopped == 0


def test_each_rule_of_the_gate_has_a_word_or_is_among_those_that_show_asks():
    shown_as_asks = {
        GateRuleName.SANDBOX_WAIVED, GateRuleName.PRODUCTION, GateRuleName.CONTENT, GateRuleName.COSTLY,
        GateRuleName.SUGGESTED, GateRuleName.INSTALLS, GateRuleName.COLD_START, GateRuleName.LOW_CONFIDENCE,
        GateRuleName.BELOW_THRESHOLD, GateRuleName.TRACK_RECORD, GateRuleName.NOVEL_PAIR,
    }  # fmt: skip
    assert set(GateRuleName) - set(GATE_BRIEF) == shown_as_asks


def test_an_allowance_is_shown_until_it_is_used(rails: Rails):
    trigger = make_approval("clean up with rm -rf /")
    rails.decide(trigger)
    assert not rails.safety.log()[0].allowed_once
    rails.safety.allow_once(trigger.prediction_id)
    assert find_rail_state(rails, "content").brief == "1 allowed once"
    assert rails.safety.log(blocked_only=True)[0].allowed_once
    assert rails.decide(trigger).permit is not None
    assert find_rail_state(rails, "content").brief == "on"
    assert not rails.safety.log(blocked_only=True)[0].allowed_once


def test_the_chain_shows_depth_repeats_and_how_long_a_link_back_is_blocked(rails: Rails):
    rails.decide(make_approval())
    rails.clock.advance(timedelta(minutes=10))
    rails.know_pairs(("koji-core", "garden"))
    assert rails.decide(move_to_channel("garden", make_unattended(from_channel="koji-core"))).permit is not None
    newest, first = rails.safety.chain()
    assert (newest.from_channel, newest.to_channel, newest.depth, newest.runs) == ("koji-core", "garden", 2, 1)
    assert newest.answer_until == rails.clock.now() + timedelta(minutes=5)
    assert (first.from_channel, first.depth, first.runs, first.answer_until) == ("owner", 1, 0, None)
    rails.clock.advance(timedelta(minutes=5))
    assert rails.safety.chain(limit=1)[0].answer_until is None
