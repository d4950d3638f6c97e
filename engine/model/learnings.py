"""Entries of the promotion chain: what was learned from sessions, with scope, evidence and provenance (SPEC 6).

`engine.learning.learnings` reads and writes them; the learning screen and `clawpy learnings` show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.prompts import Trust, may_guide


class LearningScope(StrEnum):
    """Where a learning is valid, most specific first (SPEC 6.1)."""

    TEAM = "team"  # the workers of one leader, in one session
    SESSION = "session"
    PROJECT = "project"
    GLOBAL = "global"


class LearningKind(StrEnum):
    """The subject of an entry. Kinds are never mixed (SPEC 6.1, 6.3)."""

    INSTITUTIONAL = "institutional"  # how things are done here: `institutional.md`
    TASK = "task"  # about a piece of work: `tasks/`
    PROXY = "proxy"  # about the operator: `proxy.md`, `proxy-tasks/`; never promoted


class LearningType(StrEnum):
    """The sort of statement of an entry."""

    DECLARATIVE = "declarative"  # how something is
    PROCEDURAL = "procedural"  # how something is done
    DIRECTIVE = "directive"  # how something must be
    CORRECTIVE = "corrective"  # what was wrong, and what is right


class LearningStatus(StrEnum):
    """Whether an entry is valid. A compacted one was merged into another."""

    ACTIVE = "active"
    RETIRED = "retired"  # "retracted" for the operator
    COMPACTED = "compacted"


PROSPECTIVE, IN_FLIGHT = "prospective", "in-flight"
"""The phases of a risk, which is found before a session, and of an assumption of its agent."""

UNPROVEN_PHASES = (PROSPECTIVE, IN_FLIGHT)


@frozen
class EntrySource:
    """The source of a promoted entry: another entry, and the session that it came from."""

    entry: str
    session: str = ""


@frozen
class LearningEntry:
    """One learning, an entry of a Markdown file."""

    id: str
    scope: LearningScope
    scope_id: str
    """The leader (team), the session's id, the project's key, or "" (global)."""
    kind: LearningKind
    type: LearningType
    domain: str
    """ "team" for how agents work together, "task" for the work itself."""
    text: str
    title: str
    importance: float
    """From 0 to 1."""
    confidence: float
    """From 0 to 1."""
    reasons: tuple[str, ...]
    """Of confidence and importance, in words (SPEC 6.7)."""
    phase: str
    """When in a session it was found: "observations", "escalation", "intent-alignment", "prospective", "in-flight" or
    "corrective"."""
    status: LearningStatus
    created_at: datetime | None
    reinforcement_count: int = 0
    last_reinforced: datetime | None = None
    session_id: str = ""
    session_task: str = ""
    promoted_from: tuple[EntrySource, ...] = ()
    promoted_at: datetime | None = None
    path: str = ""
    """Its file under the home's data folder."""
    workspace: str = ""
    agent: str = ""
    reinforced_by: tuple[str, ...] = ()
    """The sessions that found it again."""
    retired_because: str = ""
    merged_into: str = ""
    about: str = ""
    """The subject that a rule found. Entries with the same `about` are the same. "" for entries that are compared by
    their text."""
    review: str = ""
    """Why the operator must review it, "" for no reason."""
    review_causes: tuple[str, ...] = ()
    """The ids of the entries because of whose retraction it must be reviewed."""
    review_since: datetime | None = None
    continues: str = ""
    """The first of the sessions that its session continues, "" for none."""
    trust: Trust = Trust.QUOTED
    approved_at: datetime | None = None
    """When the operator approved its words, None for never."""
    lesson: str = ""
    """The id of its lesson (see `lessons.make_lesson_id`), also after the operator edits the text."""

    @property
    def may_guide(self) -> bool:
        """Whether prompts may contain it: the operator wrote or approved it, or the engine measured it."""
        return may_guide(self.trust, approved=self.approved_at is not None)

    @property
    def work(self) -> str:
        """The piece of work from which it comes. Sessions that continue each other are one piece of work."""
        return self.continues or self.session_id

    @property
    def source_sessions(self) -> frozenset[str]:
        """The sessions that its sources come from."""
        return frozenset(source.session for source in self.promoted_from)

    @property
    def is_active(self) -> bool:
        """Whether it is valid."""
        return self.status is LearningStatus.ACTIVE

    @property
    def is_comparable(self) -> bool:
        """Whether it is valid and may be compared with others. What is about the operator may not (SPEC 6.3)."""
        return self.is_active and not self.review and self.kind is not LearningKind.PROXY and bool(self.text.strip())

    @property
    def is_settled(self) -> bool:
        """Whether it may be promoted or used in a prompt: it is comparable, and no mere risk or assumption."""
        return self.is_comparable and self.phase not in UNPROVEN_PHASES

    @property
    def can_be_promoted(self) -> bool:
        """Whether the operator may have it used in all projects. If it waits for review, that comes first."""
        return self.is_settled and self.scope is LearningScope.PROJECT

    @property
    def can_be_kept(self) -> bool:
        """Whether it waits for review, or was retracted and not forgotten."""
        return bool(self.review) if self.is_active else self.status is LearningStatus.RETIRED and bool(self.text)


@frozen
class ScopeState:
    """The number of entries in a scope, the time of the newest, and `faults`: errors of its files, with file and
    line."""

    scope: LearningScope
    scope_id: str
    workspace: str
    path: str
    institutional: int = 0
    tasks: int = 0
    proxy: int = 0
    retired: int = 0
    newest: datetime | None = None
    faults: tuple[str, ...] = ()


@frozen
class LearningReach:
    """A model call whose prompt contained an entry."""

    call: str
    session: str
    agent: str
    at: datetime


@frozen
class LearningView:
    """An entry with its provenance (SPEC 6.5): the entries that it was promoted from, those that were promoted from it,
    directly or in steps, and its sessions. `prompts` is the number of calls that contained it, and `reached` are the
    newest of them. `gone` are ids of sources that are in no file any more."""

    entry: LearningEntry
    promoted_from: tuple[LearningEntry, ...] = ()
    promoted_to: tuple[LearningEntry, ...] = ()
    reached: tuple[LearningReach, ...] = ()
    prompts: int = 0
    sessions: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@frozen
class ChainReport:
    """The result of one run of the chain: ids of entries. `extracted` is by session; `judged` is the verdict on each
    project entry; `compacted` are entries that were merged into others; `faults` are errors."""

    extracted: Mapping[str, int] = field(default_factory=dict)
    promoted: tuple[str, ...] = ()
    reinforced: tuple[str, ...] = ()
    compacted: tuple[str, ...] = ()
    judged: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it changed nothing."""
        return not (self.extracted or self.promoted or self.reinforced or self.compacted)


@frozen
class RetractReport:
    """The result of a retraction: `retired` are the ids of retired entries; `queued` are those promoted from them,
    which wait for the operator; `sessions` are those that the entry comes from."""

    retired: tuple[str, ...]
    queued: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
