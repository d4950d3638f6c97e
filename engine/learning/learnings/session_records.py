"""The record of a session from which learnings are made, and the protocol `SessionSource`, by which this package reads
sessions. `engine.wiring.learning` implements it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from engine.frozen import frozen
from engine.model import LearningEntry, PermissionRequest, SessionView, TranscriptLine
from engine.model.learnings import Correction
from engine.storage.ledger import LedgerEntry

ENTRY_KINDS = (
    "ValidationHealed",
    "ValidationFailed",
    "RetryRepeated",
    "AgentErred",
    "ToolRefused",
    "WorkOverlapped",
)
"""Kinds of ledger entries about a session from which findings are made."""


@frozen
class Statement:
    """A sentence from a transcript (SPEC 4.4)."""

    kind: str
    """ "decision", "fact" or "correction"."""
    text: str
    speaker: str
    """ "agent", "operator" or "program"."""
    preference: bool = False
    """Whether the statement is a preference of the operator."""


@frozen
class SessionRecord:
    """The data about one session that rules read."""

    view: SessionView
    leader: str = ""
    """The leader of its agent, "" for none."""
    entries: tuple[LedgerEntry, ...] = ()
    """Its ledger entries of `ENTRY_KINDS`."""
    statements: tuple[Statement, ...] = ()
    permissions: tuple[PermissionRequest, ...] = ()
    edit: Correction | None = None
    failing: tuple[str, ...] = ()
    """Tests that failed in the workspace when the session began."""
    continues: str = ""
    """The first session of the chain that this session continues, "" for none."""
    own_words: bool = False
    """Whether the operator wrote its prompt."""
    reach: int = 1
    """Number of cards on the same channel among the latest 200 decided ones, at least 1."""

    @property
    def seconds(self) -> float:
        """Its duration, 0 if unknown."""
        view = self.view
        if view.started_at is None or view.ended_at is None:
            return 0.0
        return max(0.0, (view.ended_at - view.started_at).total_seconds())


class SessionSource(Protocol):
    """Reads sessions, and passes lessons on to the rest of the engine."""

    def load_record(self, session_id: str, /) -> SessionRecord | None:
        """The record of a session, None for an unknown one."""

    def load_start(self, session_id: str, /) -> SessionRecord | None:
        """The record of a session with the data known at its start, None for an unknown session."""

    def transcript(self, session_id: str, /) -> Iterable[TranscriptLine]:
        """Its transcript so far."""

    def secrets(self) -> Iterable[str]:
        """Values that are never written (SPEC 11.1)."""

    def offer(self, entry: LearningEntry, /) -> None:
        """Offer a lesson to the leader of `entry.agent` (SPEC 1.7). A second offer changes nothing. Raises `Refusal`
        for an unknown agent."""

    def retract(self, lesson: str, reason: str, /) -> None:
        """Remove a lesson that the operator retracted from guidance and candidates."""

    def report(self, service: str, message: str, /) -> None:
        """Report a problem that does not stop work to the operator."""


def entries_about(entries: Iterable[LedgerEntry], session_id: str) -> list[LedgerEntry]:
    """The ledger entries about a session. Pure."""
    return [entry for entry in entries if session_id in (entry.subject, entry.payload.get("session_id"))]
