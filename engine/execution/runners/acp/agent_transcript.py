"""Writes a coding agent's text, tool calls and plan into the transcript as they stream in (SPEC 9.4).

`ClientRequests` passes on the updates of the agent. The message of a turn is kept for its summary and for the X-ray,
and the titles of tool calls for the questions about them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from acp import schema

from engine.execution.live_session import LiveSession
from engine.execution.tools.toolbelt import make_unified_diff
from engine.text import one_line

MAX_MESSAGE_CHARS = 100_000
"""Maximum number of characters of a turn's message that are kept for the X-ray and the summary."""

MAX_CONTENT_LINES = 200
"""Maximum number of lines of a tool's output or diff that are shown."""

MAX_CONTENT_BLOCKS = 20
"""Maximum number of outputs and diffs of a tool call that are shown."""

MAX_REMEMBERED_CALLS = 1_000
"""Maximum number of tool calls that are remembered. An agent could invent any number of ids."""

STATUS_WORDS = {"pending": "waits", "in_progress": "runs", "completed": "done", "failed": "failed"}
"""The status of a tool call on screens, by that of the protocol."""

PLAN_MARKS = {"pending": "·", "in_progress": "→", "completed": "✓"}
"""The mark of a step of a plan, by its status in the protocol."""


@dataclass(slots=True)
class _ToolCall:
    """What the agent has told about one tool call so far."""

    title: str = ""
    kind: str = ""
    status: str = ""
    last_line: str = ""
    """The line that was last written about it."""


@dataclass
class AgentTranscript:
    """Writes one conversation into the transcript."""

    live: LiveSession
    message: str = ""
    """The message of the present turn, at most its last `MAX_MESSAGE_CHARS` characters."""
    _calls: dict[str, _ToolCall] = field(default_factory=dict)
    _plan: Sequence[tuple[str, str]] = ()
    """(text, status) of each step."""

    @property
    def has_acted(self) -> bool:
        """True once the agent said or did anything."""
        return bool(self.message or self._calls)

    def begin_turn(self) -> None:
        """Empty the message for a new turn."""
        self.message = ""

    def add_chunk(self, kind: str, content: Any) -> None:
        """Add text of the kind "say" or "thought"."""
        text = _read_block(content)
        if kind == "say":
            self.message = (self.message + text)[-MAX_MESSAGE_CHARS:]
        self.live.stream(kind, text)

    def end_text(self) -> None:
        """Write the rest of a paragraph, because something else follows or the turn is over."""
        self.live.transcript.end_stream()

    def add_tool_call(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> None:
        """Write the new status of a tool call, and its results when it ended. A call that failed is also noted (SPEC
        5.1)."""
        self.end_text()
        call = self._calls.pop(update.tool_call_id, _ToolCall())
        self._calls[update.tool_call_id] = call  # the last one now
        if len(self._calls) > MAX_REMEMBERED_CALLS:
            self._calls.pop(next(iter(self._calls)))
        call.kind = update.kind or call.kind
        call.title = one_line(update.title or "")[:500] or call.title or update.kind or "a tool"
        call.status = update.status or call.status or "pending"
        line = f"{call.title} · {STATUS_WORDS[call.status]}"
        if line == call.last_line:
            return
        call.last_line = line
        self.live.write("tool", line)
        if call.status == "failed":
            tool = "exec" if call.kind == "execute" else call.kind or "tool"
            self.live.journal.note_error(tool, _find_failure_reason(update) or call.title)
        if call.status in ("completed", "failed"):
            self._write_results(update.content or ())

    def find_title_and_kind(self, call_id: str) -> tuple[str, str]:
        """(title, kind) of an earlier tool call. Both are "" for an unknown one."""
        call = self._calls.get(call_id)
        return (call.title, call.kind) if call else ("", "")

    def add_plan(self, entries: Iterable[schema.PlanEntry]) -> None:
        """Write the steps of the plan that changed."""
        self.end_text()
        before = self._plan
        self._plan = [
            (one_line(entry.content)[:500], str(entry.status)) for entry in itertools.islice(entries, MAX_CONTENT_LINES)
        ]
        for number, (text, status) in enumerate(self._plan, 1):
            if (text, status) not in before:
                self.live.write("note", f"plan {number}/{len(self._plan)} {PLAN_MARKS[status]} {text}")

    def _write_results(self, contents: Iterable[Any]) -> None:
        """Write the output and the diffs of a tool call that ended."""
        for content in itertools.islice(contents, MAX_CONTENT_BLOCKS):
            lines = _list_lines(content)
            if len(lines) > MAX_CONTENT_LINES:
                lines[MAX_CONTENT_LINES:] = [f"… {len(lines) - MAX_CONTENT_LINES:,} more lines"]
            if lines:
                self.live.write("output", "\n".join(lines))


def _list_lines(content: Any) -> list[str]:
    """The lines of an output or a diff. A terminal has none: its output is in the transcript already."""
    if isinstance(content, schema.FileEditToolCallContent):
        diff = make_unified_diff(content.old_text or "", content.new_text, content.path)
        return diff.split("\n") if diff else []
    return _read_block(content.content).splitlines() if isinstance(content, schema.ContentToolCallContent) else []


def _find_failure_reason(update: schema.ToolCallStart | schema.ToolCallProgress) -> str:
    """The first line that a failed call shows."""
    blocks = (block for block in update.content or () if isinstance(block, schema.ContentToolCallContent))
    lines = (line.strip() for block in blocks for line in _read_block(block.content).splitlines())
    return next(filter(None, lines), "")


def _read_block(content: Any) -> str:
    """The text of a content block, or in brackets what it links to or its type."""
    if isinstance(content, schema.TextContentBlock):
        return content.text
    return f"[{getattr(content, 'uri', None) or content.type}]"
