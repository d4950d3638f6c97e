"""Layer F, the task graph (SPEC 4.6): which task blocked, continued or resembles which.

Kept in memory, read in the background at the start, written by `graph_file`. Nothing is deleted: tasks and edges that
are no longer valid are marked. Edges of `blocks`, and those of `derived_from`, never form a cycle.
"""

from __future__ import annotations

import gc
import logging
import math
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from pathlib import Path

from engine.background import run_in_thread
from engine.clock import Clock
from engine.memory.graph_file import GraphFiles, Record
from engine.model import ACYCLIC, GraphEdge, GraphNode, Neighbourhood, Refusal, Relation, sanitise
from engine.storage.erasing import SearchTerms

# Numbers and arrows of the task graph (SPEC 4.6): likeness, age, where arrows lead, and circles of them. Pure.


SEMANTIC_WEIGHT = 0.7
"""Of what is found of tasks likeness counts so much, and recency the rest (SPEC 4.6)."""

DECAY_DAYS = 14.0
SIMILAR = 0.8
"""Cosine from which two tasks are linked by themselves."""

MAX_SIMILAR = 5
"""Links that one new task gets by itself, the closest."""

_DAY = timedelta(days=1)


def recency(at: datetime, now: datetime) -> float:
    """exp(-age in days / 14); 1 for what is new, or from the future."""
    return math.exp(-max(0.0, (now - at) / _DAY) / DECAY_DAYS)


def similar(tasks: Iterable[tuple[str, float]], own_id: str) -> list[tuple[str, float]]:
    """Of tasks with their cosines, those to link to: 0.8 or more, the closest first, each once."""
    best: dict[str, float] = {}
    for task_id, cosine in tasks:
        if task_id != own_id and cosine >= SIMILAR:
            best[task_id] = max(cosine, best.get(task_id, 0.0))
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_SIMILAR]


OutgoingEdges = Mapping[str, Sequence[GraphEdge]]
"""The arrows of each task, by the task that they come from."""


def targets(out: OutgoingEdges, task_id: str, relation: Relation) -> Iterator[str]:
    """Where arrows that hold lead."""
    return (item.target for item in out.get(task_id, ()) if item.relation is relation and not item.invalidated)


def reaches(out: OutgoingEdges, into: Mapping[str, Sequence[str]], start: str, relation: Relation, goal: str) -> bool:
    """Whether arrows of one relation lead from `start` to `goal`; `into` says from where any arrows lead to a task.

    Looked for from both ends at once, so that a task that nothing points to yet, as every new one, costs nothing
    however deep the graph is.
    """
    forward_queue, backward_queue = deque([start]), deque([goal])
    seen_forward, seen_backward = {start}, {goal}
    while forward_queue and backward_queue:
        for target in targets(out, forward_queue.popleft(), relation):
            if target in seen_backward:
                return True
            if target not in seen_forward:
                seen_forward.add(target)
                forward_queue.append(target)
        task_id = backward_queue.popleft()
        for source in into.get(task_id, ()):
            if task_id not in targets(out, source, relation):
                continue
            if source in seen_forward:
                return True
            if source not in seen_backward:
                seen_backward.add(source)
                backward_queue.append(source)
    return False


def find_circle(out: OutgoingEdges, relation: Relation) -> list[str]:
    """The members of a circle that arrows of one relation form, in their order; [] when there is none."""
    try:
        TopologicalSorter({task_id: targets(out, task_id, relation) for task_id in out}).prepare()
    except CycleError as error:
        members: list[str] = error.args[1]  # the first is the last, too; against the arrows
        return members[:0:-1]
    return []


log = logging.getLogger(__name__)

MAX_TITLE = 200
MAX_DESCRIPTION = 600
"""Characters of a task that the graph holds in memory; the session's own record has it whole."""

MAX_NEIGHBOURS = 200
"""Neighbours of one task that are shown."""

