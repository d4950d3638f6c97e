"""Values of memory layers D, F and G: captures, the task graph, facts and drafts, and what forgetting affects (SPEC
4.4, 4.6-4.10).
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from engine.frozen import frozen
from engine.model.trust import Trust


@frozen
class Capture:
    """A sentence that was taken out of what was said in a session. `source` is `SESSION:LINE`; `seen` in how many.

    `kind` is "decision", "fact" or "correction"; `corrects` the id of what a correction most likely corrects, or "".
    `trust` says whose words it is; `approved_at` when the operator approved words of others, None before that.
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
    """What an edge of the task graph says of its two ends (SPEC 4.6)."""

    BLOCKS = "blocks"  # the first's failure blocked the second
    RELATED_TO = "related_to"
    DERIVED_FROM = "derived_from"  # the first was split from the second, or goes on with it
    SIMILAR_TO = "similar_to"  # linked by itself at cosine >= 0.8


ACYCLIC = frozenset({Relation.BLOCKS, Relation.DERIVED_FROM})


@frozen
class GraphNode:
    """A task in the graph. `success` None is neither; `outcome` says how it ended (`SessionView.outcome`, of a task of
    the board "succeeded" or "failed"), "" while it is open. `invalidated_at` says that it holds no longer, `why` the
    reason.

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
    """A fact of layer G, in the group `group` of `bucket`. `status` is "active" or "superseded". `trust` says whose
    words it is; `approved_at` when the operator approved words of others."""

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
        """Whether it holds now."""
        return self.status == "active" and not self.forgotten


@frozen
class FactDraft:
    """A fact that waits for the operator's word (SPEC 4.8). `state` is "waiting", "promoted" or "rejected".

    `day` is the local day it was drawn from; `reason` says why it may be worth keeping; `supersedes` the fact it would
    take the place of, "" for none; `fact_id` what it became.
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
    state: str = "waiting"
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
