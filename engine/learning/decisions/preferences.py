"""The table of preference pairs, which are made from the operator's decisions (SPEC 8.2)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlmodel import Field, Session, col, func, select

from engine.frozen import frozen
from engine.model import DecidedCard
from engine.storage.database import Transaction
from engine.storage.rows import Row, utc_field

ARROW = " → "
"""The separator in the text of a pair: `prompt → channel` (SPEC 8.2)."""

LOCAL_USER = "local"
"""The `user_id` of every row, because a home has one operator."""

IMPORTED = ""
"""The prediction ids of an imported pair, which was not made from cards."""


@frozen
class Preference:
    """A preference pair (SPEC 8.2). `weight`, in (0, 1], is that of its weaker signal. An unknown confidence is
    None."""

    id: int
    context: str
    chosen: str
    rejected: str
    at: datetime
    weight: float = 1.0
    chosen_confidence: float | None = None
    rejected_confidence: float | None = None


class DpoPair(Row, table=True):
    """One preference pair; `chosen` and `rejected` have the form `prompt → channel`."""

    __tablename__ = "dpo_pairs"

    id: int | None = Field(default=None, primary_key=True)
    user_id: str = LOCAL_USER
    context: str
    chosen: str
    rejected: str
    chosen_confidence: float | None = None
    rejected_confidence: float | None = None
    created_at: datetime = utc_field()
    exported_at: datetime | None = utc_field(nullable=True)
    chosen_prediction_id: str
    rejected_prediction_id: str
    weight: float = 1.0

    @property
    def preference(self) -> Preference:
        """The fields of the pair that a model is trained on."""
        assert self.id is not None
        return Preference(
            self.id, self.context, self.chosen, self.rejected, self.created_at, self.weight,
            self.chosen_confidence, self.rejected_confidence,
        )  # fmt: skip


def format_side(prompt: str, channel: str) -> str:
    """The text of one half of a pair."""
    return f"{prompt}{ARROW}{channel}"


def add_pair(
    tx: Transaction, approved: DecidedCard, rejected: str, confidence: float, rejected_id: str, weight: float = 1.0
) -> None:
    """Store the pair of an approval and a rejection, whose text is `rejected`. Without a context no pair is stored.

    `weight` is that of the rejection (SPEC 8.1), because an approval has the weight 1.
    """
    if not approved.context.strip():
        return
    tx.insert(
        DpoPair(
            context=approved.context,
            chosen=format_side(approved.prompt, approved.channel),
            rejected=rejected,
            chosen_confidence=approved.confidence,
            rejected_confidence=confidence,
            created_at=tx.now,
            chosen_prediction_id=approved.prediction_id,
            rejected_prediction_id=rejected_id,
            weight=weight,
        )
    )


def add_pair_of_edit(tx: Transaction, edited: DecidedCard) -> None:
    """Store the pair of an edit: the edited prompt is chosen, the original is rejected."""
    original = format_side(edited.original_prompt, edited.channel)
    add_pair(tx, edited, original, edited.confidence, edited.prediction_id)


def forget_pairs(tx: Transaction, prediction_id: str) -> None:
    """Remove the pairs of a decision that was taken back, except exported ones."""
    pairs = tx.session.exec(
        select(DpoPair).where(
            (col(DpoPair.chosen_prediction_id) == prediction_id)
            | (col(DpoPair.rejected_prediction_id) == prediction_id),
            col(DpoPair.exported_at).is_(None),
        )
    )
    for pair in pairs:
        tx.session.delete(pair)


def import_pairs(tx: Transaction, sides: Iterable[tuple[str, str, str]]) -> int:
    """Store the pairs (context, chosen, rejected) from a file that are not stored already. Returns their number."""
    added = 0
    for context, chosen, rejected in sides:
        same = select(DpoPair.id).where(
            DpoPair.context == context, DpoPair.chosen == chosen, DpoPair.rejected == rejected
        )
        if tx.session.exec(same).first() is not None:
            continue
        tx.insert(
            DpoPair(
                context=context, chosen=chosen, rejected=rejected, created_at=tx.now,
                chosen_prediction_id=IMPORTED, rejected_prediction_id=IMPORTED,
            )
        )  # fmt: skip
        tx.session.flush()
        added += 1
    return added


def load_pairs(session: Session, *, exported: bool | None = None) -> list[DpoPair]:
    """The pairs, oldest first: all by default, else only those that were `exported`, or only those that were not."""
    query = select(DpoPair).order_by(col(DpoPair.id))
    if exported is not None:
        query = query.where(col(DpoPair.exported_at).is_not(None) == exported)
    return list(session.exec(query))


def count_pairs(session: Session, *, after: int) -> int:
    """The number of pairs with an id above `after`."""
    return int(session.exec(select(func.count(col(DpoPair.id))).where(col(DpoPair.id) > after)).one())
