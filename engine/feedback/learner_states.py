"""Where the embedded Twin keeps what it learnt: a few states, each of all decisions up to an id (SPEC 2.3b)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy
from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, col, select

from engine.storage.database import Database, Transaction
from engine.storage.rows import Row
from engine.storage.types import utc
from engine.values import Refusal

if TYPE_CHECKING:
    from engine.feedback.learner import Learner

log = logging.getLogger(__name__)

KEPT = 4
"""So many of the newest states are kept."""


class TwinState(Row, table=True):
    """A state of all standing decisions with ids up to `upto`; `learnt` of them. `format` is the learner's."""

    __tablename__ = "twin_states"

    upto: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    learnt: int
    format: int
    made_at: datetime = Field(sa_column=utc())
    state: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class TwinStates:
    """The stored states of this home. What cannot be read is passed over: the decisions make the same again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, below: int | None = None) -> Learner | None:
        from engine.feedback.learner import FORMAT, Learner

        query = select(TwinState).where(col(TwinState.format) == FORMAT).order_by(col(TwinState.upto).desc())
        if below is not None:
            query = query.where(col(TwinState.upto) < below)
        with self._database.read() as session:
            for row in session.exec(query):
                try:
                    return Learner.unpacked(row.state)
                except ValueError as error:
                    log.warning("a stored state of the Twin is passed over: %s", error)
        return None

    def keep(self, learner: Learner) -> None:
        from engine.feedback.learner import FORMAT

        upto, learnt, packed = learner.upto, learner.learnt, learner.packed()

        def work(tx: Transaction) -> None:
            tx.session.merge(TwinState(upto=upto, learnt=learnt, format=FORMAT, made_at=tx.now, state=packed))
            tx.session.flush()
            kept = select(col(TwinState.upto)).where(col(TwinState.format) == FORMAT)
            newest = kept.order_by(col(TwinState.upto).desc()).limit(KEPT)
            tx.session.execute(sqlalchemy.delete(TwinState).where(col(TwinState.upto).not_in(newest)))

        self._submit(work)

    def drop(self, since: int) -> None:
        def work(tx: Transaction) -> None:
            tx.session.execute(sqlalchemy.delete(TwinState).where(col(TwinState.upto) >= since))

        self._submit(work)

    def _submit(self, work: Callable[[Transaction], None]) -> None:
        try:
            self._database.submit(work)
        except Refusal as refusal:
            if refusal.code != "engine_closed":
                raise
