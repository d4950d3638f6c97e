"""Preference pairs (SPEC 8.2): what was approved, beside what was turned down shortly before; and curated ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import CheckConstraint, Column, Float, Index, text
from sqlmodel import Field, Session, col, func, select

from engine.learning.decisions.records import ARROW, Preference
from engine.model import DecidedCard
from engine.storage.database import Transaction
from engine.storage.rows import Row
from engine.storage.types import utc

PAIRING_WINDOW = timedelta(hours=1)
"""A rejection this old, to the instant, still pairs with an approval; an older one does not."""

MORE = "decide more cards: an edit, or an approval soon after a dismissal, makes a pair"
"""How there come to be more."""

LOCAL_USER = "local"
"""The `user_id` of every row: one home, one operator."""


class DpoPair(Row, table=True):
    """One pair; columns of the seed first, then ours. Texts are `prompt → channel`."""

    __tablename__ = "dpo_pairs"
    __table_args__ = (
        Index("idx_dpo_exported", "exported_at", sqlite_where=text("exported_at IS NULL")),
        Index("ix_dpo_pairs_chosen", "chosen_prediction_id"),
        Index("ix_dpo_pairs_rejected", "rejected_prediction_id"),
        CheckConstraint("weight > 0 AND weight <= 1", name="ck_dpo_pairs_weight"),
    )

    id: int | None = Field(default=None, primary_key=True)
    user_id: str = LOCAL_USER
    context: str
    chosen: str
    rejected: str
    chosen_confidence: float | None = None
    rejected_confidence: float | None = None
    created_at: datetime = Field(sa_column=utc())
    exported_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    chosen_prediction_id: str
    rejected_prediction_id: str
    weight: float = Field(default=1.0, sa_column=Column(Float, server_default="1.0", nullable=False))

    @property
    def preference(self) -> Preference:
        """The pair as it is trained on."""
        assert self.id is not None
        return Preference(
            self.id, self.context, self.chosen, self.rejected, self.created_at, self.weight,
            self.chosen_confidence, self.rejected_confidence,
        )  # fmt: skip


CURATED = ""
"""The `chosen_prediction_id` of pairs that were imported: no card of ours stands behind them."""


def side(prompt: str, channel: str) -> str:
    """One half of a pair as text."""
    return f"{prompt}{ARROW}{channel}"


def pair_with_rejection(
    tx: Transaction, approved: DecidedCard, rejected: str, confidence: float, rejected_id: str, weight: float = 1.0
) -> None:
    """Store the pair of an approval and the rejection found for it (`rejected` is already `prompt → channel`).
    Without a context there is nothing to learn from it, and no pair.

    `weight` is that of the rejection (SPEC 8.1), for an approval weighs 1.
    """
    if not approved.context.strip():
        return
    tx.session.add(
        DpoPair(
            context=approved.context,
            chosen=side(approved.prompt, approved.channel),
            rejected=rejected,
            chosen_confidence=approved.confidence,
            rejected_confidence=confidence,
            created_at=tx.now,
            chosen_prediction_id=approved.prediction_id,
            rejected_prediction_id=rejected_id,
            weight=weight,
        )
    )


def pair_of_edit(tx: Transaction, edited: DecidedCard) -> None:
    """Store the pair that an edit makes by itself: what it became, and what it was."""
    original = side(edited.original_prompt, edited.channel)
    pair_with_rejection(tx, edited, original, edited.confidence, edited.prediction_id)


def forget(tx: Transaction, prediction_id: str) -> None:
    """Remove the pairs that rest on a decision which was taken back; one that is exported already stays."""
    pairs = tx.session.exec(
        select(DpoPair).where(
            (col(DpoPair.chosen_prediction_id) == prediction_id)
            | (col(DpoPair.rejected_prediction_id) == prediction_id),
            col(DpoPair.exported_at).is_(None),
        )
    )
    for pair in pairs:
        tx.session.delete(pair)


def curate(tx: Transaction, sides: Iterable[tuple[str, str, str]]) -> int:
    """Store pairs (context, chosen, rejected) that somebody made; those that are there already are passed over.
    Returns how many are new."""
    new = 0
    for context, chosen, rejected in sides:
        known = select(DpoPair.id).where(
            DpoPair.context == context, DpoPair.chosen == chosen, DpoPair.rejected == rejected
        )
        if tx.session.exec(known).first() is not None:
            continue
        tx.session.add(
            DpoPair(
                context=context, chosen=chosen, rejected=rejected, created_at=tx.now,
                chosen_prediction_id=CURATED, rejected_prediction_id=CURATED,
            )
        )  # fmt: skip
        tx.session.flush()
        new += 1
    return new


_WITH_CONTEXT = func.trim(col(DpoPair.context)) != ""
"""An earlier version stored pairs without one: they are neither brought out nor counted."""


def stored(session: Session, *, exported: bool | None = None) -> list[DpoPair]:
    """The pairs, the oldest first: all, or those that were `exported`, or those that were not yet."""
    query = select(DpoPair).where(_WITH_CONTEXT).order_by(col(DpoPair.id))
    if exported is not None:
        query = query.where(col(DpoPair.exported_at).is_not(None) == exported)
    return list(session.exec(query))


def count(session: Session, *, after: int = 0) -> int:
    """How many pairs there are with an id above `after`."""
    return int(session.exec(select(func.count(col(DpoPair.id))).where(col(DpoPair.id) > after, _WITH_CONTEXT)).one())
