"""Recall over layers (SPEC 4.4): what is found in which order, layers that fail, the search of the real store, the
dates of a question, and that no memory breaks the block of recall in a prompt."""

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import tokenizer
from engine.clock import FakeClock
from engine.config.settings import FixedSettings, MemorySettings, Settings
from engine.memory import MAX_LEADING_FACTS, LayerResult, Recaller
from engine.memory.embedding import NoEmbedder
from engine.memory.graph import TaskGraph
from engine.memory.layer_sources import GraphSource
from engine.memory.memory import MemoryService
from engine.memory.question import MONTH_FIT, OTHER_DAY_FIT, make_stem, parse_question
from engine.memory.ranking import MIN_RELEVANCE, add_text_features, rank, select_candidates
from engine.memory.recall_in_prompts import BLOCK_TAG, PREAMBLE, RecallPromptPart, make_memory_lines
from engine.memory.store import MemoryRow
from engine.model import (
    GraphNode,
    Layer,
    NewMemory,
    PromptRequest,
    Recall,
    RecallMatch,
    RecallQuery,
    Relation,
    ScorePart,
    SourceKind,
)
from engine.storage.database import Database
from engine.text import sanitise
from tests.memory.hostile_pieces import HOSTILE_PIECES
from tests.memory.memory_services import MakeMemory, WordVectors, make_turns

NOW = datetime(2025, 6, 15, tzinfo=UTC)


def make_match(id: str, layer: Layer = Layer.VECTORS, score: float = 0.5, text: str = "", **fields: Any) -> RecallMatch:
    """A match of a layer, with these other fields."""
    parts = (ScorePart("words", score, 1.0),)
    text = text or f"text of {id}"
    return RecallMatch(
        id, layer, text, score, parts, "says so", **{"source": f"source of {id}", "speaker": "", "at": NOW} | fields
    )


class StandInSource:
    """A layer that finds these matches once it may answer; without any it fails."""

    def __init__(self, *matches: RecallMatch, layer: Layer = Layer.VECTORS):
        self.matches = matches
        self.layers = frozenset({layer})
        self.name = f"layer {layer.value}"
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.questions = 0

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        self.questions += 1
        self.may_answer.wait(30)
        if not self.matches:
            raise OSError("the disk is gone")
        return LayerResult(self.matches[: query.k])


def make_recaller(*sources: StandInSource) -> Recaller:
    return Recaller(sources, FakeClock(NOW))


def recall_ids(*matches: RecallMatch, **query: Any) -> list[str]:
    """The ids that are recalled from layers with these matches."""
    layers = dict.fromkeys(item.layer for item in matches)
    sources = [StandInSource(*(item for item in matches if item.layer is layer), layer=layer) for layer in layers]
    return [item.id for item in make_recaller(*sources).recall(RecallQuery("what", **query), 5.0).items]


FACTS = [make_match(f"fact_{number}", Layer.PARA, 0.1) for number in range(MAX_LEADING_FACTS + 1)]
"""One fact more than come before everything else."""

ONE_SESSION = [
    make_match("a"),
    make_match("b", Layer.LEDGER, 0.9, about="session_1"),
    make_match("e", Layer.CONTEXT, 0.4, about="session_1"),
    make_match("f", Layer.GRAPH, 0.8, about="session_1"),
]
"""Matches of three layers about one session, and another match."""


@pytest.mark.parametrize(
    "matches, query, ids",
    [
        ([make_match("a", score=0.8), make_match("b", score=0.9), *FACTS], {"k": 20},
         [*(f"fact_{number}" for number in range(MAX_LEADING_FACTS)), "b", "a", f"fact_{MAX_LEADING_FACTS}"]),
        ([make_match("a", score=0.9, text="Rounds  HALF up"), make_match("f", Layer.PARA, 0.2, "rounds half UP")],
         {}, ["f"]),
        ([make_match("a", score=0.9, text="yes"), make_match("b", text="Yes")], {}, ["a"]),
        ([make_match("a", score=0.9), make_match("f", Layer.PARA)], {"layers": frozenset({Layer.PARA})}, ["f"]),
        (ONE_SESSION, {}, ["a", "e"]),
        (ONE_SESSION, {"session": "session_1"}, ["a"]),
        ([make_match("a")], {"k": 0}, []),
    ],
    ids=["facts first, then by score", "the same in two layers", "the same twice in one layer", "one layer is asked",
         "a session once", "nothing of the session that asks", "none wanted"],
)  # fmt: skip
def test_matches_of_all_layers_become_one_list(matches: list[RecallMatch], query: dict[str, Any], ids: list[str]):
    assert recall_ids(*matches, **query) == ids == recall_ids(*reversed(matches), **query)


