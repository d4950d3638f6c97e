"""The table of learning records (SPEC 4.2, 5.1). Records are append-only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, col

from engine.frozen import frozen
from engine.model import ParaFact, TranscriptLine, Trust
from engine.model.adaptation import Candidate, LearningRecord, RecordKind
from engine.model.learnings import Correction
from engine.storage.database import Database, Transaction
from engine.storage.ledger import LedgerEntry
from engine.storage.rows import Row, UtcDateTime, ask, each_of, json_field, load_all, select_all, utc_field, value_of

# The interface through which adaptation reads from packages above it. `engine.wiring.adaptation` implements it.


@frozen
class ModelPrice:
    """A model and its price."""

    model: str
    """`PROVIDER:MODEL`."""
    price: int
    """Micro-dollars for a million tokens, of prompt and answer in the usual ratio of four to one."""


@frozen
class ModelsUsed:
    """The models of an agent's recent calls."""

    current: ModelPrice
    """The model of most calls."""
    channel: str
    """The channel of most sessions."""
    others: tuple[ModelPrice, ...]
    """Other usable models."""
    median_prompt: int | None = None
    """Median length of its prompts in characters, None if unknown."""


@frozen
class HealedTests:
    """Tests that failed when a session began and passed with its changes."""

    tests: Mapping[str, str]
    """Signatures (see `FixTemplate.causes`) by test name, "" for unknown."""
    project: str
    agent: str
    cost: int
    """Cost of the session in micro-dollars."""


class Sources(Protocol):
    """Reads cards, sessions, memory, guidance, models and rails."""

    # -- about ledger entries

    def entries_between(self, start: datetime, end: datetime, kinds: tuple[str, ...], /) -> Sequence[LedgerEntry]:
        """Ledger entries of these kinds with start <= time < end, oldest first."""

    def card_correction(self, card_id: str, /) -> Correction | None:
        """The operator's edit of a card's prompt, with the session that it led to; None if it was not edited."""

    def kept_fact(self, fact_id: str, /) -> ParaFact | None:
        """The fact of layer G, None if it no longer exists."""

    def healed_tests(self, session_id: str, /) -> HealedTests | None:
        """The tests that a session fixed, None for none."""

    def local_day(self, at: datetime, /) -> str:
        """The day of an instant in the operator's time zone, as `2026-01-05`."""

    # -- about sessions

    def session_ended(self, session_id: str, /) -> bool:
        """False while the session still runs and may say more."""

    def transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        """The newest lines, empty for an unknown session."""

    def patch(self, session_id: str, /, *, landed: bool) -> str:
        """The diff that fixed the tests, as git applies it: the whole change set if `landed`, else from the last failed
        to the passed run. "" if git no longer has it."""

    def changed_files(self, session_id: str, /) -> Sequence[str]:
        """The paths in its change set; empty without one."""

    def title(self, session_id: str, /) -> str:
        """The prompt of a session; "" when the operator discarded or undid its work."""

    def summary(self, session_id: str, /) -> str: ...

    def corrections(self, session_id: str, /) -> Sequence[str]:
        """The corrections and decisions captured from its transcript (SPEC 4.4)."""

    def memory_text(self, memory_id: str, /) -> tuple[str, Trust]:
        """The text of a memory, "" if it was forgotten, and its trust."""

    def guidance_text(self, ref: str, /) -> tuple[str, Trust]:
        """The guidance with this reference, "" if it no longer exists, and its trust."""

    # -- about the present state

    def models(self, agent: str, /) -> ModelsUsed | None:
        """The models of an agent, None without a call or without a price of its model."""

    def max_healing_attempts(self) -> int:
        """Maximum number of healing attempts in the settings."""

    def flows(self) -> Collection[str]:
        """Names of the built-in flows, which new flows may not have."""

    def phase(self) -> int:
        """The number of the phase (SPEC 2.6)."""

    def block_reason(self) -> str:
        """Why nothing may run by itself now, "" when it may."""

    def objection_to(self, candidate: Candidate, /) -> str:
        """Why only the operator may activate a candidate, by the content rules; "" for no objection."""

    def secrets(self) -> Iterable[str]:
        """Values that no candidate may contain."""


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
