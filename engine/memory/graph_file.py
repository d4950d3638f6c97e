"""The task graph on disk (SPEC 4.6): `task_graph.json`, a snapshot, and journals of what came after it.

A change is one line at the end of the newest journal, so that its cost does not grow with the graph. The snapshot is
one JSON document with one task a line; it says which journal goes on where it ends. To compact is to begin a new
journal, to replace the snapshot, and to take the older journals away, each step whole or not done:

    crash before the snapshot is replaced   the old one, and all journals from its own on, are read
    crash before the old journals are gone  the new one is read; older journals than its own are left out, and removed

Applying a line twice changes nothing. A last line that a crash tore is cut off; any other that cannot be read is kept
in `task_graph.rejected.jsonl` and named.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.model import GraphEdge, GraphNode, sanitise
from engine.storage.files import AT_ONCE, sync_folder, write_atomic

VERSION = 1
SNAPSHOT = "task_graph.json"
REJECTED = "task_graph.rejected.jsonl"
_JOURNAL = re.compile(r"task_graph\.journal\.(\d+)\.jsonl")
_HEAD = re.compile(r'\{"version": (\d+), "journal": (\d+), "tasks": \[')

Record = dict[str, Any]
"""A line: a task with its arrows (`{"task": …, "edges": …}`) or one change of the journal."""


@dataclass(slots=True)
class Loaded:
    """What the files said besides the graph. `journal` is the number of the one to write to; `lines` in all journals;
    `faults` in words."""

    journal: int = 0
    lines: int = 0
    faults: list[str] = field(default_factory=list)


class GraphFiles:
    """The files of one graph in `folder`. Not thread-safe: its owner has the lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = 0
        self._file = -1

    @property
    def snapshot(self) -> Path:
        return self._folder / SNAPSHOT

    def load(self, take: Callable[[Record], None], progress: Callable[[float], None] = lambda _: None) -> Loaded:
        """Hand every record to `take`, oldest first; it raises ValueError on one that it cannot use. Opens the newest
        journal for writing. Raises OSError."""
        loaded = Loaded()
        rejected: list[str] = []

        def offer(text: str, where: str) -> None:
            try:
                record = json.loads(text)
                if not isinstance(record, dict):
                    raise ValueError("no object")
                take(record)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                rejected.append(text)
                loaded.faults.append(f"{where}: {type(error).__name__} {error}")

        first = self._read_snapshot(offer, loaded, progress)
        numbers = sorted(self._journals())
        for number in numbers:
            if number < first:
                self._journals()[number].unlink()
                continue
            self._replay(self._journals()[number], offer, loaded)
        loaded.journal = self._journal = max([first, *numbers])
        self._keep(rejected)
        self._open()
        return loaded

    def append(self, record: Record) -> None:
        """Write one change; it is on the disk for good after `sync`. Raises OSError; then nothing of it is kept."""
        data = (_dump(record) + "\n").encode(errors="replace")
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            os.ftruncate(self._file, end)
            raise

    def sync(self) -> None:
        """Wait until what was appended is on the disk."""
        os.fsync(self._file)

    def begin_journal(self) -> int:
        """What is appended from now on goes to a new journal; its number."""
        self.close()
        self._journal += 1
        self._open()
        return self._journal

    def replace(self, journal: int, records: Iterable[Record]) -> None:
        """Make `records` the snapshot that `journal` goes on from, and remove the journals before that one.

        One task is dumped and written at a time: a single dump of a large graph would hold the interpreter for a third
        of a second. Raises OSError; the files then still say the same as before.
        """
        write_atomic(self.snapshot, _lines(journal, records))
        for number, path in self._journals().items():
            if number < journal:
                path.unlink(missing_ok=True)
        sync_folder(self._folder)

    def close(self) -> None:
        """Close the journal. Safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        path = self._folder / f"task_graph.journal.{self._journal}.jsonl"
        fresh = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if fresh:
            sync_folder(self._folder)

    def _journals(self) -> dict[int, Path]:
        found = {}
        for path in self._folder.iterdir():
            name = _JOURNAL.fullmatch(path.name)
            if name:
                found[int(name[1])] = path
        return found

    def _read_snapshot(
        self, offer: Callable[[str, str], None], loaded: Loaded, progress: Callable[[float], None]
    ) -> int:
        """Read it by the line; one in another layout as a whole. Returns the number of its journal."""
        if not self.snapshot.exists():
            return 0
        size = max(1, self.snapshot.stat().st_size)
        with self.snapshot.open("rb", buffering=AT_ONCE) as file:
            head = _HEAD.fullmatch(file.readline().decode(errors="replace").rstrip("\n"))
            if head is None:
                return self._read_other_layout(offer, loaded)
            ended = False
            read = 0
            for number, line in enumerate(file, 2):
                read += len(line)
                if line.startswith(b"]}"):
                    ended = True
                    break
                offer(line.decode(errors="replace").strip().removesuffix(","), f"{SNAPSHOT} line {number}")
                if number % 1_000 == 0:
                    progress(min(1.0, read / size))
        if not ended:
            loaded.faults.append(f"{SNAPSHOT} ends early; what it contains was read")
        return int(head[2])

    def _read_other_layout(self, offer: Callable[[str, str], None], loaded: Loaded) -> int:
        try:
            document = json.loads(self.snapshot.read_bytes())
            tasks, journal = [json.dumps(one) for one in document["tasks"]], int(document.get("journal", 0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            aside = _aside(self.snapshot)
            loaded.faults.append(f"{SNAPSHOT} cannot be read ({error}); it was saved as {aside.name}")
            return 0
        for number, record in enumerate(tasks):
            offer(record, f"{SNAPSHOT} task {number}")
        return journal

    def _replay(self, path: Path, offer: Callable[[str, str], None], loaded: Loaded) -> None:
        whole = 0
        with path.open("rb", buffering=AT_ONCE) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                loaded.lines += 1
                offer(line.decode(errors="replace").rstrip("\n"), f"{path.name} line {number}")
        if whole != path.stat().st_size:
            os.truncate(path, whole)

    def _keep(self, rejected: list[str]) -> None:
        """Lines that cannot be read are written aside, once each: the next snapshot will not have them."""
        if not rejected:
            return
        path = self._folder / REJECTED
        known = set(path.read_text(encoding="utf-8", errors="replace").split("\n")) if path.exists() else set()
        fresh = [line for line in dict.fromkeys(rejected) if line not in known]
        if fresh:
            with path.open("a", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{line}\n" for line in fresh)


def _aside(path: Path) -> Path:
    """Move a file that cannot be read out of the way, under a name that is free."""
    number = 1
    while (target := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    path.rename(target)
    return target


def _lines(journal: int, records: Iterable[Record]) -> Iterator[bytes]:
    yield f'{{"version": {VERSION}, "journal": {journal}, "tasks": ['.encode()
    separator = "\n"
    for record in records:
        yield (separator + _dump(record)).encode(errors="replace")
        separator = ",\n"
    yield b"\n]}\n"


def _dump(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


LONGEST_TITLE = 200
LONGEST_DESCRIPTION = 600
"""Characters of a task that the graph holds in memory; the session's own record has it whole."""


