"""The operator's decisions, with one row for each signal (SPEC 8.1), and the preference pairs made from them (8.2).
Learners read the rows, and rails and phases count them (2.5, 2.6, 3.6).

A card has at most one current signal, besides the original of an edit. A later signal replaces it. A signal that was
taken back keeps its row, with `taken_back_at`, but does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlmodel import Field, Session

from engine.clock import Clock, PartOfDay, is_weekend, part_of_day
from engine.frozen import frozen
from engine.learning.decisions import CardFeatures, PastDecision, unpack_features
from engine.model import DecidedBy, DecidedCard, DecisionSignal
from engine.storage import Row, as_stored, ask, load_all, read_all, value_of
from engine.storage.database import Database, Transaction
from engine.text import split_prompt_words

PAIRING_WINDOW = timedelta(hours=1)
"""Maximum age, inclusive, of a rejection that makes a pair with an approval."""

SIGNAL_WEIGHTS: dict[DecisionSignal, float] = {
    DecisionSignal.APPROVED: 1.0,
    DecisionSignal.ORIGINAL: -1.0,
    DecisionSignal.DISMISSED: -1.0,
    DecisionSignal.KEPT: 0.5,
    DecisionSignal.UNDONE: -0.8,
    DecisionSignal.DISCARDED: -0.8,
    DecisionSignal.EXPIRED: -0.3,
    DecisionSignal.DONE_BY_OPERATOR: 0.7,
}
"""Weight of each signal, between -1 and 1: positive if the operator wanted the card. Snoozing gives no signal."""

EXPLICIT_SIGNALS = (DecisionSignal.APPROVED, DecisionSignal.DISMISSED, DecisionSignal.UNDONE, DecisionSignal.DISCARDED)
"""Signals that count as a decision (for onboarding, phases, "approved n of m"). The original of an edit is not one of
them, so that an edit counts once."""

REJECTING_SIGNALS = tuple(
    signal
    for signal, signed_weight in SIGNAL_WEIGHTS.items()
    if signed_weight < 0 and signal is not DecisionSignal.ORIGINAL
)
"""Signals that can be the rejected half of a pair (SPEC 8.2); an edit makes its own pair."""

SIDE_SEPARATOR = " → "
"""The separator in the text of a pair: `prompt → channel` (SPEC 8.2)."""

LOCAL_USER = "local"
"""The `user_id` of every row, because a home has one operator."""

IMPORTED_CARD = ""
"""The prediction ids of an imported pair, which was not made from cards."""


class DecisionRow(Row, table=True):
    """One signal about one card. `part`, `weekend` and `hour` are of the operator's local time."""

    __tablename__ = "decisions"

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
    decided_at: datetime
    taken_back_at: datetime | None = None
    text_features: bytes = Field(default=b"", sa_column_kwargs={"name": "seen"})
    """The features of the card's text when it was made (`TextFeatures.pack`)."""
    raw: float | None = None
    """Its confidence before calibration, from the same time."""
    hour: int | None = None


_EXPLICIT_SQL = ", ".join(f"'{signal.value}'" for signal in EXPLICIT_SIGNALS)
_IS_DECIDED_SQL = f"taken_back_at IS NULL AND signal IN ({_EXPLICIT_SQL})"
_BY_PERSON_SQL = f"decided_by <> '{DecidedBy.AUTONOMY.value}'"
DECIDED_CARDS_SQL = f"SELECT prediction_id FROM decisions WHERE {_IS_DECIDED_SQL} AND {_BY_PERSON_SQL}"
"""Selects the cards with a decision of a person that counts, each once. Whatever counts decisions counts these: what
could not run, was dismissed as done already or was undone before it started is none of them."""

