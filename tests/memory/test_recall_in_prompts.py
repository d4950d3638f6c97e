"""Recalled memories in a prompt (SPEC 4.4, 6.8): within the budget, each with its source, and no text breaks the
block."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import tokenizer
from engine.config.settings import FixedSettings, MemorySettings, Settings
from engine.memory.recall_in_prompts import BLOCK_TAG, PREAMBLE, RecallPromptPart, make_memory_lines
from engine.model import PromptRequest, Recall, RecallMatch, RecallQuery, SourceKind
from engine.text import sanitise
from tests.memory.hostile_pieces import HOSTILE_PIECES
from tests.memory.memory_services import make_match


class StandInMemory:
    """A memory service that recalls the same for every question."""

    def __init__(self, matches: tuple[RecallMatch, ...]):
        self.matches = matches
        self.queries: list[RecallQuery] = []

    def recall(self, query: RecallQuery) -> Recall:
        self.queries.append(query)
        return Recall(self.matches)


def make_part(*matches: RecallMatch, budget: int = 600) -> tuple[RecallPromptPart, StandInMemory]:
    memory = StandInMemory(matches)
    limits = FixedSettings(Settings(memory=MemorySettings(recall_tokens=budget)))
    return RecallPromptPart(memory, limits), memory


def make_request(task: str = "Round cart totals") -> PromptRequest:
    return PromptRequest("backend_builder", "koji-core", "/shop", task, session_id="sess_9")


def test_each_line_names_layer_date_and_source_and_leads_to_its_memory():
    part, memory = make_part(
        make_match("mem_1", text="Totals are rounded once, at the end.", speaker="ada"),
        make_match("mem_2", text="We take Decimal."),
    )
    contribution = part.make_part(make_request())
    assert contribution.part.text.split("\n") == [
        "<recalled-memory>",
        PREAMBLE,
        '<evidence trust="quoted" layer="C" date="2025-06-15" by="ada" source="source of mem_1">'
        "Totals are rounded once, at the end.</evidence>",
        '<evidence trust="quoted" layer="C" date="2025-06-15" source="source of mem_2">We take Decimal.</evidence>',
        "</recalled-memory>",
    ]
    sources = [line.source for line in contribution.part.lines if line.source.kind is SourceKind.MEMORY]
    assert [source.ref for source in sources] == ["mem_1", "mem_2"]
    assert [source["id"] for source in contribution.provenance["memory_sources"]] == ["mem_1", "mem_2"]
    (query,) = memory.queries
    scope = query.workspace, query.agent, query.session
    assert (query.text, *scope) == ("Round cart totals", "/shop", "backend_builder", "sess_9")


def test_whole_memories_fill_the_budget_and_the_preview_names_the_rest():
    part, _ = make_part(
        *(make_match(f"mem_{n}", text=f"fact {n} " + "about rounding " * 20) for n in range(1, 11)), budget=300
    )
    contribution, preview = part.make_part(make_request()), part.preview(make_request())
    assert contribution.part == preview.part
    assert tokenizer.count(contribution.part.text) <= 300
    assert 2 <= len(preview.items) < 10
    assert [item.id for item in (*preview.items, *preview.dropped)] == [f"mem_{n}" for n in range(1, 11)]
    assert contribution.notes == ()


# Hostile memories


def assert_contains_only(lines: list[str], item: RecallMatch):
    """The block is one element with one child, whose text is that of the memory."""
    root = ElementTree.fromstring("\n".join(lines))
    assert root.tag == BLOCK_TAG
    (child,) = root
    clean = sanitise(item.text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd").strip()
    assert child.tag == "evidence"
    assert (child.text or "") == clean
    assert child.get("layer") == item.layer.value


@pytest.mark.long
@settings(max_examples=200)
@given(st.lists(st.sampled_from(HOSTILE_PIECES) | st.text(max_size=6), max_size=12).map("".join), st.text(max_size=40))
def test_no_text_and_no_source_breaks_its_element(text: str, source: str):
    item = make_match("mem_1", text=text, source=source, speaker=text[:20])
    assert_contains_only([f"<{BLOCK_TAG}>", *(line.text for line in make_memory_lines(item)), f"</{BLOCK_TAG}>"], item)