def snapshot(nodes: Sequence[GraphNode], out: Mapping[str, Sequence[GraphEdge]]) -> Iterator[Record]:
    """A record for each task, with its arrows."""
    for node in nodes:
        edges = [
            [edge.relation.value, edge.target, edge.weight, *(["invalidated"] if edge.invalidated else [])]
            for edge in out.get(node.task_id, ())
        ]
        yield {"task": task_record(node), "edges": edges}


def task_record(node: GraphNode) -> Record:
    """A task as JSON."""
    return {
        "task_id": node.task_id,
        "title": node.title,
        "timestamp": node.timestamp.timestamp(),
        "success": node.success,
        "description": node.description,
        "workspace": node.workspace,
        "agent": node.agent,
        "invalidated_at": node.invalidated_at.timestamp() if node.invalidated_at else None,
        "why": node.why,
        "outcome": node.outcome,
    }


def node_of(record: Record) -> GraphNode:
    """The inverse. Raises ValueError, KeyError and TypeError for what is no task."""
    success, ended = record.get("success"), record.get("invalidated_at")
    if not isinstance(record["task_id"], str) or not record["task_id"]:
        raise ValueError("a task without an id")
    if success not in (True, False, None):
        raise ValueError(f"success is {success!r}, not true, false or null")
    return GraphNode(
        task_id=record["task_id"],
        title=short(str(record.get("title", "")), LONGEST_TITLE),
        timestamp=_instant(record["timestamp"]),
        success=success,
        description=short(str(record.get("description", "")), LONGEST_DESCRIPTION),
        workspace=sys.intern(str(record.get("workspace", ""))),
        agent=sys.intern(str(record.get("agent", ""))),
        invalidated_at=None if ended is None else _instant(ended),
        why=str(record.get("why", "")),
        outcome=str(record.get("outcome", "" if success is None else "succeeded" if success else "failed")),
    )


def _instant(stamp: float) -> datetime:
    try:
        return datetime.fromtimestamp(stamp, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{stamp} is not a time") from error


def short(text: str, longest: int) -> str:
    """Harmless, and at most `longest` characters."""
    clean = sanitise(text).strip()
    return clean if len(clean) <= longest else clean[: longest - 1].rstrip() + "…"
