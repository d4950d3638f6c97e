"""The append-only table of learning records (SPEC 4.2, 5.1), and the selection of those from which candidates can be
drafted (5.2, 5.3).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, col, func, select

from engine.files import read_table
from engine.frozen import frozen
from engine.model.adaptation import CandidateType, LearningRecord, RecordKind, dedupe_key
from engine.storage.database import Database, Transaction
from engine.storage.rows import (
    Row,
    ask,
    each_of,
    enum_field,
    json_field,
    read_all,
    select_all,
    shallow_dict,
    utc_field,
    value_of,
)

MAX_PER_SCOPE = 500
"""Maximum number of records of one scope that are read, the newest first."""


class LearningRecordRow(Row, table=True):
    """One record. `seq` grows with each new record; `fact` is the id of its ledger entry."""

    __tablename__ = "learning_records"

    seq: int = Field(default=None, primary_key=True)
    """Set by the database."""
    id: str
    at: datetime = utc_field()
    kind: RecordKind = enum_field(RecordKind)
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


def record_id(*parts: object) -> str:
    """The id of a record, derived from its `parts`, so that reading an entry again gives the same id."""
    return "rec_" + hashlib.sha256("\x1f".join(map(str, parts)).encode(errors="replace")).hexdigest()[:12]


_NEWEST = select_all(LearningRecordRow).order_by(col(LearningRecordRow.seq).desc()).limit(bindparam("limit"))
_OF_KINDS = _NEWEST.where(col(LearningRecordRow.kind).in_(each_of("kinds")))
_BY_ID = _NEWEST.where(col(LearningRecordRow.id).in_(each_of("ids")))
_STRONG = _NEWEST.where(
    col(LearningRecordRow.score) >= bindparam("score"), col(LearningRecordRow.at) >= bindparam("since")
)
_OF_SCOPE = _NEWEST.where(
    col(LearningRecordRow.scope_type) == bindparam("type"), col(LearningRecordRow.scope_id) == bindparam("id")
)
_LAST_SEQ = select(func.max(LearningRecordRow.seq))
_COUNT_BEFORE = select(func.count()).where(
    col(LearningRecordRow.source_label) == bindparam("label"),
    col(LearningRecordRow.scope_type) == bindparam("type"),
    col(LearningRecordRow.scope_id) == bindparam("id"),
    col(LearningRecordRow.fact) < bindparam("ledger_id"),
)


class Records:
    """Writes and reads records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tx: Transaction, records: Iterable[LearningRecord]) -> None:
        """Write records; those with an existing id are ignored."""
        new = insert(LearningRecordRow).on_conflict_do_nothing(index_elements=["id"])
        for record in records:
            tx.session.execute(new, shallow_dict(record) | {"details": dict(record.details)})

    def last_seq(self) -> int:
        """The `seq` of the newest record, 0 without any."""
        with self._database.read() as session:
            return ask(session, _LAST_SEQ).scalar() or 0

    def of_kind(self, *kinds: RecordKind, limit: int = 200) -> list[LearningRecord]:
        """The newest records of these kinds, newest first."""
        return self._load(_OF_KINDS, kinds=json.dumps(kinds), limit=limit)

    def by_id(self, ids: Collection[str]) -> list[LearningRecord]:
        """The records with these ids, oldest first."""
        return self._load(_BY_ID, ids=json.dumps([*ids]), limit=len(ids))[::-1]

    def of_scope(self, scope_type: str, scope_id: str) -> list[LearningRecord]:
        """The newest `MAX_PER_SCOPE` records of a scope, newest first."""
        return self._load(_OF_SCOPE, type=scope_type, id=scope_id, limit=MAX_PER_SCOPE)

    def strong(self, score: float, since: datetime, limit: int) -> list[LearningRecord]:
        """The newest records with at least this score and from this time on, newest first."""
        return self._load(_STRONG, score=score, since=since, limit=limit)

    def count_before(self, label: str, scope_type: str, scope_id: str, ledger_id: int) -> int:
        """Number of records of a label and scope from ledger entries before `ledger_id`."""
        values = {"label": label, "type": scope_type, "id": scope_id, "ledger_id": ledger_id}
        with self._database.read() as session:
            return int(ask(session, _COUNT_BEFORE, values).scalar())

    def _load(self, statement: Select[Any], **values: Any) -> list[LearningRecord]:
        with self._database.read() as session:
            rows = read_all(session, LearningRecordRow, statement, values)
        return [value_of(row, LearningRecord) for row in rows]


# -- opportunities

OPPORTUNITY = 60.0
"""Minimum score of a record from which a candidate can be drafted."""

MAX_OPPORTUNITIES = 25
"""Maximum number of opportunities that a round tries, until it has `MAX_DRAFTS` drafts."""

RECORD_KINDS = {
    CandidateType(type): frozenset(map(RecordKind, kinds))
    for type, kinds in read_table(__file__, "record_kinds.toml").items()
}
"""The kinds of records from which each type of candidate is drafted (SPEC 5.2)."""


@frozen
class Opportunity:
    """A record from which a candidate of this type could be drafted."""

    type: CandidateType
    record: LearningRecord

    @property
    def key(self) -> str:
        """The unique key of the candidate that is drafted from it."""
        return dedupe_key(self.type, self.record.scope_type, self.record.scope_id, self.record.source_label)


def types_of(kind: RecordKind) -> tuple[CandidateType, ...]:
    """The types that can be drafted from a kind of record."""
    return tuple(type for type, kinds in RECORD_KINDS.items() if kind in kinds)


def select_opportunities(records: Iterable[LearningRecord], known_keys: Collection[str] = ()) -> list[Opportunity]:
    """The best `MAX_OPPORTUNITIES` opportunities from records with `OPPORTUNITY` points or more, best first.

    Opportunities with `known_keys` are left out. Each key has one opportunity: that of the record with the highest
    score, and of several such records the newest. The other records of the key can support the candidate.
    """
    strong = (record for record in records if record.score >= OPPORTUNITY)
    opportunities = (Opportunity(type, record) for record in strong for type in types_of(record.kind))
    new = (opportunity for opportunity in opportunities if opportunity.key not in known_keys)
    best_by_key = {opportunity.key: opportunity for opportunity in sorted(new, key=_rank)}
    return sorted(best_by_key.values(), key=_rank, reverse=True)[:MAX_OPPORTUNITIES]


def _rank(opportunity: Opportunity) -> tuple[float, object, str]:
    return opportunity.record.score, opportunity.record.at, opportunity.key + opportunity.record.id
