"""What prediction needs of its siblings, as small protocols; the engine hands in what fills them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from sqlmodel import Session

from engine.storage.database import Transaction
from engine.values import (
    Assignment,
    CalibrationCheck,
    DecidedCard,
    DecisionSignal,
    PastDecision,
    Permit,
    RailVerdict,
    Ruling,
    RunnerInfo,
    SessionView,
    Trigger,
)

ActiveTime = Callable[[datetime, timedelta], datetime]
"""`active_time(start, span)`: the instant when `span` has passed since `start`, quiet hours not counted. Pure."""


class Rails(Protocol):
    """The safety pipeline (SPEC 3.1)."""

    def preview(self, trigger: Trigger) -> tuple[RailVerdict, ...]:
        """What every rail would say now. Reads only."""

    def rule(self, transaction: Transaction, trigger: Trigger, /) -> Ruling:
        """Decide: log it, reserve its cost and issue the permit, or say what blocked."""

    def revoke(self, transaction: Transaction, prediction_id: str, /) -> object:
        """Make a card's unused permit void and give its reservation back."""


class Launcher(Protocol):
    """Who carries approved work out (SPEC 3.8)."""

    def start(
        self, permit: Permit, assignment: Assignment, *, agent: str, mode: str, estimate: int, without_sandbox: bool
    ) -> SessionView:
        """Consume the permit and start; `mode` is `approved` or `autonomous`, `without_sandbox` says that it was
        approved to run where nothing confines it. Returns at once."""

    def hindrance(self, assignment: Assignment) -> str:
        """Why this may not start by itself just now (SPEC 3.8), "" when it may."""

    def session_of(self, prediction_id: str) -> SessionView | None:
        """The newest session of a card."""

    def stop(self, session_id: str, reason: str) -> object:
        """End a session that is queued or running."""

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        """The assignment with the runner that would do it now, and in words what is not as it was asked for."""

    def check(self, assignment: Assignment) -> RunnerInfo:
        """What would carry this out, and whether anything does."""

    def reparameterise(self, assignment: Assignment, edit: str) -> Assignment:
        """The flow's assignment with edited parameters. `Refusal` `bad_parameters` names what is accepted."""


class Landings(Protocol):
    """Who takes a landing back (SPEC 3.9)."""

    def reverse(self, session_id: str) -> bool:
        """Undo what a session landed. False when nothing of it was ever decided; `Refusal` when later edits would be
        lost, or when it is undone, branched or discarded already."""


class History(Protocol):
    """The operator's decisions (SPEC 8.1)."""

    @property
    def version(self) -> int: ...

    def record(
        self, tx: Transaction, signal: DecisionSignal, card: DecidedCard, *, at: datetime | None = None
    ) -> None: ...

    def weigh(self, tx: Transaction, prediction_id: str, weight: float) -> None: ...

    def take_back(self, tx: Transaction, prediction_id: str) -> None: ...

    def standing(self, session: Session, prediction_id: str) -> DecisionSignal | None: ...

    def after(self, id: int, limit: int = 1000) -> list[PastDecision]: ...

    def standing_upto(self, id: int) -> int: ...

    def retired_since(self, version: int) -> int | None: ...

    def total(self, session: Session) -> int: ...

    def approvals_of_like(self, session: Session, kind: str, channel: str, workspace: str) -> tuple[int, int]: ...

    def approvals(self, session: Session) -> list[tuple[str, str, str, int, int]]: ...


class Calibrator(Protocol):
    """Makes stated confidence agree with what happened (SPEC 8.6)."""

    def apply(self, score: float) -> float: ...

    def check(self) -> CalibrationCheck: ...
