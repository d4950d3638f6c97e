"""The table of training runs and its reads (SPEC 8.4), and the interfaces of training to the Twin model and the budget.

prepared → uploaded → started → trained → adopted | kept_old        at any step: failed, cancelled
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from sqlalchemy import ColumnElement
from sqlmodel import Field, Session, col, select

from engine.frozen import frozen
from engine.learning.decisions.preferences import count_pairs
from engine.learning.decisions.training_examples import DPO, MIN_PAIRS
from engine.learning.decisions.training_provider import Provider
from engine.model import TrainingRunView, TrainingView
from engine.model.text import count
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, utc_field, value_of


@frozen
class TrainingPlan:
    """The settings of training."""

    provider: str
    base_model: str
    cost_cap: int
    """Maximum cost of a run in micro-dollars."""
    current_model: str
    """The Twin model in use as `PROVIDER:MODEL`, "" for none."""
    automatic: bool = False
    """Whether training begins by itself."""
    enabled: bool = False
    """Whether the Twin model is asked about cards."""
    base_url: str = ""


class RunState(StrEnum):
    """The state of a training run."""

    PREPARED = "prepared"
    UPLOADED = "uploaded"
    STARTED = "started"
    TRAINED = "trained"
    ADOPTED = "adopted"
    KEPT_OLD = "kept_old"
    """The trained model is not used; the former model stays in use."""
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE = (RunState.PREPARED, RunState.UPLOADED, RunState.STARTED, RunState.TRAINED)
"""States of a run in progress."""


class TrainingRun(Row, table=True):
    """One training run."""

    __tablename__ = "training_runs"

    id: str = Field(primary_key=True)
    state: str
    method: str
    provider: str
    base_model: str
    checkpoint: str = ""
    records: int
    pairs_to: int
    """The highest id of a pair among its examples, 0 for conversations."""
    file_id: str = ""
    job_id: str = ""
    model: str = ""
    former_model: str = ""
    agreement: float | None = None
    former_agreement: float | None = None
    held_back: int = 0
    cost_entry: int | None = None
    """The cost entry that reserves money for it, None after it is settled."""
    cost_microusd: int = 0
    note: str = ""
    """The newest message about the run."""
    created_at: datetime = utc_field()
    updated_at: datetime = utc_field()

    @property
    def view(self) -> TrainingRunView:
        """The run for screens and JSON."""
        base_model = self.checkpoint or self.base_model
        return value_of(self, TrainingRunView, base_model=base_model, cost=self.cost_microusd)


def load_run(tx: Transaction, run_id: str) -> TrainingRun:
    """The run with this id, to be changed."""
    run = tx.session.get(TrainingRun, run_id)
    assert run is not None
    return run


def newest_run(session: Session, *where: ColumnElement[bool] | bool, by_start: bool = False) -> TrainingRun | None:
    """The run that meets the conditions and changed last, or began last if `by_start`."""
    at = TrainingRun.created_at if by_start else TrainingRun.updated_at
    return session.exec(select(TrainingRun).where(*where).order_by(col(at).desc())).first()


IS_ACTIVE = col(TrainingRun.state).in_(ACTIVE)
USED_PAIRS = (col(TrainingRun.method) == DPO) & col(TrainingRun.state).in_((RunState.ADOPTED, RunState.KEPT_OLD))
"""Runs whose pairs count as used for training. Those of a failed or cancelled run do not count."""


# -- the budget and the Twin model


class BudgetReservation(Protocol):
    """Reserves money and settles it, within the caps (SPEC 3.2)."""

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int) -> int: ...

    def settle(self, transaction: Transaction, entry_id: int, amount: int) -> None: ...

    def release(self, transaction: Transaction, entry_id: int) -> None: ...


@frozen
class TwinModel:
    """The functions of the Twin model that training uses."""

    plan: Callable[[], TrainingPlan]
    """Reads the settings."""
    open_provider: Callable[[], Provider]
    """Opens the provider. Raises `Refusal` if there is no key."""
    answer: Callable[[str, str], str | None]
    """`answer(model, situation)` asks a model, `PROVIDER:MODEL`, and returns its `prompt → channel`, None for an
    unusable reply. Raises `TrainingError` if the model cannot be asked."""
    adopt: Callable[[str], None]
    """Puts a model into the settings."""


# -- reads

MAX_VIEWED = 5
"""Maximum number of runs that a screen shows."""

AGAIN_FROM = 100
"""Number of new pairs after which the next run is due."""

AGAIN_AFTER = timedelta(days=7)
"""Time after which the next run is due if there is any new pair."""

COOL_DOWNS = {RunState.FAILED: timedelta(days=1), RunState.CANCELLED: timedelta(days=7)}
"""Time after a run in this state in which no run begins by itself, because it may fail again and cost money."""


class TrainingViews:
    """Reads runs, and says when the next one is due: the base of the service `training.Training`. Methods may be called
    from any thread."""

    def __init__(self, database: Database, twin: TwinModel) -> None:
        self._database = database
        self._twin = twin

    def runs(self, limit: int = 50) -> list[TrainingRun]:
        """The newest runs first."""
        with self._database.read() as session:
            newest = select(TrainingRun).order_by(col(TrainingRun.created_at).desc(), col(TrainingRun.id)).limit(limit)
            return list(session.exec(newest))

    def active(self) -> TrainingRun | None:
        """The run in progress, None without one."""
        return self._load_newest(IS_ACTIVE)

    def may_start(self, now: datetime) -> bool:
        """Whether a run may begin by itself: it is due, and the cool-down after a failed or cancelled one is over."""
        last = self._load_newest()
        cool_down = COOL_DOWNS.get(RunState(last.state)) if last else None
        is_cooling = last is not None and cool_down is not None and now - last.updated_at < cool_down
        return not self.missing(now) and not is_cooling

    def progress(self) -> tuple[int, int]:
        """(number of pairs that were not used for training yet, number at which the next run is due)."""
        last = self._load_newest(USED_PAIRS, by_start=True)
        with self._database.read() as session:
            return count_pairs(session, after=last.pairs_to if last else 0), AGAIN_FROM if last else MIN_PAIRS

    def view(self, now: datetime) -> TrainingView:
        """The state of training, for a screen."""
        plan, (new, needed), active = self._twin.plan(), self.progress(), self.active()
        return TrainingView(
            new, needed, self.missing(now), None if active is None else active.view,
            tuple(run.view for run in self.runs(MAX_VIEWED)), plan.current_model, plan.enabled, plan.automatic,
        )  # fmt: skip

    def missing(self, now: datetime) -> str:
        """What is missing until the next training on pairs, "" if it is due (SPEC 8.4): after 50 pairs, then after
        every 100 new pairs, or every week with any new pair."""
        if self.active() is not None:
            return "a training is in progress"
        new, needed = self.progress()
        last = self._load_newest(USED_PAIRS, by_start=True)
        if new >= needed:
            return ""
        more = count(needed - new, "more pair")
        if last is None:
            return f"{more} until the first training"
        day = last.created_at + AGAIN_AFTER
        if new and now >= day:
            return ""
        return f"{more}, or any by {day:%d %B}, until the next training"

    def _load_newest(self, *where: ColumnElement[bool] | bool, by_start: bool = False) -> TrainingRun | None:
        with self._database.read() as session:
            return newest_run(session, *where, by_start=by_start)
