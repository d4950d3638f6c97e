"""The table of learning records (SPEC 4.2, 5.1). Records are append-only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, col

from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, ask, each_of, load_all, select_all, value_of
from engine.storage.types import UtcDateTime, json_field, utc_field

MAX_PER_SCOPE = 500
"""Maximum number of records of one scope that are read, the newest first."""


class LearningRecordRow(Row, table=True):
    """One record. `seq` grows with each new record; `fact` is the id of its ledger entry."""

    __tablename__ = "learning_records"

    seq: int = Field(default=None, primary_key=True)
    """The database gives it."""
    id: str
    at: datetime = utc_field()
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
    details: dict[str, Any] = json_field()

    @property
    def value(self) -> LearningRecord:
        """The record of this row."""
        return value_of(self, LearningRecord, kind=RecordKind(self.kind))


_SEQ = col(LearningRecordRow.seq)
_SCOPE = (
    col(LearningRecordRow.scope_type) == bindparam("scope_type"),
    col(LearningRecordRow.scope_id) == bindparam("scope_id"),
)
_NEWEST = select_all(LearningRecordRow).order_by(_SEQ.desc()).limit(bindparam("limit"))
_OF_KIND = _NEWEST.where(col(LearningRecordRow.kind) == bindparam("kind"))
_WITH_MIN_SCORE = _NEWEST.where(
    col(LearningRecordRow.score) >= bindparam("min_score"),
    col(LearningRecordRow.at) >= bindparam("since", type_=UtcDateTime()),
)
_BY_ID = _NEWEST.where(col(LearningRecordRow.id).in_(each_of("ids")))
_OF_SCOPE = _NEWEST.where(*_SCOPE)
_LAST = select(func.max(_SEQ))
_COUNT_BEFORE = select(func.count(_SEQ)).where(
    col(LearningRecordRow.source_label) == bindparam("label"),
    col(LearningRecordRow.fact) < bindparam("ledger_id"),
    *_SCOPE,
)


def record_id(*parts: object) -> str:
    """The id of a record, from what it was made of: the same whenever that is read again."""
    return "rec_" + hashlib.sha256("\x1f".join(map(str, parts)).encode(errors="replace")).hexdigest()[:12]


class Records:
    """Writes and reads records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tx: Transaction, records: Iterable[LearningRecord]) -> None:
        """Write records; those with an existing id are ignored."""
        new = insert(LearningRecordRow).on_conflict_do_nothing(index_elements=["id"])
        for record in records:
            values = {field.name: getattr(record, field.name) for field in fields(record)}
            tx.session.connection().execute(new, values | {"kind": record.kind.value, "details": dict(record.details)})

    def last_seq(self) -> int:
        """The `seq` of the newest record, 0 without any."""
        return self._fetch_number(_LAST, {})

    def newest(self, *, kind: str = "", limit: int = 200) -> list[LearningRecord]:
        """The newest records, newest first; of one kind if given."""
        return self._find(_OF_KIND, limit, kind=kind) if kind else self._find(_NEWEST, limit)

    def with_min_score(self, min_score: float, since: datetime, limit: int) -> list[LearningRecord]:
        """The records with at least `min_score`, not older than `since`, newest first."""
        return self._find(_WITH_MIN_SCORE, limit, min_score=min_score, since=since)

    def by_id(self, ids: Sequence[str]) -> list[LearningRecord]:
        """The records with these ids, oldest first."""
        return self._find(_BY_ID, len(ids), ids=json.dumps(ids))[::-1] if ids else []

    def of_scope(self, scope_type: str, scope_id: str) -> list[LearningRecord]:
        """The records of a scope, the newest first."""
        return self._find(_OF_SCOPE, MAX_PER_SCOPE, scope_type=scope_type, scope_id=scope_id)

    def count_before(self, label: str, scope_type: str, scope_id: str, ledger_id: int) -> int:
        """Number of records of a label and scope from ledger entries before `ledger_id`."""
        values = {"label": label, "ledger_id": ledger_id, "scope_type": scope_type, "scope_id": scope_id}
        return self._fetch_number(_COUNT_BEFORE, values)

    def _find(self, statement: Select[Any], limit: int, **values: object) -> list[LearningRecord]:
        with self._database.read() as session:
            return [row.value for row in load_all(session, LearningRecordRow, statement, values | {"limit": limit})]

    def _fetch_number(self, statement: Select[Any], values: Mapping[str, object]) -> int:
        with self._database.read() as session:
            return int(ask(session, statement, values).scalar() or 0)
