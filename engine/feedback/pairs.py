"""Preference pairs (SPEC 8.2): what was approved, beside what was turned down shortly before.

Built so far: the table of the seed and the pairing rule. Export comes later; `exported_at` waits for it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel, col, select

from engine.storage.database import Transaction
from engine.storage.types import utc
from engine.values import DecidedCard

PAIRING_WINDOW = timedelta(hours=1)
"""A rejection this old, to the instant, still pairs with an approval; an older one does not."""

LOCAL_USER = "local"
"""The `user_id` of every row: one home, one operator."""


class DpoPair(SQLModel, table=True):
    """One pair; columns of the seed first, then ours. Texts are `prompt → channel`."""

    __tablename__ = "dpo_pairs"
    __table_args__ = (
        Index("idx_dpo_exported", "exported_at", sqlite_where=text("exported_at IS NULL")),
        Index("ix_dpo_pairs_chosen", "chosen_prediction_id"),
        Index("ix_dpo_pairs_rejected", "rejected_prediction_id"),
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


def side(prompt: str, channel: str) -> str:
    """One half of a pair as text."""
    return f"{prompt} → {channel}"


def pair_with_rejection(
    tx: Transaction, approved: DecidedCard, rejected: str, confidence: float, rejected_id: str
) -> None:
    """Store the pair of an approval and the rejection found for it (`rejected` is already `prompt → channel`)."""
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
