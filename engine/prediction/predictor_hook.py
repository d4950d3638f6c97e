"""The predictor hook: other programs append predictions to `predictions.jsonl`, which are proposed (SPEC 2.8).

A line is `{"prediction", "confidence", "channel", "reasoning", "timestamp"}` and may have a `workspace`. It is proposed
for a day. The engine never writes the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from pydantic import Field, ValidationError

from engine.model import Proposal, Source
from engine.model.text import validation_faults
from engine.prediction.context import WorkspaceContext
from engine.prediction.model_twin import PredictedWork
from engine.storage import state
from engine.storage.database import Database

MAX_AGE = timedelta(hours=24)
"""How long a line is proposed: as long as a card lives (SPEC 2.7)."""

MAX_LINE_BYTES = 64 * 1024
MAX_LINES = 50
"""Maximum number of lines that are proposed, the newest."""

MAX_READ_BYTES = 1024 * 1024
"""Maximum number of bytes at the end of the file whose lines are proposed. Lines before them are only counted."""

MAX_NAMED_ERRORS = 5
"""Maximum number of unreadable lines that a report names. The others are counted."""

LINE_KEY = "prediction.hook"
"""Key in the state table: the file that was read last, and the number of its last line."""


class HookLine(PredictedWork):
    """A line of the file. `workspace` is "" if the line names none."""

    prompt: str = Field(alias="prediction", min_length=1, max_length=2_000)
    timestamp: datetime | None = Field(default=None, strict=False)
    workspace: str = ""

    def written_at(self, at: datetime) -> datetime:
        """When the line was written: its own `timestamp`, but not after `at`, the last change of the file."""
        own = self.timestamp or at
        return min(own if own.tzinfo else own.replace(tzinfo=UTC), at)


def read_line(raw: bytes) -> HookLine:
    """Read one line of the file. Raises ValueError that says what is wrong with the line."""
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        return HookLine.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError("; ".join(validation_faults(error)).removeprefix(": ")) from error


class PredictorHook:
    """Reads the file when it has changed, and proposes its lines. Only the thread of a cycle may call it."""

    def __init__(
        self,
        database: Database,
        file: Callable[[], Path],
        *,
        flows: Collection[str],
        home_workspace: Callable[[], str],
        report: Callable[[str, str], None],
    ) -> None:
        """A line that names no workspace belongs to `home_workspace()`. `report(where, words)` is told which lines
        cannot be read."""
        self._database = database
        self._file = file
        self._flows = flows
        self._home_workspace = home_workspace
        self._report = report
        self._lines: list[tuple[datetime, HookLine]] = []
        self._stamp: tuple[str, int, int] | None = None
        self._reported_error = ""

    def propose(self, context: WorkspaceContext) -> list[Proposal]:
        """The predictions of other programs for this workspace. Of lines with the same prompt the newest counts."""
        file = self._file()
        try:
            self._read(file)
        except FileNotFoundError:
            self._lines = []  # no program writes predictions
        except OSError as error:
            if str(error) != self._reported_error:  # once, not with every cycle
                self._reported_error = str(error)
                self._report(str(file), f"cannot be read: {error.strerror}; make it a file that you may read")
        by_prompt = {
            line.prompt: (min(at, context.now), line)
            for at, line in self._lines
            if context.now - at < MAX_AGE and (line.workspace or self._home_workspace()) == context.workspace
        }
        return [
            replace(line.propose(context, self._flows, Source.PREDICTOR_HOOK, "hook"), evidence_at=at)
            for at, line in by_prompt.values()
        ]

    def _read(self, file: Path) -> None:
        """Read the file if it has changed. New lines that cannot be read are reported by number. A line without its end
        is still being written, and is read later."""
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            stamp = (str(file), status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            self._lines, faults, number = _read_lines(opened, status)
        self._stamp, self._reported_error = stamp, ""
        with self._database.read() as session:
            known = state.get(session, LINE_KEY, {"file": "", "line": 0})
        last = known["line"] if known["file"] == str(file) and known["line"] <= number else 0
        self._database.write(lambda tx: state.put(tx, LINE_KEY, {"file": str(file), "line": number}))
        new = [f"line {at}: {fault}" for at, fault in faults.items() if at > last]
        if new:
            more = f"; and {len(new) - MAX_NAMED_ERRORS} more" if len(new) > MAX_NAMED_ERRORS else ""
            self._report(str(file), "; ".join(new[:MAX_NAMED_ERRORS]) + more)


def _read_lines(file: BinaryIO, status: os.stat_result) -> tuple[list[tuple[datetime, HookLine]], dict[int, str], int]:
    """Returns (lines, faults, number): the newest lines with the time when each was written, the faults of other lines
    by line number, and the number of the last whole line."""
    changed_at, begin = datetime.fromtimestamp(status.st_mtime, UTC), status.st_size - MAX_READ_BYTES
    lines, faults, number = [], dict[int, str](), 0
    for raw in file:
        if not raw.endswith(b"\n"):
            break
        number += 1
        if file.tell() < begin or not raw.strip():
            continue
        try:
            line = read_line(raw)
        except ValueError as error:
            faults[number] = str(error)
        else:
            lines.append((line.written_at(changed_at), line))
    return lines[-MAX_LINES:], faults, number
