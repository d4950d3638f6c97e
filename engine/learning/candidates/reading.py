"""A `Reading` of a ledger entry, with which `entry_readers` and `reflection` make learning records, and the parts of a
record's score (SPEC 5.1).

A score is the sum of its parts, from 0 to 100, and each part has a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.frozen import frozen
from engine.learning.candidates.records import Sources, record_id
from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage.ledger import LedgerEntry

OPPORTUNITY = 60.0
"""Minimum score of a record from which a candidate can be drafted."""

Part = tuple[float, str]
"""(points, reason). The reason of a part without points is left out."""

Scope = tuple[str, str]
"""(type, id) of a scope."""

CountBefore = Callable[[str, Scope], int]
"""Counts the earlier records of a label in a scope."""


def add_parts(*parts: Part) -> tuple[float, str]:
    """The sum of the points, from 0 to 100, rounded to tenths, and its reason."""
    total = round(min(100.0, max(0.0, sum(points for points, _ in parts))), 1)
    reason = "; ".join(f"{points:+.1f} {words}" for points, words in parts if abs(points) >= 0.05)
    return total, reason.removeprefix("+")


def share(amount: float, full: float) -> float:
    """The share of `amount` in `full`, from 0 to 1."""
    return min(1.0, max(0.0, amount / full)) if full > 0 else float(amount > 0)


@frozen
class Reading:
    """A ledger entry together with the sources that its reader needs. It also makes the records."""

    entry: LedgerEntry
    sources: Sources
    count_before: CountBefore

    def values(self, *names: str) -> list[Any]:
        """The values of these fields of the entry."""
        return [self.entry.payload[name] for name in names]

    def select(self, *names: str) -> dict[str, Any]:
        """These fields of the entry, by name."""
        return {name: self.entry.payload[name] for name in names}

    def record(
        self,
        kind: RecordKind,
        scope: Scope,
        parts: Iterable[Part],
        details: Mapping[str, Any],
        *,
        cause: str = "",
        key: str = "",
        once: str = "",
        agent: str = "",
        session_id: str = "",
    ) -> LearningRecord:
        """A record of this entry. `cause` is the signature of the cause, for a kind that has several causes. `key`
        distinguishes the records of one entry. All entries with the same `once` make only one record. `agent` is needed
        only if the scope is not an agent."""
        score, reason = add_parts(*parts)
        scope_type, scope_id = scope
        return LearningRecord(
            id=record_id(*((kind, once) if once else (self.entry.id, kind, key))),
            at=self.entry.at,
            kind=kind,
            source_label=label_of(kind, cause),
            scope_type=scope_type,
            scope_id=scope_id,
            score=score,
            reason=reason,
            workspace=self.entry.workspace,
            agent=scope_id if scope_type == "agent" else agent,
            session_id=session_id,
            fact=self.entry.id,
            details=details,
        )

    def in_workspace(self, kind: RecordKind, parts: Iterable[Part], details: Mapping[str, Any], **how: str) -> Any:
        """The record in the scope of its workspace."""
        return self.record(kind, ("workspace", self.entry.workspace), parts, details, **how)

    def before(self, kind: RecordKind, cause: str, scope: Scope) -> int:
        """The number of earlier records with the same cause."""
        return self.count_before(label_of(kind, cause), scope)


def label_of(kind: RecordKind, cause: str) -> str:
    """The label of records of a kind with the same cause."""
    return f"{kind}/{cause}" if cause else kind.value
