"""An entry of one of the seven layers of memory, made of what the engine gives (SPEC 4, 9.5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from clawpy_console import state_words
from engine.frozen import frozen
from engine.model import (
    PROBLEM_FOUND,
    AgentFile,
    Capture,
    FactDraft,
    GraphNode,
    Layer,
    Memory,
    ParaFact,
    RecallMatch,
    sanitise,
)

TASK_OUTCOMES = {True: ("✓", "good", "done"), False: ("✗", "wrong", "failed"), None: ("○", "grey", "pending")}
"""Sign, tone and word of each outcome of a task."""


@frozen
class Entry:
    """An entry of a layer in a list, or a link to an entry or a session."""

    layer: Layer | None
    """None for a session."""
    id: str
    text: str
    label: str
    """The word before the text: the kind, the state or the relation."""
    at: datetime | None
    group: str = ""
    """The heading above it, "" for none."""
    mark: str = ""
    mark_style: str = "faint"
    is_old: bool = False
    """Whether it is no longer valid."""
    is_forgotten: bool = False
    """Whether its text was erased."""
    value: Any = None
    """The engine's value, None for a session."""

    @property
    def key(self) -> str:
        """The id of its row."""
        return f"{self.layer.value if self.layer else 'session'}/{self.id}/{self.group}/{self.label}"

    @property
    def can_be_forgotten(self) -> bool:
        """Whether its text can be forgotten; files are edited instead, and rows of the ledger stay."""
        return self.layer not in (Layer.MARKDOWN, Layer.LEDGER) and not self.is_forgotten


def to_entry(value: Any) -> Entry:
    """A value of the engine as an entry of its layer."""
    entry = replace(_entry_of_layer(value), value=value)
    if entry.text:
        return entry
    if entry.layer in (Layer.MARKDOWN, Layer.LEDGER):
        return replace(entry, text="It is empty.")
    return replace(entry, text="forgotten", is_forgotten=True)  # what is erased keeps its place


def _entry_of_layer(value: Any) -> Entry:
    text = sanitise(getattr(value, "text", "") or getattr(value, "fact", "") or getattr(value, "title", ""))
    is_old = getattr(value, "forgotten", False)
    match value:
        case AgentFile():
            mark, id = "✗" if value.problem else "", f"{value.agent}/{value.name}"
            text = value.problem or text
            return Entry(Layer.MARKDOWN, id, text, value.name, value.written, value.agent, mark, "wrong", is_old)
        case Memory() | RecallMatch():
            label = value.reason if isinstance(value, RecallMatch) else sanitise(value.kind)
            if value.speaker and text:
                text = f"{value.speaker}: {text}"
            is_old = is_old or bool(getattr(value, "superseded_by", ""))
            return Entry(value.layer, value.id, text, label, value.at, is_old=is_old)
        case Capture():
            return Entry(Layer.CAPTURE, value.id, text, value.kind, value.at, is_old=is_old)
        case GraphNode() if value.invalidated_at is not None:
            return Entry(Layer.GRAPH, value.task_id, text, "invalid", value.timestamp, "", "·", is_old=True)
        case GraphNode():
            mark, style, label = TASK_OUTCOMES[value.success]
            if value.outcome == PROBLEM_FOUND:
                mark, style = state_words.PROBLEM_SIGN
            return Entry(Layer.GRAPH, value.task_id, text, value.outcome or label, value.timestamp, "", mark, style)
        case ParaFact() if value.active:
            label = value.bucket.value
            return Entry(Layer.PARA, value.id, text, label, value.created_at, "FACTS", "●", "accent")
        case ParaFact():
            return Entry(Layer.PARA, value.id, text, "replaced", value.created_at, "FACTS", "·", is_old=True)
        case FactDraft():
            group = "DRAFTS: a keeps, n rejects"
            return Entry(Layer.PARA, value.id, text, "draft", value.created_at, group, "▲", "wants", is_old)
    values = (f"{name} {part}" for name, part in value.payload.items() if part not in ("", None, [], False))
    text = sanitise(" · ".join(part for part in (value.subject, ", ".join(values)) if part))
    return Entry(Layer.LEDGER, str(value.id), text, value.kind, value.at)