MAX_WHOLE = 2_000
"""Tasks up to which the whole graph is written at the end of each session, in some milliseconds; a larger one has a
journal, so that one more task does not rewrite it."""

COMPACT_LINES = 2_000
"""Lines of the journal, and at least half as many as there are tasks, after which it becomes part of the snapshot."""

FREEZE_EVERY = 5_000
"""Records read after which the garbage collector is told to ignore existing objects: it would walk a large graph again
and again, 150 ms at a time, and free nothing."""

READY_TIMEOUT_S = 2.0
"""Seconds that a question waits for the graph to be read; longer, and it is refused."""


class TaskGraph:
    """The graph of one home. All methods may be called from any thread; reading never waits for the disk."""

    name = "tasks"

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Quick: nothing is read before `load` or `start`."""
        self._folder = folder
        self._clock = clock
        self._files = GraphFiles(folder)
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._loading: Future[None] | None = None
        self._closed = False
        self._nodes: dict[str, GraphNode] = {}
        self._outgoing: dict[str, Sequence[GraphEdge]] = {}
        self._incoming: dict[str, list[str]] = {}
        self._by_title: dict[tuple[str, str], str] = {}
        self.faults: tuple[str, ...] = ()
        """What could not be read, in words."""
        self.is_ready = False
        """Whether all of it was read."""

    # -- reading and closing

    def start(self) -> None:
        """Read the files in a background thread. A second time changes nothing."""
        if self._loading is None:
            self._loading = run_in_thread("clawpy-task-graph", self._read_files)

    def load(self) -> None:
        """Read the files, and wait for it."""
        self.start()
        self._wait_until_ready(None)

    def _read_files(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for number, record in enumerate(self._files.read(), 1):
                self._add_record(record)
                if number % FREEZE_EVERY == 0:
                    gc.freeze()
            self.faults = tuple(sanitise(fault) for fault in (*self._break_cycles(), *self._files.faults))
            self.is_ready = True
        except OSError as error:
            log.exception("the task graph cannot be read")
            self.faults = (f"the task graph cannot be read: {error.strerror or error}",)

    @property
    def progress(self) -> float:
        """The share of the files that was read."""
        return 1.0 if self.is_ready else self._files.progress

    @property
    def newest_at(self) -> datetime | None:
        """When the task that was added last began or ended."""
        with self._lock:
            last = next(reversed(self._nodes.values()), None)
            return None if last is None else last.timestamp

    def close(self) -> None:
        """Give the files up. Safe to call twice."""
        if self._loading is not None:
            wait([self._loading])
        with self._write_lock:
            self._closed = True
            self._files.close()

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, task_id: str) -> GraphNode | None:
        """One task, None when the graph has none of that id."""
        self._wait_until_ready()
        return self._nodes.get(task_id)

    def latest_named(self, workspace: str, title: str) -> GraphNode | None:
        """The newest task of this title in a workspace."""
        self._wait_until_ready()
        with self._lock:
            task_id = self._by_title.get((workspace, _short(title, MAX_TITLE)))
            return self._nodes[task_id] if task_id else None

    def newest(self, *, words: str = "", workspace: str | None = None, limit: int = 200) -> list[GraphNode]:
        """Tasks that hold, the last added first, those with all `words`."""
        terms = words.casefold().split()
        matching = (
            node
            for node in reversed(self._all_nodes())
            if (workspace is None or node.workspace == workspace)
            and all(word in f"{node.title} {node.description}".casefold() for word in terms)
        )
        return list(islice(matching, limit))

    def neighbourhood(self, task_id: str) -> Neighbourhood:
        """A task with what is one step away, what holds first. Raises `Refusal`: `unknown_task`, `not_ready`."""
        self._wait_until_ready()
        with self._lock:
            node = self._existing(task_id)
            edges = self._edges_around(task_id)
            others = dict.fromkeys(edge.other_end(task_id) for edge in edges)
            return Neighbourhood(node, tuple(edges), tuple(self._nodes[other] for other in others))

    def neighbours(self, task_ids: Sequence[str]) -> list[tuple[GraphEdge, GraphNode]]:
        """What is one step from `task_ids` and holds, with the arrow that leads there; each once, not themselves."""
        self._wait_until_ready()
        visited, results = set(task_ids), []
        with self._lock:
            for task_id in task_ids:
                for edge in self._edges_around(task_id):
                    neighbour = self._nodes[edge.other_end(task_id)]
                    if neighbour.task_id not in visited and not edge.invalidated and neighbour.invalidated_at is None:
                        visited.add(neighbour.task_id)
                        results.append((edge, neighbour))
        return results

    # -- writing

    def put(self, node: GraphNode) -> None:
        """Add a task, or say something new of it. The same again writes nothing. Raises `Refusal`, OSError."""
        self._wait_until_ready()
        node = _cleaned(node)
        with self._write_lock:
            if self._nodes.get(node.task_id) != node:
                self._write(node, self._outgoing.get(node.task_id, ()))

    def relate(self, source: str, relation: Relation, target: str, weight: float = 1.0) -> bool:
        """Draw an arrow; False when it is there already. Raises `Refusal`: `unknown_task`, `cycle`, and OSError."""
        self._wait_until_ready()
        with self._write_lock:
            self._existing(source)
            self._existing(target)
            if source == target:
                raise Refusal("cycle", f"{source} cannot be related to itself", "name two tasks")
            existing = self._edge(source, relation, target)
            if existing is not None and not existing.invalidated:
                return False
            if relation in ACYCLIC and reaches(self._outgoing, self._incoming, target, relation, source):
                raise Refusal(
                    "cycle", f"{target} leads to {source} by `{relation}` already", "reverse the arrow, or leave it out"
                )
            self._write(*self._with_edge(GraphEdge(source, relation, target, round(weight, 4))))
        return True

    def cut(self, edge: GraphEdge) -> None:
        """Mark an arrow as holding no longer. Raises OSError."""
        with self._write_lock:
            self._write(*self._with_edge(replace(edge, invalidated=True)))

    def flush(self, *, whole: bool = False) -> None:
        """Wait until everything is on the disk for good; with `whole`, and at most `MAX_WHOLE` tasks, in the one file
        `task_graph.json`. A long journal becomes part of it too. Raises OSError."""
        if (whole and len(self) <= MAX_WHOLE) or self._files.lines > max(COMPACT_LINES, len(self) // 2):
            self.compact()
            return
        with self._write_lock:
            if not self._closed:
                self._files.sync()

    def compact(self) -> None:
        """Make the journal part of the snapshot. Writers wait meanwhile. Raises OSError."""
        self._wait_until_ready()
        with self._write_lock:
            if not self._closed and self._files.lines:
                self._files.replace((node, self._outgoing.get(node.task_id, ())) for node in list(self._nodes.values()))

    # -- forgetting

    def find(self, search_terms: SearchTerms) -> Iterator[tuple[str, str]]:
        """Tasks whose words are `search_terms`."""
        for node in self._all_nodes():
            if any(map(search_terms.match, (node.title, node.description, node.why))):
                yield node.task_id, node.title or node.description

    def erase(self, terms: SearchTerms) -> int:
        """Empty and invalidate them, in the files too; how many. Their places in the graph stay (SPEC 4.10)."""
        nodes = [node for task_id, _ in self.find(terms) if (node := self.get(task_id)) is not None]
        for node in nodes:
            at = node.invalidated_at or self._clock.now()
            self.put(replace(node, title="", description="", invalidated_at=at, why="forgotten"))
        self.compact()  # always: what a crash left blank in the journal is in the snapshot still
        return len(nodes)

    # -- inside

    def _wait_until_ready(self, timeout_s: float | None = READY_TIMEOUT_S) -> None:
        if self.is_ready:
            return
        if self._loading is None or wait([self._loading], timeout_s).not_done:
            raise Refusal("not_ready", f"the task graph is being read ({self.progress:.0%})", "try again in a moment")
        if not self.is_ready:
            raise Refusal("unwritable_home", self.faults[0], f"see {self._files.snapshot}")

    def _all_nodes(self) -> list[GraphNode]:
        self._wait_until_ready()
        with self._lock:
            return list(self._nodes.values())

    def _existing(self, task_id: str) -> GraphNode:
        node = self._nodes.get(task_id)
        if node is None:
            raise Refusal("unknown_task", f"the task graph has no {sanitise(task_id)}", "see layer F of the memory")
        return node

    def _write(self, node: GraphNode, edges: Sequence[GraphEdge]) -> None:
        if self._closed:
            raise Refusal("engine_closed", "the engine is closing; nothing is written any more")
        self._files.append((node, edges))
        self._add_record((node, edges))

    def _add_record(self, record: Record) -> None:
        """Put a record into memory; twice is as once."""
        node, edges = _cleaned(record[0]), record[1]
        with self._lock:
            self._nodes[node.task_id] = node
            if node.title:
                self._by_title[node.workspace, node.title] = node.task_id
            known_targets = {edge.target for edge in self._outgoing.get(node.task_id, ())}
            if edges:
                self._outgoing[node.task_id] = tuple(edges)
            for target in dict.fromkeys(edge.target for edge in edges):
                if target not in known_targets:
                    self._incoming.setdefault(target, []).append(node.task_id)

    def _with_edge(self, edge: GraphEdge) -> Record:
        """The task that an arrow begins at, with this arrow in the place of the one like it, or as one more."""
        others = (
            other
            for other in self._outgoing.get(edge.source, ())
            if (other.relation, other.target) != (edge.relation, edge.target)
        )
        return self._nodes[edge.source], (*others, edge)

    def _break_cycles(self) -> Iterable[str]:
        """Open circles of arrows that must not have any: only a hand that wrote in the file can have drawn them. The
        arrow that closes one is taken as holding no longer; in words, which and how it is mended."""
        for relation in ACYCLIC:
            while circle := find_circle(self._outgoing, relation):
                source, target = circle[-1], circle[0]
                path = " → ".join((*circle[:8], *(["…", source] if len(circle) > 8 else []), target))
                yield (
                    f"{self._files.snapshot.name}: {path} is a circle of `{relation}`; {source} → {target} is "
                    "treated as not valid. Quit, remove the wrong arrow from the file, and restart"
                )
                edge = self._edge(source, relation, target)
                assert edge is not None, "the circle was made of it"
                self._add_record(self._with_edge(replace(edge, invalidated=True)))

    def _edge(self, source: str, relation: Relation, target: str) -> GraphEdge | None:
        edges = self._outgoing.get(source, ())
        return next((edge for edge in edges if edge.relation is relation and edge.target == target), None)

    def _edges_around(self, task_id: str) -> list[GraphEdge]:
        edges = [edge for edge in self._outgoing.get(task_id, ()) if edge.target in self._nodes]
        sources = self._incoming.get(task_id, ())
        edges += [edge for source in sources for edge in self._outgoing[source] if edge.target == task_id]
        return sorted(edges, key=lambda edge: edge.invalidated)[:MAX_NEIGHBOURS]


def _cleaned(node: GraphNode) -> GraphNode:
    title, description = _short(node.title, MAX_TITLE), _short(node.description, MAX_DESCRIPTION)
    return replace(node, title=title, description=description)


def _short(text: str, max_length: int) -> str:
    """Harmless, and at most `max_length` characters."""
    cleaned = sanitise(text).strip()
    return cleaned if len(cleaned) <= max_length else cleaned[: max_length - 1].rstrip() + "…"
