"""Layer F, the task graph (SPEC 4.6): which task blocked, continued or resembles another.

`GraphProducer` puts sessions, and tasks of the board, into it, as events of the ledger report them. `Knowledge` calls
it as two consumers of the ledger. After a crash an event may come again, and then changes nothing.

- A session that starts or ends becomes a task, `derived_from` the session that it continues or retries.
- Once its summary has a vector, it is `similar_to` the sessions with the nearest summaries.
- Two sessions that changed the same files are `related_to` each other.
- A task of the board becomes one, too. The session that works on it is `derived_from` it, and if that fails, it
  `blocks` the tasks that need this one.

Nothing is deleted: tasks and edges that are no longer valid are marked. Edges of `blocks` never form a cycle, nor do
edges of `derived_from`. The graph is in the database. A file has a copy of it for other programs, which is
written each night and, if it is small, when the engine ends.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

from sqlmodel import Field, Session

from engine.files import write_atomic
from engine.frozen import frozen
from engine.memory import WorkReader
from engine.memory.captures import ENDING_EVENTS
from engine.model import (
    ACYCLIC_RELATIONS,
    PROBLEM_FOUND,
    GraphEdge,
    GraphNode,
    Layer,
    LayerState,
    Neighbourhood,
    Refusal,
    Relation,
    Task,
    TaskState,
)
from engine.storage import Row, ask, read_all, shallow_dict, value_of
from engine.storage.database import Database, Transaction
from engine.storage.ledger import LedgerEntry, NotReady
from engine.text import sanitise

log = logging.getLogger(__name__)

SEMANTIC_WEIGHT = 0.7
"""Weight of similarity in the score of a task (SPEC 4.6). Recency has the rest."""

DECAY_DAYS = 14.0
"""The age in days at which the recency of a task has fallen to a third (1/e)."""

TITLE_CHARS = 200
DESCRIPTION_CHARS = 600
"""Maximum number of characters of a title and of a description in the graph. The session's own record has all of it."""

MAX_NEIGHBOURS = 200
"""Maximum number of neighbours of one task that are shown."""

FOLLOWED_KINDS = ENDING_EVENTS | {"SessionStarted", "TaskAdded", "TaskChanged", "WorkOverlapped"}
"""The kinds of events that change the graph."""

SUCCESS_BY_OUTCOME = {"succeeded": True, "failed": False, PROBLEM_FOUND: False}
"""The outcomes (SPEC 2.12) that mean success or failure of a task. The others mean neither."""

MIN_SIMILARITY = 0.8
"""Least cosine of two tasks that are linked as similar (SPEC 4.6)."""

MAX_COMPARED = 20
"""Number of closest sessions that are looked at; some of them may be gone from the graph."""

MAX_SIMILAR = 5
"""Maximum number of similar tasks that a new task is linked to: the closest."""

FindSimilarSessions = Callable[[str, int, float], Mapping[str, float] | None]
"""`(session, k, cosine)`: see `MemorySearch.find_sessions_like`."""

_SELECT_PATH = """
    WITH RECURSIVE reached(id) AS (
        SELECT :goal WHERE EXISTS (
            SELECT 1 FROM task_edges WHERE source = :start AND relation = :relation AND NOT invalidated
        ) UNION
        SELECT source FROM task_edges JOIN reached ON target = id WHERE relation = :relation AND NOT invalidated
    )
    SELECT 1 FROM reached WHERE id = :start
"""
"""Finds a row if edges of a relation lead from a task to another. It is quick if either is new: it goes backwards, and
to a new task no edge leads; and it looks first whether one begins at the start."""

_SELECT_DOCUMENT = """
    SELECT json_object('version', 1, 'tasks', json_group_array(json_object(
        'task_id', task_id, 'title', title, 'timestamp', timestamp,
        'success', json(CASE success WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END),
        'description', description, 'workspace', workspace, 'agent', agent, 'outcome', outcome,
        'invalidated_at', invalidated_at, 'why', why,
        'edges', (
            SELECT json_group_array(json_object(
                'relation', relation, 'target', target, 'weight', weight,
                'invalidated', json(CASE WHEN invalidated THEN 'true' ELSE 'false' END)
            )) FROM task_edges WHERE source = task_id
        )
    ))) FROM task_nodes
"""
"""Makes the document of the whole graph: each task with the edges that begin at it."""


