"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

| modules | subject |
|---|---|
| `reflection`, `entry_readers` | scored records of ledger entries, by a reader for each kind of entry; their table |
| `sequences` | finds commands that an agent repeats, for records and for drafts |
| `evaluation` | from which records candidates are drafted, and the evidence for and against a candidate |
| `drafting`, `effects` | drafts candidates, and checks and describes what each would change |
| `life_cycle` | the table of candidates: proposed, active, rolled back; its stages in words |
| `overlays` | the active effects, in prompts and elsewhere, with the trials that measure them |
| `adaptation` | the service |

It may import hierarchy, storage, model, clock, config. `CandidateSources` is the protocol by which it reads sessions,
cards, memory, guidance, models and rails, some of which are above it; `engine.services.learning` implements it. An
`EntryReading` is what the readers of ledger entries get, and makes their records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Protocol

from engine.frozen import frozen
from engine.model import ParaFact, TranscriptLine, Trust
from engine.model.adaptation import Candidate, LearningRecord, RecordKind
from engine.model.decisions import Correction
from engine.text import hex_hash

if TYPE_CHECKING:
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


class CandidateSources(Protocol):
    """Reads from other packages. `entry_readers` ask for what an event does not say, `drafting` for what happened in
    sessions, and `adaptation` for what must not be proposed or activated."""

    def find_correction(self, card_id: str, /) -> Correction | None:
        """The operator's edit of a card's prompt, with the session that it led to; None if it was not edited."""

    def find_kept_fact(self, fact_id: str, /) -> ParaFact | None:
        """The fact of layer G, None if it no longer exists."""

    def find_healed_tests(self, session_id: str, /) -> HealedTests | None:
        """The tests that a session fixed, None for none."""

    def has_ended(self, session_id: str, /) -> bool:
        """Whether the session is over or unknown, so that its transcript no longer grows."""

    def read_transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        """The newest lines, empty for an unknown session."""

    def read_patch(self, session_id: str, /, *, landed: bool) -> str:
        """The diff that fixed the tests, in a form that git can apply: the whole change set if `landed`, else the
        changes between the last failed run and the passed run. "" if git no longer has it."""

    def list_changed_files(self, session_id: str, /) -> Sequence[str]:
        """The paths in its change set; empty without one."""

    def find_landed_prompt(self, session_id: str, /) -> str:
        """The prompt of a session that changed files; "" if no part of its changes is landed any more."""

    def read_summary(self, session_id: str, /) -> str:
        """The agent's last words in a session, "" for none."""

    def find_corrections(self, session_id: str, /) -> Sequence[str]:
        """The corrections and decisions captured from its transcript (SPEC 4.4)."""

    def read_memory(self, memory_id: str, /) -> tuple[str, Trust]:
        """The text of a memory, "" if it was forgotten, and its trust."""

    def read_guidance(self, ref: str, /) -> tuple[str, Trust]:
        """The guidance with this reference, "" if it no longer exists, and its trust."""

    def find_models(self, agent: str, /) -> ModelsUsed | None:
        """The models of an agent, None without a call or without a price of its model."""

    def list_flows(self) -> Collection[str]:
        """Names of the built-in flows, which new flows may not have."""

    def read_phase(self) -> int:
        """The number of the phase (SPEC 2.6)."""

    def find_block_reason(self) -> str:
        """Why nothing may run by itself now, "" if it may."""

    def find_objection(self, candidate: Candidate, /) -> str:
        """The objection of the content rules because of which only the operator may activate a candidate, "" for
        none."""

    def list_secrets(self) -> Iterable[str]:
        """Values that no candidate may contain."""


# -- records of ledger entries

SESSION_KINDS = frozenset({"ValidationFailed", "ValidationHealed", "RetryRepeated", "AgentErred", "ToolsUsed"})
"""The kinds of entries whose subject is a session. In other entries about a session, its id is a field."""

RecordScope = tuple[str, str]
"""(type, id) of a scope."""

ScorePart = tuple[float, str]
"""(points, reason). The reason of a part without points is left out."""


@frozen
class RecordIdentity:
    """What distinguishes a record from others of its kind."""

    cause: str = ""
    """The signature of the cause, for a kind that has several causes. It is part of the label."""
    key: str = ""
    """Distinguishes the records of one entry."""
    unique_by: str = ""
    """All entries with the same value make only one record; "" for a record of each entry."""


ONLY_RECORD = RecordIdentity()
"""The identity of the only record of an entry, of a kind with one cause."""


@frozen
class EntryReading:
    """A ledger entry together with what its reader needs."""

    entry: LedgerEntry
    sources: CandidateSources
    count_before: Callable[[str, RecordScope], int]
    """Counts the earlier records of a label in a scope."""
    zone: tzinfo | None = None
    """The operator's time zone, None for that of the machine."""

    @property
    def workspace_scope(self) -> RecordScope:
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
        scope: RecordScope,
        parts: Iterable[ScorePart],
        details: Mapping[str, Any],
        identity: RecordIdentity = ONLY_RECORD,
        *,
        agent: str = "",
        session_id: str = "",
    ) -> LearningRecord:
        """A record of this entry. By default, the agent is that of the scope or of the entry, and the session that of
        the entry."""
        entry, payload = self.entry, self.entry.payload
        session_of_entry = entry.subject if entry.kind in SESSION_KINDS else payload.get("session_id", "")
        score, reason = sum_parts(*parts)
        # Reading the entry again gives the same id.
        unique_values = (kind, identity.unique_by) if identity.unique_by else (entry.id, kind, identity.key)
        return LearningRecord(
            id="rec_" + hex_hash("\x1f".join(map(str, unique_values)), 12),
            at=entry.at,
            kind=kind,
            source_label=make_label(kind, identity.cause),
            scope_type=scope[0],
            scope_id=scope[1],
            score=score,
            reason=reason,
            workspace=entry.workspace,
            agent=scope[1] if scope[0] == "agent" else agent or payload.get("agent", ""),
            session_id=session_id or session_of_entry,
            ledger_id=entry.id,
            details=details,
        )

    def count_earlier(self, kind: RecordKind, cause: str, scope: RecordScope) -> int:
        """The number of earlier records with the same cause."""
        return self.count_before(make_label(kind, cause), scope)


def make_label(kind: RecordKind, cause: str) -> str:
    """The label of records of a kind with the same cause."""
    return f"{kind}/{cause}" if cause else kind.value


def sum_parts(*parts: ScorePart) -> tuple[float, str]:
    """The sum of the points, from 0 to 100, rounded to tenths, and its reason, such as "a call was wrong: +50"."""
    total = round(min(100.0, max(0.0, sum(points for points, _ in parts))), 1)
    reason = "; ".join(f"{description}: {round(points, 1):+g}" for points, description in parts if abs(points) >= 0.05)
    return total, reason
