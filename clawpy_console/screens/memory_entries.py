"""The entries of the layers of memory: read from the engine, with their links, and described by fields.

Whatever a layer has, from files to facts, is an `Entry` here, so that the memory screen has one list and one pane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from clawpy_console import formats
from clawpy_console.fields import Field, Fields, make_text_fields, text_line
from clawpy_console.fields.cards import SESSION_SIGNS
from clawpy_console.formats import has_words, one_line, workspace_name
from engine import LedgerEntry
from engine.files import read_table
from engine.frozen import frozen
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
    Retention,
    label_outcome,
)
from engine.text import sanitise

if TYPE_CHECKING:
    from engine import Engine

EntryValue = AgentFile | Memory | RecallMatch | Capture | GraphNode | ParaFact | FactDraft | LedgerEntry
"""An entry as the engine gives it. What recall found is a `RecallMatch`, whatever its layer is."""

_WORDS = read_table(__file__, "memory_entries.toml")
LAYER_NAMES: Mapping[str, Sequence[str]] = _WORDS["layers"]
"""The name of each layer and what it holds."""


@frozen
class Entry:
    """An entry of a layer in a list, or a link to an entry or a session."""

    layer: Layer | None
    """None for a session."""
    id: str
    text: str
    label: str = ""
    """The word before the text: the kind, the state or the relation."""
    at: datetime | None = None
    group: str = ""
    """The heading above it, "" for none."""
    mark: str = ""
    mark_style: str = "faint"
    is_old: bool = False
    """Whether it is no longer valid."""
    is_forgotten: bool = False
    """Whether its text was erased."""
    value: EntryValue | None = None
    """None for a session, and for a link to an entry that was not read yet."""

    @property
    def key(self) -> str:
        """The id of its row."""
        return f"{self.layer.value if self.layer else 'session'}/{self.id}/{self.group}/{self.label}"

    @property
    def can_be_forgotten(self) -> bool:
        """Whether its text can be forgotten; files are edited instead, and rows of the ledger stay."""
        return self.layer not in (Layer.MARKDOWN, Layer.LEDGER) and not self.is_forgotten


DRAFTS_HEADING = "DRAFTS"
"""The heading above drafts."""


def make_entry(value: EntryValue) -> Entry:
    """A value of the engine as an entry of its layer."""
    entry = replace(_make_plain_entry(value), value=value)
    if entry.text:
        return entry
    if entry.layer in (Layer.MARKDOWN, Layer.LEDGER):
        return replace(entry, text="It is empty.")
    return replace(entry, text="forgotten", is_forgotten=True)  # what is erased keeps its place


def _make_plain_entry(value: EntryValue) -> Entry:
    """The entry of a value. Its text is "" if the value has none, or was forgotten."""
    match value:
        case AgentFile():
            return _make_file_entry(value)
        case Memory():
            is_old = value.forgotten or bool(value.superseded_by)
            return Entry(
                value.layer, value.id, _format_with_speaker(value), sanitise(value.kind), value.at, is_old=is_old
            )
        case RecallMatch():
            return Entry(value.layer, value.id, _format_with_speaker(value), value.reason, value.at)
        case Capture():
            return Entry(Layer.CAPTURE, value.id, sanitise(value.text), value.kind, value.at, is_old=value.forgotten)
        case GraphNode():
            return _make_graph_entry(value)
        case ParaFact():
            return _make_fact_entry(value)
        case FactDraft():
            return _make_draft_entry(value)
        case LedgerEntry():
            return _make_ledger_entry(value)


def _make_file_entry(file: AgentFile) -> Entry:
    return Entry(
        Layer.MARKDOWN,
        f"{file.agent}/{file.name}",
        file.problem or sanitise(file.text),
        file.name,
        file.written,
        group=file.agent,
        mark="✗" if file.problem else "",
        mark_style="wrong",
    )


def _make_draft_entry(draft: FactDraft) -> Entry:
    entry = Entry(Layer.PARA, draft.id, sanitise(draft.fact), "draft", draft.created_at)
    return replace(entry, group=DRAFTS_HEADING, mark="▲", mark_style="wants")


def _make_ledger_entry(row: LedgerEntry) -> Entry:
    """An event with its subject and its fields that have a value."""
    values = (f"{name} {part}" for name, part in row.payload.items() if part not in ("", None, [], False))
    text = sanitise(" · ".join(part for part in (row.subject, ", ".join(values)) if part))
    return Entry(Layer.LEDGER, str(row.id), text, row.kind, row.at)


def _make_graph_entry(node: GraphNode) -> Entry:
    entry = Entry(Layer.GRAPH, node.task_id, sanitise(node.title), "invalid", node.timestamp)
    if node.invalidated_at is not None:
        return replace(entry, mark="·", is_old=True)
    mark, style = SESSION_SIGNS.get(node.outcome or "queued", ("○", "grey"))
    return replace(entry, label=label_outcome(node.outcome) or "open", mark=mark, mark_style=style)


def _make_fact_entry(fact: ParaFact) -> Entry:
    entry = Entry(Layer.PARA, fact.id, sanitise(fact.fact), "replaced", fact.created_at, group="FACTS")
    if fact.is_active:
        return replace(entry, label=fact.bucket.value, mark="●", mark_style="accent")
    return replace(entry, mark="·", is_old=True)


def _format_with_speaker(value: Memory | RecallMatch) -> str:
    """The text of a memory, after its speaker."""
    text = sanitise(value.text)
    return f"{value.speaker}: {text}" if value.speaker and text else text


# Reading

ENTRIES_PER_PAGE = 200
"""Number of entries that are read at once."""


def read_page(engine: Engine, layer: Layer, words: str, after: Sequence[Entry] = ()) -> list[Entry]:
    """A page of the entries of a layer that have all `words`, newest first; the page that follows `after`."""
    last = after[-1].value if after else None
    values: Iterable[EntryValue] = ()
    match layer:
        case Layer.LEDGER:
            values = _read_ledger(engine, words, before=last.id if isinstance(last, LedgerEntry) else None)
        case Layer.VECTORS | Layer.CONTEXT:
            before_seq = last.seq if isinstance(last, Memory) else None
            values = engine.memory.read_entries(layer, words=words, before=before_seq, limit=ENTRIES_PER_PAGE)
        case Layer.CAPTURE:
            before_id = last.id if isinstance(last, Capture) else None
            values = engine.knowledge.captures.read_entries(words=words, before=before_id, limit=ENTRIES_PER_PAGE)
        case Layer.GRAPH:
            values = engine.knowledge.graph.find_newest(words=words, limit=len(after) + ENTRIES_PER_PAGE)[len(after) :]
        case Layer.PARA if not after:  # all facts are on the first page
            values = _read_facts(engine, words)
        case Layer.MARKDOWN if not after:  # and so are all files
            values = _read_agent_files(engine, words)
    return [make_entry(value) for value in values]


MAX_SCANNED_PAGES = 10
"""Maximum number of pages of the ledger that are searched for words."""


def _read_ledger(engine: Engine, words: str, before: int | None) -> list[LedgerEntry]:
    """At least a page of the rows of the ledger that have all `words`, fewer at its end or when too many rows without
    them come first. `before` is the id of the last row seen."""
    matching: list[LedgerEntry] = []
    for _ in range(MAX_SCANNED_PAGES if words else 1):
        rows = engine.ledger.read_newest(ENTRIES_PER_PAGE, before=before)
        entries = map(make_entry, rows)
        matching += [
            row
            for row, entry in zip(rows, entries, strict=True)
            if has_words(f"{entry.label} {entry.text}", words.split())
        ]
        if len(rows) < ENTRIES_PER_PAGE or len(matching) >= ENTRIES_PER_PAGE:
            break
        before = rows[-1].id
    return matching


def _read_facts(engine: Engine, words: str) -> Iterator[FactDraft | ParaFact]:
    """The drafts, then the facts that have all `words`."""
    for draft in engine.knowledge.drafts.list_waiting():
        if has_words(draft.fact, words.split()):
            yield draft
    yield from engine.knowledge.para.read_facts(words=words)


def _read_agent_files(engine: Engine, words: str) -> Iterator[AgentFile]:
    """The files of agents that exist or cannot be read, and have all `words`."""
    for file in engine.agent_files.read_files():
        is_there = file.digest or file.problem
        if is_there and has_words(f"{file.agent} {file.name} {file.text}", words.split()):
            yield file


MAX_BY_MEANING = 50
"""Maximum number of entries that a search by meaning gives, best first."""


def search_by_meaning(engine: Engine, layer: Layer, text: str) -> tuple[list[Entry], tuple[str, ...]]:
    """Entries of a layer that mean about the same as `text`, best first; and what was left out, in words."""
    recall = engine.memory.recall(RecallQuery(text, k=MAX_BY_MEANING, layers=frozenset({layer})))
    return [make_entry(item) for item in recall.items], recall.left_out


def find_entry(engine: Engine, layer: Layer, entry_id: str) -> Entry:
    """One entry by its id. Raises `Refusal` `unknown_memory` when there is none (any more)."""
    knowledge = engine.knowledge
    value: EntryValue | None = None
    match layer:
        case Layer.MARKDOWN:
            agent, _, name = entry_id.partition("/")
            value = engine.agent_files.read(agent, name)
        case Layer.VECTORS | Layer.CONTEXT:
            value = engine.memory.find_entry(layer, entry_id)
        case Layer.CAPTURE:
            value = knowledge.captures.find_entry(entry_id)
        case Layer.GRAPH:
            value = knowledge.graph.get(entry_id)
        case Layer.PARA:
            drafts = (draft for draft in knowledge.drafts.list_waiting() if draft.id == entry_id)
            value = next(drafts, None) or knowledge.para.get(entry_id)
        case Layer.LEDGER if entry_id.isdigit():
            value = next(iter(engine.ledger.read_newest(1, before=int(entry_id) + 1)), None)
    if value is None:
        raise Refusal(
            "unknown_memory", f"layer {layer.value} has no {sanitise(entry_id)}", "it has been forgotten or has expired"
        )
    return make_entry(value)


# Links


def read_entry_with_links(engine: Engine, entry: Entry) -> tuple[Entry, list[Entry]]:
    """An entry as it is now, and its links. Raises `Refusal` as `find_entry`."""
    if isinstance(entry.value, (RecallMatch, AgentFile)) and entry.layer is not None:
        entry = find_entry(engine, entry.layer, entry.id)
    links = _read_links(engine, entry.value)
    if entry.layer not in (Layer.MARKDOWN, Layer.LEDGER):
        links += _read_using_sessions(engine, entry.id)
    return entry, links


def _read_links(engine: Engine, value: EntryValue | None) -> list[Entry]:
    """Links to what an entry came from, what corrects it and what is around it."""
    match value:
        case Memory():
            return [
                *_make_entry_link(value.layer, value.superseded_by, "CORRECTED BY"),
                *_make_session_link(value.session, "SAID IN"),
            ]
        case Capture():
            return [
                *_make_session_link(value.session, "SAID IN"),
                *_make_entry_link(Layer.CAPTURE, value.corrects, "CORRECTS"),
            ]
        case GraphNode():
            return [*_read_neighbour_links(engine, value.task_id), *_make_session_link(value.task_id, "ITS SESSION")]
        case FactDraft() if value.supersedes:
            return _read_correction_links(engine, value.supersedes, "IT WOULD REPLACE")
        case ParaFact():
            chain = _read_correction_links(engine, value.id, "CORRECTIONS, OLDEST FIRST")
            return chain if len(chain) > 1 else []
        case LedgerEntry():
            return _make_session_link(value.subject, "ABOUT")
    return []


def _make_entry_link(layer: Layer, entry_id: str, heading: str) -> list[Entry]:
    """A link to the entry with this id; no link for ""."""
    return [Entry(layer, entry_id, entry_id, group=heading)] if entry_id else []


def _make_session_link(session_id: str, heading: str) -> list[Entry]:
    """A link to the session with this id; no link if the id is no session's."""
    if not session_id.startswith("sess_"):
        return []
    return [Entry(None, session_id, session_id, "session", group=heading, mark="▸", mark_style="grey")]