_COUNT_CARDS = f"SELECT count(*) FROM ({DECIDED_CARDS_SQL} AND decided_at > :after)"
_COUNT_BY_KIND = f"""
    SELECT kind, count(*) FROM decisions
    WHERE {_IS_DECIDED_SQL} AND {_BY_PERSON_SQL} AND decided_at >= :since GROUP BY kind
"""
_COUNT_CONSECUTIVE_REJECTIONS = f"""
    SELECT count(*) FROM decisions
    WHERE id > :after AND taken_back_at IS NULL AND signal = '{DecisionSignal.DISMISSED.value}'
    AND {_BY_PERSON_SQL} AND id > (
        SELECT coalesce(max(id), 0) FROM decisions
        WHERE taken_back_at IS NULL AND signal = '{DecisionSignal.APPROVED.value}'
    )
"""
_SELECT_NEWEST_ID = "SELECT coalesce(max(id), 0) FROM decisions"
_SELECT_AFTER = """
    SELECT id, kind, channel, workspace, flow, prompt, part, weekend, decided_at, hour, seen, chosen, weight,
           waited_hours, raw
    FROM decisions WHERE taken_back_at IS NULL AND id > :id ORDER BY id DESC LIMIT :limit
"""
_SELECT_OF_CARD = "WHERE prediction_id = :card AND taken_back_at IS NULL"
_SELECT_REJECTION = """
    WHERE taken_back_at IS NULL AND signal IN (SELECT value FROM json_each(:signals)) AND channel <> :channel
    AND decided_at >= :since ORDER BY id DESC LIMIT 1
"""
_COUNT_BY_GROUP = f"""
    SELECT kind, channel, workspace,
           count(*) FILTER (WHERE signal = '{DecisionSignal.APPROVED.value}' AND NOT edited), count(*)
    FROM decisions WHERE decided_by = '{DecidedBy.OPERATOR.value}' AND {_IS_DECIDED_SQL}
    GROUP BY kind, channel, workspace
"""
_CARD_FIELDS = ("prediction_id", "kind", "channel", "workspace", "flow", "confidence", "text_features", "raw")


class GroupCounts(NamedTuple):
    """The number of the operator's decisions on similar cards."""

    kind: str
    channel: str
    workspace: str
    approved: int
    decided: int


