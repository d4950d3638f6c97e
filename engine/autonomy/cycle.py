"""The autonomous cycle (SPEC 7.2): silence? → context → predict → rails → band → act, card or discard → log.

Silence is looked at before anything is predicted and again before anything is done, in the workspaces too: nobody who
works in an editor is taken for absent (SPEC 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.autonomy.state import Input, State
from engine.events import AutonomousCycleFinished
from engine.storage.database import Database

ACTING = (State.PRIMING, State.AUTONOMOUS)
"""The states in which the cycle runs."""


class Started(Protocol):
    """The card that was started."""

    @property
    def id(self) -> str: ...


class Tried(Protocol):
    """What came of the attempt to act: (card, reason) pairs for what was held back and what stays a card."""

    @property
    def acted(self) -> Started | None: ...
    @property
    def blocked(self) -> Sequence[tuple[str, str]]: ...
    @property
    def kept(self) -> Sequence[tuple[str, str]]: ...


class Earned(Protocol):
    """What is missing before anything runs by itself; `words` is one line of it."""

    @property
    def missing(self) -> Sequence[str]: ...
    @property
    def words(self) -> str: ...


class Actor(Protocol):
    """Prediction, as the cycle uses it."""

    def predict(self) -> Sequence[str]:
        """One card cycle; what went wrong, in words."""

    def attempt(self, still: Callable[[], bool]) -> Tried:
        """Start at most one card that has earned it, as long as `still()` says that the operator is away."""

    def earning(self, workspaces: Sequence[str]) -> Earned:
        """What is still needed before anything in `workspaces` runs by itself."""


class Machine(Protocol):
    """The state machine, as the cycle uses it."""

    def look(self) -> State:
        """Look for signs of the operator everywhere, and say where the machine then stands."""

    def give(self, given: Input) -> object: ...


def run_cycle(database: Database, machine: Machine, actor: Actor) -> AutonomousCycleFinished:
    """One cycle. Its end is a fact in the ledger, with what was done and why the rest was not."""
    finished = _cycle(machine, actor)
    database.write(lambda tx: tx.record(finished))
    return finished


def _cycle(machine: Machine, actor: Actor) -> AutonomousCycleFinished:
    state = machine.look()
    if state not in ACTING:
        return AutonomousCycleFinished(reason=f"not silent or not allowed: {state.value}")
    errors = tuple(actor.predict())
    state = machine.look()
    if state not in ACTING:
        return AutonomousCycleFinished(reason=f"somebody came while it predicted: {state.value}", errors=errors)
    tried = actor.attempt(lambda: machine.look() in ACTING)
    machine.give(Input.PREDICTION_READY if tried.acted is not None else Input.PREDICTION_DROPPED)
    return AutonomousCycleFinished(
        acted="" if tried.acted is None else tried.acted.id,
        blocked=tuple(f"{card}: {reason}" for card, reason in tried.blocked),
        kept=tuple(f"{card}: {reason}" for card, reason in tried.kept),
        errors=errors,
    )
