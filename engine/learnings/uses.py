"""Which prompts carried which entries (SPEC 6.5): from an entry down to every prompt that it reached."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import col, desc, select

from engine.learnings.tables import LearningUse
from engine.storage.database import Database, Transaction
from engine.values import LearningReach

_NEW = insert(LearningUse).on_conflict_do_nothing()


class Uses:
    """Remembers and tells. From any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def told(self, tx: Transaction, entries: Iterable[str], *, call: str, session_id: str, agent: str) -> None:
        """A call of a model was made with these entries in its prompt."""
        for entry in dict.fromkeys(entries):
            values = {"call_id": call, "entry_id": entry, "session_id": session_id, "agent": agent, "at": tx.now}
            tx.ask(_NEW, values)

    def of(self, entry: str, limit: int = 20) -> tuple[tuple[LearningReach, ...], int]:
        """The newest prompts that carried an entry, and how many there were."""
        query = select(LearningUse).where(col(LearningUse.entry_id) == entry).order_by(desc(col(LearningUse.at)))
        number = select(func.count()).select_from(LearningUse).where(col(LearningUse.entry_id) == entry)
        with self._database.read() as session:
            rows = session.exec(query.limit(limit)).all()
            reached = tuple(LearningReach(one.call_id, one.session_id, one.agent, one.at) for one in rows)
            return reached, int(session.exec(number).one())
