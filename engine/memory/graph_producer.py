"""Puts sessions, and tasks of the board, into the task graph, as events of the ledger report them (SPEC 4.6).

- A session that starts or ends becomes a task, `derived_from` the session that it continues or retries.
- Once its summary has a vector, it is `similar_to` the sessions with the nearest summaries.
- Two sessions that changed the same files are `related_to` each other.
- A task of the board becomes one, too. The session that works on it is `derived_from` it, and if that fails, it
  `blocks` the tasks that need this one.

`Knowledge` calls it as two consumers of the ledger. After a crash an event may come again, and then changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from engine.frozen import frozen
from engine.memory.captures import ENDED, WorkReader
from engine.memory.graph import TaskGraph
from engine.model import (
    PROBLEM_FOUND,
    GraphEdge,
    GraphNode,
    Refusal,
    Relation,
    Task,
    TaskState,
)
from engine.storage.ledger import LedgerEntry, NotReady

log = logging.getLogger(__name__)

KINDS = ENDED | {"SessionStarted", "TaskAdded", "TaskChanged", "WorkOverlapped"}
"""The kinds of events that change the graph."""

SUCCESS_BY_OUTCOME = {"succeeded": True, "failed": False, PROBLEM_FOUND: False}
"""The outcomes (SPEC 2.12) that mean success or failure of a task. The others mean neither."""

MIN_SIMILARITY = 0.8
"""Least cosine of two tasks that are linked as similar (SPEC 4.6)."""

MAX_COMPARED = 20
"""Number of closest sessions that are looked at; some of them may be gone from the graph."""

MAX_SIMILAR = 5
"""Maximum number of similar tasks that a new task is linked to: the closest."""

SimilarSessions = Callable[[str, int, float], Mapping[str, float] | None]
"""`(session, k, cosine)`: see `MemorySearch.find_sessions_like`."""


@frozen
class GraphProducer:
    """Puts sessions and tasks into the graph."""

    graph: TaskGraph
    work: WorkReader
    similar_sessions: SimilarSessions

    def handle(self, entry: LedgerEntry) -> None:
        """Put what an event of `KINDS` says into the graph. A second call changes nothing."""
        try:
            if entry.kind in ENDED or entry.kind == "SessionStarted":
                self._put_session(entry.session_id)
            elif entry.kind == "WorkOverlapped":
                self._relate(entry.payload["session_id"], Relation.RELATED_TO, entry.payload["other_session_id"])
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
        similar = self.similar_sessions(entry.subject, MAX_COMPARED, MIN_SIMILARITY)
        if similar is None:
            raise NotReady
        linked = {edge.source for edge in self._read_edges(entry.subject) if edge.relation is Relation.SIMILAR_TO}
        for other_id in [session for session in similar if session != entry.subject][:MAX_SIMILAR]:
            other_node = self.graph.get(other_id)
            if other_node is not None and other_node.invalidated_at is None and other_id not in linked:
                self.graph.relate(entry.subject, Relation.SIMILAR_TO, other_id, similar[other_id])

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
            self._relate(view.id, Relation.DERIVED_FROM, continued_id)

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
                self._relate(task.session_id, Relation.DERIVED_FROM, task.id)
        for prerequisite_id in task.needs:
            self._update_block(self.work.task(prerequisite_id), task)
        for waiting in self.work.dependent_tasks(task.id):
            self._update_block(task, waiting)

    def _update_block(self, needed: Task, waiting: Task) -> None:
        """If a session that worked on the task `needed` has failed, it blocks the task `waiting` until `needed` is
        done."""
        if needed.state == TaskState.DONE:
            for edge in self._read_edges(waiting.id):
                if (
                    edge.relation is Relation.BLOCKS
                    and not edge.invalidated
                    and self._has_worked_on(edge.source, needed)
                ):
                    self.graph.cut(edge)
        elif needed.session_id and SUCCESS_BY_OUTCOME.get(self.work.session(needed.session_id).outcome) is False:
            self._relate(needed.session_id, Relation.BLOCKS, waiting.id)

    def _has_worked_on(self, session_id: str, task: Task) -> bool:
        return session_id == task.session_id or any(
            (edge.source, edge.relation, edge.target) == (session_id, Relation.DERIVED_FROM, task.id)
            for edge in self._read_edges(session_id)
        )

    def _read_edges(self, task_id: str) -> Sequence[GraphEdge]:
        return self.graph.get_neighbourhood(task_id).edges if self.graph.get(task_id) is not None else ()

    def _relate(self, source: str, relation: Relation, target: str) -> None:
        try:
            self.graph.relate(source, relation, target)
        except Refusal as refusal:
            if refusal.code not in ("unknown_task", "cycle"):
                raise
            log.info("no %s from %s to %s: %s", relation, source, target, refusal.message)
