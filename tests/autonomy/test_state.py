"""SPEC 7.1: the state machine does what its table says, and every path through it is legal; SPEC 2.2: presence."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.state import (
    TRANSITIONS,
    AutonomyTrigger,
    Facts,
    Presence,
    compute_next_state,
    find_next_trigger,
    find_transitions,
)
from engine.clock import FakeClock
from engine.model import AutonomyState
from engine.storage.database import Database
from tests.support.helpers import read_table

HALF_HOUR = timedelta(minutes=30)
SPECIFIED = read_table(__file__)["transitions"]


def test_exactly_the_specified_transitions_exist() -> None:
    transitions = [[before.name, trigger.name, after.name] for (before, trigger), after in TRANSITIONS.items()]
    assert sorted(transitions) == sorted(SPECIFIED)
    assert compute_next_state(AutonomyState.DISABLED, AutonomyTrigger.SILENT) is AutonomyState.DISABLED


FACTS = st.builds(
    Facts,
    enabled=st.booleans(),
    holds=st.frozensets(st.sampled_from(["stop", "pause", "month"])),
    autonomous=st.booleans(),
    silence=st.timedeltas(timedelta(0), timedelta(hours=2)),
    threshold=st.just(HALF_HOUR),
    resumed=st.booleans(),
    paused_for_cost=st.booleans(),
)


@given(st.sampled_from(AutonomyState), st.lists(st.one_of(FACTS, st.sampled_from(AutonomyTrigger)), max_size=30))
def test_every_sequence_of_facts_and_triggers_ends_in_a_state_that_fits_the_facts(
    state: AutonomyState, steps: list[Facts | AutonomyTrigger]
) -> None:
    for step in steps:
        if isinstance(step, AutonomyTrigger):
            state = compute_next_state(state, step)
            continue
        for after, cause in find_transitions(state, step):
            assert TRANSITIONS[state, cause] is after
            state = after
        assert find_next_trigger(state, step) is None
        if not step.enabled or "stop" in step.holds:
            assert state is AutonomyState.DISABLED
        elif step.holds:
            assert state is AutonomyState.PAUSED
        else:
            assert (state in (AutonomyState.PRIMING, AutonomyState.AUTONOMOUS)) == (
                step.autonomous and step.silence >= HALF_HOUR
            )


def test_presence_knows_the_last_sign_and_the_last_absence(database: Database, clock: FakeClock) -> None:
    presence, second = Presence(database, clock), timedelta(seconds=1)
    presence.note_now("key")
    began = clock.now()
    clock.advance(HALF_HOUR - second)
    presence.note(began - second, "files of a workspace")
    assert (presence.last(), presence.away_since()) == ((began, "key"), None)
    clock.advance(second)
    assert presence.away_since() == began
    presence.note_now("verb")
    returned = clock.now()
    clock.advance(29 * second)
    presence.note_now("key")
    assert (presence.last()[0], presence.away_since()) == (clock.now(), began)
    assert Presence(database, clock).last() == (returned, "verb"), "a crash loses less than half a minute"
    clock.advance(second)
    presence.note_now("key")
    again = Presence(database, clock)
    assert (again.last(), again.away_since()) == ((clock.now(), "key"), began)
