"""The entries of the seven layers of memory: read from the engine, and in words for screen and verbs (SPEC 4, 9.5).

What reads blocks: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from clawpy_console import words
from clawpy_console.fields import Document, Field, text_fields
from engine.frozen import frozen
from engine.model import (
    PROBLEM_FOUND,
    AgentFile,
    Capture,
    FactDraft,
    GraphNode,
    Layer,
    LayerState,
    Memory,
    ParaFact,
    RecallMatch,
    RecallQuery,
    Refusal,
    Retention,
    sanitise,
)

if TYPE_CHECKING:
    from engine import Engine


MAX_RECALLED_CHARS = 300
"""Characters of a recalled memory that are shown."""

MAX_PLACES = 6
"""Places of a text to forget that are shown."""

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

STATES: Mapping[str, tuple[str, str]] = {
    "ready": ("●", "grey"), "building": ("◐", "accent"), "degraded": ("▲", "wants"), "off": ("○", "faint"),
}  # fmt: skip
"""Sign and tone of each state of a layer."""

RETENTION_WORDS = {
    Retention.SESSION: "until a day after its session",
    Retention.MONTH: "30 days",
    Retention.FOREVER: "forever",
}

TASK_OUTCOMES = {True: ("✓", "good", "done"), False: ("✗", "wrong", "failed"), None: ("○", "grey", "pending")}

ATTRIBUTES: Mapping[str, str] = {
    "source": "source", "speaker": "speaker", "agent": "agent", "session": "session", "tags": "tags",
    "category": "category", "reason": "why", "why": "invalid", "seen": "sessions", "day": "day",
    "access_count": "recalled", "last_accessed": "last", "retention": "kept", "workspace": "workspace",
    "subject": "about",
}  # fmt: skip
"""Attributes of entries that are shown, in this order, with their names."""


@frozen
class Entry:
    """An entry in a list, or a link to one. `layer` None leads to a session.

    `word` stands before the text: its kind, state, or how it is linked. `group` is the heading it stands under, `old`
    that it is no longer valid, `forgotten` that its text was erased, `value` the engine's value.
    """

    layer: Layer | None
    id: str
    text: str
    word: str
    at: datetime | None
    group: str = ""
    mark: str = ""
    mark_style: str = "faint"
    old: bool = False
    forgotten: bool = False
    value: Any = None

    @property
    def key(self) -> str:
        """The id of its row."""
        return f"{self.layer.value if self.layer else 'session'}/{self.id}/{self.group}/{self.word}"

    @property
    def can_be_forgotten(self) -> bool:
        """Whether its text can be forgotten: you edit files, and rows of the ledger stay."""
        return self.layer not in (Layer.MARKDOWN, Layer.LEDGER) and not self.forgotten


def to_entry(value: Any) -> Entry:
    """A value of the engine as an entry of its layer."""
    content = sanitise(getattr(value, "text", "") or getattr(value, "fact", "") or getattr(value, "title", ""))
    group, mark, style, old = "", "", "faint", getattr(value, "forgotten", False)
    match value:
        case AgentFile():
            layer, id, group, word, at = (
                Layer.MARKDOWN,
                f"{value.agent}/{value.name}",
                value.agent,
                value.name,
                value.written,
            )
            content, mark, style = value.problem or content, "✗" if value.problem else "", "wrong"
        case Memory() | RecallMatch():
            layer, id, at = value.layer, value.id, value.at
            word = value.reason if isinstance(value, RecallMatch) else sanitise(value.kind)
            content = f"{value.speaker}: {content}" if value.speaker and content else content
            old = old or bool(getattr(value, "superseded_by", ""))
        case Capture():
            layer, id, word, at = Layer.CAPTURE, value.id, value.kind, value.at
        case GraphNode():
            layer, id, at, old = Layer.GRAPH, value.task_id, value.timestamp, value.invalidated_at is not None
            mark, style, word = ("·", "faint", "invalid") if old else TASK_OUTCOMES[value.success]
            if value.outcome == PROBLEM_FOUND and not old:
                mark, style = words.PROBLEM_SIGN
            word = word if old else value.outcome or word
        case ParaFact():
            layer, id, group, at, old = Layer.PARA, value.id, "FACTS", value.created_at, not value.active
            mark, style, word = ("·", "faint", "replaced") if old else ("●", "accent", value.bucket.value)
        case FactDraft():
            layer, id, group, word, at = Layer.PARA, value.id, "DRAFTS: a keeps, n rejects", "draft", value.created_at
            mark, style = "▲", "wants"
        case _:
            layer, id, word, at = Layer.LEDGER, str(value.id), value.kind, value.at
            values = (f"{name} {part}" for name, part in value.payload.items() if part not in ("", None, [], False))
            content = sanitise(" · ".join(part for part in (value.subject, ", ".join(values)) if part))
    forgotten = not content and layer not in (Layer.MARKDOWN, Layer.LEDGER)  # what is erased keeps its place
    content = content or ("forgotten" if forgotten else "It is empty.")
    return Entry(layer, id, content, word, at, group, mark, style, old, forgotten, value)


def layer_fields(state: LayerState, now: datetime) -> Iterator[Field]:
    """What a layer holds and how it stands."""
    name, what = LAYER_NAMES[state.layer]
    sign, tone = STATES.get(state.state, ("▲", "wants"))
    yield Field("", f"{state.layer.value} {name}", "title")
    yield Field("", what, "grey")
    done = f" {state.progress:.0%}" if state.state == "building" else ""
    yield Field("", f"{sign} {state.state}{done}{f': {state.words}' if state.words else ''}", tone)
    newest = f", newest {words.moment(state.fresh_at, now)}" if state.fresh_at else ""
    yield Field("", f"{words.count(state.count, 'entry', 'entries')}{newest}", "grey")


def detail_fields(entry: Entry, folder: str, now: datetime) -> Iterator[Field]:
    """All about one entry but its links. `folder` holds the files of agents."""
    value = entry.value
    if entry.layer is not None:
        yield Field(
            "",
            f"{entry.layer.value} {LAYER_NAMES[entry.layer][0]}"
            + (f"  {words.moment(entry.at, now)}" if entry.at else ""),
        )
    yield Field("", f"{folder}/{entry.id}" if isinstance(value, AgentFile) else entry.id, "faint")
    if isinstance(value, (ParaFact, FactDraft)):
        yield Field("in", f"{value.bucket.value} / {value.group}", "grey")
    for attribute, name in ATTRIBUTES.items():
        if shown := _value(getattr(value, attribute, None), attribute, now):
            yield Field(name, words.one_line(sanitise(shown)), "grey")
    if entry.old:
        yield Field("", "· no longer valid", "wants")
    if problem := getattr(value, "problem", ""):
        yield Field("", f"✗ {problem}", "wrong")
    yield Field("", "")
    yield from text_fields(full_text(entry))


def _value(value: Any, attribute: str, now: datetime) -> str:
    if not value:
        return ""
    if attribute == "workspace":
        return words.workspace_name(value)
    if isinstance(value, datetime):
        return words.moment(value, now)
    if isinstance(value, Retention):
        return RETENTION_WORDS[value]
    if attribute == "access_count":
        return words.count(value, "time")
    return ", ".join(value) if isinstance(value, tuple) else str(value.value if isinstance(value, Enum) else value)


def full_text(entry: Entry) -> str:
    """The whole text of an entry."""
    value = entry.value
    if entry.forgotten:
        return "Forgotten: its text is removed everywhere. This empty entry keeps its place."
    if isinstance(value, GraphNode):
        return sanitise(f"{value.title}\n\n{value.description}".strip())
    if entry.layer is Layer.LEDGER:
        return sanitise("\n".join(f"{name}: {part}" for name, part in value.payload.items()))
    return sanitise(getattr(value, "text", "") or getattr(value, "fact", "")) or "It is empty."


def recalled_fields(memory: Document) -> Iterator[Field]:
    """A memory that was recalled: its score, layer and text, then where it is from and why it was found."""
    excerpt = words.crop(words.one_line(memory["text"]), MAX_RECALLED_CHARS)
    yield Field("", f"{memory['score']:.2f}  {memory['layer']}  {excerpt}")
    origin = " · ".join(
        part for part in (memory["speaker"], (memory["timestamp"] or "")[:10], memory["source"]) if part
    )
    yield Field("", f"  {origin or memory['id']}; {words.one_line(memory['reason'])}", "grey")


def forgetting_fields(report: Document) -> Iterator[Field]:
    """What forgetting touches, store by store, and what it leaves."""
    counts = " · ".join(f"{count:,} in {store}" for store, count in report["counts"].items())
    yield Field("", f"{words.count(sum(report['counts'].values()), 'place')}: {counts}")
    if not report["forgotten"]:
        for place in report["places"][:MAX_PLACES]:
            yield Field("", f"▸ {place['store']}: {words.crop(words.one_line(place['text']), 120)}", "grey")
        if (more := sum(report["counts"].values()) - MAX_PLACES) > 0:
            yield Field("", f"and {more:,} more", "faint")
    yield from (Field("", f"stays: {words.one_line(remainder)}", "grey") for remainder in report["left"])
    if not report["forgotten"]:
        yield Field("", "Empty entries stay, so that graphs and chains stay complete. This cannot be undone.")


PAGE_SIZE = 200
"""Number of entries that are read at once."""

MAX_BY_MEANING = 50
"""Maximum number of entries that a search by meaning gives, best first."""

MAX_SCANNED_PAGES = 10
"""Maximum number of pages of the ledger that are searched for words."""

RELATIONS = {
    "blocks": ("blocked", "was blocked by"), "derived_from": ("derived from", "led to"),
    "related_to": ("related to", "related to"), "similar_to": ("similar to", "similar to"),
}  # fmt: skip
"""An edge in words, from this task and towards it."""


def read_page(engine: Engine, layer: Layer, needle: str, after: Sequence[Entry] = ()) -> list[Entry]:
    """Entries of a layer, the newest first, those with all the words of `needle`; the page after those there are."""
    memory, knowledge, last = engine.memory, engine.knowledge, after[-1].value if after else None
    before = getattr(last, "seq", None) or getattr(last, "id", None)
    match layer:
        case Layer.LEDGER:
            return _ledger(engine, needle, before)
        case Layer.VECTORS | Layer.CONTEXT:
            return [to_entry(item) for item in memory.entries(layer, words=needle, before=before, limit=PAGE_SIZE)]
        case Layer.CAPTURE:
            return [to_entry(item) for item in knowledge.captures.entries(words=needle, before=before, limit=PAGE_SIZE)]
        case Layer.GRAPH:
            nodes = knowledge.graph.newest(words=needle, limit=len(after) + PAGE_SIZE)
            return [to_entry(item) for item in nodes[len(after) :]]
    if after:
        return []  # files and facts are read at once
    if layer is Layer.PARA:
        drafts = [draft for draft in knowledge.drafts.waiting() if _has_words(draft.fact, needle)]
        return [to_entry(draft) for draft in (*drafts, *knowledge.para.facts(words=needle))]
    files = (file for file in engine.agent_files.list() if file.digest or file.problem)
    return [to_entry(file) for file in files if _has_words(f"{file.agent} {file.name} {file.text}", needle)]


def search_by_meaning(engine: Engine, layer: Layer, text: str) -> tuple[list[Entry], tuple[str, ...]]:
    """Entries of a layer that mean about the same as `text`, best first; and what was left out, in words."""
    recall = engine.memory.recall(RecallQuery(text, k=MAX_BY_MEANING, layers=frozenset({layer})))
    return [to_entry(item) for item in recall.items], recall.left_out


def _ledger(engine: Engine, needle: str, before: int | None) -> list[Entry]:
    entries: list[Entry] = []
    for _ in range(MAX_SCANNED_PAGES if needle else 1):
        rows = engine.ledger.latest(PAGE_SIZE, before=before)
        entries += [item for item in map(to_entry, rows) if _has_words(f"{item.word} {item.text}", needle)]
        if len(rows) < PAGE_SIZE or len(entries) >= PAGE_SIZE:
            break
        before = rows[-1].id
    return entries


def _has_words(text: str, needle: str) -> bool:
    text = text.lower()
    return all(word in text for word in needle.lower().split())


def find_entry(engine: Engine, layer: Layer, id: str) -> Entry:
    """One entry by its id. Raises `Refusal` `unknown_memory` when there is none (any more)."""
    memory, knowledge = engine.memory, engine.knowledge
    value: Any = None
    match layer:
        case Layer.MARKDOWN:
            agent, _, name = id.partition("/")
            value = engine.agent_files.read(agent, name)
        case Layer.VECTORS | Layer.CONTEXT:
            value = memory.entry(layer, id)
        case Layer.CAPTURE:
            value = knowledge.captures.entry(id)
        case Layer.GRAPH:
            value = knowledge.graph.get(id)
        case Layer.PARA:
            value = next((draft for draft in knowledge.drafts.waiting() if draft.id == id), None) or knowledge.para.get(
                id
            )
        case Layer.LEDGER if id.isdigit():
            value = next(iter(engine.ledger.latest(1, before=int(id) + 1)), None)
    if value is None:
        raise Refusal(
            "unknown_memory", f"layer {layer.value} has no {sanitise(id)}", "it has been forgotten or has expired"
        )
    return to_entry(value)


def entry_with_links(engine: Engine, entry: Entry) -> tuple[Entry, list[Entry]]:
    """An entry as it is now, and its links. Raises `Refusal` as `find`."""
    if isinstance(entry.value, (RecallMatch, AgentFile)) and entry.layer is not None:
        entry = find_entry(engine, entry.layer, entry.id)
    value, links = entry.value, []
    match value:
        case Memory():
            if value.superseded_by:
                links.append(Entry(value.layer, value.superseded_by, value.superseded_by, "", None, "CORRECTED BY"))
            links += _session(value.session, "SAID IN")
        case Capture():
            links += _session(value.session, "SAID IN")
            if value.corrects:
                links.append(Entry(Layer.CAPTURE, value.corrects, value.corrects, "", None, "CORRECTS"))
        case GraphNode():
            links += [*_around(engine, value.task_id), *_session(value.task_id, "ITS SESSION")]
        case FactDraft() if value.supersedes:
            links += _chain(engine, value.supersedes, "IT WOULD REPLACE")
        case ParaFact():
            chain = _chain(engine, value.id, "CORRECTIONS, OLDEST FIRST")
            links += chain if len(chain) > 1 else []
    if isinstance(entry.value, AgentFile):
        return entry, []
    if entry.layer is Layer.LEDGER:
        return entry, _session(value.subject, "ABOUT")
    return entry, [*links, *_used_by(engine, entry.id)]


def _session(id: str, heading: str) -> list[Entry]:
    return [Entry(None, id, id, "session", None, heading, "▸", "grey")] if id.startswith("sess_") else []


def _around(engine: Engine, task_id: str) -> list[Entry]:
    """The tasks one step away in the graph."""
    around = engine.knowledge.graph.neighbourhood(task_id)
    nodes = {node.task_id: node for node in around.neighbours}
    links = []
    for edge in around.edges:
        outward = edge.source == task_id
        word = RELATIONS[edge.relation.value][not outward]
        near = f" {edge.weight:.2f}" if edge.weight < 1 else ""
        if node := nodes.get(edge.target if outward else edge.source):
            word = f"formerly {word}" if edge.invalidated else word + near
            links.append(replace(to_entry(node), word=word, group="AROUND THIS TASK", old=False))
    return links


def _chain(engine: Engine, fact_id: str, heading: str) -> list[Entry]:
    return [
        replace(
            to_entry(correction),
            group=heading,
            word="this one" if correction.id == fact_id else "valid" if correction.active else "replaced",
        )
        for correction in engine.knowledge.para.corrections(fact_id)
    ]


def _used_by(engine: Engine, id: str) -> list[Entry]:
    """The sessions whose prompts had it in them, newest first."""
    by_session: dict[str, Entry] = {}
    for call in engine.calls.calls_with_memory(id):
        text = f"{call.agent} · {call.model} · {call.session_id}"
        used = Entry(None, call.session_id, text, call.run_kind, call.started_at, "USED BY", "▸", "grey")
        by_session.setdefault(call.session_id, used)
    return list(by_session.values())
