"""The seven layers as the memory screen shows them: entries, one entry with all that is known of it (SPEC 9.5).

Each layer has things of its own kind; here they become rows and details of one kind. All of it asks the engine's
ports and blocks: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clawpy_console import words
from engine.values import (
    AgentFile,
    Capture,
    FactDraft,
    ForgetPreview,
    ForgetReport,
    GraphNode,
    Layer,
    Memory,
    ParaFact,
    Recalled,
    RecallQuery,
    Refusal,
    sanitise,
)

if TYPE_CHECKING:
    from engine import Engine

PAGE = 200
"""Entries that are read at once."""

BY_MEANING = 50
"""So many come of a search by meaning, best first."""

SCAN = 10
"""So many pages of the ledger are looked through for words."""

NAMES: Mapping[Layer, tuple[str, str]] = {
    Layer.MARKDOWN: ("files", "what each agent is and knows, as files that you edit"),
    Layer.LEDGER: ("ledger", "everything that happened, one row each, and no row ever changes"),
    Layer.VECTORS: ("vectors", "turns and notes, found by meaning and by word"),
    Layer.CAPTURE: ("captured", "decisions, facts and corrections out of what sessions said"),
    Layer.CONTEXT: ("context", "a summary of each task, across agents"),
    Layer.GRAPH: ("tasks", "how tasks hang together: what blocked what, came of what, is like what"),
    Layer.PARA: ("facts", "what holds for good; corrected, never lost"),
}
"""The name of each layer and what it is."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a layer, in the list.

    `word` stands before the text and says its kind or state, `mark` is a glyph for it; `old`: it no longer valid.
    `cursor` is where the next page goes on.
    """

    layer: Layer
    id: str
    text: str
    word: str
    at: datetime | None
    mark: str = ""
    mark_style: str = "faint"
    old: bool = False
    group: str = ""
    score: float | None = None
    cursor: Any = None
    thing: Any = None

    @property
    def key(self) -> str:
        """The id of its row."""
        return f"{self.layer.value}/{self.id}"


@dataclass(frozen=True, slots=True)
class Link:
    """Something beside an entry to which a key leads: another entry (`layer`, `id`), or a session (layer None)."""

    heading: str
    layer: Layer | None
    id: str
    text: str
    word: str = ""
    mark: str = ""
    mark_style: str = "faint"
    at: datetime | None = None
    here: bool = False

    @property
    def key(self) -> str:
        """The id of its row."""
        return f"{self.layer.value if self.layer else 'session'}/{self.id}/{self.heading}/{self.word}"


@dataclass(frozen=True, slots=True)
class Detail:
    """All that is known of one entry: `told` are names and values, `text` the whole, `links` where one can go on."""

    entry: Entry
    text: str
    told: tuple[tuple[str, str], ...] = ()
    links: tuple[Link, ...] = ()
    trouble: str = ""


# Pages of entries


def page(engine: Engine, layer: Layer, needle: str, after: Sequence[Entry] = ()) -> list[Entry]:
    """Entries of a layer, the newest first, those with all the words of `needle`; the page after those there are."""
    return _PAGES[layer](engine, needle, after)


def by_meaning(engine: Engine, layer: Layer, text: str) -> tuple[list[Entry], tuple[str, ...]]:
    """Entries of a layer that mean about the same as `text`, best first; and what was left out, in words."""
    recall = engine.memory.recall(RecallQuery(text, k=BY_MEANING, layers=frozenset({layer})))
    return [_of_recalled(one) for one in recall.items], recall.left_out


def _files(engine: Engine, needle: str, after: Sequence[Entry]) -> list[Entry]:
    if after:
        return []
    return [
        _of_file(one)
        for one in engine.files.list()
        if one.digest or one.problem
        if _has(f"{one.agent} {one.name} {one.text}", needle)
    ]


def _ledger(engine: Engine, needle: str, after: Sequence[Entry]) -> list[Entry]:
    before = after[-1].cursor if after else None
    found: list[Entry] = []
    for _ in range(SCAN if needle else 1):
        rows = engine.ledger.latest(PAGE, before=before)
        found += [one for one in map(_of_event, rows) if _has(f"{one.word} {one.text}", needle)]
        if len(rows) < PAGE or len(found) >= PAGE:
            break
        before = rows[-1].id
    return found


def _memories(layer: Layer) -> Callable[[Engine, str, Sequence[Entry]], list[Entry]]:
    def read(engine: Engine, needle: str, after: Sequence[Entry]) -> list[Entry]:
        before = after[-1].cursor if after else None
        rows = engine.memory.entries(layer, words=needle, before=before, limit=PAGE)
        return [_of_memory(one) for one in rows]

    return read


def _captures(engine: Engine, needle: str, after: Sequence[Entry]) -> list[Entry]:
    before = after[-1].cursor if after else None
    return [_of_capture(one) for one in engine.memory.captures.entries(words=needle, before=before, limit=PAGE)]


def _tasks(engine: Engine, needle: str, after: Sequence[Entry]) -> list[Entry]:
    rows = engine.memory.graph.newest(words=needle, limit=len(after) + PAGE)
    return [of_node(one) for one in rows[len(after) :]]


def _facts(engine: Engine, needle: str, after: Sequence[Entry]) -> list[Entry]:
    if after:
        return []
    drafts = [_of_draft(one) for one in engine.memory.drafts.waiting()]
    facts = [of_fact(one) for one in engine.memory.para.facts(words=needle)]
    return [one for one in drafts if _has(one.text, needle)] + facts


_PAGES: Mapping[Layer, Callable[[Engine, str, Sequence[Entry]], list[Entry]]] = {
    Layer.MARKDOWN: _files,
    Layer.LEDGER: _ledger,
    Layer.VECTORS: _memories(Layer.VECTORS),
    Layer.CAPTURE: _captures,
    Layer.CONTEXT: _memories(Layer.CONTEXT),
    Layer.GRAPH: _tasks,
    Layer.PARA: _facts,
}


def _has(text: str, needle: str) -> bool:
    text = text.lower()
    return all(word in text for word in needle.lower().split())


# Things as entries


def _of_file(one: AgentFile) -> Entry:
    told = words.one_line(sanitise(one.text))
    return Entry(
        Layer.MARKDOWN, f"{one.agent}/{one.name}", one.problem or told, one.name, one.written,
        "✗" if one.problem else "", "wrong", group=one.agent, thing=one,
    )  # fmt: skip


def _of_event(one: Any) -> Entry:
    payload = ", ".join(f"{name} {value}" for name, value in one.payload.items() if value not in ("", None, [], False))
    told = sanitise(" · ".join(part for part in (one.subject, payload) if part))
    return Entry(Layer.LEDGER, str(one.id), told, one.kind, one.at, cursor=one.id, thing=one)


def _of_memory(one: Memory) -> Entry:
    who = f"{one.speaker}: " if one.speaker else ""
    text = "forgotten" if one.forgotten else sanitise(who + one.text)
    old = one.forgotten or bool(one.superseded_by)
    return Entry(one.layer, one.id, text, sanitise(one.kind), one.at, old=old, cursor=one.seq, thing=one)


def _of_capture(one: Capture) -> Entry:
    text = "forgotten" if one.forgotten else sanitise(one.text)
    return Entry(Layer.CAPTURE, one.id, text, one.kind, one.at, old=one.forgotten, cursor=one.id, thing=one)


_TASK = {True: ("✓", "good", "done"), False: ("✗", "wrong", "failed"), None: ("○", "grey", "pending")}


def of_node(one: GraphNode) -> Entry:
    """A task of the graph as an entry."""
    mark, style, word = _TASK[one.success]
    word = one.outcome or word
    if one.invalidated_at is not None:
        mark, style, word = "·", "faint", "invalid"
    title = sanitise(one.title) or "forgotten"
    old = one.invalidated_at is not None
    return Entry(Layer.GRAPH, one.task_id, title, word, one.timestamp, mark, style, old, thing=one)


def of_fact(one: ParaFact) -> Entry:
    """A fact as an entry."""
    text = "forgotten" if one.forgotten else sanitise(one.fact)
    word = one.bucket.value if one.active else "superseded"
    return Entry(
        Layer.PARA, one.id, text, word, one.created_at, "●" if one.active else "·", "accent" if one.active else "faint",
        not one.active, "KEPT", thing=one,
    )  # fmt: skip


def _of_draft(one: FactDraft) -> Entry:
    return Entry(
        Layer.PARA, one.id, sanitise(one.fact), "draft", one.created_at, "▲", "wants", group="DRAFTS, WAITING FOR YOU",
        thing=one,
    )  # fmt: skip


def _of_recalled(one: Recalled) -> Entry:
    text = sanitise(f"{one.speaker}: {one.text}" if one.speaker else one.text)
    return Entry(one.layer, one.id, text, one.reason, one.at, score=one.score, thing=one)


# One entry


def find(engine: Engine, layer: Layer, id: str) -> Entry:
    """One entry by its id. Raises `Refusal` `unknown_memory` when there is none (any more)."""
    found: Entry | None = None
    if layer is Layer.MARKDOWN:
        agent, _, name = id.partition("/")
        found = _of_file(engine.files.read(agent, name))
    elif layer in (Layer.VECTORS, Layer.CONTEXT):
        memory = engine.memory.entry(layer, id)
        found = _of_memory(memory) if memory is not None else None
    elif layer is Layer.CAPTURE:
        capture = engine.memory.captures.entry(id)
        found = _of_capture(capture) if capture is not None else None
    elif layer is Layer.GRAPH:
        node = engine.memory.graph.get(id)
        found = of_node(node) if node is not None else None
    elif layer is Layer.PARA:
        draft = next((one for one in engine.memory.drafts.waiting() if one.id == id), None)
        found = _of_draft(draft) if draft is not None else of_fact(engine.memory.para.get(id))
    elif id.isdigit():
        rows = engine.ledger.latest(1, before=int(id) + 1)
        found = _of_event(rows[0]) if rows else None
    if found is None:
        raise Refusal(
            "unknown_memory", f"layer {layer.value} has no {sanitise(id)}", "it was forgotten, or its time is over"
        )
    return found


# Forgetting


def can_be_forgotten(entry: Entry) -> bool:
    """Whether its text can be forgotten: files are edited, and the ledger's rows are events."""
    return entry.layer not in (Layer.MARKDOWN, Layer.LEDGER) and bool(entry.text) and entry.text != "forgotten"


def forget_preview(engine: Engine, entry: Entry) -> ForgetPreview:
    """What forgetting an entry would touch, in every store."""
    preview: ForgetPreview = engine.memory.forget_preview(entry.id)
    return preview


def forget(engine: Engine, found: ForgetPreview) -> ForgetReport:
    """Forget what the preview showed."""
    report: ForgetReport = engine.memory.forget(found.wanted)
    return report
