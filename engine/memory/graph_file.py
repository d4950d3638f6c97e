"""The task graph on disk (SPEC 4.6): `task_graph.json`, a snapshot, and a journal of what came after it.

A line is a task with its edges; the last line of a task counts. A change is one line at the end of the journal, so
that its cost does not grow with the graph. The snapshot is one JSON document with one task a line. To compact is to
replace the snapshot, whole or not at all, and then to empty the journal: a crash in between is harmless, for the
journal's lines say again what the snapshot says. A last line that a crash tore is cut off; any other that cannot be
read is kept in `task_graph.rejected.jsonl` and named.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.files import BUFFER_SIZE, sync_folder, write_atomic
from engine.model import GraphEdge, GraphNode, Relation
from engine.model.text import validation_faults

SNAPSHOT = "task_graph.json"
JOURNAL = "task_graph.journal.jsonl"
REJECTED_LINES = "task_graph.rejected.jsonl"
_HEAD = b'{"version": 1, "tasks": ['

_TASK = TypeAdapter(GraphNode)

Record = tuple[GraphNode, Sequence[GraphEdge]]
"""A task, and the edges that begin at it."""

Line = tuple[str, bytes]
"""Where a line stands, and the line."""


class GraphFiles:
    """The files of one graph in `folder`. Not thread-safe: its owner has the lock."""

    def __init__(self, folder: Path) -> None:
        self.snapshot = folder / SNAPSHOT
        self._folder = folder
        self._journal = folder / JOURNAL
        self._file = -1
        self.lines = 0
        """Lines of the journal."""
        self.progress = 0.0
        """The share of the snapshot that was read."""
        self.faults: list[str] = []
        """What could not be read, in words."""

    def read(self) -> Iterator[Record]:
        """Every record, oldest first; then the journal is open for writing. What cannot be read is in `faults`, in
        words. Raises OSError."""
        rejected: list[str] = []
        for where, line in itertools.chain(self._snapshot_lines(), self._journal_lines()):
            text = line.decode(errors="replace").strip().removesuffix(",")
            try:
                record = _record(text)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                rejected.append(text)
                faults = validation_faults(error) if isinstance(error, ValidationError) else [repr(error)]
                self.faults.append(f"{where}: {faults[0]}")
            else:
                yield record
        self._save_rejected(rejected)
        self._file = os.open(self._journal, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        sync_folder(self._folder)

    def append(self, record: Record) -> None:
        """Write a task; it is on the disk for good after `sync`. Raises OSError; then nothing of it is kept."""
        data = _line(record) + b"\n"
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            os.ftruncate(self._file, end)
            raise
        self.lines += 1

    def sync(self) -> None:
        """Wait until what was appended is on the disk."""
        os.fsync(self._file)

    def replace(self, records: Iterable[Record]) -> None:
        """Make `records`, which is everything, the snapshot, and empty the journal.

        One task is dumped and written at a time: a single dump of a large graph would hold the interpreter for a third
        of a second. Raises OSError; the files then still say the same as before.
        """
        write_atomic(self.snapshot, _document(records))
        os.ftruncate(self._file, 0)
        self.lines = 0

    def close(self) -> None:
        """Close the journal. Safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _snapshot_lines(self) -> Iterator[Line]:
        """Read it by the line; one in another layout as a whole."""
        if not self.snapshot.exists():
            return
        size, read = max(1, self.snapshot.stat().st_size), 0
        with self.snapshot.open("rb", buffering=BUFFER_SIZE) as file:
            if file.readline().rstrip() != _HEAD:
                yield from self._lines_of_other_layout()
                return
            for number, line in enumerate(file, 2):
                read += len(line)
                if line.startswith(b"]}"):
                    return
                yield f"{SNAPSHOT} line {number}", line
                self.progress = min(1.0, read / size)
        self.faults.append(f"{SNAPSHOT} ends early; what it contains was read")

    def _lines_of_other_layout(self) -> Iterator[Line]:
        try:
            tasks = [json.dumps(task).encode() for task in json.loads(self.snapshot.read_bytes())["tasks"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            moved = _move_aside(self.snapshot)
            self.faults.append(f"{SNAPSHOT} cannot be read ({error}); it was saved as {moved.name}")
            return
        for number, task in enumerate(tasks):
            yield f"{SNAPSHOT} task {number}", task

    def _journal_lines(self) -> Iterator[Line]:
        if not self._journal.exists():
            return
        complete_bytes = 0
        with self._journal.open("rb", buffering=BUFFER_SIZE) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    os.truncate(self._journal, complete_bytes)
                    break
                complete_bytes += len(line)
                self.lines = number
                yield f"{JOURNAL} line {number}", line

    def _save_rejected(self, rejected: list[str]) -> None:
        """Lines that cannot be read are written aside, once each: the next snapshot will not have them."""
        if not rejected:
            return
        with (self._folder / REJECTED_LINES).open("a+", encoding="utf-8", errors="replace") as file:
            file.seek(0)
            saved = file.read().split("\n")
            file.writelines(f"{line}\n" for line in dict.fromkeys(rejected) if line not in saved)


def _move_aside(path: Path) -> Path:
    """Move a file that cannot be read out of the way, under a name that is free."""
    names = (path.with_name(f"{path.stem}.damaged-{number}{path.suffix}") for number in itertools.count(1))
    return path.rename(next(name for name in names if not name.exists()))


def _document(records: Iterable[Record]) -> Iterator[bytes]:
    yield _HEAD
    separator = b"\n"
    for record in records:
        yield separator + _line(record)
        separator = b",\n"
    yield b"\n]}\n"


def _line(record: Record) -> bytes:
    node, outgoing = record
    edges = [
        [edge.relation.value, edge.target, edge.weight, *(["invalidated"] if edge.invalidated else [])]
        for edge in outgoing
    ]
    line: dict[str, Any] = {"task": _TASK.dump_python(node, mode="json"), "edges": edges}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _record(text: str) -> Record:
    """Raises ValueError and the like for what is no task."""
    line = json.loads(text)
    node = _TASK.validate_python(line["task"])
    if not node.task_id:
        raise ValueError("a task without an id")
    return node, [
        GraphEdge(node.task_id, Relation(relation), str(target), float(weight), bool(rest))
        for relation, target, weight, *rest in line.get("edges", ())
    ]
