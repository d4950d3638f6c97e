"""A layer of memory, and the details of one of its entries, as fields (SPEC 9.5). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from clawpy_console import formats
from clawpy_console.fields import Field, text_fields, text_line
from clawpy_console.formats import one_line, workspace_name
from clawpy_console.screens.memory_entries import Entry
from engine.model import AgentFile, FactDraft, GraphNode, Layer, LayerState, ParaFact, Retention, sanitise

LAYER_NAMES: Mapping[Layer, tuple[str, str]] = {
    Layer.MARKDOWN: ("files", "what each agent is and knows, in files that you can edit"),
    Layer.LEDGER: ("ledger", "everything that happened, one row each; rows never change"),
    Layer.VECTORS: ("vectors", "turns and notes, found by meaning and by word"),
    Layer.CAPTURE: ("captured", "decisions, facts and corrections from sessions"),
    Layer.CONTEXT: ("context", "a summary of each task, for all agents"),
    Layer.GRAPH: ("tasks", "how tasks are related: blocked by, derived from, similar to"),
    Layer.PARA: ("facts", "what is true until it is corrected"),
}
"""The name of each layer and what it holds."""

LAYER_SIGNS: Mapping[str, tuple[str, str]] = {
    "ready": ("●", "grey"), "building": ("◐", "accent"), "degraded": ("▲", "wants"), "off": ("○", "faint"),
}  # fmt: skip
"""Sign and tone of each state of a layer."""

RETENTION_WORDS = {
    Retention.SESSION: "until a day after its session",
    Retention.MONTH: "30 days",
    Retention.FOREVER: "forever",
}

ATTRIBUTES: Mapping[str, str] = {
    "source": "source", "speaker": "speaker", "agent": "agent", "session": "session", "tags": "tags",
    "category": "category", "reason": "why", "why": "invalid", "seen": "sessions", "day": "day",
    "access_count": "recalled", "last_accessed": "last", "retention": "kept", "workspace": "workspace",
    "subject": "about",
}  # fmt: skip
"""Attributes of entries that are shown, in this order, with their names."""


def layer_fields(state: LayerState, now: datetime) -> Iterator[Field]:
    """A layer: what it holds, its state and the number of its entries."""
    name, content = LAYER_NAMES[state.layer]
    sign, tone = LAYER_SIGNS.get(state.state, ("▲", "wants"))
    yield text_line(f"{state.layer.value} {name}", "title")
    yield text_line(content, "grey")
    done = f" {state.progress:.0%}" if state.state == "building" else ""
    words = f": {state.words}" if state.words else ""
    yield text_line(f"{sign} {state.state}{done}{words}", tone)
    newest = f", newest {formats.moment(state.fresh_at, now)}" if state.fresh_at else ""
    yield text_line(f"{formats.count(state.count, 'entry', 'entries')}{newest}", "grey")


def detail_fields(entry: Entry, folder: str, now: datetime) -> Iterator[Field]:
    """The details of an entry without its links. `folder` holds the files of agents."""
    value = entry.value
    if entry.layer is not None:
        at = f"  {formats.moment(entry.at, now)}" if entry.at else ""
        yield text_line(f"{entry.layer.value} {LAYER_NAMES[entry.layer][0]}{at}")
    yield text_line(f"{folder}/{entry.id}" if isinstance(value, AgentFile) else entry.id, "faint")
    if isinstance(value, (ParaFact, FactDraft)):
        yield Field("in", f"{value.bucket.value} / {value.group}", "grey")
    for attribute, name in ATTRIBUTES.items():
        if shown := _attribute_text(getattr(value, attribute, None), attribute, now):
            yield Field(name, one_line(sanitise(shown)), "grey")
    if entry.is_old:
        yield text_line("· no longer valid", "wants")
    if isinstance(value, AgentFile) and value.problem:
        yield text_line(f"✗ {value.problem}", "wrong")
    yield text_line("")
    yield from text_fields(full_text(entry))


def _attribute_text(value: Any, attribute: str, now: datetime) -> str:
    if not value:
        return ""
    if attribute == "workspace":
        return workspace_name(value)
    if isinstance(value, datetime):
        return formats.moment(value, now)
    if isinstance(value, Retention):
        return RETENTION_WORDS[value]
    if attribute == "access_count":
        return formats.count(value, "time")
    return ", ".join(value) if isinstance(value, tuple) else str(value.value if isinstance(value, Enum) else value)


def full_text(entry: Entry) -> str:
    """The whole text of an entry."""
    value = entry.value
    if entry.is_forgotten:
        return "Forgotten: its text is removed everywhere. This empty entry keeps its place."
    if isinstance(value, GraphNode):
        return sanitise(f"{value.title}\n\n{value.description}".strip())
    if entry.layer is Layer.LEDGER:
        return sanitise("\n".join(f"{name}: {part}" for name, part in value.payload.items()))
    text = value.fact if isinstance(value, (ParaFact, FactDraft)) else value.text
    return sanitise(text) or "It is empty."
