"""The rows of training runs: what is kept of each, and which one counts for what (SPEC 8.4)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint
from sqlmodel import Field, Session, col, select

from engine.learning.decisions.training.batch import DPO, SFT
from engine.model import TrainingRunView
from engine.storage.database import Transaction
from engine.storage.rows import Row
from engine.storage.types import utc

PREPARED, UPLOADED, STARTED, TRAINED = "prepared", "uploaded", "started", "trained"
ADOPTED, KEPT_OLD, FAILED, CANCELLED = "adopted", "kept_old", "failed", "cancelled"
ACTIVE = (PREPARED, UPLOADED, STARTED, TRAINED)
STATES = (*ACTIVE, ADOPTED, KEPT_OLD, FAILED, CANCELLED)


class TrainingRun(Row, table=True):
    """One run. Money in micro-dollars. `pairs_to` is the highest pair it may have seen; `note` the last word on it."""

    __tablename__ = "training_runs"
    __table_args__ = (
        CheckConstraint("state IN ({})".format(", ".join(f"'{one}'" for one in STATES)), name="ck_training_runs_state"),
        CheckConstraint(f"method IN ('{SFT}', '{DPO}')", name="ck_training_runs_method"),
    )

    id: str = Field(primary_key=True)
    state: str = Field(index=True)
    method: str
    provider: str
    base_model: str
    checkpoint: str = ""
    records: int
    pairs_to: int
    file_id: str = ""
    job_id: str = ""
    model: str = ""
    former_model: str = ""
    agreement: float | None = None
    former_agreement: float | None = None
    held_back: int = 0
    cost_entry: int | None = None
    cost_microusd: int = 0
    note: str = ""
    created_at: datetime = Field(sa_column=utc())
    updated_at: datetime = Field(sa_column=utc())

    @property
    def view(self) -> TrainingRunView:
        """The run as screens see it."""
        return TrainingRunView(
            self.id, self.state, self.method, self.provider, self.checkpoint or self.base_model, self.records,
            self.model, self.former_model, self.agreement, self.former_agreement, self.held_back, self.cost_microusd,
            self.note, self.created_at, self.updated_at,
        )  # fmt: skip


def run_of(tx: Transaction, run_id: str) -> TrainingRun:
    run = tx.session.get(TrainingRun, run_id)
    assert run is not None
    return run


def active_run(session: Session) -> TrainingRun | None:
    return session.exec(select(TrainingRun).where(col(TrainingRun.state).in_(ACTIVE))).first()


def last_in(session: Session, state: str) -> TrainingRun | None:
    newest = col(TrainingRun.updated_at).desc()
    return session.exec(select(TrainingRun).where(TrainingRun.state == state).order_by(newest)).first()


def newest_run(session: Session) -> TrainingRun | None:
    return session.exec(select(TrainingRun).order_by(col(TrainingRun.updated_at).desc())).first()


def last_on_pairs(session: Session) -> TrainingRun | None:
    """The last run whose pairs need not be trained on again: one that failed or was cancelled used none up."""
    over = col(TrainingRun.state).in_((ADOPTED, KEPT_OLD))
    newest = col(TrainingRun.created_at).desc()
    return session.exec(select(TrainingRun).where(TrainingRun.method == DPO, over).order_by(newest)).first()
