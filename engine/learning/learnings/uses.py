"""What SQLite keeps beside the pages: vectors of texts, which prompts an entry reached (SPEC 6.5), which sessions are
done."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Column, Index, LargeBinary, func
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, SQLModel, col, desc, select

from engine.model import LearningReach
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.types import utc


class LearningVector(SQLModel, table=True):
    """The vector of a text by one model; `digest` names the text."""

    __tablename__ = "learning_vectors"

    digest: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    vector: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class LearningUse(SQLModel, table=True):
    """A prompt that carried an entry: the call of a model."""

    __tablename__ = "learning_uses"
    __table_args__ = (Index("ix_learning_uses_entry", "entry_id", "at"),)

    call_id: str = Field(primary_key=True)
    entry_id: str = Field(primary_key=True)
    session_id: str
    agent: str
    at: datetime = Field(sa_column=utc())


class LearningSession(SQLModel, table=True):
    """A session whose learnings were written down when it ended."""

    __tablename__ = "learning_sessions"

    session_id: str = Field(primary_key=True)
    entries: int
    at: datetime = Field(sa_column=utc())


RETRACTED = "learnings.retracted"


def retracted(database: Database) -> frozenset[str]:
    """The lessons that the operator took back."""
    with database.read() as session:
        return frozenset(state.get(session, RETRACTED, ()))


def mark_retracted(database: Database, lesson: str, *, holds: bool) -> None:
    """A lesson is taken back, or `holds` after all."""

    def work(tx: Transaction) -> None:
        known = set(state.get(tx.session, RETRACTED, ())) - {lesson}
        state.put(tx, RETRACTED, sorted(known if holds else {*known, lesson}))

    database.write(work)


_NEW = insert(LearningUse).on_conflict_do_nothing()


def told(tx: Transaction, entries: Iterable[str], *, call: str, session_id: str, agent: str) -> None:
    """A call of a model was made with these entries in its prompt."""
    for entry in dict.fromkeys(entries):
        values = {"call_id": call, "entry_id": entry, "session_id": session_id, "agent": agent, "at": tx.now}
        tx.ask(_NEW, values)


def reached(database: Database, entry: str, limit: int = 20) -> tuple[tuple[LearningReach, ...], int]:
    """The newest prompts that carried an entry, and how many there were."""
    query = select(LearningUse).where(col(LearningUse.entry_id) == entry).order_by(desc(col(LearningUse.at)))
    number = select(func.count()).select_from(LearningUse).where(col(LearningUse.entry_id) == entry)
    with database.read() as session:
        rows = session.exec(query.limit(limit)).all()
        calls = tuple(LearningReach(one.call_id, one.session_id, one.agent, one.at) for one in rows)
        return calls, int(session.exec(number).one())
