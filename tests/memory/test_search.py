"""The search of layers C and E (SPEC 4.4): in the real store, within its scope, by the dates of a question."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from engine.memory.embedding import NoEmbedder
from engine.memory.memory import MemoryService
from engine.memory.question import MONTH_FIT, OTHER_DAY_FIT, make_stem, parse_question
from engine.memory.ranking import MIN_RELEVANCE, add_text_features, rank, select_candidates
from engine.memory.store import MemoryRow
from engine.model import Layer, NewMemory, RecallQuery
from tests.memory.memory_services import NOW, MakeMemory, WordVectors, make_turns


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
    shortlist = select_candidates(question, [row], {}, {}, [(similarity, 0, 0)], NOW)
    candidates = add_text_features(shortlist, ["quite another matter"], [0.0], [similarity])
    assert len(rank(candidates)) == found
