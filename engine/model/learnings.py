"""Entries of the promotion chain, their scopes, and reports of a run (SPEC 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.trust import Trust, may_guide


class LearningScope(StrEnum):
    """Where a learning holds, the most specific first (SPEC 6.1)."""

    TEAM = "team"  # the people of one leader, in one session
    SESSION = "session"
    PROJECT = "project"
    GLOBAL = "global"


class LearningKind(StrEnum):
    """What an entry is about. Kinds never mix (SPEC 6.1, 6.3)."""

    INSTITUTIONAL = "institutional"  # how things are done here: `institutional.md`
    TASK = "task"  # what was found out about a piece of work: `tasks/`
    PROXY = "proxy"  # about the human: `proxy.md`, `proxy-tasks/`; is never promoted


class LearningType(StrEnum):
    """What an entry says."""

    DECLARATIVE = "declarative"  # how it is
    PROCEDURAL = "procedural"  # how it is done
    DIRECTIVE = "directive"  # how it has to be
    CORRECTIVE = "corrective"  # what was wrong, and how it is right


class LearningStatus(StrEnum):
    """Whether an entry holds. A compacted one lives on in another."""

    ACTIVE = "active"
    RETIRED = "retired"
    COMPACTED = "compacted"


@frozen
class EntrySource:
    """What an entry was promoted from: another entry, and the session it came out of."""

    entry: str
    session: str = ""


@frozen
class LearningEntry:
    """One entry of a Markdown file.

    `scope_id` is the leader (team), the session's id, the project's key, or "" (global); `domain` is "team" for what
    concerns how people work together, "task" for the work itself. `importance` and `confidence` are from 0 to 1, with
    their `reasons` in words (SPEC 6.7). `phase` is when in a session it was found: "observations", "escalation",
    "intent-alignment", "prospective", "in-flight" or "corrective". `reinforced_by` are the sessions that
    said it again; `reinforcement_count` is how many. `path` is the file under the home's data folder.

    `about` names what a rule found, in the same words whenever it finds it again: such entries are the same when it is
    the same, all others by what they say. `continues` is the first of the sessions that its own goes on with, "" for
    none: together they are one piece of work. `review` says why the operator is to look at it, "" for no reason.

    `lesson` is the id that it has wherever it stands (`engine.model.lessons`), however the operator words it later.
    `trust` says whose words it is; `approved_by` and `approved_at` who let words of others guide, and when.
    """

    id: str
    scope: LearningScope
    scope_id: str
    kind: LearningKind
    type: LearningType
    domain: str
    text: str
    title: str
    importance: float
    confidence: float
    reasons: tuple[str, ...]
    phase: str
    status: LearningStatus
    created_at: datetime | None
    reinforcement_count: int = 0
    last_reinforced: datetime | None = None
    session_id: str = ""
    session_task: str = ""
    promoted_from: tuple[EntrySource, ...] = ()
    promoted_at: datetime | None = None
    path: str = ""
    workspace: str = ""
    agent: str = ""
    reinforced_by: tuple[str, ...] = ()
    retired_because: str = ""
    merged_into: str = ""
    about: str = ""
    review: str = ""
    review_since: datetime | None = None
    continues: str = ""
    trust: Trust = Trust.QUOTED
    approved_by: str = ""
    approved_at: datetime | None = None
    lesson: str = ""

    @property
    def may_guide(self) -> bool:
        """Whether it may stand in prompts: the operator said or approved it, or the engine measured it."""
        return may_guide(self.trust, approved=bool(self.approved_by))

    @property
    def work(self) -> str:
        """The piece of work that it came out of: sessions that go on with each other are one."""
        return self.continues or self.session_id

    @property
    def active(self) -> bool:
        """Whether it holds now."""
        return self.status is LearningStatus.ACTIVE


@frozen
class ScopeState:
    """One scope and what is in it. `faults` are entries and files that cannot be read, each with file and line;
    `newest` is when its youngest entry was written, None for one without dates."""

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
    """A prompt that carried an entry: the call of a model, in which session, of which agent."""

    call: str
    session: str
    agent: str
    at: datetime


@frozen
class LearningView:
    """An entry with its provenance both ways (SPEC 6.5): the entries it was promoted from and those promoted from it,
    directly or in steps; `sessions` are those that it is owed to; `reached` the newest prompts that carried it, of
    `prompts` in all. `gone` are ids of sources that are in no file any more."""

    entry: LearningEntry
    promoted_from: tuple[LearningEntry, ...] = ()
    promoted_to: tuple[LearningEntry, ...] = ()
    reached: tuple[LearningReach, ...] = ()
    prompts: int = 0
    sessions: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@frozen
class ChainReport:
    """What one run of the chain did: ids of entries. `extracted` by session; `judged` is what the judge said of each
    project entry, in words; `compacted` are entries that were folded into others; `faults` what could not be read or
    done, in words."""

    extracted: Mapping[str, int] = field(default_factory=dict)
    promoted: tuple[str, ...] = ()
    reinforced: tuple[str, ...] = ()
    compacted: tuple[str, ...] = ()
    judged: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether nothing was changed."""
        return not (self.extracted or self.promoted or self.reinforced or self.compacted)


@frozen
class RetractReport:
    """What retracting an entry came to: `retired` are the ids that hold no longer; `queued` are those promoted from
    it, which wait for the operator's word; `sessions` are those that the entry was owed to."""

    retired: tuple[str, ...]
    queued: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
