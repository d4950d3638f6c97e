"""Tables of layers C and E. They are the truth (SPEC 4.10): text, vectors and full text; Chroma is an index over them.

The full-text table follows `memories` by triggers, so that no statement can forget it.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Column, ForeignKey, Integer, LargeBinary
from sqlmodel import Field

from engine.model import Trust
from engine.storage.rows import Row, json_field, utc_field


class MemoryRow(Row, table=True):
    """One memory. `seq` is never used twice; `model` is what its vectors were made with, "" while they are missing."""

    __tablename__ = "memories"

    seq: int | None = Field(default=None, primary_key=True)
    id: str
    ref: str = ""
    layer: str
    text: str
    kind: str
    speaker: str = ""
    session: str = ""
    agent: str = ""
    workspace: str = ""
    source: str = ""
    tags: list[str] = json_field(default_factory=list)
    retention: str
    at: datetime = utc_field()
    created_at: datetime = utc_field()
    superseded_by: str = ""
    forgotten: bool = False
    model: str = ""
    trust: str = Trust.QUOTED.value


class ChunkRow(Row, table=True):
    """A stretch of a memory's text that fits the embedder: characters `start` to `stop`. Most memories have one.

    `tokens` is what the re-ranker keeps of the stretch's token vectors, in a form of its own; NULL when it keeps none.
    """

    __tablename__ = "memory_chunks"

    id: int | None = Field(default=None, primary_key=True)
    seq: int = Field(sa_column=Column("seq", Integer, ForeignKey("memories.seq", ondelete="CASCADE"), nullable=False))
    ordinal: int
    start: int
    stop: int
    tokens: bytes | None = Field(default=None, sa_column=Column(LargeBinary, nullable=True))


class VectorRow(Row, table=True):
    """The unit vector of a chunk: float32, little-endian."""

    __tablename__ = "memory_vectors"

    chunk_id: int = Field(
        sa_column=Column("chunk_id", Integer, ForeignKey("memory_chunks.id", ondelete="CASCADE"), primary_key=True)
    )
    vector: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
