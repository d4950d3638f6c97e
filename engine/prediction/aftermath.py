"""What the operator's later behaviour says about a card: work undone, thrown away, or left standing (SPEC 8.1).

Facts of the ledger are followed with a durable cursor, each handled once, and once again harmlessly.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from sqlmodel import col, select

from engine.clock import Clock
from engine.prediction.cards_store import Prediction, decided
from engine.prediction.ports import Facts, History
from engine.prediction.transitions import Transitions
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.values import DecidedBy, DecisionSignal, Outcome, Status

CURSOR = "cards.aftermath"
BATCH = 500

TURNED_DOWN = {"LandingUndone": DecisionSignal.UNDONE, "ChangeSetDiscarded": DecisionSignal.DISCARDED}
"""Kinds of facts about change sets, and what they say about the card whose session made one."""

KEPT_AFTER, LOOKED_BACK = timedelta(hours=24), timedelta(days=14)
"""What ran by itself and stands for so long was wanted; older ones than the latter are not looked at again."""


class Aftermath:
    """Follows what became of cards. Called by each cycle."""

    def __init__(
        self, database: Database, clock: Clock, facts: Facts, history: History, transitions: Transitions
    ) -> None:
        self._database = database
        self._clock = clock
        self._facts = facts
        self._history = history
        self._transitions = transitions

    def catch_up(self) -> None:
        """Take in all facts since the last time."""
        with self._database.read() as session:
            cursor = int(state.get(session, CURSOR, 0))
        while True:
            facts = self._facts.since(cursor, BATCH)
            if not facts:
                return
            cursor = facts[-1].id
            told = [(fact.payload["session_id"], TURNED_DOWN[fact.kind]) for fact in facts if fact.kind in TURNED_DOWN]
            self._database.write(partial(self._take_in, told=told, cursor=cursor))

    def credit_kept(self) -> int:
        """Chosen 0.5 for what ran by itself, succeeded and was not undone for 24 h; returns how many."""
        now = self._clock.now()
        standing = (
            col(Prediction.status) == Status.EXECUTED.value,
            col(Prediction.decided_by) == DecidedBy.AUTONOMY.value,
            col(Prediction.outcome) == Outcome.SUCCEEDED.value,
            col(Prediction.undo_requested_at).is_(None),
            col(Prediction.executed_at) <= now - KEPT_AFTER,
            col(Prediction.executed_at) > now - LOOKED_BACK,
        )
        with self._database.read() as session:
            if session.exec(select(col(Prediction.id)).where(*standing).limit(1)).first() is None:
                return 0

        def work(tx: Transaction) -> int:
            rows = [
                row
                for row in tx.session.exec(select(Prediction).where(*standing)).all()
                if self._history.standing(tx.session, row.id) is None
            ]
            for row in rows:
                self._history.record(tx, DecisionSignal.KEPT, decided(row, DecidedBy.AUTONOMY))
            return len(rows)

        return self._database.write(work)

    def _take_in(self, tx: Transaction, told: list[tuple[str, DecisionSignal]], cursor: int) -> None:
        for session_id, signal in told:
            row = tx.session.exec(select(Prediction).where(col(Prediction.session_id) == session_id)).first()
            if row is not None:
                self._transitions.turn_down(tx, row, signal)
        state.put(tx, CURSOR, cursor)
