"""Values of memory that its layers and the screens share: memories, queries, results, graphs, facts (SPEC 4).

The layers are: A the files of agents, B the ledger, C turns and notes, D captured sentences, E summaries of sessions,
F the graph of tasks, G facts in four parts (projects, areas, resources, archives: PARA).

`engine.memory` stores and finds them; prompts, the memory screen and verbs contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

from engine.frozen import frozen
from engine.model.layers import Layer
from engine.model.prompts import PromptPart, Trust

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
class NewMemory:
    """Something to remember."""

    text: str
    layer: Layer = Layer.VECTORS
    """C or E."""
    kind: str = "turn"
    speaker: str = ""
    at: datetime | None = None
    """When it was said, None for now."""
    session: str = ""
    agent: str = ""
    workspace: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    retention: Retention | None = None
    """How long it is kept; None: as its kind says."""
    ref: str = ""
    """The caller's own id of it."""
    trust: Trust = Trust.QUOTED


@frozen
class Memory:
    """A row of layer C or E. A forgotten one has no text."""

    id: str
    """The program's own, `mem_…`."""
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
    """The memory that replaced it, so that it is history; "" for none."""
    forgotten: bool = False
    ref: str = ""
    """The id under which a caller gave it, "" for none. Verbs answer with `ref or id`."""
    seq: int = 0
    """Grows with the order in which things were remembered, also within a session."""
    trust: Trust = Trust.QUOTED


@frozen
class RecallQuery:
    """A question to all layers. A limit that is None does not apply."""

    text: str
    k: int = 10
    workspace: str | None = None
    agent: str | None = None
    session: str | None = None
    """The session that asks, of which nothing is found."""
    now: datetime | None = None
    """The time for decay, None for the engine's clock."""
    layers: frozenset[Layer] | None = None
    passages: bool = False
    """Whether a long memory is found as the passage that answers, not as a whole."""


@frozen
class ScorePart:
    """One reason for a rank."""

    name: str
    value: float
    """In [0, 1]."""
    weight: float

    @property
    def points(self) -> float:
        """What it adds to the score."""
        return self.value * self.weight


@frozen
class RecallMatch:
    """One memory that was found, with its source and the reason (SPEC 4.4)."""

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
    """As in `Memory`."""
    trust: Trust = Trust.QUOTED
    approved: bool = False
    about: str = ""
    """The session or task that it tells about, "" for none."""
    place: str = ""
    """Which part of a long memory the text is, "" for all of it."""


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
    """A sentence that somebody said in a session."""

    id: str
    kind: str
    """ "decision", "fact" or "correction"."""
    text: str
    tags: tuple[str, ...]
    at: datetime
    session: str
    line: int
    agent: str
    workspace: str
    seen: int = 1
    """The number of sessions in which it was said."""
    corrects: str = ""
    """The id of what a correction most likely corrects, "" for nothing."""
    forgotten: bool = False
    trust: Trust = Trust.QUOTED
    """Whose words it is."""
    approved_at: datetime | None = None
    """When the operator approved words of others, None before."""

    @property
    def source(self) -> str:
        """Where it was said: `SESSION:LINE`."""
        return f"{self.session}:{self.line}"


class Relation(StrEnum):
    """How the two ends of an edge of the task graph are related (SPEC 4.6)."""

    BLOCKS = "blocks"  # the first's failure blocked the second
    RELATED_TO = "related_to"
    DERIVED_FROM = "derived_from"  # the first was split from the second, or goes on with it
    SIMILAR_TO = "similar_to"  # linked by itself at cosine >= 0.8


ACYCLIC_RELATIONS = frozenset({Relation.BLOCKS, Relation.DERIVED_FROM})
"""Relations whose edges never form a circle."""


@frozen
class GraphNode:
    """A task in the graph."""

    task_id: str
    title: str
    timestamp: datetime
    """When it began or ended, whichever is known last."""
    success: bool | None = None
    """None if it was neither a success nor a failure."""
    description: str = ""
    workspace: str = ""
    agent: str = ""
    invalidated_at: datetime | None = None
    """When it stopped being valid."""
    why: str = ""
    """The reason for that."""
    outcome: str = ""
    """How it ended (`SessionView.outcome`; "succeeded" or "failed" for a task of the board), "" while it is open."""


@frozen
class GraphEdge:
    """An arrow from `source` to `target`."""

    source: str
    relation: Relation
    target: str
    weight: float = 1.0
    """The cosine of a `similar_to`, else 1."""
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
    """A fact of layer G."""

    id: str
    fact: str
    category: str
    source: str
    status: Literal["active", "superseded"]
    bucket: Bucket
    group: str
    """The name of its group within the bucket."""
    created_at: datetime
    access_count: int = 0
    last_accessed: datetime | None = None
    superseded_by: str | None = None
    workspace: str = ""
    forgotten: bool = False
    trust: Trust = Trust.QUOTED
    """Whose words it is."""
    approved_at: datetime | None = None
    """When the operator approved words of others, None before."""

    @property
    def is_active(self) -> bool:
        """Whether it is valid now."""
        return self.status == "active" and not self.forgotten


class DraftState(StrEnum):
    """The state of a draft."""

    WAITING = "waiting"
    PROMOTED = "promoted"
    REJECTED = "rejected"


@frozen
class FactDraft:
    """A fact that waits for the operator's decision (SPEC 4.8)."""

    id: str
    day: str
    """The local day of the session that it comes from."""
    fact: str
    category: str
    bucket: Bucket
    group: str
    source: str
    reason: str
    """Why it may be worth keeping."""
    workspace: str
    created_at: datetime
    state: DraftState = DraftState.WAITING
    supersedes: str = ""
    """The fact that it would replace, "" for none."""
    fact_id: str = ""
    """The fact that it became, "" before."""
    trust: Trust = Trust.QUOTED


@frozen
class ForgetMatch:
    """One place that forgetting touches."""

    store: str
    """The store of texts."""
    id: str
    """The entry in it."""
    excerpt: str
    """The beginning of its text."""


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