def test_a_broken_layer_is_left_out_and_named():
    recall = make_recaller(StandInSource(make_match("a")), StandInSource(layer=Layer.PARA)).recall(
        RecallQuery("what"), 5.0
    )
    assert [item.id for item in recall.items] == ["a"]
    assert recall.left_out == ("layer G: OSError: the disk is gone",)


def test_a_layer_that_hangs_is_left_out_and_not_asked_again_until_it_answers():
    slow = StandInSource(make_match("f", Layer.PARA), layer=Layer.PARA)
    slow.may_answer.clear()
    layers = make_recaller(StandInSource(make_match("a")), slow)
    recall = layers.recall(RecallQuery("what"), 0.2)
    assert [item.id for item in recall.items] == ["a"]
    assert recall.left_out == ("layer G: no answer within 0.2 s",)
    assert layers.recall(RecallQuery("what"), 0.2).left_out == ("layer G: still busy with an earlier question",)
    assert slow.questions == 1
    slow.may_answer.set()
    layers._late["layer G"].result(10)
    assert layers.recall(RecallQuery("what"), 5.0).left_out == ()


# Layers F and G


def test_the_graph_finds_similar_tasks_and_what_is_one_step_away(database: Database):
    graph = TaskGraph(database)
    graph.put(GraphNode("build", "Build it", NOW - timedelta(days=14), success=False))
    graph.put(GraphNode("deploy", "Deploy it", NOW, success=False))
    graph.put(GraphNode("old", "Old", NOW))
    graph.relate("build", Relation.BLOCKS, "deploy")
    graph.relate("old", Relation.RELATED_TO, "deploy")
    graph.put(GraphNode("old", "Old", NOW, invalidated_at=NOW, why="wrong"))
    source = GraphSource(graph, lambda text, k: {"deploy": 0.8})
    deploy, build = source.find(RecallQuery("why did the deployment fail"), NOW, 1.0).items
    assert deploy.id == "deploy"
    assert build.id == "build"
    assert deploy.score == pytest.approx(0.7 * 0.8 + 0.3)
    assert "its failure blocked “Deploy it”" in build.reason
    assert source.find(RecallQuery("why", workspace="/home/me/other"), NOW, 1.0).items == ()


# Layers C and E, in the real store


class MissingEmbedder(WordVectors):
    """An embedder that cannot be used."""

    def embed(self, texts: Sequence[str], **_: object) -> list:  # type: ignore[override, type-arg]
        raise NoEmbedder("the wheel is not installed")


def test_without_an_embedder_words_find_and_the_reason_is_given(make_memory: MakeMemory):
    memory = make_memory(embedder=MissingEmbedder())
    memory.remember(make_turns("We sow beans in April", "The roof leaks"))
    recall = memory.recall(RecallQuery("beans"))
    assert recall.items[0].text == "We sow beans in April"
    assert recall.left_out == ("memories (C, E): found by words only: the wheel is not installed",)


def test_a_long_message_is_found_by_what_is_deep_in_it(memory: MemoryService):
    filler, answer = "The weather was mild and nothing happened at all. " * 60, "My passport number ends in 4417. "
    long_memory = NewMemory(filler + answer + filler, ref="long", session="s")
    memory.remember([long_memory, *(NewMemory(f"{word} {filler}", ref=word, session="s") for word in ("one", "two"))])
    assert memory.settle(60)
    query = RecallQuery("what does my passport number end in?", k=3)
    assert memory.recall(query).items[0].ref == "long"
    passage = memory.recall(replace(query, passages=True)).items[0]
    assert answer.strip() in passage.text
    assert len(passage.text) < 1_200
    start, stop, size = map(int, re.findall(r"\d+", passage.place))
    assert size == len(long_memory.text)
    assert passage.text in long_memory.text[start - 1 : stop]


