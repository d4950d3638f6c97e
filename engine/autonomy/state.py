"""The state machine of SPEC 7.1 as a table, and the pure functions that walk it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from engine.frozen import frozen


class State(StrEnum):
    """Where the engine stands."""

    DISABLED = "DISABLED"
    WATCHING = "WATCHING"
    PRIMING = "PRIMING"
    AUTONOMOUS = "AUTONOMOUS"
    PAUSED = "PAUSED"


class Input(StrEnum):
    """What moves it; the value is the cause as it is recorded and shown."""

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


_ENABLED = (State.WATCHING, State.PRIMING, State.AUTONOMOUS, State.PAUSED)

TABLE: dict[tuple[State, Input], State] = {
    (State.DISABLED, Input.ENABLED): State.WATCHING,
    (State.WATCHING, Input.SILENT): State.PRIMING,
    (State.PRIMING, Input.PREDICTION_READY): State.AUTONOMOUS,
    (State.PRIMING, Input.PREDICTION_DROPPED): State.PRIMING,
    (State.PRIMING, Input.OPERATOR_SPOKE): State.WATCHING,
    (State.AUTONOMOUS, Input.OPERATOR_SPOKE): State.WATCHING,
    (State.PRIMING, Input.AUTONOMY_OFF): State.WATCHING,
    (State.AUTONOMOUS, Input.AUTONOMY_OFF): State.WATCHING,
    (State.PAUSED, Input.RESUMED): State.WATCHING,
    (State.PAUSED, Input.PAUSE_OVER): State.WATCHING,
    **{(state, Input.KILLED): State.DISABLED for state in _ENABLED},
    **{(state, Input.REJECTED): State.PAUSED for state in _ENABLED},
    **{(state, Input.COST_CAP): State.PAUSED for state in _ENABLED},
}
"""Every legal move. An input that has no entry for a state changes nothing."""


def next_state(state: State, trigger: Input) -> State:
    """The state after `given`."""
    return TABLE.get((state, trigger), state)


@frozen
class Facts:
    """What the machine looks at. `holds` are the words in force (`stop`, `pause`, `month`); `resumed` is True when
    the last pause or month stop was lifted by hand rather than by time."""

    enabled: bool
    holds: frozenset[str]
    autonomous: bool
    silence: timedelta
    threshold: timedelta
    resumed: bool = False
    paused_for_cost: bool = False


def suggest(state: State, facts: Facts) -> Input | None:
    """What the facts put into the machine in this state; None when it stands where it should."""
    if not facts.enabled or "stop" in facts.holds:
        return None if state is State.DISABLED else Input.KILLED
    if state is State.DISABLED:
        return Input.ENABLED
    if "month" in facts.holds:
        return None if state is State.PAUSED else Input.COST_CAP
    if "pause" in facts.holds:
        cause = Input.COST_CAP if facts.paused_for_cost else Input.REJECTED
        return None if state is State.PAUSED else cause
    if state is State.PAUSED:
        return Input.RESUMED if facts.resumed else Input.PAUSE_OVER
    silent = facts.silence >= facts.threshold
    if state is State.WATCHING:
        return Input.SILENT if silent and facts.autonomous else None
    if not facts.autonomous:
        return Input.AUTONOMY_OFF
    return None if silent else Input.OPERATOR_SPOKE


def settle(state: State, facts: Facts) -> list[tuple[State, Input]]:
    """The moves that the facts make from `state`, one after the other, until it stands."""
    moves: list[tuple[State, Input]] = []
    while (trigger := suggest(state, facts)) is not None and len(moves) < len(State):
        state = next_state(state, trigger)
        moves.append((state, trigger))
    return moves


def wait_for_time(state: State, facts: Facts, pause_left: timedelta | None) -> timedelta | None:
    """After how long time alone moves the machine from `state`, where it stands by `facts`; None when it never does.

    Two things only come by time: a silence that grows long enough, and the end of a pause (`pause_left`) unless a
    month stop outlasts it. Out of DISABLED, or out of a month stop, no time leads.
    """
    if state is State.PAUSED:
        return pause_left if facts.holds == {"pause"} else None
    if state is State.WATCHING and facts.autonomous:
        return facts.threshold - facts.silence
    return None