class Decisions:
    """Writes and reads decisions. Methods that take a transaction or a session run inside the caller's."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self.change_count = 0
        """Grows with each committed change, so that a learner knows when there is more to learn."""
        self.replacement_count = 0
        """Grows with each decision that was replaced, got another weight or was taken back. A learner then starts
        again."""

    def record(self, tx: Transaction, signal: DecisionSignal, card: DecidedCard, *, at: datetime | None = None) -> None:
        """Store a signal that was given at `at`, by default now. It replaces an earlier one of the same card; an edit
        also stores its original as rejected.

        An approval makes a pair with the most recent rejection of the last hour on another channel (SPEC 8.2).
        """
        has_replaced = self._take_back_signals(tx, card.prediction_id, keep_original=True)
        approved = signal is DecisionSignal.APPROVED
        partner = self._find_recent_rejection(tx, card) if approved else None
        edited = approved and bool(card.original_prompt)
        if edited:
            tx.insert(self._make_row(tx, DecisionSignal.ORIGINAL, card, card.original_prompt))
            original = format_side(card.original_prompt, card.channel)
            add_pair(tx, card, original, card.confidence, card.prediction_id)
            # The features and the confidence were those of the original.
            card = replace(card, text_features=b"", raw=None)
        row = self._make_row(tx, signal, card, card.prompt, at)
        row.edited = edited
        tx.insert(row)
        if partner is not None:
            rejected = format_side(partner.prompt, partner.channel)
            add_pair(tx, card, rejected, partner.confidence, partner.prediction_id, partner.weight)
        self._count_change(tx, has_replaced=has_replaced)

    def set_weight(self, tx: Transaction, prediction_id: str, weight: float) -> None:
        """Change the weight of this card's current signal, in (0, 1], because the operator gave a reason for the
        decision."""
        changed = False
        for row in load_all(tx.session, DecisionRow, _SELECT_OF_CARD, {"card": prediction_id}):
            if row.signal != DecisionSignal.ORIGINAL and row.weight != weight:
                row.weight = weight
                tx.session.add(row)
                changed = True
        self._count_change(tx, has_replaced=changed)

    def take_back(self, tx: Transaction, prediction_id: str) -> None:
        """Take back the decision on this card, which was undone before it had an effect, with its signals and pairs."""
        self._count_change(tx, has_replaced=self._take_back_signals(tx, prediction_id, keep_original=False))

    def read_current_signal(self, session: Session, prediction_id: str) -> DecisionSignal | None:
        """The current signal of this card, None when there is none."""
        signals = [
            DecisionSignal(row.signal)
            for row in load_all(session, DecisionRow, _SELECT_OF_CARD, {"card": prediction_id})
        ]
        return next((signal for signal in signals if signal is not DecisionSignal.ORIGINAL), None)

    def load_after(self, last_id: int, limit: int = 1000) -> list[PastDecision]:
        """The newest `limit` signals with ids above `last_id` that count, oldest first, for the Twin to learn from."""
        with self.database.read() as session:
            newest_first = ask(session, _SELECT_AFTER, {"id": last_id, "limit": limit})
        return [_make_past_decision(row) for row in reversed(newest_first)]

    def count_decided_cards(self, session: Session, after: datetime | None = None) -> int:
        """Number of cards that a person has decided, here or over the API, later than `after` (None: ever); for SPEC
        2.6, and 3.6's onboarding."""
        return int(ask(session, _COUNT_CARDS, {"after": "" if after is None else as_stored(after)}).scalar())

    def count_consecutive_rejections(self, session: Session, after: int = 0) -> int:
        """Number of dismissals in a row at the end of a person's decisions with ids above `after` (SPEC 3.6)."""
        return int(ask(session, _COUNT_CONSECUTIVE_REJECTIONS, {"after": after}).scalar())

    def find_newest_id(self, session: Session) -> int:
        """The id of the newest decision, taken back or not; 0 before the first. Ids grow."""
        return int(ask(session, _SELECT_NEWEST_ID).scalar())

    def count_similar(self, session: Session, kind: str, channel: str, workspace: str) -> tuple[int, int]:
        """(approved, decided) of the operator's own decisions on similar cards (SPEC 2.5).

        An approval that was edited, or later undone or discarded, counts as decided but not as approved, because the
        operator did not want the card as it was proposed. All groups are read, because there are few.
        """
        counts = {group[:3]: (group.approved, group.decided) for group in self.count_by_group(session)}
        return counts.get((kind, channel, workspace), (0, 0))

    def count_by_group(self, session: Session) -> list[GroupCounts]:
        """`count_similar` for all decisions."""
        return [GroupCounts(*row) for row in ask(session, _COUNT_BY_GROUP)]

    def count_by_kind(self, session: Session, *, since: datetime) -> dict[str, int]:
        """Number of cards of each kind that a person decided since then, here or over the API."""
        return dict(ask(session, _COUNT_BY_KIND, {"since": as_stored(since)}))

    def load_newest(self, limit: int = 50) -> list[DecisionRow]:
        """The newest decisions that count, newest first."""
        with self.database.read() as session:
            newest = "WHERE taken_back_at IS NULL ORDER BY id DESC LIMIT :limit"
            return read_all(session, DecisionRow, newest, {"limit": limit})

    def _make_row(
        self, tx: Transaction, signal: DecisionSignal, card: DecidedCard, prompt: str, at: datetime | None = None
    ) -> DecisionRow:
        """The row of a signal about a card that was given at `at`, by default now. `prompt` is the one it is about."""
        signed_weight, at = SIGNAL_WEIGHTS[signal], at or tx.now
        local = at.astimezone(self._clock.local().tzinfo)
        waited = None if card.evidence_at is None else max((at - card.evidence_at).total_seconds() / 3600, 0.0)
        return DecisionRow(
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

    def _find_recent_rejection(self, tx: Transaction, approved: DecidedCard) -> DecisionRow | None:
        """The newest rejection on another channel within `PAIRING_WINDOW`, None without one."""
        values = {"signals": REJECTING_SIGNALS, "channel": approved.channel, "since": tx.now - PAIRING_WINDOW}
        rejected = load_all(tx.session, DecisionRow, _SELECT_REJECTION, values)
        return rejected[0] if rejected else None

    def _take_back_signals(self, tx: Transaction, prediction_id: str, *, keep_original: bool) -> bool:
        """Take back the signals of a card. Returns whether it had any."""
        had_any = False
        for row in load_all(tx.session, DecisionRow, _SELECT_OF_CARD, {"card": prediction_id}):
            if keep_original and row.signal == DecisionSignal.ORIGINAL:
                continue
            row.taken_back_at = tx.now
            tx.session.add(row)
            had_any = True
        if had_any:
            ask(tx.session, _FORGET_PAIRS, {"card": prediction_id})
        return had_any

    def _count_change(self, tx: Transaction, *, has_replaced: bool) -> None:
        """Let `change_count` grow with the commit, and `replacement_count` too if a decision was replaced."""

        def grow() -> None:
            self.change_count += 1
            self.replacement_count += has_replaced

        tx.after_commit(grow)


def _make_past_decision(row: Any) -> PastDecision:
    """The decision in a row of `_SELECT_AFTER`."""
    id, kind, channel, workspace, flow, prompt, part, weekend, at, hour, packed, chosen, weight, waited, raw = row
    card = CardFeatures(
        kind,
        channel,
        workspace,
        flow,
        split_prompt_words(prompt),
        PartOfDay(part),
        bool(weekend),
        datetime.fromisoformat(at),
        hour,
        unpack_features(packed),
    )
    return PastDecision(card, bool(chosen), weight, waited, id, raw)


# -- preference pairs


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
    created_at: datetime
    exported_at: datetime | None = None
    chosen_prediction_id: str
    rejected_prediction_id: str
    weight: float = 1.0

    @property
    def preference(self) -> Preference:
        """The fields of the pair that a model is trained on."""
        return value_of(self, Preference, at=self.created_at)


def format_side(prompt: str, channel: str) -> str:
    """The text of one half of a pair."""
    return f"{prompt}{SIDE_SEPARATOR}{channel}"


def add_pair(
    tx: Transaction,
    approved: DecidedCard,
    rejected: str,
    rejected_confidence: float,
    rejected_id: str,
    weight: float = 1.0,
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
            rejected_confidence=rejected_confidence,
            created_at=tx.now,
            chosen_prediction_id=approved.prediction_id,
            rejected_prediction_id=rejected_id,
            weight=weight,
        )
    )