def compute_recency(at: datetime, now: datetime) -> float:
    """exp(-age in days / 14), 1 for a time in the future."""
    return math.exp(-max(0.0, (now - at) / timedelta(days=1)) / DECAY_DAYS)


class TaskNode(Row, table=True):
    """A task, see `GraphNode`. The order of rows is that in which tasks were added."""

    __tablename__ = "task_nodes"

    task_id: str = Field(primary_key=True)
    title: str
    timestamp: datetime
    success: bool | None
    description: str
    workspace: str
    agent: str
    invalidated_at: datetime | None
    why: str
    outcome: str

    @property
    def value(self) -> GraphNode:
        """The task of this row."""
        return value_of(self, GraphNode)

    TEXT_COLUMNS: ClassVar = ("title", "description", "why")
    """The columns that forgetting searches."""

    def forget(self, at: datetime) -> None:
        """Empty and invalidate the task. Its place in the graph stays (SPEC 4.10)."""
        self.title = self.description = ""
        self.invalidated_at, self.why = self.invalidated_at or at, "forgotten"


class TaskEdge(Row, table=True):
    """An edge, see `GraphEdge`."""

    __tablename__ = "task_edges"

    source: str = Field(primary_key=True)
    relation: Relation = Field(primary_key=True)
    target: str = Field(primary_key=True)
    weight: float
    invalidated: bool


@frozen
class TaskGraph:
    """The graph of one home. All methods may be called from any thread."""

    database: Database

    # -- reading

    def describe_layer(self) -> LayerState:
        """The state of layer F (SPEC 9.5)."""
        newest_of_all = "SELECT timestamp FROM task_nodes ORDER BY rowid DESC LIMIT 1"
        with self.database.read() as session:
            [(number, newest)] = ask(session, f"SELECT count(*), ({newest_of_all}) FROM task_nodes")
        return LayerState(Layer.GRAPH, number, newest and datetime.fromisoformat(newest), "ready")

    def get(self, task_id: str) -> GraphNode | None:
        """One task, None if the graph has none with this id."""
        return self.read([task_id]).get(task_id)

    def read(self, task_ids: Sequence[str]) -> dict[str, GraphNode]:
        """Tasks by id, without those that the graph does not have."""
        with self.database.read() as session:
            return _read_nodes(session, task_ids)

    def find_latest_named(self, workspace: str, title: str) -> GraphNode | None:
        """The newest task with this title in a workspace."""
        clauses = "WHERE workspace = :workspace AND title = :title ORDER BY rowid DESC LIMIT 1"
        with self.database.read() as session:
            rows = read_all(session, TaskNode, clauses, {"workspace": workspace, "title": _shorten(title, TITLE_CHARS)})
        return rows[0].value if rows else None

    def find_newest(self, *, words: str = "", limit: int = 200) -> list[GraphNode]:
        """Tasks with all `words`, the last added first."""
        clauses = """
            WHERE NOT EXISTS (
                SELECT 1 FROM json_each(:words) WHERE NOT instr(casefold(title || ' ' || description), value)
            ) ORDER BY rowid DESC LIMIT :limit
        """
        with self.database.read() as session:
            values = {"words": words.casefold().split(), "limit": limit}
            return [row.value for row in read_all(session, TaskNode, clauses, values)]

    def read_newest_titles(self, limit: int) -> dict[str, str]:
        """The titles of the last added tasks by their ids. No objects are made of them: each recall compares them."""
        with self.database.read() as session:
            query = "SELECT task_id, title FROM task_nodes ORDER BY rowid DESC LIMIT :limit"
            return dict(ask(session, query, {"limit": limit}))

    def get_neighbourhood(self, task_id: str) -> Neighbourhood:
        """A task with its edges and the tasks one step away, the valid ones first. Raises `Refusal` `unknown_task`."""
        with self.database.read() as session:
            node, edges = _require_task(session, task_id), _read_edges_around(session, task_id)
            neighbour_ids = list(dict.fromkeys(edge.other_end(task_id) for edge in edges))
            neighbours = _read_nodes(session, neighbour_ids)
        return Neighbourhood(node, tuple(edges), tuple(neighbours[other] for other in neighbour_ids))

    def find_neighbours(self, task_ids: Sequence[str]) -> list[tuple[GraphEdge, GraphNode]]:
        """The valid tasks one step from `task_ids`, with the edge that leads there; each once, without these tasks."""
        edges: dict[str, GraphEdge] = {}
        with self.database.read() as session:
            for task_id in task_ids:
                for edge in _read_edges_around(session, task_id):
                    if not edge.invalidated and edge.other_end(task_id) not in task_ids:
                        edges.setdefault(edge.other_end(task_id), edge)
            nodes = _read_nodes(session, list(edges))
        return [(edge, nodes[other]) for other, edge in edges.items() if nodes[other].invalidated_at is None]

    # -- writing

    def put(self, node: GraphNode) -> None:
        """Add or replace a task."""
        title, description = _shorten(node.title, TITLE_CHARS), _shorten(node.description, DESCRIPTION_CHARS)
        row = TaskNode(**shallow_dict(node) | {"title": title, "description": description})
        self.database.write(lambda tx: tx.session.merge(row))

    def add_edge(self, source: str, relation: Relation, target: str, weight: float = 1.0) -> bool:
        """Add an edge; False if it exists already. Raises `Refusal`: `unknown_task`, `cycle`."""

        def insert(tx: Transaction) -> bool:
            _require_task(tx.session, source)
            _require_task(tx.session, target)
            known = tx.session.get(TaskEdge, (source, relation, target))
            if known is not None and not known.invalidated:
                return False
            values = {"start": target, "relation": relation.value, "goal": source}
            if source == target or (relation in ACYCLIC_RELATIONS and ask(tx.session, _SELECT_PATH, values)):
                message = f"{target} leads to {source} by `{relation}` already"
                raise Refusal("cycle", message, "reverse the arrow, or leave it out")
            _put_edge(tx, GraphEdge(source, relation, target, round(weight, 4)))
            return True

        return self.database.write(insert)

    def invalidate_edge(self, edge: GraphEdge) -> None:
        """Mark an edge as no longer valid."""
        self.database.write(lambda tx: _put_edge(tx, replace(edge, invalidated=True)))

    def export(self, file: Path) -> None:
        """Write each task with the edges that begin at it to a JSON file (SPEC 4.6). Raises OSError."""
        with self.database.read() as session:
            [(document,)] = ask(session, _SELECT_DOCUMENT)
        write_atomic(file, document.encode())


