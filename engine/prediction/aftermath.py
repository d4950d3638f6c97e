"""What the operator's later behaviour says about a card: work undone, thrown away, or left standing (SPEC 8.1).

Facts of the ledger are followed with a durable cursor, each handled once, and once again harmlessly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import bindparam, exists
from sqlmodel import col, select

from engine.clock import Clock
from engine.learning.decisions.decisions import Decision, Decisions
from engine.model import DecidedBy, DecisionSignal, Outcome, Status
from engine.prediction.cards_store import Prediction, decided
from engine.prediction.transitions import Transitions
from engine.storage.database import Database, Transaction
from engine.storage.facts_read import Fact, Facts, FactsRead
from engine.storage.quick import found, whole
from engine.storage.types import UtcDateTime

CURSOR = "cards.aftermath"

TURNED_DOWN = {"LandingUndone": DecisionSignal.UNDONE, "ChangeSetDiscarded": DecisionSignal.DISCARDED}
"""Kinds of facts about change sets, and what they say about the card whose session made one."""

KEPT_AFTER, LOOKED_BACK = timedelta(hours=24), timedelta(days=14)
"""What ran by itself, was looked at and stands for so long was wanted; what ran longer ago is not asked about."""

_KEPT = whole(Prediction).where(
    col(Prediction.status) == Status.EXECUTED.value,
    col(Prediction.decided_by) == DecidedBy.AUTONOMY.value,
    col(Prediction.outcome) == Outcome.SUCCEEDED.value,
    col(Prediction.undo_requested_at).is_(None),
    col(Prediction.shown_at) > col(Prediction.executed_at),
    col(Prediction.executed_at) > bindparam("since", type_=UtcDateTime()),
    col(Prediction.executed_at) <= bindparam("until", type_=UtcDateTime()),
    ~exists().where(col(Decision.prediction_id) == col(Prediction.id), col(Decision.taken_back_at).is_(None)),
)


class Aftermath:
    """Follows what became of cards. Called by each cycle."""

    def __init__(
        self, database: Database, clock: Clock, facts: Facts, history: Decisions, transitions: Transitions
    ) -> None:
        self._database = database
        self._clock = clock
        self._facts = FactsRead(database, facts, CURSOR, lambda fact: fact.kind in TURNED_DOWN)
        self._history = history
        self._transitions = transitions

    def catch_up(self) -> None:
        """Take in all facts since the last time."""
        self._facts.each(lambda facts: self._database.write(lambda tx: self._take_in(tx, facts)))

    def credit_kept(self) -> int:
        """Chosen 0.5 for what ran by itself, succeeded, was looked at and not undone for 24 h; returns how many."""
        now = self._clock.now()
        span = {"since": now - LOOKED_BACK, "until": now - KEPT_AFTER}
        with self._database.read() as session:
            if not found(session, Prediction, _KEPT, span):
                return 0

        def work(tx: Transaction) -> int:
            rows = found(tx.session, Prediction, _KEPT, span)
            for row in rows:
                self._history.record(tx, DecisionSignal.KEPT, decided(row, DecidedBy.AUTONOMY))
            return len(rows)

        return self._database.write(work)

    def _take_in(self, tx: Transaction, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if fact.payload.get("continued_in") or fact.payload.get("left"):
                continue  # it lives on in what went on with it, or other parts of it stand
            session_id = fact.payload["session_id"]
            row = tx.session.exec(select(Prediction).where(col(Prediction.session_id) == session_id)).first()
            if row is not None:
                self._transitions.turn_down(tx, row, TURNED_DOWN[fact.kind], fact.at)
