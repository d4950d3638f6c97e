"""The table of the operator's decisions, one row for each signal (SPEC 8.1), the counts that rails and phases need
(2.5, 2.6, 3.6), and the preference pairs made from them (8.2).

A card has at most one current signal (beside the original of an edit): a later one replaces it. A signal that was
taken back keeps its row with `taken_back_at` and counts nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy
from sqlalchemy import CheckConstraint, Column, Float, Index, bindparam, text
from sqlmodel import Field, Session, col, func, select

from engine.clock import Clock
from engine.learning.decisions.training_lines import ARROW, Preference
from engine.model import DecidedBy, DecidedCard, DecisionSignal, PartOfDay, PastDecision, part_of_day, prompt_words
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, ask, load_all, select_all
from engine.storage.table_cache import TableCache
from engine.storage.types import UtcDateTime, utc_column

PAIRING_WINDOW = timedelta(hours=1)
"""A rejection this old, to the instant, still pairs with an approval; an older one does not."""

MORE_PAIRS = "decide more cards: an edit, or an approval soon after a dismissal, makes a pair"
"""How there come to be more."""

LOCAL_USER = "local"
"""The `user_id` of every row: one home, one operator."""


class DpoPair(Row, table=True):
    """One pair; Texts are `prompt → channel`."""

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
    created_at: datetime = Field(sa_column=utc_column())
    exported_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
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


def pair_text(prompt: str, channel: str) -> str:
    """One half of a pair as text."""
    return f"{prompt}{ARROW}{channel}"


def add_pair(
    tx: Transaction, approved: DecidedCard, rejected: str, confidence: float, rejected_id: str, weight: float = 1.0
) -> None:
    """Store the pair of an approval and the rejection found for it (`rejected` is already `prompt → channel`).
    Without a context there is nothing to learn from it, and no pair.

    `weight` is that of the rejection (SPEC 8.1), for an approval weighs 1.
    """
    if not approved.context.strip():
        return
    tx.insert(
        DpoPair(
            context=approved.context,
            chosen=pair_text(approved.prompt, approved.channel),
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
    """Store the pair that an edit makes by itself: what it became, and what it was."""
    original = pair_text(edited.original_prompt, edited.channel)
    add_pair(tx, edited, original, edited.confidence, edited.prediction_id)


def forget_pairs(tx: Transaction, prediction_id: str) -> None:
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


def curate_pairs(tx: Transaction, sides: Iterable[tuple[str, str, str]]) -> int:
    """Store pairs (context, chosen, rejected) that somebody made; those that are there already are passed over.
    Returns how many are new."""
    new = 0
    for context, chosen, rejected in sides:
        same = select(DpoPair.id).where(
            DpoPair.context == context, DpoPair.chosen == chosen, DpoPair.rejected == rejected
        )
        if tx.session.exec(same).first() is not None:
            continue
        tx.insert(
            DpoPair(
                context=context, chosen=chosen, rejected=rejected, created_at=tx.now,
                chosen_prediction_id=CURATED, rejected_prediction_id=CURATED,
            )
        )  # fmt: skip
        tx.session.flush()
        new += 1
    return new


def stored_pairs(session: Session, *, exported: bool | None = None) -> list[DpoPair]:
    """The pairs, the oldest first: all, or those that were `exported`, or those that were not yet."""
    query = select(DpoPair).order_by(col(DpoPair.id))
    if exported is not None:
        query = query.where(col(DpoPair.exported_at).is_not(None) == exported)
    return list(session.exec(query))


def count_pairs(session: Session, *, after: int = 0) -> int:
    """How many pairs there are with an id above `after`."""
    return int(session.exec(select(func.count(col(DpoPair.id))).where(col(DpoPair.id) > after)).one())


SIGNAL_WEIGHTS: dict[DecisionSignal, float] = {
    DecisionSignal.APPROVED: 1.0,
    DecisionSignal.ORIGINAL: -1.0,
    DecisionSignal.DISMISSED: -1.0,
    DecisionSignal.KEPT: 0.5,
    DecisionSignal.UNDONE: -0.8,
    DecisionSignal.DISCARDED: -0.8,
    DecisionSignal.EXPIRED: -0.3,
    DecisionSignal.DID_HIMSELF: 0.7,
}
"""How loudly a signal speaks, at most 1: above 0 the operator wanted the card, below 0 not. Snoozing has no entry: it
gives no signal."""

EXPLICIT = (DecisionSignal.APPROVED, DecisionSignal.DISMISSED, DecisionSignal.UNDONE, DecisionSignal.DISCARDED)
"""What a person said about this very card: it counts as a decision (onboarding, phases, "approved n of m"). The
original of an edit is not among them, so that an edit counts as one."""

REJECTING = tuple(
    signal
    for signal, signed_weight in SIGNAL_WEIGHTS.items()
    if signed_weight < 0 and signal is not DecisionSignal.ORIGINAL
)
"""What can stand as the rejected half of a pair; an edit makes its own pair (SPEC 8.2)."""


class Decision(Row, table=True):
    """One signal about one card. `part`, `weekend` and `hour` are of the operator's own time when it was given; `seen`
    and `raw` are what the Twin saw and the confidence summed up when the card was made."""

    __tablename__ = "decisions"
    __table_args__ = (
        CheckConstraint("signal IN ('" + "','".join(DecisionSignal) + "')", name="signal_known"),
        CheckConstraint("decided_by IN ('" + "','".join(DecidedBy) + "')", name="decided_by_known"),
        CheckConstraint("weight > 0 AND weight <= 1", name="weight_range"),
        Index("ix_decisions_prediction", "prediction_id", "id"),
        Index("ix_decisions_like", "kind", "channel", "workspace", "decided_by"),
        Index("ix_decisions_standing", "id", sqlite_where=text("taken_back_at IS NULL")),
    )

    id: int | None = Field(default=None, primary_key=True)
    prediction_id: str
    signal: str
    chosen: bool
    weight: float
    kind: str
    channel: str
    workspace: str
    flow: str = ""
    prompt: str
    confidence: float
    decided_by: str
    edited: bool = False
    part: str
    weekend: bool
    waited_hours: float | None = None
    decided_at: datetime = Field(sa_column=utc_column())
    taken_back_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    seen: bytes = Field(default=b"", sa_column_kwargs={"server_default": text("x''")})
    raw: float | None = None
    hour: int | None = None


_IS_STANDING = col(Decision.taken_back_at).is_(None)
_BY_PERSON = col(Decision.decided_by) != DecidedBy.AUTONOMY.value
_IS_EXPLICIT = col(Decision.signal).in_([signal.value for signal in EXPLICIT])
_TOTAL = sqlalchemy.select(func.count(col(Decision.id))).where(_IS_STANDING, _IS_EXPLICIT, _BY_PERSON)
_LAST_APPROVAL = (
    sqlalchemy.select(func.coalesce(func.max(col(Decision.id)), 0))
    .where(_IS_STANDING, col(Decision.signal) == DecisionSignal.APPROVED.value)
    .scalar_subquery()
)
_REJECTED_IN_A_ROW = sqlalchemy.select(func.count(col(Decision.id))).where(
    col(Decision.id) > _LAST_APPROVAL,
    col(Decision.id) > bindparam("after"),
    _IS_STANDING,
    col(Decision.signal) == DecisionSignal.DISMISSED.value,
    _BY_PERSON,
)
_NEWEST = sqlalchemy.select(func.coalesce(func.max(col(Decision.id)), 0))
_LEARNER_COLUMNS: tuple[Any, ...] = (
    Decision.id, Decision.kind, Decision.channel, Decision.workspace, Decision.flow, Decision.prompt, Decision.part,
    Decision.weekend, Decision.chosen, Decision.weight, Decision.waited_hours, Decision.decided_at, Decision.hour,
    Decision.seen, Decision.raw,
)  # fmt: skip
_AFTER = (
    sqlalchemy.select(*_LEARNER_COLUMNS)
    .where(_IS_STANDING, col(Decision.id) > bindparam("id"))
    .order_by(col(Decision.id).desc())
    .limit(bindparam("limit"))
)
_OF_CARD = select_all(Decision).where(col(Decision.prediction_id) == bindparam("card"), _IS_STANDING)
_REJECTED = (
    select_all(Decision)
    .where(
        _IS_STANDING,
        col(Decision.signal).in_(REJECTING),
        col(Decision.channel) != bindparam("channel"),
        col(Decision.decided_at) >= bindparam("since", type_=UtcDateTime()),
    )
    .order_by(col(Decision.id).desc())
    .limit(1)
)
_GROUP = (col(Decision.kind), col(Decision.channel), col(Decision.workspace))
_UNEDITED_APPROVAL = (col(Decision.signal) == DecisionSignal.APPROVED.value) & col(Decision.edited).is_(False)
_APPROVALS = (
    sqlalchemy.select(*_GROUP, func.count().filter(_UNEDITED_APPROVAL), func.count())
    .where(col(Decision.decided_by) == DecidedBy.OPERATOR.value, _IS_STANDING, _IS_EXPLICIT)
    .group_by(*_GROUP)
)


_CARD_FIELDS = ("prediction_id", "kind", "channel", "workspace", "flow", "confidence", "seen", "raw")


class Decisions:
    """Writes and reads decisions. Methods that take a transaction or a session run inside the caller's."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.version = 0
        """Grows with each change that was committed, so that a learner knows when to learn on."""
        self._totals: TableCache[int] = TableCache(database, Decision)
        self._like: TableCache[dict[tuple[str, str, str], tuple[int, int]]] = TableCache(database, Decision)
        self.replaced = 0
        """How often a decision was replaced, weighed anew or taken back: then a learner begins anew."""

    def record(self, tx: Transaction, signal: DecisionSignal, card: DecidedCard, *, at: datetime | None = None) -> None:
        """Store a signal, given `at` that time, now unless said. An earlier one of the same card is replaced; an edit
        also stores its original as rejected.

        An approval makes a pair with the most recent rejection of the last hour on another channel (SPEC 8.2).
        """
        retired = self._retire(tx, card.prediction_id, keep_original=True)
        approved = signal is DecisionSignal.APPROVED
        partner = self._recent_rejection(tx, card) if approved else None
        edited = approved and bool(card.original_prompt)
        if edited:
            tx.insert(self._row(tx, DecisionSignal.ORIGINAL, card, card.original_prompt))
            add_pair_of_edit(tx, card)
            card = replace(card, seen=b"", raw=None)  # what was seen and stated was the original's
        row = self._row(tx, signal, card, card.prompt, at)
        row.edited = edited
        tx.insert(row)
        if partner is not None:
            rejected = pair_text(partner.prompt, partner.channel)
            add_pair(tx, card, rejected, partner.confidence, partner.prediction_id, partner.weight)
        self._changed(tx, replaced=retired)

    def weigh(self, tx: Transaction, prediction_id: str, weight: float) -> None:
        """Let the signal that counts for this card speak as loudly as `weight`, in (0, 1]: the operator said why."""
        changed = False
        for row in load_all(tx.session, Decision, _OF_CARD, {"card": prediction_id}):
            if row.signal != DecisionSignal.ORIGINAL and row.weight != weight:
                row.weight = weight
                tx.session.add(row)
                changed = True
        self._changed(tx, replaced=changed)

    def take_back(self, tx: Transaction, prediction_id: str) -> None:
        """The decision on this card was undone before anything came of it: its signals and pairs count no more."""
        self._changed(tx, replaced=self._retire(tx, prediction_id, keep_original=False))

    def standing(self, session: Session, prediction_id: str) -> DecisionSignal | None:
        """The signal that counts for this card now, None when there is none."""
        signals = [DecisionSignal(row.signal) for row in load_all(session, Decision, _OF_CARD, {"card": prediction_id})]
        return next((signal for signal in signals if signal is not DecisionSignal.ORIGINAL), None)

    def after(self, id: int, limit: int = 1000) -> list[PastDecision]:
        """Standing signals with ids above `id`, oldest first, of more than `limit` the newest: what a Twin learns."""
        with self._database.read() as session:
            return [_past(row) for row in reversed(list(ask(session, _AFTER, {"id": id, "limit": limit})))]

    def total(self, session: Session) -> int:
        """How many cards a person has decided, here or over the API (SPEC 2.6, and 3.6's onboarding)."""
        return self._totals.seen(session, "", lambda current: int(ask(current, _TOTAL).scalar()))

    def consecutive_rejections(self, session: Session, after: int = 0) -> int:
        """How many of a person's latest decisions in a row were dismissals (SPEC 3.6); of those with ids above `after`
        when only these are to count."""
        values = {"after": after}
        return self._totals.seen(session, after, lambda current: int(ask(current, _REJECTED_IN_A_ROW, values).scalar()))

    def newest(self, session: Session) -> int:
        """The id of the newest decision, taken back or not; 0 before the first. Ids grow."""
        return int(ask(session, _NEWEST).scalar())

    def approvals_of_like(self, session: Session, kind: str, channel: str, workspace: str) -> tuple[int, int]:
        """(approved, decided) of the operator's own decisions on like cards (SPEC 2.5).

        An approval that was edited, or later undone or discarded, counts as decided but not as approved: what would
        have run autonomously was not what the operator wanted.
        """
        counts = self._like.seen(
            session, "", lambda current: {tuple(row[:3]): tuple(row[3:]) for row in ask(current, _APPROVALS)}
        )
        return counts.get((kind, channel, workspace), (0, 0))

    def approvals(self, session: Session) -> list[tuple[str, str, str, int, int]]:
        """`approvals_of_like` of everything that was decided: (kind, channel, workspace, approved, decided)."""
        return [tuple(row) for row in ask(session, _APPROVALS)]

    def count_by_kind(self, session: Session, *, since: datetime) -> dict[str, int]:
        """How many cards of each kind a person decided on since then, here or over the API."""
        kind = col(Decision.kind)
        is_counted = (_IS_STANDING, _IS_EXPLICIT, _BY_PERSON, col(Decision.decided_at) >= since)
        counted = sqlalchemy.select(kind, func.count()).where(*is_counted).group_by(kind)
        return {name: int(number) for name, number in session.execute(counted)}

    def recent(self, limit: int = 50) -> list[Decision]:
        """The newest standing decisions first."""
        with self._database.read() as session:
            standing = select(Decision).where(_IS_STANDING).order_by(col(Decision.id).desc()).limit(limit)
            return list(session.exec(standing))

    def _row(
        self, tx: Transaction, signal: DecisionSignal, card: DecidedCard, prompt: str, at: datetime | None = None
    ) -> Decision:
        signed_weight, at = SIGNAL_WEIGHTS[signal], at or tx.now
        local = at.astimezone(self._clock.local().tzinfo)
        waited = None if card.evidence_at is None else max((at - card.evidence_at).total_seconds() / 3600, 0.0)
        return Decision(
            **{name: getattr(card, name) for name in _CARD_FIELDS},
            signal=signal.value,
            chosen=signed_weight > 0,
            weight=abs(signed_weight),
            prompt=prompt,
            decided_by=card.decided_by.value,
            part=part_of_day(local).value,
            weekend=is_weekend(local),
            waited_hours=waited,
            decided_at=at,
            hour=local.hour,
        )

    def _recent_rejection(self, tx: Transaction, approved: DecidedCard) -> Decision | None:
        since = tx.now - PAIRING_WINDOW
        rejected = load_all(tx.session, Decision, _REJECTED, {"channel": approved.channel, "since": since})
        return rejected[0] if rejected else None

    def _retire(self, tx: Transaction, prediction_id: str, *, keep_original: bool) -> bool:
        """The signals of a card count no more; False when it had none."""
        retired = False
        for row in load_all(tx.session, Decision, _OF_CARD, {"card": prediction_id}):
            if keep_original and row.signal == DecisionSignal.ORIGINAL:
                continue
            row.taken_back_at = tx.now
            tx.session.add(row)
            retired = True
        if retired:
            forget_pairs(tx, prediction_id)
        return retired

    def _changed(self, tx: Transaction, *, replaced: bool) -> None:
        def grow() -> None:
            self.version += 1
            self.replaced += replaced

        tx.after_commit(grow)


def is_weekend(local: datetime) -> bool:
    """Saturday or Sunday of a local time."""
    return local.weekday() >= 5


def _past(row: Any) -> PastDecision:
    id, kind, channel, workspace, flow, prompt, part, weekend, chosen, weight, waited, at, hour, seen, raw = row
    return PastDecision(
        kind, channel, workspace, flow, prompt_words(prompt), PartOfDay(part), weekend, chosen, weight, waited, at, id,
        hour, seen, raw,
    )  # fmt: skip
