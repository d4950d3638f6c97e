"""What adaptation reads (SPEC 5.1): the protocol `Sources` for packages above it, which `engine.wiring.adaptation`
implements, and a `Reading` of a ledger entry, with which `entry_readers` and `reflection` make learning records.

A score is the sum of its parts, from 0 to 100, and each part has a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Protocol

from engine.frozen import frozen
from engine.learning.candidates.records import record_id
from engine.model import ParaFact, TranscriptLine, Trust
from engine.model.adaptation import Candidate, LearningRecord, RecordKind
from engine.model.learnings import Correction
from engine.storage.ledger import LedgerEntry


@frozen
class ModelPrice:
    """A model and its price."""

    model: str
    """`PROVIDER:MODEL`."""
    price: int
    """Micro-dollars for a million tokens: four parts of prompt and one part of answer, as is usual."""


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

    def card_correction(self, card_id: str, /) -> Correction | None:
        """The operator's edit of a card's prompt, with the session that it led to; None if it was not edited."""

    def kept_fact(self, fact_id: str, /) -> ParaFact | None:
        """The fact of layer G, None if it no longer exists."""

    def healed_tests(self, session_id: str, /) -> HealedTests | None:
        """The tests that a session fixed, None for none."""

    # -- about sessions

    def session_ended(self, session_id: str, /) -> bool:
        """Whether the session is over, so that its transcript no longer grows."""

    def transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        """The newest lines, empty for an unknown session."""

    def patch(self, session_id: str, /, *, landed: bool) -> str:
        """The diff that fixed the tests, in a form that git can apply: the whole change set if `landed`, else the
        changes between the last failed run and the passed run. "" if git no longer has it."""

    def changed_files(self, session_id: str, /) -> Sequence[str]:
        """The paths in its change set; empty without one."""

    def title(self, session_id: str, /) -> str:
        """The prompt of a session; "" if the operator discarded or undid its work."""

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
        """Why nothing may run by itself now, "" if it may."""

    def objection_to(self, candidate: Candidate, /) -> str:
        """The objection of the content rules because of which only the operator may activate a candidate, "" for
        none."""

    def secrets(self) -> Iterable[str]:
        """Values that no candidate may contain."""


# -- ledger entries

Part = tuple[float, str]
"""(points, reason). The reason of a part without points is left out."""

Scope = tuple[str, str]
"""(type, id) of a scope."""

CountBefore = Callable[[str, Scope], int]
"""Counts the earlier records of a label in a scope."""


def add_parts(*parts: Part) -> tuple[float, str]:
    """The sum of the points, from 0 to 100, rounded to tenths, and its reason, such as "a call was wrong: +50"."""
    total = round(min(100.0, max(0.0, sum(points for points, _ in parts))), 1)
    reason = "; ".join(f"{words}: {round(points, 1):+g}" for points, words in parts if abs(points) >= 0.05)
    return total, reason


@frozen
class Reading:
    """A ledger entry together with the sources that its reader needs. It also makes the records."""

    entry: LedgerEntry
    sources: Sources
    count_before: CountBefore
    zone: tzinfo | None = None
    """The operator's time zone, None for that of the machine."""

    @property
    def workspace_scope(self) -> Scope:
        """The scope of the entry's workspace."""
        return "workspace", self.entry.workspace

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

    def before(self, kind: RecordKind, cause: str, scope: Scope) -> int:
        """The number of earlier records with the same cause."""
        return self.count_before(label_of(kind, cause), scope)


def label_of(kind: RecordKind, cause: str) -> str:
    """The label of records of a kind with the same cause."""
    return f"{kind}/{cause}" if cause else kind.value
