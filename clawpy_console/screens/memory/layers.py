"""The entries of the seven layers, and the links of one entry, read from the engine (SPEC 9.5).

All of it blocks: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clawpy_console.screens.memory.entry import Entry, entry
from engine.model import (
    AgentFile,
    Capture,
    FactDraft,
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
"""So many entries a search by meaning gives, best first."""

SCAN = 10
"""So many pages of the ledger are searched for words."""

RELATIONS = {
    "blocks": ("blocked", "was blocked by"), "derived_from": ("derived from", "led to"),
    "related_to": ("related to", "related to"), "similar_to": ("similar to", "similar to"),
}  # fmt: skip
"""An edge in words, from this task and towards it."""


def page(engine: Engine, layer: Layer, needle: str, after: Sequence[Entry] = ()) -> list[Entry]:
    """Entries of a layer, the newest first, those with all the words of `needle`; the page after those there are."""
    memory, last = engine.memory, after[-1].thing if after else None
    before = getattr(last, "seq", None) or getattr(last, "id", None)
    match layer:
        case Layer.LEDGER:
            return _ledger(engine, needle, before)
        case Layer.VECTORS | Layer.CONTEXT:
            return [entry(one) for one in memory.entries(layer, words=needle, before=before, limit=PAGE)]
        case Layer.CAPTURE:
            return [entry(one) for one in memory.captures.entries(words=needle, before=before, limit=PAGE)]
        case Layer.GRAPH:
            found = memory.graph.newest(words=needle, limit=len(after) + PAGE)
            return [entry(one) for one in found[len(after) :]]
    if after:
        return []  # files and facts are read at once
    if layer is Layer.PARA:
        drafts = [one for one in memory.drafts.waiting() if _has(one.fact, needle)]
        return [entry(one) for one in (*drafts, *memory.para.facts(words=needle))]
    files = (one for one in engine.files.list() if one.digest or one.problem)
    return [entry(one) for one in files if _has(f"{one.agent} {one.name} {one.text}", needle)]


def by_meaning(engine: Engine, layer: Layer, text: str) -> tuple[list[Entry], tuple[str, ...]]:
    """Entries of a layer that mean about the same as `text`, best first; and what was left out, in words."""
    recall = engine.memory.recall(RecallQuery(text, k=BY_MEANING, layers=frozenset({layer})))
    return [entry(one) for one in recall.items], recall.left_out


def _ledger(engine: Engine, needle: str, before: int | None) -> list[Entry]:
    found: list[Entry] = []
    for _ in range(SCAN if needle else 1):
        rows = engine.ledger.latest(PAGE, before=before)
        found += [one for one in map(entry, rows) if _has(f"{one.word} {one.text}", needle)]
        if len(rows) < PAGE or len(found) >= PAGE:
            break
        before = rows[-1].id
    return found


def _has(text: str, needle: str) -> bool:
    text = text.lower()
    return all(word in text for word in needle.lower().split())


def find(engine: Engine, layer: Layer, id: str) -> Entry:
    """One entry by its id. Raises `Refusal` `unknown_memory` when there is none (any more)."""
    memory = engine.memory
    thing: Any = None
    match layer:
        case Layer.MARKDOWN:
            agent, _, name = id.partition("/")
            thing = engine.files.read(agent, name)
        case Layer.VECTORS | Layer.CONTEXT:
            thing = memory.entry(layer, id)
        case Layer.CAPTURE:
            thing = memory.captures.entry(id)
        case Layer.GRAPH:
            thing = memory.graph.get(id)
        case Layer.PARA:
            thing = next((one for one in memory.drafts.waiting() if one.id == id), None) or memory.para.get(id)
        case Layer.LEDGER if id.isdigit():
            thing = next(iter(engine.ledger.latest(1, before=int(id) + 1)), None)
    if thing is None:
        raise Refusal(
            "unknown_memory", f"layer {layer.value} has no {sanitise(id)}", "it has been forgotten or has expired"
        )
    return entry(thing)


def read(engine: Engine, one: Entry) -> tuple[Entry, list[Entry]]:
    """An entry as it is now, and its links. Raises `Refusal` as `find`."""
    if isinstance(one.thing, (Recalled, AgentFile)) and one.layer is not None:
        one = find(engine, one.layer, one.id)
    thing, links = one.thing, []
    match thing:
        case Memory():
            if thing.superseded_by:
                links.append(Entry(thing.layer, thing.superseded_by, thing.superseded_by, "", None, "CORRECTED BY"))
            links += _session(thing.session, "SAID IN")
        case Capture():
            links += _session(thing.session, "SAID IN")
            if thing.corrects:
                links.append(Entry(Layer.CAPTURE, thing.corrects, thing.corrects, "", None, "CORRECTS"))
        case GraphNode():
            links += [*_around(engine, thing.task_id), *_session(thing.task_id, "ITS SESSION")]
        case FactDraft() if thing.supersedes:
            links += _chain(engine, thing.supersedes, "IT WOULD REPLACE")
        case ParaFact():
            chain = _chain(engine, thing.id, "CORRECTIONS, OLDEST FIRST")
            links += chain if len(chain) > 1 else []
    if isinstance(one.thing, AgentFile):
        return one, []
    if one.layer is Layer.LEDGER:
        return one, _session(thing.subject, "ABOUT")
    return one, [*links, *_used_by(engine, one.id)]


def _session(id: str, heading: str) -> list[Entry]:
    return [Entry(None, id, id, "session", None, heading, "▸", "grey")] if id.startswith("sess_") else []


def _around(engine: Engine, task_id: str) -> list[Entry]:
    """The tasks one step away in the graph."""
    around = engine.memory.graph.neighbourhood(task_id)
    nodes = {node.task_id: node for node in around.neighbours}
    links = []
    for edge in around.edges:
        outward = edge.source == task_id
        word = RELATIONS[edge.relation.value][not outward]
        near = f" {edge.weight:.2f}" if edge.weight < 1 else ""
        if node := nodes.get(edge.target if outward else edge.source):
            word = f"formerly {word}" if edge.invalidated else word + near
            links.append(replace(entry(node), word=word, group="AROUND THIS TASK", old=False))
    return links


def _chain(engine: Engine, fact_id: str, heading: str) -> list[Entry]:
    return [
        replace(
            entry(one), group=heading, word="this one" if one.id == fact_id else "valid" if one.active else "replaced"
        )
        for one in engine.memory.para.corrections(fact_id)
    ]


def _used_by(engine: Engine, id: str) -> list[Entry]:
    """The sessions whose prompts had it in them, newest first."""
    seen: dict[str, Entry] = {}
    for one in engine.calls.that_recalled(id):
        text = f"{one.agent} · {one.model} · {one.session_id}"
        used = Entry(None, one.session_id, text, one.run_kind, one.started_at, "USED BY", "▸", "grey")
        seen.setdefault(one.session_id, used)
    return list(seen.values())
