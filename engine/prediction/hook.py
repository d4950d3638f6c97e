"""Predictions of other programs (SPEC 2.8): lines that they append to `predictions.jsonl` become proposals.

A line is `{"prediction", "confidence", "channel", "reasoning", "timestamp"}`, and may name a `workspace`. It is read
once and proposed for a day. The engine never writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.frozen import frozen
from engine.model import Proposal, Source, sanitise
from engine.prediction.context import WorkspaceContext
from engine.prediction.model_twin import proposal_of_text
from engine.storage import state
from engine.storage.database import Database

MAX_AGE = timedelta(hours=24)
"""Time for which a line is proposed; a card expires after as long (SPEC 2.7)."""

MAX_LINE_BYTES = 64 * 1024
"""Bytes."""

MAX_PROMPT_LENGTH = 2_000
"""Characters."""

MAX_LINES = 50
"""Maximum number of lines held at once, the newest."""

MAX_READ_BYTES = 1024 * 1024
"""Bytes that are read at a time; of a file that grew by more than that only the end is read."""

MAX_NAMED_ERRORS = 5
"""Maximum number of unreadable lines that are named; the others are counted."""

KIND = "hook"

POSITION_KEY = "prediction.hook"


@frozen
class HookLine:
    """A line, read. `confidence` in [0, 1]; `workspace` "" when it names none."""

    prompt: str
    channel: str
    confidence: float
    reasoning: str
    at: datetime
    workspace: str = ""


def read_line(raw: bytes, now: datetime) -> HookLine:
    """A line of the file. Raises ValueError that says what is wrong with it."""
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    texts = {name: fields.get(name, "") for name in ("prediction", "channel", "reasoning", "timestamp", "workspace")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is not text")
    prompt, confidence = sanitise(texts["prediction"]).strip(), fields.get("confidence")
    if not 0 < len(prompt) <= MAX_PROMPT_LENGTH:
        raise ValueError(f"prediction must have 1 to {MAX_PROMPT_LENGTH} characters")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise ValueError("confidence is not a number")
    if not 0 <= confidence <= 1:  # NaN is not, either
        raise ValueError(f"confidence is {str(confidence)[:40]}, not from 0 to 1")
    at = now
    if texts["timestamp"]:
        try:
            at = datetime.fromisoformat(texts["timestamp"])
        except ValueError as error:
            raise ValueError(f"timestamp {texts['timestamp'][:40]!r} is not a time") from error
        at = min(at if at.tzinfo else at.replace(tzinfo=UTC), now)
    reasoning = sanitise(texts["reasoning"]).strip()[:MAX_PROMPT_LENGTH]
    return HookLine(prompt, sanitise(texts["channel"]).strip(), float(confidence), reasoning, at, texts["workspace"])


class PredictorHook:
    """Reads the file on, and proposes what is in it. From the thread of a cycle."""

    def __init__(
        self,
        database: Database,
        file: Callable[[], Path],
        *,
        flows: Collection[str],
        home_workspace: Callable[[], str],
        report: Callable[[str, str], None],
    ) -> None:
        """`home_workspace` is where a line belongs that names no workspace; `report(where, words)` hears of lines that
        cannot be read."""
        self._database = database
        self._file = file
        self._flows = flows
        self._home_workspace = home_workspace
        self._report = report
        self._lines: list[HookLine] = []
        self._begun = False
        self._unread = ""

    def propose(self, context: WorkspaceContext) -> Sequence[Proposal]:
        """The predictions of other programs for this workspace, only the newest of those with the same words."""
        self.read(context.now)
        by_prompt = {
            line.prompt: line for line in self._lines if (line.workspace or self._home_workspace()) == context.workspace
        }
        return [self._proposal(context, item) for item in by_prompt.values()]

    def read(self, now: datetime) -> None:
        """Take in the lines that are new; those that cannot be read are reported with their number."""
        self._lines = [item for item in self._lines if now - item.at < MAX_AGE]
        file = self._file()
        try:
            size = file.stat().st_size
        except OSError:
            return  # nobody writes one: there is no hook
        with self._database.read() as session:
            position = state.get(session, POSITION_KEY)
        if position is None or position["file"] != str(file) or position["offset"] > size:
            position = {"file": str(file), "offset": 0, "line": 0}  # not the file it was
            self._lines = []
        # After a start what was read before is read again, as far as a day back.
        begin, line = (position["offset"], position["line"]) if self._begun else (0, 0)
        if begin == size:
            self._begun = True
            return
        try:
            offset, number, faults = self._read_from(file, begin, line, size, now, last_read=position["line"])
        except OSError as error:
            if str(error) != self._unread:  # told once, not with every cycle
                self._unread = str(error)
                self._report(str(file), f"cannot be read: {error.strerror}; make it a file that you may read")
            return
        self._begun, self._unread = True, ""
        if offset != position["offset"]:
            new_position = {"file": str(file), "offset": offset, "line": number}
            self._database.write(lambda tx: state.put(tx, POSITION_KEY, new_position))
            new = [fault for at, fault in faults if at > position["line"]]
            if new:
                more = f"; and {len(new) - MAX_NAMED_ERRORS} more" if len(new) > MAX_NAMED_ERRORS else ""
                self._report(str(file), "; ".join(new[:MAX_NAMED_ERRORS]) + more)

    def _read_from(
        self, file: Path, begin: int, line: int, size: int, now: datetime, *, last_read: int
    ) -> tuple[int, int, list[tuple[int, str]]]:
        """Where reading ended (offset, line), and the lines that could not be read, by number."""
        faults: list[tuple[int, str]] = []
        with file.open("rb") as opened:
            opened.seek(begin)
            offset = begin
            for raw in opened:
                if not raw.endswith(b"\n"):
                    break  # it is being written
                offset, line = offset + len(raw), line + 1
                if size - offset > MAX_READ_BYTES or not raw.strip():
                    continue
                if line <= last_read and b'"timestamp"' not in raw:
                    continue  # when it was written nobody knows any more
                try:
                    prediction = read_line(raw, now)
                except ValueError as error:
                    faults.append((line, f"line {line}: {error}"))
                    continue
                if now - prediction.at < MAX_AGE:
                    self._lines = [*self._lines, prediction][-MAX_LINES:]
        return offset, line, faults

    def _proposal(self, context: WorkspaceContext, line: HookLine) -> Proposal:
        reasoning = line.reasoning or "predicted by another program"
        proposal = proposal_of_text(context, self._flows, kind=KIND, prompt=line.prompt, reasoning=reasoning)
        return replace(
            proposal,
            channel=line.channel,
            source=Source.PREDICTOR_HOOK,
            confidence=line.confidence,
            evidence_at=line.at,
        )
