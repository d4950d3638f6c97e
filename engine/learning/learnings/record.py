"""What is known of one session when it is asked what it learnt (SPEC 6.6), and who knows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from engine.model import LearningEntry, PermissionRequest, SessionView, TranscriptLine
from engine.model.lessons import Correction
from engine.storage.facts_read import Fact

KINDS = (
    "ValidationHealed",
    "ValidationFailed",
    "RetryRepeated",
    "AgentErred",
    "ToolRefused",
    "WorkOverlapped",
)
"""Facts of the ledger about what a session did in which something can be learnt."""


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence that is a "decision", a "fact" or a "correction" (SPEC 4.4). `speaker` is "agent", "operator" or
    "program"; `preference` says that it is about the human."""

    kind: str
    text: str
    speaker: str
    preference: bool = False


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session, as it really went. `leader` is its agent's, "" for none; `facts` are those of `KINDS`; `red` are
    tests that failed in the workspace when it began; `continues` is the first of the sessions that it goes on with;
    `own_words` says that the operator wrote what it was asked. `reach` is how much work a rule that was met here
    concerns: how many of the latest 200 decided cards were on the same channel, at least 1."""

    view: SessionView
    leader: str = ""
    facts: tuple[Fact, ...] = ()
    said: tuple[Said, ...] = ()
    permissions: tuple[PermissionRequest, ...] = ()
    edit: Correction | None = None
    red: tuple[str, ...] = ()
    continues: str = ""
    own_words: bool = False
    reach: int = 1

    @property
    def seconds(self) -> float:
        """How long it took, 0 while that is not known."""
        view = self.view
        if view.started_at is None or view.ended_at is None:
            return 0.0
        return max(0.0, (view.ended_at - view.started_at).total_seconds())


class Around(Protocol):
    """What the chain needs of the rest of the engine."""

    def of(self, session_id: str, /) -> SessionRecord | None:
        """Everything about a session, None for one that nobody knows."""

    def begun(self, session_id: str, /) -> SessionRecord | None:
        """What was known when it began: nothing of what it did."""

    def lines(self, session_id: str, /) -> Iterable[TranscriptLine]:
        """Its transcript up to now."""

    def secrets(self) -> Iterable[str]:
        """Values that are never written down (SPEC 11.1)."""

    def offer(self, entry: LearningEntry, /) -> None:
        """A lesson of `entry.agent` generalises: its leader may want it (SPEC 1.7). Again harmlessly. Raises `Refusal`
        when the agent is not there."""

    def retracted(self, lesson: str, reason: str, /) -> None:
        """The operator took a lesson back: nobody says it any more."""

    def report(self, where: str, words: str, /) -> None:
        """Tells the operator of what work can go on without."""


def about_session(facts: Iterable[Fact], session_id: str) -> list[Fact]:
    """Of these facts those that are about a session. Pure."""
    return [one for one in facts if session_id in (one.subject, one.payload.get("session_id"))]
