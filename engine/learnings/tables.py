"""What SQLite keeps beside the pages: vectors of texts, which prompts an entry reached, which sessions are done."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Column, Index, LargeBinary
from sqlmodel import Field, SQLModel

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
