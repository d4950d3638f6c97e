"""Layer F, the task graph (SPEC 4.6): which task blocked, continued or resembles another.

It is kept in memory, and read when it is first needed. Nothing is deleted: tasks and edges that are no longer valid are
marked. Edges of `blocks` never form a cycle, nor do edges of `derived_from`.

On disk it is a document, `task_graph.json`, with one task a line, and a journal of later changes. A change adds one
line to the journal, so that its cost does not grow with the graph. A line is a task with its edges; the last line of a
task counts. Compacting replaces the document, whole or not at all, and then empties the journal. A crash in between is
harmless, because the lines of the journal only repeat what the document says.
"""

from __future__ import annotations

import gc
import io
import itertools
import json
import math
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import TypeAdapter

from engine.clock import Clock
from engine.files import BUFFER_BYTES, sync_folder, write_atomic
from engine.model import (
    ACYCLIC,
    GraphEdge,
    GraphNode,
    Layer,
    LayerState,
    Neighbourhood,
    Refusal,
    Relation,
    sanitise,
)
from engine.storage.erasing import SearchTerms

SNAPSHOT_FILE, JOURNAL_FILE = "task_graph.json", "task_graph.journal.jsonl"
"""The names of the document and of the journal."""

SEMANTIC_WEIGHT = 0.7
"""Weight of similarity in the score of a task (SPEC 4.6). Recency has the rest."""

DECAY_DAYS = 14.0
"""The age in days at which the recency of a task has fallen to a third (1/e)."""

MAX_TITLE, MAX_DESCRIPTION = 200, 600
"""Maximum number of characters of a title and of a description in the graph. The session's own record has all of it."""

MAX_NEIGHBOURS = 200
"""Maximum number of neighbours of one task that are shown."""

MAX_TASKS_WRITTEN_WHOLE = 2_000
"""A graph with up to this many tasks is compacted at the end of each session, which takes some milliseconds."""

COMPACT_LINES = 2_000
"""The graph is compacted when the journal has this many lines, and half as many as there are tasks."""

FREEZE_EVERY = 5_000
"""After this many records the garbage collector is told to ignore existing objects. Otherwise it would search a large
graph again and again, 150 ms each time, and free nothing."""

_DOCUMENT_HEAD, _DOCUMENT_FOOT = b'{"version": 1, "tasks": [\n', b"\n]}\n"
"""What the document begins and ends with."""

_NODE_ADAPTER = TypeAdapter(GraphNode)

Record = tuple[GraphNode, Sequence[GraphEdge]]
"""A task, and the edges that begin at it."""


def compute_recency(at: datetime, now: datetime) -> float:
    """exp(-age in days / 14), 1 for a time in the future."""
    return math.exp(-max(0.0, (now - at) / timedelta(days=1)) / DECAY_DAYS)


