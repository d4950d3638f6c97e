"""The table of learning records (SPEC 4.2, 5.1). A record is written once and never changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, CheckConstraint, Column, Index, bindparam
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, SQLModel, col

from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage.database import Database, Transaction
from engine.storage.quick import ask, each_of, found, whole
from engine.storage.types import utc

MOST_OF_A_LABEL = 500
"""So many records of one label and scope are looked at, the newest."""

KINDS = ", ".join(f"'{one.value}'" for one in RecordKind)


class LearningRecordRow(SQLModel, table=True):
    """One record. `seq` grows with each that is written; `fact` is the number of the fact it was made of."""

    __tablename__ = "learning_records"
    __table_args__ = (
        CheckConstraint("score >= 0 AND score <= 100", name="ck_learning_records_score"),
        CheckConstraint(f"kind IN ({KINDS})", name="ck_learning_records_kind"),
        CheckConstraint("scope_type IN ('agent', 'workspace', 'leader')", name="ck_learning_records_scope"),
        Index("ix_learning_records_id", "id", unique=True),
        Index("ix_learning_records_label", "source_label", "scope_type", "scope_id", "seq"),
        Index("ix_learning_records_scope", "scope_type", "scope_id", "seq"),
        Index("ix_learning_records_kind", "kind", "seq"),
        Index("ix_learning_records_score", "score", "seq"),
    )

    seq: int | None = Field(default=None, primary_key=True)
    id: str
    at: datetime = Field(sa_column=utc())
    kind: str
    source_label: str
    scope_type: str
    scope_id: str
    score: float
    reason: str
    workspace: str = ""
    agent: str = ""
    session_id: str = ""
    fact: int = 0
    details: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))

    @property
    def value(self) -> LearningRecord:
        """The row as others see it."""
        told = {one.name: getattr(self, one.name) for one in fields(LearningRecord)}
        return LearningRecord(**told | {"kind": RecordKind(self.kind), "details": dict(self.details)})


def record_id(*parts: object) -> str:
    """The id of a record, from what it was made of: the same whenever that is read again."""
    return "rec_" + hashlib.sha256("\x1f".join(map(str, parts)).encode(errors="replace")).hexdigest()[:12]


_ADD = insert(LearningRecordRow).on_conflict_do_nothing(index_elements=["id"])
_LAST = sqlalchemy.select(sqlalchemy.func.coalesce(sqlalchemy.func.max(col(LearningRecordRow.seq)), 0))
_ROWS = whole(LearningRecordRow)
_BY_ID = _ROWS.where(col(LearningRecordRow.id).in_(each_of("ids"))).order_by(col(LearningRecordRow.seq))
_NEWEST = _ROWS.order_by(col(LearningRecordRow.seq).desc()).limit(bindparam("most"))
_OF_KIND = _NEWEST.where(col(LearningRecordRow.kind) == bindparam("kind"))
_STRONG = _NEWEST.where(
    col(LearningRecordRow.score) >= bindparam("least"), col(LearningRecordRow.at) >= bindparam("since")
)
_OF_SCOPE = _NEWEST.where(
    col(LearningRecordRow.scope_type) == bindparam("type"), col(LearningRecordRow.scope_id) == bindparam("scope")
)
_BEFORE = sqlalchemy.select(sqlalchemy.func.count()).where(
    col(LearningRecordRow.source_label) == bindparam("label"),
    col(LearningRecordRow.scope_type) == bindparam("type"),
    col(LearningRecordRow.scope_id) == bindparam("scope"),
    col(LearningRecordRow.fact) < bindparam("fact"),
)


class Records:
    """Writes and reads records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tx: Transaction, records: Iterable[LearningRecord]) -> None:
        """Write them; those that are there already change nothing."""
        for one in records:
            told = {field.name: getattr(one, field.name) for field in fields(one)}
            tx.ask(_ADD, told | {"kind": one.kind.value, "details": dict(one.details)})

    def last(self) -> int:
        """The `seq` of the newest, 0 without any."""
        return self._number(_LAST)

    def newest(self, *, kind: str = "", limit: int = 200) -> list[LearningRecord]:
        """The newest first."""
        return self._found(_OF_KIND, kind=kind, most=limit) if kind else self._found(_NEWEST, most=limit)

    def strong(self, least: float, since: datetime, limit: int) -> list[LearningRecord]:
        """Those of a score of at least `least`, not older than `since`, the newest first."""
        return self._found(_STRONG, least=least, since=since, most=limit)

    def by_id(self, ids: Sequence[str]) -> list[LearningRecord]:
        """These, oldest first; what is not there is left out."""
        return self._found(_BY_ID, ids=json.dumps(list(ids))) if ids else []

    def of_scope(self, scope_type: str, scope_id: str, limit: int = MOST_OF_A_LABEL) -> list[LearningRecord]:
        """Those of a scope, the newest first."""
        return self._found(_OF_SCOPE, type=scope_type, scope=scope_id, most=limit)

    def before(self, label: str, scope_type: str, scope_id: str, fact: int) -> int:
        """How many of a label and scope were made of facts before `fact`."""
        return self._number(_BEFORE, label=label, type=scope_type, scope=scope_id, fact=fact)

    def _found(self, statement: Any, **values: Any) -> list[LearningRecord]:
        with self._database.read() as session:
            return [row.value for row in found(session, LearningRecordRow, statement, values)]

    def _number(self, statement: Any, **values: Any) -> int:
        with self._database.read() as session:
            return int(ask(session, statement, values).scalar())
