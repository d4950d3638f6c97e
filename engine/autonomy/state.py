"""The state machine of SPEC 7.1: a table of transitions, and functions on it. Pure."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from engine.frozen import frozen


class AutonomyState(StrEnum):
    """The state of autonomy."""

    DISABLED = "DISABLED"
    WATCHING = "WATCHING"
    PRIMING = "PRIMING"
    AUTONOMOUS = "AUTONOMOUS"
    PAUSED = "PAUSED"


class AutonomyTrigger(StrEnum):
    """The cause of a transition; the value is shown."""

    ENABLED = "enabled and not stopped"
    KILLED = "kill switch"
    SILENT = "you are inactive"
    OPERATOR_SPOKE = "you are back"
    AUTONOMY_OFF = "autonomous mode switched off"
    PREDICTION_READY = "prediction ready"
    PREDICTION_DROPPED = "prediction discarded or blocked"
    REJECTED = "3 rejections in a row"
    COST_CAP = "cost cap reached"
    RESUMED = "resumed by you"
    PAUSE_OVER = "2 h passed"


_ENABLED = (AutonomyState.WATCHING, AutonomyState.PRIMING, AutonomyState.AUTONOMOUS, AutonomyState.PAUSED)

TRANSITIONS: dict[tuple[AutonomyState, AutonomyTrigger], AutonomyState] = {
    (AutonomyState.DISABLED, AutonomyTrigger.ENABLED): AutonomyState.WATCHING,
    (AutonomyState.WATCHING, AutonomyTrigger.SILENT): AutonomyState.PRIMING,
    (AutonomyState.PRIMING, AutonomyTrigger.PREDICTION_READY): AutonomyState.AUTONOMOUS,
    (AutonomyState.PRIMING, AutonomyTrigger.PREDICTION_DROPPED): AutonomyState.PRIMING,
    (AutonomyState.PRIMING, AutonomyTrigger.OPERATOR_SPOKE): AutonomyState.WATCHING,
    (AutonomyState.AUTONOMOUS, AutonomyTrigger.OPERATOR_SPOKE): AutonomyState.WATCHING,
    (AutonomyState.PRIMING, AutonomyTrigger.AUTONOMY_OFF): AutonomyState.WATCHING,
    (AutonomyState.AUTONOMOUS, AutonomyTrigger.AUTONOMY_OFF): AutonomyState.WATCHING,
    (AutonomyState.PAUSED, AutonomyTrigger.RESUMED): AutonomyState.WATCHING,
    (AutonomyState.PAUSED, AutonomyTrigger.PAUSE_OVER): AutonomyState.WATCHING,
    **{(state, AutonomyTrigger.KILLED): AutonomyState.DISABLED for state in _ENABLED},
    **{(state, AutonomyTrigger.REJECTED): AutonomyState.PAUSED for state in _ENABLED},
    **{(state, AutonomyTrigger.COST_CAP): AutonomyState.PAUSED for state in _ENABLED},
}
"""All transitions. A trigger without an entry for a state changes nothing."""


def next_state(state: AutonomyState, trigger: AutonomyTrigger) -> AutonomyState:
    """The state after `trigger`."""
    return TRANSITIONS.get((state, trigger), state)


@frozen
class Facts:
    """The conditions that triggers follow from. `holds` are the active ones (`stop`, `pause`, `month`); `resumed` is
    True if the operator ended the last pause or month stop."""

    enabled: bool
    holds: frozenset[str]
    autonomous: bool
    silence: timedelta
    threshold: timedelta
    resumed: bool = False
    paused_for_cost: bool = False


def next_trigger(state: AutonomyState, facts: Facts) -> AutonomyTrigger | None:
    """The trigger that follows from the facts in this state, None if the state is right."""
    if not facts.enabled or "stop" in facts.holds:
        return None if state is AutonomyState.DISABLED else AutonomyTrigger.KILLED
    if state is AutonomyState.DISABLED:
        return AutonomyTrigger.ENABLED
    if "month" in facts.holds:
        return None if state is AutonomyState.PAUSED else AutonomyTrigger.COST_CAP
    if "pause" in facts.holds:
        cause = AutonomyTrigger.COST_CAP if facts.paused_for_cost else AutonomyTrigger.REJECTED
        return None if state is AutonomyState.PAUSED else cause
    if state is AutonomyState.PAUSED:
        return AutonomyTrigger.RESUMED if facts.resumed else AutonomyTrigger.PAUSE_OVER
    silent = facts.silence >= facts.threshold
    if state is AutonomyState.WATCHING:
        return AutonomyTrigger.SILENT if silent and facts.autonomous else None
    if not facts.autonomous:
        return AutonomyTrigger.AUTONOMY_OFF
    return None if silent else AutonomyTrigger.OPERATOR_SPOKE


def settle_moves(state: AutonomyState, facts: Facts) -> list[tuple[AutonomyState, AutonomyTrigger]]:
    """The transitions from `state` that follow from the facts, until none does: (state after, trigger)."""
    moves: list[tuple[AutonomyState, AutonomyTrigger]] = []
    for _ in AutonomyState:
        trigger = next_trigger(state, facts)
        if trigger is None:
            break
        state = next_state(state, trigger)
        moves.append((state, trigger))
    return moves


def time_until_move(state: AutonomyState, facts: Facts, pause_left: timedelta | None) -> timedelta | None:
    """The time after which `state` changes by time alone, None for never.

    Two changes come by time: the operator has been inactive for long enough, and the end of a pause (`pause_left`)
    unless there is a month stop.
    """
    if state is AutonomyState.PAUSED:
        return pause_left if facts.holds == {"pause"} else None
    if state is AutonomyState.WATCHING and facts.autonomous:
        return facts.threshold - facts.silence
    return None
