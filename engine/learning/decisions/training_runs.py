"""The table of training runs (SPEC 8.4).

prepared → uploaded → started → trained → adopted | kept_old        at any step: failed, cancelled
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement
from sqlmodel import Field, Session, col, select

from engine.learning.decisions.training_examples import DPO
from engine.model import TrainingRunView
from engine.storage.database import Transaction
from engine.storage.rows import Row
from engine.storage.types import utc_field


class RunState(StrEnum):
    """The state of a training run."""

    PREPARED = "prepared"
    UPLOADED = "uploaded"
    STARTED = "started"
    TRAINED = "trained"
    ADOPTED = "adopted"
    KEPT_OLD = "kept_old"
    """The trained model is not used; the one before it stays in use."""
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
        return TrainingRunView(
            self.id, self.state, self.method, self.provider, self.checkpoint or self.base_model, self.records,
            self.model, self.former_model, self.agreement, self.former_agreement, self.held_back, self.cost_microusd,
            self.note, self.created_at, self.updated_at,
        )  # fmt: skip


def load_run(tx: Transaction, run_id: str) -> TrainingRun:
    """The run with this id, to be changed."""
    run = tx.session.get(TrainingRun, run_id)
    assert run is not None
    return run


def newest_run(session: Session, *where: ColumnElement[bool] | bool, by_start: bool = False) -> TrainingRun | None:
    """The run of these that changed last, or that began last if `by_start`."""
    at = TrainingRun.created_at if by_start else TrainingRun.updated_at
    return session.exec(select(TrainingRun).where(*where).order_by(col(at).desc())).first()


IS_ACTIVE = col(TrainingRun.state).in_(ACTIVE)
USED_PAIRS = (col(TrainingRun.method) == DPO) & col(TrainingRun.state).in_((RunState.ADOPTED, RunState.KEPT_OLD))
"""Runs whose pairs count as trained on; those of a failed or cancelled run do not."""