def _put_edge(tx: Transaction, edge: GraphEdge) -> None:
    tx.session.merge(TaskEdge(**shallow_dict(edge)))


def _read_nodes(session: Session, task_ids: Sequence[str]) -> dict[str, GraphNode]:
    clauses = "WHERE task_id IN (SELECT value FROM json_each(:ids))"
    return {row.task_id: row.value for row in read_all(session, TaskNode, clauses, {"ids": task_ids})}


def _require_task(session: Session, task_id: str) -> GraphNode:
    node = _read_nodes(session, [task_id]).get(task_id)
    if node is None:
        raise Refusal("unknown_task", f"the task graph has no {sanitise(task_id)}", "see layer F of the memory")
    return node


def _read_edges_around(session: Session, task_id: str) -> list[GraphEdge]:
    """The edges of a task, the valid ones first, of these the ones that begin at it."""
    clauses = "WHERE source = :id OR target = :id ORDER BY invalidated, source <> :id, rowid LIMIT :limit"
    rows = read_all(session, TaskEdge, clauses, {"id": task_id, "limit": MAX_NEIGHBOURS})
    return [value_of(row, GraphEdge) for row in rows]


def _shorten(text: str, max_length: int) -> str:
    """Sanitised text with at most `max_length` characters."""
    cleaned = sanitise(text).strip()
    return cleaned if len(cleaned) <= max_length else cleaned[: max_length - 1].rstrip() + "…"


# -- from events