@pytest.mark.parametrize(
    "scope, refs",
    [
        ({"workspace": "/a"}, {"here", "bob", "nobody", "task"}),
        ({"workspace": "/a", "agent": "ada"}, {"here", "nobody", "task"}),
        ({"layers": frozenset({Layer.CONTEXT})}, {"task"}),
        ({"session": "sess_1"}, {"there", "bob", "nobody", "task"}),
    ],
    ids=["workspace", "agent", "layer", "not the session that asks"],
)
def test_a_query_finds_only_what_is_in_its_scope(memory: MemoryService, scope: dict[str, Any], refs: set[str]):
    memory.remember(
        [
            NewMemory("beans here", ref="here", workspace="/a", agent="ada", session="sess_1"),
            NewMemory("beans there", ref="there", workspace="/b", agent="ada"),
            NewMemory("beans of bob", ref="bob", workspace="/a", agent="bob"),
            NewMemory("beans of nobody", ref="nobody"),
            NewMemory("bob sowed beans", Layer.CONTEXT, "summary", ref="task", workspace="/a", agent="bob"),
        ]
    )
    assert memory.settle(30)
    matches = memory.recall(RecallQuery("beans", **scope), deadline=30).items
    assert {match.ref for match in matches} == refs
    for match in matches:
        assert match.score == pytest.approx(sum(part.value * part.weight for part in match.parts))


def test_lines_of_the_speaker_who_is_asked_about_come_first(memory: MemoryService):
    memory.remember([*make_turns("we grow beans", speaker="Ada"), *make_turns("we grow beans", speaker="Bob")])
    assert memory.settle(30)
    first, _ = memory.recall(RecallQuery("What beans does Ada grow?"), deadline=30).items
    assert "Ada says it" in first.reason


@pytest.mark.parametrize(
    "text", ['"', "* OR NEAR(", "\x00", "a" * 5_000, "what?", "😀", "‮beans", "-- ; DROP TABLE memories"]
)
def test_no_question_breaks_the_search(memory: MemoryService, text: str):
    memory.remember(make_turns("We sow beans", "-- ; DROP TABLE memories"))
    memory.settle(30)
    assert not [warning for warning in memory.recall(RecallQuery(text)).left_out if "Error" in warning]


# Dates of a question, and what is too far from it


@pytest.mark.parametrize(
    "text, day, fit",
    [
        ("on 7 May 2023", date(2023, 5, 7), 1.0),
        ("on May 7th, 2023", date(2023, 5, 8), 1.0),
        ("on 2023-05-07", date(2023, 5, 20), OTHER_DAY_FIT),
        ("in May 2023", date(2023, 5, 20), MONTH_FIT),
        ("in may", date(2022, 5, 20), MONTH_FIT),
        ("in May 2023", date(2022, 5, 20), 0.0),
        ("yesterday", date(2025, 6, 14), 1.0),
        ("three weeks ago", date(2025, 5, 25), MONTH_FIT),
        ("last month", date(2025, 5, 1), MONTH_FIT),
    ],
)
def test_a_day_fits_a_date_as_far_as_the_question_names_it(text: str, day: date, fit: float):
    question = parse_question(f"What happened {text}?", (), now=NOW)
    assert max(when.fits(day) for when in question.dates) == fit


@pytest.mark.parametrize("words", ["plan plans planned planning", "study studies", "mess messes messed"])
def test_the_forms_of_a_word_have_one_stem(words: str):
    assert len({*map(make_stem, words.split())}) == 1


@pytest.mark.parametrize("similarity, found", [(MIN_RELEVANCE - 0.01, 0), (MIN_RELEVANCE, 1)])
def test_a_line_that_is_far_and_shares_no_word_is_not_found(similarity: float, found: int):
    assert MIN_RELEVANCE == 0.27
    question, row = parse_question("beans", (), now=NOW), MemoryRow(0, "", "", NOW.isoformat())
    selection = select_candidates(question, [row], {}, {}, [(similarity, 0, 0)], NOW)
    candidates = add_text_features(selection, ["quite another matter"], [0.0], [similarity])
    assert len(rank(candidates)) == found


# Recall in prompts: within its budget, each line with its source


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
