"""The table of training runs (SPEC 8.4), and the interfaces of training to the Twin model and the budget.

prepared → uploaded → started → trained → adopted | kept_old        at any step: failed, cancelled
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from sqlalchemy import ColumnElement
from sqlmodel import Field, Session, col, select

from engine.frozen import frozen
from engine.learning.decisions.training_examples import DPO
from engine.learning.decisions.training_provider import Provider
from engine.model import TrainingRunView
from engine.storage.database import Transaction
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
