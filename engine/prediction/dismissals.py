"""The operator's dismissals as they are kept (SPEC 2.9); `muting.py` says what follows from them."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy
from sqlalchemy import CheckConstraint, Index
from sqlmodel import Field, Session, col, update

from engine.model import DismissReason, Mute
from engine.prediction.cards_store import Prediction
from engine.prediction.muting import NEVER, Dismissal, Muted, mutes
from engine.storage.database import Database, Transaction
from engine.storage.kept import Kept
from engine.storage.quick import Rows, ask, load
from engine.storage.rows import Row
from engine.storage.types import utc


class DismissalRow(Row, table=True):
    """A dismissed card. One that the operator takes back loses its row; one whose mute is lifted keeps it."""

    __tablename__ = "dismissals"
    __table_args__ = (
        CheckConstraint(
            "reason IS NULL OR reason IN ('" + "','".join(DismissReason) + "')", name="dismissal_reason_known"
        ),
        Index("ix_dismissals_kind", "workspace", "kind"),
    )

    prediction_id: str = Field(primary_key=True)
    workspace: str
    kind: str
    subject: str
    reason: str | None = None
    dismissed_at: datetime = Field(sa_column=utc())
    subject_lifted_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    kind_lifted_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))


_COUNTING = sqlalchemy.select(
    col(DismissalRow.prediction_id),
    col(DismissalRow.workspace),
    col(DismissalRow.kind),
    col(DismissalRow.subject),
    col(DismissalRow.dismissed_at),
    col(DismissalRow.reason),
    col(DismissalRow.subject_lifted_at).is_(None),
    col(DismissalRow.kind_lifted_at).is_(None),
    col(Prediction.prompt),
    col(Prediction.tier),
).where(
    col(Prediction.id) == col(DismissalRow.prediction_id),
    col(DismissalRow.subject_lifted_at).is_(None) | col(DismissalRow.kind_lifted_at).is_(None),
)


class Dismissals:
    """Keeps dismissals and says what is muted by them."""

    def __init__(self, database: Database) -> None:
        self._kept: Kept[Rows] = Kept(database, DismissalRow)

    def mutes(self, session: Session, now: datetime) -> list[Mute]:
        """What is muted now, what was muted last first."""
        rows = self._kept.seen(session, "", lambda seen: ask(seen, _COUNTING))
        return mutes(
            (
                Dismissal(
                    card, workspace, kind, subject, at, reason and DismissReason(reason), bool(own), bool(kinds),
                    prompt, tier,
                )
                for card, workspace, kind, subject, at, reason, own, kinds, prompt, tier in rows
            ),
            now,
        )  # fmt: skip

    def muted(self, session: Session, now: datetime) -> Muted:
        """The same, to be asked of many cards."""
        return Muted(self.mutes(session, now))

    def add(self, tx: Transaction, row: Prediction, reason: DismissReason | None) -> None:
        """Keep that this card was dismissed, or why it was."""
        known = load(tx.session, DismissalRow, row.id)
        if known is not None:
            known.reason = reason
        else:
            tx.session.add(
                DismissalRow(
                    prediction_id=row.id,
                    workspace=row.workspace,
                    kind=row.kind,
                    subject=row.subject,
                    reason=reason,
                    dismissed_at=tx.now,
                )
            )
        tx.session.flush()

    def remove(self, tx: Transaction, card_id: str) -> None:
        """The dismissal of this card was taken back."""
        known = load(tx.session, DismissalRow, card_id)
        if known is not None:
            tx.session.delete(known)
            tx.session.flush()

    def approved(self, tx: Transaction, workspace: str, kind: str) -> None:
        """The operator approved a card of this kind there: earlier dismissals no longer count towards switching it
        off."""
        tx.session.exec(
            update(DismissalRow)
            .where(
                col(DismissalRow.workspace) == workspace,
                col(DismissalRow.kind) == kind,
                col(DismissalRow.kind_lifted_at).is_(None),
                col(DismissalRow.reason).is_(None) | col(DismissalRow.reason).not_in([one.value for one in NEVER]),
            )
            .values(kind_lifted_at=tx.now)
        )

    def lift(self, tx: Transaction, mute: Mute) -> None:
        """Let what is muted come back. The mute of a subject and that of its kind are lifted each for itself."""
        name = "subject_lifted_at" if mute.subject else "kind_lifted_at"
        query = update(DismissalRow).where(col(DismissalRow.kind) == mute.kind)
        if mute.subject:
            query = query.where(
                col(DismissalRow.workspace) == mute.workspace, col(DismissalRow.subject) == mute.subject
            )
        elif mute.workspace:
            query = query.where(
                col(DismissalRow.workspace) == mute.workspace,
                col(DismissalRow.reason).is_distinct_from(DismissReason.NEVER_ANYWHERE.value),
            )
        else:
            query = query.where(col(DismissalRow.reason) == DismissReason.NEVER_ANYWHERE.value)
        tx.session.exec(query.values({name: tx.now}))
