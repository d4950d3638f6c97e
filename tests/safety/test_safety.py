"""The service of the rails: objections to effects of candidates (SPEC 5.6), and the state of a rail (SPEC 9.1)."""

from datetime import timedelta

import pytest

from engine.model import RailState, Verdict
from engine.model.adaptation import Effect, FixTemplate, FlowOffload, PromptFragment
from tests.safety.rails import Rails, make_unattended


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


def read_rate_state(rails: Rails) -> RailState:
    """The state of the rate limiter."""
    return next(state for state in rails.safety.read_rail_states() if state.rail == "rate")


def test_the_rate_limiter_shows_until_when_it_waits(rails: Rails):
    began = rails.clock.now()
    assert rails.decide(make_unattended()).permit is not None
    assert read_rate_state(rails).until == began + timedelta(minutes=10)
    rails.clock.advance(timedelta(minutes=10))
    free = read_rate_state(rails)
    assert (free.verdict, free.brief, free.until, free.last_at) == (Verdict.ALLOW, "free", None, began)
