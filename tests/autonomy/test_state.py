"""SPEC 7.1: the table is what the state machine does, and every path through it is legal."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.state import (
    TRANSITIONS,
    AutonomyState,
    AutonomyTrigger,
    Facts,
    next_state,
    next_trigger,
    settle_moves,
    time_until_move,
)

HALF_HOUR = timedelta(minutes=30)
SPECIFIED = {
    ("DISABLED", "ENABLED"): "WATCHING",  # crossPollEnabled and no stop
    ("WATCHING", "SILENT"): "PRIMING",  # silence >= 30 min and autonomousModeEnabled
    ("PRIMING", "PREDICTION_READY"): "AUTONOMOUS",
    ("PRIMING", "PREDICTION_DROPPED"): "PRIMING",  # discarded or blocked: until the next cycle
    ("PRIMING", "OPERATOR_SPOKE"): "WATCHING",
    ("AUTONOMOUS", "OPERATOR_SPOKE"): "WATCHING",
    ("PRIMING", "AUTONOMY_OFF"): "WATCHING",
    ("AUTONOMOUS", "AUTONOMY_OFF"): "WATCHING",
    ("WATCHING", "REJECTED"): "PAUSED",  # three in a row or a cap: from any enabled state
    ("PRIMING", "REJECTED"): "PAUSED",
    ("AUTONOMOUS", "REJECTED"): "PAUSED",
    ("PAUSED", "REJECTED"): "PAUSED",
    ("WATCHING", "COST_CAP"): "PAUSED",
    ("PRIMING", "COST_CAP"): "PAUSED",
    ("AUTONOMOUS", "COST_CAP"): "PAUSED",
    ("PAUSED", "COST_CAP"): "PAUSED",
    ("PAUSED", "RESUMED"): "WATCHING",
    ("PAUSED", "PAUSE_OVER"): "WATCHING",
    ("WATCHING", "KILLED"): "DISABLED",
    ("PRIMING", "KILLED"): "DISABLED",
    ("AUTONOMOUS", "KILLED"): "DISABLED",
    ("PAUSED", "KILLED"): "DISABLED",
}
"""SPEC 7.1, row by row, and what follows from it for a switch that is turned off. Nothing else is a move."""


@pytest.mark.parametrize("given_input", [item.name for item in AutonomyTrigger])
@pytest.mark.parametrize("before", [item.name for item in AutonomyState])
def test_every_row_is_a_move_and_what_has_no_row_is_none(before: str, given_input: str) -> None:
    after = SPECIFIED.get((before, given_input))
    assert ((AutonomyState[before], AutonomyTrigger[given_input]) in TRANSITIONS) == (after is not None)
    assert next_state(AutonomyState[before], AutonomyTrigger[given_input]).name == (after or before)


def facts(**changes: object) -> Facts:
    values: dict[str, object] = {
        "enabled": True, "holds": frozenset(), "autonomous": True, "silence": timedelta(0), "threshold": HALF_HOUR,
    }  # fmt: skip
    return Facts(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("silence", "after"),
    [(HALF_HOUR, AutonomyState.PRIMING), (HALF_HOUR - timedelta(microseconds=1), AutonomyState.WATCHING)],
)
def test_silence_of_thirty_minutes_primes(silence: timedelta, after: AutonomyState) -> None:
    moves = settle_moves(AutonomyState.WATCHING, facts(silence=silence))
    assert (moves[-1][0] if moves else AutonomyState.WATCHING) is after


def test_after_a_stop_is_lifted_a_pause_still_holds() -> None:
    assert settle_moves(AutonomyState.PAUSED, facts(holds=frozenset({"stop", "pause"}))) == [
        (AutonomyState.DISABLED, AutonomyTrigger.KILLED)
    ]
    assert [state for state, _ in settle_moves(AutonomyState.DISABLED, facts(holds=frozenset({"pause"})))] == [
        "WATCHING",
        "PAUSED",
    ]


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
def test_every_walk_is_legal_and_comes_to_rest(state: AutonomyState, steps: list[Facts | AutonomyTrigger]) -> None:
    for step in steps:
        if isinstance(step, AutonomyTrigger):
            state = next_state(state, step)
            continue
        for after, cause in settle_moves(state, step):
            assert TRANSITIONS[state, cause] is after
            state = after
        assert next_trigger(state, step) is None
        if not step.enabled or "stop" in step.holds:
            assert state is AutonomyState.DISABLED
        elif step.holds:
            assert state is AutonomyState.PAUSED
        else:
            assert (state in (AutonomyState.PRIMING, AutonomyState.AUTONOMOUS)) == (
                step.autonomous and step.silence >= HALF_HOUR
            )


@given(st.sampled_from(AutonomyState), FACTS, st.timedeltas(timedelta(microseconds=1), timedelta(hours=2)))
def test_time_alone_moves_it_when_it_is_told_and_never_else(
    state: AutonomyState, before: Facts, pause_left: timedelta
) -> None:
    """Nothing happens but time: silence grows, a pause runs out. A month stop and a switch do not."""
    moves = settle_moves(state, before)
    state = moves[-1][0] if moves else state
    span = time_until_move(state, before, pause_left if "pause" in before.holds else None)

    def later(by: timedelta) -> list[tuple[AutonomyState, AutonomyTrigger]]:
        over = {"pause"} if by >= pause_left else set()
        return settle_moves(state, replace(before, silence=before.silence + by, holds=before.holds - over))

    if span is None:
        for by in (timedelta(hours=1), timedelta(hours=2), timedelta(days=40)):
            assert later(by) == [], f"{state} moved after {by}"
        return
    assert span > timedelta(0)
    assert later(span - timedelta(microseconds=1)) == []
    assert later(span) != []
