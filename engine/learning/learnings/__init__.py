"""Learnings: what was learned from sessions, stored as Markdown, and promoted from team to session, project and global
scope (SPEC 6, 1.12).

Here is what the modules of this package pass to each other: a `Finding` with its rating (SPEC 6.7), and the
`SessionRecord` that it is from. `SessionSource` is the protocol by which they read sessions, memory and models;
`engine.services.learning` implements it.

| modules | subject |
|---|---|
| `rules`, `questions` | make findings from records of sessions: by rules, and by a model |
| `page`, `store` | entries in a Markdown page, and in the files of all scopes |
| `recurrence` | which entries are the same |
| `promotion` | plans promotions of what recurs, and retractions by the provenance of entries |
| `chain` | follows the sessions, makes entries of findings, and carries out the plans |
| `learnings` | the service |
| `prompt_part` | puts learnings into prompts |

A lesson has the same id here, in leaders' patterns, in souls and in learned guidance. It may import hierarchy, storage,
model, clock, config.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from engine.frozen import frozen
from engine.inference import compute_share
from engine.model import (
    LearningEntry,
    LearningKind,
    LearningType,
    PermissionRequest,
    Score,
    SessionView,
    TranscriptLine,
    Trust,
)
from engine.model.decisions import Correction
from engine.redaction import redact
from engine.storage.ledger import LedgerEntry
from engine.text import plain
from engine.wording import MICRO, count, money

OBSERVATIONS, ESCALATION, ALIGNMENT = "observations", "escalation", "intent-alignment"
CORRECTIVE = "corrective"
"""The phases of findings, see `rules`; two more are `UNPROVEN_PHASES`."""

FAILURE_WEIGHT = 0.4
TIME_WEIGHT = 0.2
COST_WEIGHT = 0.15
REACH_WEIGHT = 0.25
"""The weights of an avoided failure, half an hour, half a dollar and five affected things. Their sum is 1. An avoided
failure of four things gives 0.60, which is the minimum of the gate of importance."""

FULL_SECONDS, FULL_COST, FULL_REACH = 1800.0, MICRO // 2, 5
"""The time in seconds, the cost in micro-dollars and the number of things that give the full weight."""

MAX_TITLE_CHARS = 80
"""Maximum number of characters of the title of an entry that is made from its text."""

ENTRY_KINDS = (
    "ValidationHealed",
    "ValidationFailed",
    "RetryRepeated",
    "AgentErred",
    "ToolRefused",
    "WorkOverlapped",
)
"""Kinds of ledger entries about a session from which findings are made."""


class Basis(Enum):
    """The evidence for a learning: the confidence that follows from it, and the reason in words (SPEC 6.7)."""

    TESTS = 0.9, "tests confirmed it"
    OPERATOR = 0.9, "you confirmed it"
    REPEATED = 0.75, "it was observed repeatedly"
    SINGLE = 0.5, "it was observed once"
    MODEL = 0.4, "a model claims it"


@frozen
class Impact:
    """The effects of a learning."""

    failure_avoided: bool = False
    seconds: float = 0.0
    """Time that was spent, or could be saved."""
    cost: int = 0
    """Micro-dollars that were spent, or could be saved."""
    reach: int = 1
    """Number of tests, files or sessions."""


def rate_confidence(basis: Basis, sessions: int = 1) -> Score:
    """The confidence of a learning that this number of sessions observed."""
    value, reason = basis.value
    return Score(value, (f"{reason} ({sessions} times)" if sessions > 1 else reason,))


def rate_importance(impact: Impact) -> Score:
    """The importance of a learning, from 0 to 1, rounded to hundredths, by failure, time, cost and reach."""
    concerned = "one thing" if impact.reach == 1 else f"{impact.reach} things"
    parts = [
        (FAILURE_WEIGHT if impact.failure_avoided else 0.0, "a failure was avoided"),
        (
            TIME_WEIGHT * compute_share(impact.seconds, FULL_SECONDS),
            f"{count(round(impact.seconds / 60), 'minute')} of work",
        ),
        (COST_WEIGHT * compute_share(impact.cost, FULL_COST), f"{money(impact.cost)} spent on it"),
        (REACH_WEIGHT * compute_share(impact.reach, FULL_REACH), f"it concerns {concerned}"),
    ]
    return Score(
        round(sum(value for value, _ in parts), 2),
        tuple(f"{words}: +{value:.2f}" for value, words in parts if value >= 0.005) or ("it affected nothing",),
    )


@frozen
class Finding:
    """A learning before it becomes an entry of a scope. `general` says why it is valid beyond its session, "" if three
    tasks must confirm it first (SPEC 6.8)."""

    text: str
    basis: Basis
    impact: Impact = Impact()
    phase: str = OBSERVATIONS
    kind: LearningKind = LearningKind.TASK
    type: LearningType = LearningType.DECLARATIVE
    about: str = ""
    """What identifies it, "" for a statement, which its words identify."""
    title: str = ""
    """"" for the beginning of the text."""
    trust: Trust = Trust.QUOTED
    general: str = ""


@frozen
class Statement:
    """A sentence from a transcript (SPEC 4.4) or a prompt."""

    kind: str
    """ "decision", "fact", "correction", or "edit" for one that the operator added to a prompt or removed from it."""
    text: str
    speaker: str
    """ "agent", "operator", "program", or "prompt" for a removed one."""
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
    """The operator's edit of its prompt."""
    failing: tuple[str, ...] = ()
    """Tests that failed in the workspace when the session began."""
    continues: str = ""
    """The first session of the chain that this session continues, "" for none."""
    own_words: bool = False
    """Whether the operator wrote its prompt."""
    reach: int = 1
    """Number of cards on the same channel among the latest 200 decided ones, at least 1."""

    @property
    def task_title(self) -> str:
        """The title of its task, without secrets."""
        return make_title(redact(self.view.prompt))

    @property
    def seconds(self) -> float:
        """Its duration, 0 if unknown."""
        view = self.view
        if view.started_at is None or view.ended_at is None:
            return 0.0
        return max(0.0, (view.ended_at - view.started_at).total_seconds())


def get_domain(kind: LearningKind) -> str:
    """The domain of entries of a kind."""
    return "task" if kind is LearningKind.TASK else "team"


def make_title(text: str) -> str:
    """The title of a text: its beginning, in one line."""
    return plain(text, MAX_TITLE_CHARS)


class SessionSource(Protocol):
    """Reads sessions, and passes lessons on to the rest of the engine."""

    def load_record(self, session_id: str, /) -> SessionRecord | None:
        """The record of a session, None for an unknown one."""

    def load_start(self, session_id: str, /) -> SessionRecord | None:
        """The record of a session with the data known at its start, None for an unknown session."""

    def read_transcript(self, session_id: str, /) -> Iterable[TranscriptLine]:
        """Its transcript so far."""

    def list_secrets(self) -> Iterable[str]:
        """Values that are never written (SPEC 11.1)."""

    def offer(self, entry: LearningEntry, /) -> None:
        """Offer a lesson to the leader of `entry.agent` (SPEC 1.7). A second offer changes nothing. Raises `Refusal`
        for an unknown agent."""

    def retract(self, lesson: str, reason: str, /) -> None:
        """Remove a lesson that the operator retracted from guidance and candidates."""

    def report(self, service: str, message: str, /) -> None:
        """Report a problem that does not stop work to the operator."""