class TaskGraph:
    """The graph of one home. All methods may be called from any thread. The first call reads the files, which takes
    seconds for 100,000 tasks; it, and all others meanwhile, raise `Refusal` `unwritable_home` where that fails."""

    name = "tasks"

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._clock = clock
        self._files = _Files(folder)
        self._load_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._closed = False
        self.is_ready = False
        """Whether the whole graph was read."""
        self._nodes: dict[str, GraphNode] = {}
        self._outgoing: dict[str, Sequence[GraphEdge]] = {}
        """By task: the edges that begin at it."""
        self._sources: dict[str, dict[str, None]] = {}
        """By task: the tasks from which an edge leads to it, in order."""
        self._latest_named: dict[tuple[str, str], GraphNode] = {}

    # -- reading and closing

    def load(self) -> None:
        """Read the files. A second call changes nothing."""
        with self._load_lock:
            if self.is_ready:
                return
            try:
                for number, (node, edges) in enumerate(self._files.read(), 1):
                    self._add(node, edges)
                    if number % FREEZE_EVERY == 0:
                        gc.freeze()
                if self._files.faults:
                    self._files.replace(self._make_records())  # what is damaged was copied aside
            except OSError as error:
                message = f"the task graph cannot be read: {error.strerror or error}"
                self._files.faults = [message]
                raise Refusal("unwritable_home", message, f"see {self._files.snapshot}") from error
            self.is_ready = True

    @property
    def faults(self) -> tuple[str, ...]:
        """What could not be read, in words."""
        return tuple(self._files.faults)

    def describe_layer(self) -> LayerState:
        """The state of layer F (SPEC 9.5). It does not wait for the files."""
        state = "degraded" if self.faults else "ready" if self.is_ready else "building"
        last = next(reversed(tuple(self._nodes.values())), None)
        newest_at = None if last is None else last.timestamp
        progress = 0.0 if state == "building" else 1.0
        return LayerState(Layer.GRAPH, len(self), newest_at, state, "; ".join(self.faults[:3]), progress)

    def close(self) -> None:
        """Close the files. Safe to call twice."""
        with self._load_lock, self._write_lock:
            self._closed = True
            self._files.close()

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, task_id: str) -> GraphNode | None:
        """One task, None if the graph has none with this id."""
        self.load()
        return self._nodes.get(task_id)

    def find_latest_named(self, workspace: str, title: str) -> GraphNode | None:
        """The newest task with this title in a workspace."""
        self.load()
        return self._latest_named.get((workspace, _shorten(title, MAX_TITLE)))

    def find_newest(self, *, words: str = "", limit: int = 200) -> list[GraphNode]:
        """Tasks with all `words`, the last added first."""
        self.load()
        terms = words.casefold().split()
        matching = (
            node
            for node in reversed(tuple(self._nodes.values()))
            if all(word in f"{node.title} {node.description}".casefold() for word in terms)
        )
        return list(itertools.islice(matching, limit))

    def get_neighbourhood(self, task_id: str) -> Neighbourhood:
        """A task with its edges and the tasks one step away, the valid ones first. Raises `Refusal` `unknown_task`."""
        self.load()
        edges = self._read_edges_around(task_id)
        neighbour_ids = dict.fromkeys(edge.other_end(task_id) for edge in edges)
        return Neighbourhood(
            self._require_task(task_id), tuple(edges), tuple(self._nodes[other] for other in neighbour_ids)
        )

    def find_neighbours(self, task_ids: Sequence[str]) -> list[tuple[GraphEdge, GraphNode]]:
        """The valid tasks one step from `task_ids`, with the edge that leads there; each once, without these tasks."""
        self.load()
        visited, results = set(task_ids), []
        for task_id in task_ids:
            for edge in self._read_edges_around(task_id):
                neighbour = self._nodes[edge.other_end(task_id)]
                if neighbour.task_id not in visited and not edge.invalidated and neighbour.invalidated_at is None:
                    visited.add(neighbour.task_id)
                    results.append((edge, neighbour))
        return results

    # -- writing

    def put(self, node: GraphNode) -> None:
        """Add or replace a task. An unchanged task is not written. Raises `Refusal`, OSError."""
        self.load()
        title, description = _shorten(node.title, MAX_TITLE), _shorten(node.description, MAX_DESCRIPTION)
        node = replace(node, title=title, description=description)
        with self._write_lock:
            if self._nodes.get(node.task_id) != node:
                self._write(node, self._outgoing.get(node.task_id, ()))

    def relate(self, source: str, relation: Relation, target: str, weight: float = 1.0) -> bool:
        """Add an edge; False if it exists already. Raises `Refusal`: `unknown_task`, `cycle`, and OSError."""
        self.load()
        with self._write_lock:
            self._require_task(source)
            self._require_task(target)
            edge = GraphEdge(source, relation, target, round(weight, 4))
            known_edges = self._outgoing.get(source, ())
            if any(_is_same(edge, known_edge) and not known_edge.invalidated for known_edge in known_edges):
                return False
            if source == target or (relation in ACYCLIC and self._has_path(target, relation, source)):
                raise Refusal(
                    "cycle", f"{target} leads to {source} by `{relation}` already", "reverse the arrow, or leave it out"
                )
            self._draw(edge)
        return True

    def cut(self, edge: GraphEdge) -> None:
        """Mark an edge as no longer valid. Raises OSError."""
        with self._write_lock:
            self._draw(replace(edge, invalidated=True))

    def flush(self, *, whole: bool = False) -> None:
        """Wait until everything is on disk. Compact the graph if its journal is long; with `whole`, also if the graph
        has at most `MAX_TASKS_WRITTEN_WHOLE` tasks. Raises OSError."""
        is_small = len(self) <= MAX_TASKS_WRITTEN_WHOLE
        max_lines = 0 if whole and is_small else max(COMPACT_LINES, len(self) // 2)
        if self._files.lines > max_lines:
            self.compact()
            return
        with self._write_lock:
            if not self._closed:
                self._files.sync()

    def compact(self) -> None:
        """Write the whole graph into the document, and empty the journal. Writers wait meanwhile. Raises OSError."""
        self.load()
        with self._write_lock:
            if not self._closed:
                self._files.replace(self._make_records())

    # -- forgetting

    def find(self, search_terms: SearchTerms) -> Iterator[tuple[str, str]]:
        """Tasks that contain `search_terms`."""
        for node in self.find_newest(limit=len(self)):
            if any(map(search_terms.match, (node.title, node.description, node.why))):
                yield node.task_id, node.title or node.description

    def erase(self, terms: SearchTerms) -> int:
        """Empty and invalidate the tasks that contain the terms, also in the files; returns how many. Their places in
        the graph stay (SPEC 4.10)."""
        nodes = [self._nodes[task_id] for task_id, _ in self.find(terms)]
        for node in nodes:
            at = node.invalidated_at or self._clock.now()
            self.put(replace(node, title="", description="", invalidated_at=at, why="forgotten"))
        self.compact()  # always: what a crash left blank in the journal is in the document still
        return len(nodes)

    # -- inside

    def _require_task(self, task_id: str) -> GraphNode:
        node = self._nodes.get(task_id)
        if node is None:
            raise Refusal("unknown_task", f"the task graph has no {sanitise(task_id)}", "see layer F of the memory")
        return node

    def _make_records(self) -> Iterator[Record]:
        return ((node, self._outgoing.get(node.task_id, ())) for node in tuple(self._nodes.values()))

    def _write(self, node: GraphNode, edges: Sequence[GraphEdge]) -> None:
        if self._closed:
            raise Refusal("engine_closed", "the engine is closing; nothing is written any more")
        self._files.append((node, edges))
        self._add(node, edges)

    def _draw(self, edge: GraphEdge) -> None:
        """Write the task at which an edge begins, with this edge added, or in place of the same one."""
        other_edges = (
            known_edge for known_edge in self._outgoing.get(edge.source, ()) if not _is_same(edge, known_edge)
        )
        self._write(self._nodes[edge.source], (*other_edges, edge))

    def _add(self, node: GraphNode, edges: Sequence[GraphEdge]) -> None:
        """Put a record into memory. A second call changes nothing."""
        self._nodes[node.task_id] = node
        if node.title:
            self._latest_named[node.workspace, node.title] = node
        if edges:
            self._outgoing[node.task_id] = tuple(edges)
        for edge in edges:
            self._sources.setdefault(edge.target, {})[node.task_id] = None

    def _has_path(self, start: str, relation: Relation, goal: str) -> bool:
        """Whether edges of one relation lead from `start` to `goal`. For a new task this is quick in any graph, because
        no edge leads to it."""
        waiting = [start] if goal in self._sources else []
        reached = set(waiting)
        while waiting and goal not in reached:
            edges = self._outgoing.get(waiting.pop(), ())
            targets = {edge.target for edge in edges if edge.relation is relation and not edge.invalidated}
            waiting += targets - reached
            reached |= targets
        return goal in reached

    def _read_edges_around(self, task_id: str) -> list[GraphEdge]:
        edges = [edge for edge in self._outgoing.get(task_id, ()) if edge.target in self._nodes]
        sources = tuple(self._sources.get(task_id, ()))
        edges += [edge for source in sources for edge in self._outgoing[source] if edge.target == task_id]
        return sorted(edges, key=lambda edge: edge.invalidated)[:MAX_NEIGHBOURS]


# -- the files of the graph


class _Files:
    """The files of one graph in `folder`. The graph's lock must be held."""

    def __init__(self, folder: Path) -> None:
        self.snapshot, self._journal = folder / SNAPSHOT_FILE, folder / JOURNAL_FILE
        self._file: io.FileIO | None = None
        self.lines = 0
        """Number of lines of the journal."""
        self.faults: list[str] = []
        """What could not be read, in words."""

    def read(self) -> Iterator[Record]:
        """Every record, oldest first. Afterwards the journal is open for writing. A last line that a crash left
        unfinished is cut off. A file with anything else that cannot be read is copied aside, and `faults` names it.
        Raises OSError."""
        self.faults = []
        self.snapshot.parent.mkdir(parents=True, exist_ok=True)
        for path in (self.snapshot, self._journal):
            yield from self._read_file(path)
        self._journal.touch(0o600)
        self._file = self._journal.open("ab", buffering=0)
        sync_folder(self.snapshot.parent)

    def _read_file(self, path: Path) -> Iterator[Record]:
        """The records of one file. A damaged file is copied aside and named in `faults`."""
        faults, self.lines = [], 0
        for self.lines, line in enumerate(_read_lines(path), 1):
            try:
                yield _decode(line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                faults.append(f"line {self.lines}: {' '.join(sanitise(str(error)).split())[:200]}")
        if faults:
            copies = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
            copy = shutil.copyfile(path, next(copy for copy in copies if not copy.exists()))
            self.faults.append(f"{path.name}: {faults[0]}; {len(faults)} in all; the file is kept as {copy.name}")

    def append(self, record: Record) -> None:
        """Write a task; `sync` makes it durable. Raises OSError; then nothing of it is kept."""
        assert self._file is not None, "it was read"
        data = _encode(record) + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._file.truncate(end)
            raise
        self.lines += 1

    def sync(self) -> None:
        """Wait until what was appended is on disk."""
        assert self._file is not None, "it was read"
        os.fsync(self._file)

    def replace(self, records: Iterable[Record]) -> None:
        """Write `records`, which are the whole graph, into the document, and empty the journal.

        Each task is dumped and written by itself: a single dump of a large graph would hold the interpreter for a third
        of a second. Raises OSError; then the files are as before.
        """
        assert self._file is not None, "it was read"
        separators = itertools.chain([b""], itertools.repeat(b",\n"))
        lines = (separator + _encode(record) for separator, record in zip(separators, records, strict=False))
        write_atomic(self.snapshot, itertools.chain([_DOCUMENT_HEAD], lines, [_DOCUMENT_FOOT]))
        self._file.truncate(0)
        self.lines = 0

    def close(self) -> None:
        """Close the journal. Safe to call twice."""
        if self._file is not None:
            self._file.close()


def _read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file with a record each. A last line without an end is cut off."""
    if not path.exists():
        return
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        complete_bytes = 0
        for line in file:
            if not line.endswith(b"\n"):
                os.truncate(path, complete_bytes)
                return
            complete_bytes += len(line)
            if line not in (_DOCUMENT_HEAD, _DOCUMENT_FOOT[1:]):
                yield line


def _encode(record: Record) -> bytes:
    """The line of a record, without its end."""
    node, outgoing = record
    edges = [
        [edge.relation.value, edge.target, edge.weight, *(["invalidated"] if edge.invalidated else [])]
        for edge in outgoing
    ]
    line = {"task": _NODE_ADAPTER.dump_python(node, mode="json"), "edges": edges}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _decode(line: bytes) -> Record:
    """The record in a line. Raises ValueError and the like if it is no task."""
    fields = json.loads(line.rstrip().removesuffix(b","))
    node = _NODE_ADAPTER.validate_python(fields["task"])
    return node, [
        GraphEdge(node.task_id, Relation(relation), target, weight, bool(rest))
        for relation, target, weight, *rest in fields["edges"]
    ]


def _is_same(edge: GraphEdge, other: GraphEdge) -> bool:
    """Whether two edges have the same relation between the same tasks."""
    return (edge.source, edge.relation, edge.target) == (other.source, other.relation, other.target)


def _shorten(text: str, max_length: int) -> str:
    """Sanitised text with at most `max_length` characters."""
    cleaned = sanitise(text).strip()
    return cleaned if len(cleaned) <= max_length else cleaned[: max_length - 1].rstrip() + "…"
