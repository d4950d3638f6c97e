"""SPEC 7.1: the table is what the state machine does, and every path through it is legal."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.state import TABLE, Facts, Input, State, next_state, settle, suggest

HALF_HOUR = timedelta(minutes=30)
MOVES = [
    ("DISABLED", "ENABLED", "WATCHING"),
    ("WATCHING", "SILENT", "PRIMING"),
    ("PRIMING", "PREDICTION_READY", "AUTONOMOUS"),
    ("PRIMING", "PREDICTION_DROPPED", "PRIMING"),
    ("PRIMING", "OPERATOR_SPOKE", "WATCHING"),
    ("AUTONOMOUS", "OPERATOR_SPOKE", "WATCHING"),
    ("WATCHING", "REJECTED", "PAUSED"),
    ("PRIMING", "REJECTED", "PAUSED"),
    ("AUTONOMOUS", "REJECTED", "PAUSED"),
    ("WATCHING", "COST_CAP", "PAUSED"),
    ("PAUSED", "RESUMED", "WATCHING"),
    ("PAUSED", "PAUSE_OVER", "WATCHING"),
    ("WATCHING", "KILLED", "DISABLED"),
    ("PRIMING", "KILLED", "DISABLED"),
    ("AUTONOMOUS", "KILLED", "DISABLED"),
    ("PAUSED", "KILLED", "DISABLED"),
    ("WATCHING", "PREDICTION_READY", "WATCHING"),
    ("DISABLED", "SILENT", "DISABLED"),
    ("DISABLED", "REJECTED", "DISABLED"),
    ("PAUSED", "SILENT", "PAUSED"),
]


@pytest.mark.parametrize(("before", "given_input", "after"), MOVES)
def test_move(before: str, given_input: str, after: str) -> None:
    assert next_state(State(before), Input[given_input]) is State(after)


def facts(**changes: object) -> Facts:
    values: dict[str, object] = {
        "enabled": True, "holds": frozenset(), "autonomous": True, "silence": timedelta(0), "threshold": HALF_HOUR,
    }  # fmt: skip
    return Facts(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("silence", "after"), [(HALF_HOUR, State.PRIMING), (HALF_HOUR - timedelta(microseconds=1), State.WATCHING)]
)
def test_silence_of_thirty_minutes_primes(silence: timedelta, after: State) -> None:
    moves = settle(State.WATCHING, facts(silence=silence))
    assert (moves[-1][0] if moves else State.WATCHING) is after


def test_without_autonomous_mode_it_only_watches() -> None:
    assert settle(State.WATCHING, facts(silence=HALF_HOUR, autonomous=False)) == []
    assert settle(State.PRIMING, facts(silence=HALF_HOUR, autonomous=False)) == [(State.WATCHING, Input.AUTONOMY_OFF)]


def test_time_does_not_lead_out_of_a_month_stop() -> None:
    assert settle(State.PAUSED, facts(holds=frozenset({"month"}))) == []
    assert settle(State.PAUSED, facts()) == [(State.WATCHING, Input.PAUSE_OVER)]
    assert settle(State.PAUSED, facts(resumed=True)) == [(State.WATCHING, Input.RESUMED)]


def test_after_a_stop_is_lifted_a_pause_still_holds() -> None:
    assert settle(State.PAUSED, facts(holds=frozenset({"stop", "pause"}))) == [(State.DISABLED, Input.KILLED)]
    assert [state for state, _ in settle(State.DISABLED, facts(holds=frozenset({"pause"})))] == ["WATCHING", "PAUSED"]


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


@given(st.sampled_from(State), st.lists(st.one_of(FACTS, st.sampled_from(Input)), max_size=30))
def test_every_walk_is_legal_and_comes_to_rest(state: State, steps: list[Facts | Input]) -> None:
    for step in steps:
        if isinstance(step, Input):
            state = next_state(state, step)
            continue
        for after, cause in settle(state, step):
            assert TABLE[state, cause] is after
            state = after
        assert suggest(state, step) is None
        if not step.enabled or "stop" in step.holds:
            assert state is State.DISABLED
        elif step.holds:
            assert state is State.PAUSED
        else:
            assert (state in (State.PRIMING, State.AUTONOMOUS)) == (step.autonomous and step.silence >= HALF_HOUR)