def _read_neighbour_links(engine: Engine, task_id: str) -> list[Entry]:
    """The tasks one step away in the graph."""
    neighbourhood = engine.knowledge.graph.get_neighbourhood(task_id)
    nodes = {node.task_id: node for node in neighbourhood.neighbours}
    links = []
    for edge in neighbourhood.edges:
        from_this_task, towards_this_task = _WORDS["relations"][edge.relation]
        label = from_this_task if edge.source == task_id else towards_this_task
        if edge.invalidated:
            label = f"formerly {label}"
        elif edge.weight < 1:
            label += f" {edge.weight:.2f}"
        if node := nodes.get(edge.other_end(task_id)):
            links.append(replace(make_entry(node), label=label, group="AROUND THIS TASK", is_old=False))
    return links


def _read_correction_links(engine: Engine, fact_id: str, heading: str) -> list[Entry]:
    """The chain of corrections that a fact belongs to."""
    links = []
    for fact in engine.knowledge.para.read_corrections(fact_id):
        label = "valid" if fact.is_active else "replaced"
        if fact.id == fact_id:
            label = "this one"
        links.append(replace(make_entry(fact), group=heading, label=label))
    return links


def _read_using_sessions(engine: Engine, entry_id: str) -> list[Entry]:
    """The sessions whose prompts contained the entry, newest first."""
    link_by_session: dict[str, Entry] = {}
    for call in engine.calls.find_calls_with_memory(entry_id):
        text = f"{call.agent} · {call.model} · {call.session_id}"
        link = Entry(
            None, call.session_id, text, call.run_kind, call.started_at, group="USED BY", mark="▸", mark_style="grey"
        )
        link_by_session.setdefault(call.session_id, link)
    return list(link_by_session.values())


