"""The state machine of autonomy (SPEC 7.1), and the operator's presence (SPEC 2.2)."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy import (
    TRANSITIONS,
    AutonomyFacts,
    AutonomyTrigger,
    OperatorPresence,
    find_next_trigger,
    find_transitions,
)
from engine.clock import FakeClock
from engine.model import AutonomyState
from engine.storage.database import Database
from tests.support import read_table

HALF_HOUR, SECOND = timedelta(minutes=30), timedelta(seconds=1)


def test_exactly_the_specified_transitions_exist():
    transitions = [[before.name, trigger.name, after.name] for (before, trigger), after in TRANSITIONS.items()]
    assert sorted(transitions) == sorted(read_table(__file__)["transitions"])


FACTS = st.builds(
    AutonomyFacts,
    may_run=st.booleans(),
    holds=st.frozensets(st.sampled_from(["stop", "pause", "month"])),
    is_autonomous_mode_on=st.booleans(),
    silence=st.timedeltas(timedelta(0), timedelta(hours=2)),
    threshold=st.just(HALF_HOUR),
    was_resumed=st.booleans(),
    is_paused_for_cost=st.booleans(),
)


@given(st.sampled_from(AutonomyState), st.lists(st.one_of(FACTS, st.sampled_from(AutonomyTrigger)), max_size=30))
def test_every_sequence_of_facts_and_triggers_ends_in_a_state_that_fits_the_facts(
    state: AutonomyState, steps: list[AutonomyFacts | AutonomyTrigger]
):
    for step in steps:
        if isinstance(step, AutonomyTrigger):
            state = TRANSITIONS.get((state, step), state)
            continue
        for after, cause in find_transitions(state, step):
            assert TRANSITIONS[state, cause] is after
            state = after
        assert find_next_trigger(state, step) is None
        if not step.may_run or "stop" in step.holds:
            assert state is AutonomyState.DISABLED
        elif step.holds:
            assert state is AutonomyState.PAUSED
        else:
            assert (state in (AutonomyState.PRIMING, AutonomyState.AUTONOMOUS)) == (
                step.is_autonomous_mode_on and step.silence >= HALF_HOUR
            )


def test_an_absence_is_remembered_after_the_return(database: Database, clock: FakeClock):
    presence = OperatorPresence(database, clock)
    presence.note_now()
    left = clock.now()
    clock.advance(HALF_HOUR - SECOND)
    assert presence.find_absence_start() is None
    clock.advance(SECOND)
    assert presence.find_absence_start() == left
    presence.note_now()
    assert (presence.read_last_activity(), presence.find_absence_start()) == (clock.now(), left)
    assert OperatorPresence(database, clock).find_absence_start() == left, "a restart forgets it"
