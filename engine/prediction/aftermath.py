"""What the operator's later behaviour says about a card: work undone, thrown away, or left standing (SPEC 8.1).

Facts of the ledger are followed with a durable cursor, each handled once, and once again harmlessly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy
from sqlalchemy import bindparam
from sqlmodel import col, select

from engine.clock import Clock
from engine.feedback.decisions import Decisions
from engine.prediction.cards_store import Prediction, decided
from engine.prediction.transitions import Transitions
from engine.storage.database import Database, Transaction
from engine.storage.facts_read import Fact, Facts, FactsRead
from engine.storage.quick import ask, found, whole
from engine.storage.types import UtcDateTime
from engine.values import DecidedBy, DecisionSignal, Outcome, Status

CURSOR = "cards.aftermath"

TURNED_DOWN = {"LandingUndone": DecisionSignal.UNDONE, "ChangeSetDiscarded": DecisionSignal.DISCARDED}
"""Kinds of facts about change sets, and what they say about the card whose session made one."""

KEPT_AFTER, LOOKED_BACK = timedelta(hours=24), timedelta(days=14)
"""What ran by itself and stands for so long was wanted. A start looks back so far; later only what is new is asked."""

_KEPT = (
    col(Prediction.status) == Status.EXECUTED.value,
    col(Prediction.decided_by) == DecidedBy.AUTONOMY.value,
    col(Prediction.outcome) == Outcome.SUCCEEDED.value,
    col(Prediction.undo_requested_at).is_(None),
    col(Prediction.executed_at) > bindparam("since", type_=UtcDateTime()),
    col(Prediction.executed_at) <= bindparam("until", type_=UtcDateTime()),
)
_STANDING_ALONE = whole(Prediction).where(*_KEPT)
_WHEN_KEPT = sqlalchemy.select(col(Prediction.executed_at)).where(*_KEPT)


class Aftermath:
    """Follows what became of cards. Called by each cycle."""

    def __init__(
        self, database: Database, clock: Clock, facts: Facts, history: Decisions, transitions: Transitions
    ) -> None:
        self._database = database
        self._clock = clock
        self._facts = FactsRead(database, facts, CURSOR, lambda fact: fact.kind in TURNED_DOWN)
        self._credited: datetime | None = None
        self._read: datetime | None = None
        self._executed: list[datetime] = []
        """When what may be credited was executed, as of `_read`: what is executed later cannot be due before that."""
        self._history = history
        self._transitions = transitions

    def catch_up(self) -> None:
        """Take in all facts since the last time."""
        self._facts.each(lambda facts: self._database.write(lambda tx: self._take_in(tx, facts)))

    def credit_kept(self) -> int:
        """Chosen 0.5 for what ran by itself, succeeded and was not undone for 24 h; returns how many."""
        now = self._clock.now()
        since = now - LOOKED_BACK if self._credited is None else self._credited
        until = now - KEPT_AFTER
        if self._read is None or not until < self._read <= now:
            with self._database.read() as session:
                self._executed = [at for (at,) in ask(session, _WHEN_KEPT, {"since": since, "until": now})]
            self._read = now

        def work(tx: Transaction) -> int:
            rows = [
                row
                for row in found(tx.session, Prediction, _STANDING_ALONE, {"since": since, "until": until})
                if self._history.standing(tx.session, row.id) is None
            ]
            for row in rows:
                self._history.record(tx, DecisionSignal.KEPT, decided(row, DecidedBy.AUTONOMY))
            return len(rows)

        credited = self._database.write(work) if any(since < at <= until for at in self._executed) else 0
        self._credited = until
        return credited

    def _take_in(self, tx: Transaction, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if fact.payload.get("continued_in"):
                continue  # nobody threw it away: it lives on in what went on with it
            session_id = fact.payload["session_id"]
            row = tx.session.exec(select(Prediction).where(col(Prediction.session_id) == session_id)).first()
            if row is not None:
                self._transitions.turn_down(tx, row, TURNED_DOWN[fact.kind], fact.at)
