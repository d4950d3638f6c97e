"""Learning records: what happened from which an agent could learn, with a score (SPEC 5.1).

`reflection` writes records into an append-only table, and `adaptation` reads them. The strong ones are opportunities,
from which candidates are drafted (SPEC 5.2, 5.3); the others support or oppose a candidate. Example: a record of kind
`failed_tdd` with 60 points or more is an opportunity for a fix template; with fewer it can only support a
template that another record of the same scope and source led to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field

from engine.files import read_table
from engine.frozen import frozen
from engine.model.adaptation import CandidateType, LearningRecord, RecordKind, make_dedupe_key
from engine.storage.database import Database, Transaction
from engine.storage.rows import (
    Row,
    ask,
    read_all,
    shallow_dict,
    value_of,
)


class LearningRecordRow(Row, table=True):
    """One record. `seq` grows with each new record; `fact` is the id of its ledger entry."""

    __tablename__ = "learning_records"

    seq: int = Field(default=None, primary_key=True)
    """Set by the database."""
    id: str
    at: datetime
    kind: RecordKind
    source_label: str
    scope_type: str
    scope_id: str
    score: float
    reason: str
    workspace: str = ""
    agent: str = ""
    session_id: str = ""
    fact: int = 0
    """The id of the ledger entry that it was made from."""
    details: dict[str, Any]


MAX_PER_SCOPE = 500
"""Maximum number of records of one scope that are read, the newest first."""

_OF_KINDS = "kind IN (SELECT value FROM json_each(:kinds))"
_BY_ID = "id IN (SELECT value FROM json_each(:ids))"
_STRONG = "score >= :score AND at >= :since"
_OF_SCOPE = "scope_type = :type AND scope_id = :id"
_COUNT_BEFORE = """
    SELECT count(*) FROM learning_records
    WHERE source_label = :label AND scope_type = :type AND scope_id = :id AND fact < :ledger_id
"""


class Records:
    """Writes and reads records. A record is never changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tx: Transaction, records: Iterable[LearningRecord]) -> None:
        """Write records; those with an existing id are ignored."""
        statement = insert(LearningRecordRow).on_conflict_do_nothing(index_elements=["id"])
        for record in records:
            tx.session.execute(statement, shallow_dict(record) | {"details": dict(record.details)})

    def read_last_seq(self) -> int:
        """The `seq` of the newest record, 0 without any."""
        with self._database.read() as session:
            return int(ask(session, "SELECT coalesce(max(seq), 0) FROM learning_records").scalar())

    def read_of_kinds(self, *kinds: RecordKind, limit: int = 200) -> list[LearningRecord]:
        """The newest records of these kinds, newest first."""
        return self._load(_OF_KINDS, kinds=kinds, limit=limit)

    def read_by_ids(self, ids: Collection[str]) -> list[LearningRecord]:
        """The records with these ids, oldest first."""
        return self._load(_BY_ID, ids=[*ids], limit=len(ids))[::-1]

    def read_of_scope(self, scope_type: str, scope_id: str) -> list[LearningRecord]:
        """The newest `MAX_PER_SCOPE` records of a scope, newest first."""
        return self._load(_OF_SCOPE, type=scope_type, id=scope_id, limit=MAX_PER_SCOPE)

    def read_strong(self, score: float, since: datetime, limit: int) -> list[LearningRecord]:
        """The newest records with at least this score and from this time on, newest first."""
        return self._load(_STRONG, score=score, since=since, limit=limit)

    def count_before(self, label: str, scope_type: str, scope_id: str, ledger_id: int) -> int:
        """Number of records of a label and scope from ledger entries before `ledger_id`."""
        values = {"label": label, "type": scope_type, "id": scope_id, "ledger_id": ledger_id}
        with self._database.read() as session:
            return int(ask(session, _COUNT_BEFORE, values).scalar())

    def _load(self, condition: str, **values: Any) -> list[LearningRecord]:
        """The newest records for which a condition with these values is true, at most `limit`."""
        clauses = f"WHERE {condition} ORDER BY seq DESC LIMIT :limit"
        with self._database.read() as session:
            rows = read_all(session, LearningRecordRow, clauses, values)
        return [value_of(row, LearningRecord) for row in rows]


# -- which records can become candidates

MIN_OPPORTUNITY_SCORE = 60.0
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
        return make_dedupe_key(self.type, self.record.scope_type, self.record.scope_id, self.record.source_label)


def find_types(kind: RecordKind) -> tuple[CandidateType, ...]:
    """The types that can be drafted from a kind of record."""
    return tuple(type for type, kinds in RECORD_KINDS.items() if kind in kinds)


def select_opportunities(records: Iterable[LearningRecord], known_keys: Collection[str] = ()) -> list[Opportunity]:
    """The best `MAX_OPPORTUNITIES` opportunities from records with `MIN_OPPORTUNITY_SCORE` points or more, best first.

    Opportunities with `known_keys` are left out. Each key has one opportunity: that of the record with the highest
    score, and of several such records the newest. The other records of the key can support the candidate.
    """
    strong = (record for record in records if record.score >= MIN_OPPORTUNITY_SCORE)
    opportunities = (Opportunity(type, record) for record in strong for type in find_types(record.kind))
    new_opportunities = (opportunity for opportunity in opportunities if opportunity.key not in known_keys)
    best_by_key = {opportunity.key: opportunity for opportunity in sorted(new_opportunities, key=_rank)}
    return sorted(best_by_key.values(), key=_rank, reverse=True)[:MAX_OPPORTUNITIES]


def _rank(opportunity: Opportunity) -> tuple[float, datetime, str]:
    """The sort key of an opportunity: the higher, the better."""
    return opportunity.record.score, opportunity.record.at, opportunity.key + opportunity.record.id
