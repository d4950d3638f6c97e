"""Values of memory that its layers and the screens share: memories, queries, results, graphs, facts (SPEC 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

from engine.frozen import frozen
from engine.model.base import Layer, Trust
from engine.model.prompts import PromptPart

# -- layers A to C, and recall


class Retention(StrEnum):
    """How long a memory of layer C or E is kept (SPEC 4.3)."""

    SESSION = "session"  # until its session is over, and a day more
    MONTH = "month"  # 30 days after it was remembered
    FOREVER = "forever"


RETENTION_BY_KIND: Mapping[str, Retention] = {
    "turn": Retention.MONTH,
    "note": Retention.SESSION,
    "decision": Retention.FOREVER,
    "fact": Retention.FOREVER,
    "correction": Retention.FOREVER,
    "summary": Retention.FOREVER,
}
"""The tier of each kind, unless whoever remembers it says otherwise."""


@frozen
class Thread:
    """A conversation of the operator with another agent about a workspace. `about` are the operator's words, `question`
    is the agent's last question ("" for none), `unanswered` says that the operator spoke last, `at` is the last
    turn."""

    session: str
    agent: str
    workspace: str
    about: str
    question: str
    unanswered: bool
    at: datetime


@frozen
class NewMemory:
    """Something to remember. `layer` is C or E, `at` is when it was said (None for now), and `ref` is the caller's own
    id of it. If `retention` is None, its kind decides how long it is kept.
    """

    text: str
    layer: Layer = Layer.VECTORS
    kind: str = "turn"
    speaker: str = ""
    at: datetime | None = None
    session: str = ""
    agent: str = ""
    workspace: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    retention: Retention | None = None
    ref: str = ""
    trust: Trust = Trust.QUOTED


@frozen
class Memory:
    """A row of layer C or E.

    `id` is the program's own (`mem_...`); `ref` the id under which a caller gave it, "" if there is none: verbs answer
    with `ref or id`. `seq` grows with the order in which things were remembered, also within a session. A forgotten
    one has no text; one that is `superseded_by` another is history.
    """

    id: str
    layer: Layer
    text: str
    kind: str
    at: datetime
    retention: Retention
    created_at: datetime
    speaker: str = ""
    session: str = ""
    agent: str = ""
    workspace: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    superseded_by: str = ""
    forgotten: bool = False
    ref: str = ""
    seq: int = 0
    trust: Trust = Trust.QUOTED


@frozen
class RecallQuery:
    """A question to all layers. A limit that is None does not apply. Nothing is found of the `session` that asks. `now`
    is the time for decay, None for the engine's clock. With `passages`, a long memory is found as the passage that
    answers, not as a whole."""

    text: str
    k: int = 10
    workspace: str | None = None
    agent: str | None = None
    session: str | None = None
    now: datetime | None = None
    layers: frozenset[Layer] | None = None
    passages: bool = False


@frozen
class ScorePart:
    """One reason for a rank: `value` in [0, 1], times `weight`."""

    name: str
    value: float
    weight: float


def compute_weighted_sum(parts: Iterable[ScorePart]) -> float:
    """The sum of the parts, each times its weight."""
    return sum(part.value * part.weight for part in parts)


@frozen
class RecallMatch:
    """One memory that was found, with its source and the reason (SPEC 4.4). `ref` is as in `Memory`. `about` is the
    session or task that it tells about, "" for none. `place` says which part of a long memory the text is, "" for all
    of it."""

    id: str
    layer: Layer
    text: str
    score: float
    parts: tuple[ScorePart, ...]
    reason: str
    source: str
    speaker: str = ""
    at: datetime | None = None
    tokens: int = 0
    ref: str = ""
    trust: Trust = Trust.QUOTED
    approved: bool = False
    about: str = ""
    place: str = ""


@frozen
class Recall:
    """The memories that were found."""

    items: tuple[RecallMatch, ...]
    """Best first."""
    left_out: tuple[str, ...] = ()
    """Layers that failed or were late, in words."""
    seconds: float = 0.0


@frozen
class RememberResult:
    """The result of remembering texts."""

    ids: tuple[str, ...]
    """In the order of the texts."""
    new: int
    """Number of new ones."""


@frozen
class AgentFile:
    """A file of layer A as it was read (SPEC 4.1)."""

    agent: str
    name: str
    text: str
    digest: str
    """Of its bytes, "" if there is no such file."""
    written: datetime | None = None
    problem: str = ""
    """In words, "" for none."""


@frozen
class Injection:
    """The memories that recall would put into a prompt (SPEC 9.5)."""

    part: PromptPart | None
    """The block as it is sent, None if nothing is recalled."""
    items: tuple[RecallMatch, ...]
    """The memories in the block, best first."""
    dropped: tuple[RecallMatch, ...] = ()
    """Memories beyond the `budget`, best first."""
    left_out: tuple[str, ...] = ()
    """Layers that failed or were late, in words."""
    tokens: int = 0
    """Length of the block."""
    budget: int = 0
    seconds: float = 0.0


# -- layers D, F and G (SPEC 4.4, 4.6 to 4.10)


@frozen
class Capture:
    """A sentence that somebody said in a session. `source` is `SESSION:LINE`, and `seen` is the number of sessions.

    `kind` is "decision", "fact" or "correction". `corrects` is the id of what a correction most likely corrects, "" for
    nothing. `trust` says whose words it is; `approved_at` is when the operator approved words of others, None before.
    """

    id: str
    kind: str
    text: str
    tags: tuple[str, ...]
    at: datetime
    session: str
    line: int
    agent: str
    workspace: str
    seen: int = 1
    corrects: str = ""
    forgotten: bool = False
    trust: Trust = Trust.QUOTED
    approved_at: datetime | None = None

    @property
    def source(self) -> str:
        """Where it was said."""
        return f"{self.session}:{self.line}"


class Relation(StrEnum):
    """How the two ends of an edge of the task graph are related (SPEC 4.6)."""

    BLOCKS = "blocks"  # the first's failure blocked the second
    RELATED_TO = "related_to"
    DERIVED_FROM = "derived_from"  # the first was split from the second, or goes on with it
    SIMILAR_TO = "similar_to"  # linked by itself at cosine >= 0.8


ACYCLIC = frozenset({Relation.BLOCKS, Relation.DERIVED_FROM})
"""Relations whose edges never form a circle."""


@frozen
class GraphNode:
    """A task in the graph. `success` is None if it was neither a success nor a failure. `outcome` says how it ended
    (`SessionView.outcome`; "succeeded" or "failed" for a task of the board), "" while it is open. `invalidated_at` is
    when it stopped being valid, and `why` is the reason.

    `timestamp` is when it began or ended, whichever is known last.
    """

    task_id: str
    title: str
    timestamp: datetime
    success: bool | None = None
    description: str = ""
    workspace: str = ""
    agent: str = ""
    invalidated_at: datetime | None = None
    why: str = ""
    outcome: str = ""


@frozen
class GraphEdge:
    """An arrow from `source` to `target`; `weight` is the cosine of a `similar_to`, else 1."""

    source: str
    relation: Relation
    target: str
    weight: float = 1.0
    invalidated: bool = False

    def other_end(self, task_id: str) -> str:
        """The task at the end that is not `task_id`."""
        return self.target if self.source == task_id else self.source


@frozen
class Neighbourhood:
    """A task of the graph with what is one step away (SPEC 4.6)."""

    node: GraphNode
    edges: tuple[GraphEdge, ...]
    neighbours: tuple[GraphNode, ...]


class Bucket(StrEnum):
    """The four parts of layer G (SPEC 4.7)."""

    PROJECTS = "projects"
    AREAS = "areas"
    RESOURCES = "resources"
    ARCHIVES = "archives"


@frozen
class ParaFact:
    """A fact of layer G, in the group `group` of `bucket`. `trust` says whose words it is, and `approved_at` is when
    the operator approved words of others."""

    id: str
    fact: str
    category: str
    source: str
    status: Literal["active", "superseded"]
    bucket: Bucket
    group: str
    created_at: datetime
    access_count: int = 0
    last_accessed: datetime | None = None
    superseded_by: str | None = None
    workspace: str = ""
    forgotten: bool = False
    trust: Trust = Trust.QUOTED
    approved_at: datetime | None = None

    @property
    def active(self) -> bool:
        """Whether it is valid now."""
        return self.status == "active" and not self.forgotten


class DraftState(StrEnum):
    """The state of a draft."""

    WAITING = "waiting"
    PROMOTED = "promoted"
    REJECTED = "rejected"


@frozen
class FactDraft:
    """A fact that waits for the operator's decision (SPEC 4.8).

    `day` is the local day of the session that it comes from, and `reason` says why it may be worth keeping.
    `supersedes` is the fact that it would replace, "" for none; `fact_id` is the fact that it became.
    """

    id: str
    day: str
    fact: str
    category: str
    bucket: Bucket
    group: str
    source: str
    reason: str
    workspace: str
    created_at: datetime
    state: DraftState = DraftState.WAITING
    supersedes: str = ""
    fact_id: str = ""
    trust: Trust = Trust.QUOTED


@frozen
class ForgetMatch:
    """One place that forgetting touches: which store, which entry of it, and the beginning of its text."""

    store: str
    id: str
    excerpt: str


@frozen
class ForgetPreview:
    """The places that forgetting would erase."""

    wanted: tuple[str, ...]
    """The texts that are searched for."""
    places: tuple[ForgetMatch, ...]
    """The first places of each store."""
    counts: tuple[tuple[str, int], ...]
    """(store, number of places)."""
    left: tuple[str, ...] = ()
    """Places that forgetting does not touch, in words."""

    @property
    def total(self) -> int:
        """How many places."""
        return sum(count for _, count in self.counts)


@frozen
class ForgetReport:
    """The result of forgetting."""

    counts: tuple[tuple[str, int], ...]
    """(store, number of places)."""
    left: tuple[str, ...] = ()
    """As in `ForgetPreview`."""
