"""Layer F, the task graph (SPEC 4.6): which task blocked, continued or resembles another.

Nothing is deleted: tasks and edges that are no longer valid are marked. Edges of `blocks` never form a cycle, nor do
edges of `derived_from`. The graph is in the database. A file has a copy of it for other programs, which is
written each night and, if it is small, when the engine ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

from sqlmodel import Field, Session

from engine.files import write_atomic
from engine.frozen import frozen
from engine.model import ACYCLIC, GraphEdge, GraphNode, Layer, LayerState, Neighbourhood, Refusal, Relation
from engine.storage import Row, ask, read_all, shallow_dict, value_of
from engine.storage.database import Database, Transaction
from engine.text import sanitise

SEMANTIC_WEIGHT = 0.7
"""Weight of similarity in the score of a task (SPEC 4.6). Recency has the rest."""

DECAY_DAYS = 14.0
"""The age in days at which the recency of a task has fallen to a third (1/e)."""

MAX_TITLE, MAX_DESCRIPTION = 200, 600
"""Maximum number of characters of a title and of a description in the graph. The session's own record has all of it."""

MAX_NEIGHBOURS = 200
"""Maximum number of neighbours of one task that are shown."""

_SELECT_ON_THE_WAY = """
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

    TEXTS: ClassVar = ("title", "description", "why")
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
        with self.database.read() as session:
            newest_of_all = "SELECT timestamp FROM task_nodes ORDER BY rowid DESC LIMIT 1"
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
            rows = read_all(session, TaskNode, clauses, {"workspace": workspace, "title": _shorten(title, MAX_TITLE)})
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
        title, description = _shorten(node.title, MAX_TITLE), _shorten(node.description, MAX_DESCRIPTION)
        row = TaskNode(**shallow_dict(node) | {"title": title, "description": description})
        self.database.write(lambda tx: tx.session.merge(row))

    def relate(self, source: str, relation: Relation, target: str, weight: float = 1.0) -> bool:
        """Add an edge; False if it exists already. Raises `Refusal`: `unknown_task`, `cycle`."""

        def add_edge(tx: Transaction) -> bool:
            _require_task(tx.session, source)
            _require_task(tx.session, target)
            known = tx.session.get(TaskEdge, (source, relation, target))
            if known is not None and not known.invalidated:
                return False
            values = {"start": target, "relation": relation.value, "goal": source}
            if source == target or (relation in ACYCLIC and ask(tx.session, _SELECT_ON_THE_WAY, values)):
                message = f"{target} leads to {source} by `{relation}` already"
                raise Refusal("cycle", message, "reverse the arrow, or leave it out")
            _put_edge(tx, GraphEdge(source, relation, target, round(weight, 4)))
            return True

        return self.database.write(add_edge)

    def cut(self, edge: GraphEdge) -> None:
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