# Details


def make_entry_fields(entry: Entry, folder: str, now: datetime) -> Fields:
    """The details of an entry without its links. `folder` holds the files of agents."""
    value = entry.value
    if entry.layer is not None:
        at = f"  {formats.moment(entry.at, now)}" if entry.at else ""
        yield text_line(f"{entry.layer.value} {LAYER_NAMES[entry.layer][0]}{at}")
    yield text_line(f"{folder}/{entry.id}" if isinstance(value, AgentFile) else entry.id, "faint")
    if isinstance(value, (ParaFact, FactDraft)):
        yield Field("in", f"{value.bucket.value} / {value.group}", "grey")
    for attribute, name in _WORDS["attributes"].items():
        if text := _describe_attribute(attribute, getattr(value, attribute, None), now):
            yield Field(name, one_line(sanitise(text)), "grey")
    if entry.is_old:
        yield text_line("· no longer valid", "wants")
    if isinstance(value, AgentFile) and value.problem:
        yield text_line(f"✗ {value.problem}", "wrong")
    yield text_line("")
    yield from make_text_fields(make_full_text(entry))


def _describe_attribute(attribute: str, value: object, now: datetime) -> str:
    """An attribute of an entry in words, "" if the entry has no such attribute or an empty one."""
    match value:
        case str() if attribute == "workspace" and value:
            return workspace_name(value)
        case Retention():
            return str(_WORDS["retention"][value])
        case datetime():
            return formats.moment(value, now)
        case tuple():
            return ", ".join(value)
        case int() if attribute == "access_count" and value:
            return formats.count(value, "time")
    return str(value) if value else ""


def make_full_text(entry: Entry) -> str:
    """The whole text of an entry."""
    if entry.is_forgotten:
        return "Forgotten: its text is removed everywhere. This empty entry keeps its place."
    match entry.value:
        case GraphNode(title=title, description=description):
            return sanitise(f"{title}\n\n{description}".strip())
        case LedgerEntry(payload=payload):
            return sanitise("\n".join(f"{name}: {value}" for name, value in payload.items()))
        case ParaFact(fact=text) | FactDraft(fact=text):
            return sanitise(text) or "It is empty."
        case AgentFile(text=text) | Memory(text=text) | RecallMatch(text=text) | Capture(text=text):
            return sanitise(text) or "It is empty."
    return ""
