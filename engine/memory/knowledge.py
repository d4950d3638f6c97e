"""Layers D to G: what sessions said, the task graph, canonical facts, the night, forgetting (SPEC 4.4-4.10).

Builds, recovers, starts and closes the services of these layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.background import run_in_thread
from engine.home import Home
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import ENDED, CaptureRow, Captures, WorkReader, session_of
from engine.memory.drafts import DraftRow, Drafts
from engine.memory.forget import DatabaseRows, ErasableRows, ErasableStore, Forgetting, HomeFiles
from engine.memory.graph import TaskGraph
from engine.memory.memory import MemoryService
from engine.memory.nightly import Nightly
from engine.memory.para import Para
from engine.memory.recall import FactSource, GraphSource, LedgerSource
from engine.memory.summaries import SessionSummariser
from engine.model import (
    PROBLEM_FOUND,
    Asks,
    GraphEdge,
    GraphNode,
    Layer,
    LayerState,
    Refusal,
    Relation,
    SessionView,
    Task,
    Waiting,
)
from engine.model.text import count
from engine.storage.database import Transaction
from engine.storage.ledger import ConsumerThread, Ledger, LedgerConsumer, LedgerEntry, NotReady

log = logging.getLogger(__name__)

# -- the task graph follows sessions and tasks of the board (SPEC 4.6)

KINDS = ENDED | {"SessionStarted", "TaskAdded", "TaskChanged", "WorkOverlapped"}
SUCCESS_BY_OUTCOME = {"succeeded": True, "failed": False, PROBLEM_FOUND: False}
"""Outcomes of SPEC 2.12 with which a task succeeded or failed; with the others it did neither."""

SIMILAR = 0.8
"""Cosine from which two tasks are linked by themselves."""

MAX_SIMILAR = 5
"""Links that one new task gets by itself, the closest."""

SimilarSessions = Callable[[str, int, float], Mapping[str, float] | None]
"""`(session, k, cosine)`: see `MemorySearch.sessions_like`."""


class GraphProducer:
    """Puts sessions and tasks into the graph, from the facts of the ledger."""

    def __init__(self, graph: TaskGraph, work: WorkReader, similar_sessions: SimilarSessions) -> None:
        self._graph = graph
        self._work = work
        self._similar_sessions = similar_sessions

    def handle(self, fact: LedgerEntry) -> None:
        """Put what a fact of `KINDS` says into the graph. Doing it again changes nothing."""
        try:
            if fact.kind in ENDED or fact.kind == "SessionStarted":
                self._session(session_of(fact))
            elif fact.kind == "WorkOverlapped":
                self._relate(fact.payload["session_id"], Relation.RELATED_TO, fact.payload["other_session_id"])
            else:
                self._task(self._work.task(fact.subject))
        except Refusal as refusal:
            if refusal.code not in ("unknown_session", "unknown_task"):
                raise
        self._graph.flush(whole=fact.kind in ENDED)

    def link_similar(self, fact: LedgerEntry) -> None:
        """Link a session that ended to those whose summaries resemble its own. Raises `NotReady` while its vector is
        still to be made."""
        if self._graph.get(fact.subject) is None:
            return
        similar = self._similar_sessions(fact.subject, 20, SIMILAR)
        if similar is None:
            raise NotReady
        linked = {edge.source for edge in self._edges(fact.subject) if edge.relation is Relation.SIMILAR_TO}
        for other_id in [session for session in similar if session != fact.subject][:MAX_SIMILAR]:
            other_node = self._graph.get(other_id)
            if other_node is not None and other_node.invalidated_at is None and other_id not in linked:
                self._graph.relate(fact.subject, Relation.SIMILAR_TO, other_id, similar[other_id])
        self._graph.flush()

    def _session(self, session_id: str) -> None:
        view = self._work.session(session_id)
        if view.started_at is None or view.not_begun:
            return  # it was withdrawn before it began
        previous = self._graph.latest_named(view.workspace, view.prompt)
        self._graph.put(
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
        continued_id = self._work.continued_session(view.id)
        if not continued_id and previous is not None and previous.task_id != view.id and previous.success is not True:
            continued_id = previous.task_id  # the same again: a retry
        if continued_id:
            self._relate(view.id, Relation.DERIVED_FROM, continued_id)

    def _task(self, task: Task) -> None:
        if task.source != "session":  # else the session itself is the task
            existing = self._graph.get(task.id)
            outcome = {"done": "succeeded", "failed": "failed"}.get(task.state, "")
            self._graph.put(
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
        for needed in task.needs:
            self._blocks(self._work.task(needed), task)
        for waiting in self._work.dependent_tasks(task.id):
            self._blocks(task, waiting)

    def _blocks(self, needed: Task, waiting: Task) -> None:
        """The failure of a session that worked on a task blocks those that need it, until the task is done."""
        if needed.state == "done":
            for edge in self._edges(waiting.id):
                if edge.relation is Relation.BLOCKS and not edge.invalidated and self._worked_on(edge.source, needed):
                    self._graph.cut(edge)
        elif needed.session_id and SUCCESS_BY_OUTCOME.get(self._work.session(needed.session_id).outcome) is False:
            self._relate(needed.session_id, Relation.BLOCKS, waiting.id)

    def _worked_on(self, session_id: str, task: Task) -> bool:
        return session_id == task.session_id or any(
            (edge.source, edge.relation, edge.target) == (session_id, Relation.DERIVED_FROM, task.id)
            for edge in self._edges(session_id)
        )

    def _edges(self, task_id: str) -> Sequence[GraphEdge]:
        return self._graph.neighbourhood(task_id).edges if self._graph.get(task_id) is not None else ()

    def _relate(self, source: str, relation: Relation, target: str) -> None:
        try:
            self._graph.relate(source, relation, target)
        except Refusal as refusal:
            if refusal.code not in ("unknown_task", "cycle"):
                raise
            log.info("no %s from %s to %s: %s", relation, source, target, refusal.message)


# -- the services


class Knowledge:
    """Layers D, F and G, and E's writer. All methods may be called from any thread."""

    def __init__(
        self,
        home: Home,
        memory: MemoryService,
        ledger: Ledger,
        *,
        work: WorkReader,
        files: AgentFiles,
        model: Asks,
        report: Callable[[str, str], None],
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`model` sums sessions up and evaluates days where the operator named one. Recall asks the new layers, too."""
        database, clock = memory.database, memory.clock
        self._home = home
        self._memory = memory
        self._work = work
        self.graph = TaskGraph(home.data, clock)
        self.para = Para(home.data / "para", database, clock)
        self.captures = Captures(database, work, memory.remember, secrets=secrets)
        self.drafts = Drafts(database, self.para, self.captures, clock)
        self.nightly = Nightly(
            ledger,
            clock,
            captures=self.captures,
            work=work,
            drafts=self.drafts,
            para=self.para,
            files=files,
            model=model,
        )
        producer = GraphProducer(self.graph, work, memory.search.sessions_like)
        summariser = SessionSummariser(
            work, self.captures, memory.store, memory.remember, model=model, clock=clock, report=report
        )
        self._following = ConsumerThread(
            [
                LedgerConsumer("capture", ledger, ENDED, self.captures.handle),
                LedgerConsumer("graph", ledger, KINDS, producer.handle),
                LedgerConsumer("context", ledger, ENDED, summariser.handle),  # may ask a model: the others first
                LedgerConsumer("likeness", ledger, frozenset({"SessionEnded"}), producer.link_similar),
            ],
            report,
        )
        graph_source = GraphSource(self.graph, memory.search.sessions_near)
        memory.recaller.join(LedgerSource(ledger), graph_source, FactSource(self.para))

    def build_forgetting(
        self, others: Sequence[ErasableStore], text_of_other: Mapping[str, Callable[[str], str | None]]
    ) -> None:
        """Have `forgetting` take words out of all layers, of `others`, and of the home's files. The composition root
        calls it once; `text_of_other` says what entries of `others` say, by what their ids begin with."""
        home, database = self._home, self._memory.database
        captures, drafts = ErasableRows("captures", database, CaptureRow), ErasableRows("drafts", database, DraftRow)
        own = (self._memory.store, captures, drafts, self.para, self.graph)
        rest = (HomeFiles((home.data, home.logs, home.cache)), DatabaseRows(database))
        self._text_of_other = text_of_other
        self.forgetting = Forgetting(
            database,
            [*own, *others, *rest],
            text_of=self._text_of,
            running=lambda: [item.id for item in self._work.running_sessions()],
            second_pass=others,
        )

    # -- life

    def recover(self) -> list[str]:
        """Finish what a crash left half done; in words."""
        return self.para.recover() + self.forgetting.recover()

    def start(self, *, follow: bool = True) -> None:
        """Read the graph in the background, and with `follow` process new entries of the ledger."""
        run_in_thread("clawpy-task-graph", self.graph.load)
        if follow:
            self._following.start()

    def close(self) -> None:
        """Stop following, write what is left. Safe to call twice."""
        self._following.close()
        try:
            self.para.flush()
        except (OSError, Refusal):
            log.warning("counts of facts could not be written", exc_info=True)
        self.graph.close()

    def housekeeping(self) -> None:
        """Every half minute: try again what was not ready, and write counts."""
        self._following.poke()
        self.para.flush()

    def catch_up(self, until: float | None = None) -> None:
        """Process all new entries of the ledger now, in this thread; none is begun after `until`, a monotonic time."""
        self._following.catch_up(until)

    def session_changed(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions that start or end."""
        tx.after_commit(self._following.poke)

    # -- looking

    def layers(self) -> list[LayerState]:
        """How layers D, F and G stand (SPEC 9.5)."""
        capture_count, newest_capture = self.captures.count()
        facts, problems, waiting = self.para.facts(), self.para.problems(), self.drafts.waiting()
        notes = [*problems[:3], *([f"waiting for you: {count(len(waiting), 'draft')}"] if waiting else [])]
        graph = self.graph
        state = "degraded" if graph.faults else "ready" if graph.is_ready else "building"
        progress = 0.0 if state == "building" else 1.0
        newest = max((fact.created_at for fact in facts), default=None)
        return [
            LayerState(Layer.CAPTURE, capture_count, newest_capture, "ready"),
            LayerState(Layer.GRAPH, len(graph), graph.newest_at, state, "; ".join(graph.faults[:3]), progress),
            LayerState(Layer.PARA, len(facts), newest, "degraded" if problems else "ready", "; ".join(notes)),
        ]

    def waiting(self) -> list[Waiting]:
        """Drafts of facts as entries of the operator's queue (SPEC 9.3)."""
        return [
            Waiting("fact", draft.id, f"keep as a fact? {draft.fact}", draft.created_at, text=draft.fact)
            for draft in self.drafts.waiting()
        ]

    def _text_of(self, id: str) -> str | None:
        """The text of the entry of any layer with this id, None when there is none."""
        prefix = id.partition("_")[0]
        try:
            match prefix:
                case "mem" | "cap":
                    entry = self._memory.store.get(id) if prefix == "mem" else self.captures.entry(id)
                    return entry.text if entry else None
                case "fact":
                    return self.para.get(id).fact
                case "draft":
                    return self.drafts.get(id).fact
            if prefix in self._text_of_other:
                return self._text_of_other[prefix](id)
            node = self.graph.get(id)
        except Refusal:
            return None
        return f"{node.title}\n{node.description}" if node else None
