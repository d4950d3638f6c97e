"""Reads the entries of the layers of memory and their links (SPEC 4, 9.5). It blocks: call it in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clawpy_console.screens.memory.entry import Entry, to_entry
from clawpy_console.widgets.filter_input import has_words
from engine.model import (
    AgentFile,
    Capture,
    FactDraft,
    GraphNode,
    Layer,
    Memory,
    ParaFact,
    RecallMatch,
    RecallQuery,
    Refusal,
    sanitise,
)

if TYPE_CHECKING:
    from engine import Engine

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
    """A page of the entries of a layer that have all words of `needle`, newest first; the page that follows `after`."""
    memory, knowledge, last = engine.memory, engine.knowledge, after[-1].value if after else None
    before = getattr(last, "seq", None) or getattr(last, "id", None)
    match layer:
        case Layer.LEDGER:
            return _read_ledger_page(engine, needle, before)
        case Layer.VECTORS | Layer.CONTEXT:
            return [to_entry(item) for item in memory.entries(layer, words=needle, before=before, limit=PAGE_SIZE)]
        case Layer.CAPTURE:
            return [to_entry(item) for item in knowledge.captures.entries(words=needle, before=before, limit=PAGE_SIZE)]
        case Layer.GRAPH:
            nodes = knowledge.graph.newest(words=needle, limit=len(after) + PAGE_SIZE)
            return [to_entry(item) for item in nodes[len(after) :]]
    if after:
        return []  # all files and facts are on the first page
    words = needle.split()
    if layer is Layer.PARA:
        drafts = [draft for draft in knowledge.drafts.waiting() if has_words(draft.fact, words)]
        return [to_entry(draft) for draft in (*drafts, *knowledge.para.facts(words=needle))]
    files = (file for file in engine.agent_files.list() if file.digest or file.problem)
    return [to_entry(file) for file in files if has_words(f"{file.agent} {file.name} {file.text}", words)]


def search_by_meaning(engine: Engine, layer: Layer, text: str) -> tuple[list[Entry], tuple[str, ...]]:
    """Entries of a layer that mean about the same as `text`, best first; and what was left out, in words."""
    recall = engine.memory.recall(RecallQuery(text, k=MAX_BY_MEANING, layers=frozenset({layer})))
    return [to_entry(item) for item in recall.items], recall.left_out


def _read_ledger_page(engine: Engine, needle: str, before: int | None) -> list[Entry]:
    entries: list[Entry] = []
    for _ in range(MAX_SCANNED_PAGES if needle else 1):
        rows = engine.ledger.latest(PAGE_SIZE, before=before)
        entries += [item for item in map(to_entry, rows) if has_words(f"{item.label} {item.text}", needle.split())]
        if len(rows) < PAGE_SIZE or len(entries) >= PAGE_SIZE:
            break
        before = rows[-1].id
    return entries


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
    """An entry as it is now, and its links. Raises `Refusal` as `find_entry`."""
    if isinstance(entry.value, (RecallMatch, AgentFile)) and entry.layer is not None:
        entry = find_entry(engine, entry.layer, entry.id)
    value, links = entry.value, []
    match value:
        case Memory():
            if value.superseded_by:
                links.append(Entry(value.layer, value.superseded_by, value.superseded_by, "", None, "CORRECTED BY"))
            links += _session_link(value.session, "SAID IN")
        case Capture():
            links += _session_link(value.session, "SAID IN")
            if value.corrects:
                links.append(Entry(Layer.CAPTURE, value.corrects, value.corrects, "", None, "CORRECTS"))
        case GraphNode():
            links += [*_neighbour_links(engine, value.task_id), *_session_link(value.task_id, "ITS SESSION")]
        case FactDraft() if value.supersedes:
            links += _correction_links(engine, value.supersedes, "IT WOULD REPLACE")
        case ParaFact():
            chain = _correction_links(engine, value.id, "CORRECTIONS, OLDEST FIRST")
            links += chain if len(chain) > 1 else []
    if isinstance(entry.value, AgentFile):
        return entry, []
    if entry.layer is Layer.LEDGER:
        return entry, _session_link(value.subject, "ABOUT")
    return entry, [*links, *_using_sessions(engine, entry.id)]


def _session_link(id: str, heading: str) -> list[Entry]:
    return [Entry(None, id, id, "session", None, heading, "▸", "grey")] if id.startswith("sess_") else []


def _neighbour_links(engine: Engine, task_id: str) -> list[Entry]:
    """The tasks one step away in the graph."""
    neighbourhood = engine.knowledge.graph.neighbourhood(task_id)
    nodes = {node.task_id: node for node in neighbourhood.neighbours}
    links = []
    for edge in neighbourhood.edges:
        is_outward = edge.source == task_id
        label = RELATIONS[edge.relation.value][not is_outward]
        if edge.invalidated:
            label = f"formerly {label}"
        elif edge.weight < 1:
            label += f" {edge.weight:.2f}"
        if node := nodes.get(edge.other_end(task_id)):
            links.append(replace(to_entry(node), label=label, group="AROUND THIS TASK", is_old=False))
    return links


def _correction_links(engine: Engine, fact_id: str, heading: str) -> list[Entry]:
    links = []
    for fact in engine.knowledge.para.corrections(fact_id):
        label = "valid" if fact.active else "replaced"
        if fact.id == fact_id:
            label = "this one"
        links.append(replace(to_entry(fact), group=heading, label=label))
    return links


def _using_sessions(engine: Engine, id: str) -> list[Entry]:
    """The sessions whose prompts contained the entry, newest first."""
    by_session: dict[str, Entry] = {}
    for call in engine.calls.calls_with_memory(id):
        text = f"{call.agent} · {call.model} · {call.session_id}"
        link = Entry(None, call.session_id, text, call.run_kind, call.started_at, "USED BY", "▸", "grey")
        by_session.setdefault(call.session_id, link)
    return list(by_session.values())