@frozen
class GraphProducer:
    """Puts sessions and tasks into the graph."""

    graph: TaskGraph
    work: WorkReader
    find_similar_sessions: FindSimilarSessions

    def handle(self, entry: LedgerEntry) -> None:
        """Put what an event of `FOLLOWED_KINDS` says into the graph. A second call changes nothing."""
        try:
            if entry.kind in ENDING_EVENTS or entry.kind == "SessionStarted":
                self._put_session(entry.session_id)
            elif entry.kind == "WorkOverlapped":
                self._add_edge(entry.payload["session_id"], Relation.RELATED_TO, entry.payload["other_session_id"])
            else:
                self._put_task(self.work.task(entry.subject))
        except Refusal as refusal:
            if refusal.code not in ("unknown_session", "unknown_task"):
                raise

    def link_similar(self, entry: LedgerEntry) -> None:
        """Link a session that ended to those whose summaries resemble its own. Raises `NotReady` while its vector is
        still to be made."""
        if self.graph.get(entry.subject) is None:
            return
        similar = self.find_similar_sessions(entry.subject, MAX_COMPARED, MIN_SIMILARITY)
        if similar is None:
            raise NotReady
        linked = {edge.source for edge in self._read_edges(entry.subject) if edge.relation is Relation.SIMILAR_TO}
        for other_id in [session for session in similar if session != entry.subject][:MAX_SIMILAR]:
            other_node = self.graph.get(other_id)
            if other_node is not None and other_node.invalidated_at is None and other_id not in linked:
                self.graph.add_edge(entry.subject, Relation.SIMILAR_TO, other_id, similar[other_id])

    def _put_session(self, session_id: str) -> None:
        """Put a session into the graph, with an edge to the session that it continues or retries."""
        view = self.work.session(session_id)
        if view.started_at is None or view.not_begun:
            return  # the session was withdrawn before it began
        previous = self.graph.find_latest_named(view.workspace, view.prompt)
        self.graph.put(
            GraphNode(
                task_id=view.id,
                title=view.prompt,
                timestamp=view.ended_at or view.started_at,
                success=SUCCESS_BY_OUTCOME.get(view.outcome),
                description=view.error or view.summary,
                workspace=view.workspace,
                agent=view.agent,
                outcome=view.outcome,
            )
        )
        continued_id = self.work.continued_session(view.id)
        if not continued_id and previous is not None and previous.task_id != view.id and previous.success is not True:
            continued_id = previous.task_id  # the same again: a retry
        if continued_id:
            self._add_edge(view.id, Relation.DERIVED_FROM, continued_id)

    def _put_task(self, task: Task) -> None:
        """Put a task of the board into the graph, with what blocks it and what it blocks."""
        if task.source != "session":  # otherwise the session itself is the task
            existing = self.graph.get(task.id)
            outcome = {TaskState.DONE: "succeeded", TaskState.FAILED: "failed"}.get(task.state, "")
            self.graph.put(
                GraphNode(
                    task_id=task.id,
                    title=task.title,
                    timestamp=max(existing.timestamp, task.updated_at) if existing else task.updated_at,
                    success=SUCCESS_BY_OUTCOME.get(outcome),
                    description=task.note,
                    workspace=task.workspace,
                    outcome=outcome,
                )
            )
            if task.session_id:
                self._add_edge(task.session_id, Relation.DERIVED_FROM, task.id)
        for prerequisite_id in task.needs:
            self._update_block(self.work.task(prerequisite_id), task)
        for waiting in self.work.dependent_tasks(task.id):
            self._update_block(task, waiting)

    def _update_block(self, needed: Task, waiting: Task) -> None:
        """If a session that worked on the task `needed` has failed, it blocks the task `waiting` until `needed` is
        done."""
        if needed.state == TaskState.DONE:
            self._end_blocks(needed, waiting)
        elif needed.session_id and SUCCESS_BY_OUTCOME.get(self.work.session(needed.session_id).outcome) is False:
            self._add_edge(needed.session_id, Relation.BLOCKS, waiting.id)

    def _end_blocks(self, needed: Task, waiting: Task) -> None:
        """Invalidate the edges by which sessions that worked on `needed` block `waiting`."""
        for edge in self._read_edges(waiting.id):
            is_block = edge.relation is Relation.BLOCKS and not edge.invalidated
            if is_block and self._has_worked_on(edge.source, needed):
                self.graph.invalidate_edge(edge)

    def _has_worked_on(self, session_id: str, task: Task) -> bool:
        return session_id == task.session_id or any(
            (edge.source, edge.relation, edge.target) == (session_id, Relation.DERIVED_FROM, task.id)
            for edge in self._read_edges(session_id)
        )

    def _read_edges(self, task_id: str) -> Sequence[GraphEdge]:
        return self.graph.get_neighbourhood(task_id).edges if self.graph.get(task_id) is not None else ()

    def _add_edge(self, source: str, relation: Relation, target: str) -> None:
        try:
            self.graph.add_edge(source, relation, target)
        except Refusal as refusal:
            if refusal.code not in ("unknown_task", "cycle"):
                raise
            log.info("no %s from %s to %s: %s", relation, source, target, refusal.message)
