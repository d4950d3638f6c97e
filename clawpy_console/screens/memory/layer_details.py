"""All that is known of one entry of a layer: its text, where it came from, what it hangs together with (SPEC 9.5).

Like `layers` it asks the engine's ports and blocks: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawpy_console import words
from clawpy_console.screens.memory.layers import Detail, Entry, Link, find, of_fact, of_node
from engine.values import (
    AgentFile,
    Capture,
    FactDraft,
    GraphNode,
    Layer,
    Memory,
    Neighbourhood,
    ParaFact,
    Recalled,
    Retention,
    sanitise,
)

if TYPE_CHECKING:
    from engine import Engine


def detail(engine: Engine, entry: Entry) -> Detail:
    """All that is known of an entry. Raises `Refusal` as `find`."""
    thing = entry.thing
    if isinstance(thing, Recalled):
        entry = find(engine, entry.layer, entry.id)
        thing = entry.thing
    used = _used(engine, entry.id)
    match thing:
        case AgentFile():
            thing = engine.files.read(thing.agent, thing.name)
            told = [("file", str(engine.files.folder / thing.agent / thing.name)), ("agent", thing.agent)]
            return Detail(entry, sanitise(thing.text), tuple(told), (), thing.problem)
        case Memory():
            return _of_a_memory(engine, entry, thing, used)
        case Capture():
            told = [
                ("said in", thing.source), ("agent", thing.agent), ("tags", ", ".join(thing.tags)),
                ("seen in", words.count(thing.seen, "session")), ("workspace", words.name(thing.workspace)),
            ]  # fmt: skip
            links = [_to_session(thing.session, "SAID IN", sanitise(thing.text))] if thing.session else []
            if thing.corrects:
                links.append(Link("CORRECTS", Layer.CAPTURE, thing.corrects, thing.corrects))
            return Detail(entry, _text(thing.text, thing.forgotten), _some(told), (*links, *used))
        case GraphNode():
            return _of_a_task(engine, entry, thing, used)
        case ParaFact() | FactDraft():
            return _of_a_fact(engine, entry, thing, used)
    payload = "\n".join(f"{name}: {value}" for name, value in thing.payload.items())
    told = [("about", thing.subject), ("workspace", thing.workspace), ("row", f"{thing.id:,}")]
    links = [_to_session(thing.subject, "IT IS ABOUT", thing.subject)] if thing.subject.startswith("sess_") else []
    return Detail(entry, sanitise(payload), _some(told), tuple(links))


_KEPT = {
    Retention.SESSION: "a day beyond its session", Retention.MONTH: "30 days", Retention.FOREVER: "for ever",
}  # fmt: skip


def _of_a_memory(engine: Engine, entry: Entry, one: Memory, used: tuple[Link, ...]) -> Detail:
    told = [
        ("speaker", one.speaker), ("source", one.source), ("agent", one.agent), ("session", one.session),
        ("tags", ", ".join(one.tags)), ("workspace", words.name(one.workspace) if one.workspace else ""),
        ("kept", _KEPT[one.retention]),
    ]  # fmt: skip
    links: list[Link] = []
    if one.superseded_by:
        links.append(Link("CORRECTED BY", one.layer, one.superseded_by, one.superseded_by))
    if one.session.startswith("sess_"):
        links.append(_to_session(one.session, "SAID IN", one.session))
    return Detail(entry, _text(one.text, one.forgotten), _some(told), (*links, *used))


_EDGES = {
    ("blocks", True): "blocked", ("blocks", False): "was blocked by",
    ("derived_from", True): "came of", ("derived_from", False): "led to",
    ("related_to", True): "related to", ("related_to", False): "related to",
    ("similar_to", True): "similar to", ("similar_to", False): "similar to",
}  # fmt: skip
"""An edge in words, from this task (True) or towards it."""


def _of_a_task(engine: Engine, entry: Entry, one: GraphNode, used: tuple[Link, ...]) -> Detail:
    around: Neighbourhood = engine.memory.graph.neighbourhood(one.task_id)
    nodes = {node.task_id: node for node in around.neighbours}
    links = []
    for edge in around.edges:
        outward = edge.source == one.task_id
        node = nodes.get(edge.target if outward else edge.source)
        if node is None:
            continue
        there = of_node(node)
        word = _EDGES.get((edge.relation.value, outward), edge.relation.value)
        near = f" {edge.weight:.2f}" if edge.weight < 1 else ""
        links.append(
            Link("AROUND THIS TASK", Layer.GRAPH, node.task_id, there.text,
                 f"once {word}" if edge.invalidated else word + near, there.mark, there.mark_style, node.timestamp)
        )  # fmt: skip
    if one.task_id.startswith("sess_"):
        links.append(_to_session(one.task_id, "ITS SESSION", one.task_id))
    told = [
        ("state", entry.word), ("agent", one.agent), ("workspace", words.name(one.workspace) if one.workspace else ""),
        ("invalid", one.why),
    ]  # fmt: skip
    return Detail(
        entry, _text(f"{one.title}\n\n{one.description}".strip(), not one.title), _some(told), (*links, *used)
    )


def _of_a_fact(engine: Engine, entry: Entry, one: ParaFact | FactDraft, used: tuple[Link, ...]) -> Detail:
    where = f"{one.bucket.value} / {one.group}"
    if isinstance(one, FactDraft):
        told = [
            ("for", where),
            ("category", one.category),
            ("source", one.source),
            ("why", one.reason),
            ("day", one.day),
        ]
        links = _chain(engine, one.supersedes, "IT WOULD CORRECT") if one.supersedes else []
        return Detail(entry, sanitise(one.fact), _some(told), tuple(links))
    asked = f"{words.count(one.access_count, 'time')}" + (
        f", last {words.moment(one.last_accessed, engine.clock.now())}" if one.last_accessed else ""
    )
    told = [
        ("in", where), ("category", one.category), ("source", one.source), ("recalled", asked),
        ("workspace", words.name(one.workspace) if one.workspace else ""),
    ]  # fmt: skip
    links = _chain(engine, one.id, "CORRECTIONS, OLDEST FIRST")
    return Detail(entry, _text(one.fact, one.forgotten), _some(told), (*(links if len(links) > 1 else ()), *used))


def _chain(engine: Engine, fact_id: str, heading: str) -> list[Link]:
    links = []
    for one in engine.memory.para.corrections(fact_id):
        there = of_fact(one)
        word = "holds" if one.active else "was"
        links.append(
            Link(heading, Layer.PARA, one.id, there.text, word, there.mark, there.mark_style, one.created_at,
                 here=one.id == fact_id)
        )  # fmt: skip
    return links


def _used(engine: Engine, id: str) -> tuple[Link, ...]:
    """The sessions whose prompts had it in them, newest first."""
    seen: dict[str, Link] = {}
    for call in engine.calls.that_recalled(id):
        text = f"{call.agent} · {call.model} · {call.session_id}"
        seen.setdefault(
            call.session_id, Link("USED BY", None, call.session_id, text, call.run_kind, "▸", "grey", call.started_at)
        )
    return tuple(seen.values())


def _to_session(id: str, heading: str, text: str) -> Link:
    return Link(heading, None, id, words.one_line(text), "session", "▸", "grey")


def _text(text: str, forgotten: bool) -> str:
    return "forgotten: its text is gone everywhere; this stub keeps its place" if forgotten else sanitise(text)


def _some(told: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, words.one_line(sanitise(value))) for name, value in told if value)