_FORGET_PAIRS = """
    DELETE FROM dpo_pairs
    WHERE (chosen_prediction_id = :card OR rejected_prediction_id = :card) AND exported_at IS NULL
"""
"""Removes the pairs of a decision that was taken back, except exported ones."""


class PairTexts(NamedTuple):
    """The texts of a pair that comes from a file."""

    context: str
    chosen: str
    rejected: str


_SELECT_SAME_PAIR = """
    SELECT 1 FROM dpo_pairs WHERE context = :context AND chosen = :chosen AND rejected = :rejected LIMIT 1
"""


def import_pairs(tx: Transaction, texts: Iterable[PairTexts]) -> int:
    """Store the pairs from a file that are not stored already. Returns their number."""
    added = 0
    for pair in texts:
        values: dict[str, Any] = pair._asdict()
        if not ask(tx.session, _SELECT_SAME_PAIR, values):
            of_no_card = {"chosen_prediction_id": IMPORTED_CARD, "rejected_prediction_id": IMPORTED_CARD}
            tx.insert(DpoPair(**values | of_no_card, created_at=tx.now))
            added += 1
    return added


def load_pairs(session: Session, *, exported: bool | None = None) -> list[DpoPair]:
    """The pairs, oldest first: all by default, else only those that were `exported`, or only those that were not."""
    condition = {None: "TRUE", True: "exported_at IS NOT NULL", False: "exported_at IS NULL"}[exported]
    return read_all(session, DpoPair, f"WHERE {condition} ORDER BY id")


def count_pairs(session: Session, *, after: int) -> int:
    """The number of pairs with an id above `after`."""
    return int(ask(session, "SELECT count(*) FROM dpo_pairs WHERE id > :after", {"after": after}).scalar())
