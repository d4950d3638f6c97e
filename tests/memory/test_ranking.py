"""Reading questions, features and ranking: pure."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.question import read_question
from engine.memory.ranking import (
    COMPANION_DIVISOR,
    MIN_RELEVANCE,
    RankedCandidate,
    add_text_features,
    rank,
    select_candidates,
)

NOW = datetime(2025, 6, 15, 12, tzinfo=UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def ask(text: str, turns: list[tuple[str, str]], *, session: str = "s", meaning: list[float] | None = None,
        words: list[float] | None = None, times: list[datetime] | None = None,
        tokens: list[float] | None = None) -> list[tuple[int, RankedCandidate]]:  # fmt: skip
    """Rank turns of (speaker, text) for a question: the place of each among them, and its rank."""
    size = len(turns)
    moments = times or [LONG_AGO] * size
    rows = [(n, who, session, at.isoformat()) for n, ((who, _), at) in enumerate(zip(turns, moments, strict=True))]
    previous = {n: n - 1 for n in range(1, size) if session}
    near = sorted(((value, n, n) for n, value in enumerate(meaning or [0.5] * size)), reverse=True)
    question = read_question(text, {who for who, _ in turns}, now=NOW)
    known = [one for one in near if not math.isnan(one[0])]
    seen = select_candidates(question, rows, previous, dict(enumerate(words or [0.0] * size)), known, NOW)
    places = [row[0] for row in seen.rows]
    matched = np.array(tokens or [0.0] * size, np.float32)[places]
    add_text_features(seen, [turns[place][1] for place in places], matched, seen.features["meaning"])
    return [(places[one.number], one) for one in rank(seen)]


def test_words_that_narrow_nothing_and_names_are_not_looked_for() -> None:
    question = read_question("What did Caroline's mother plant in the garden?", {"Caroline", "Melanie"})
    assert question.words == ("mother", "plant", "garden")
    assert question.speakers == {"caroline"}
    assert question.topic == "What did mother plant in the garden"


def test_two_persons_named_are_none_asked() -> None:
    assert read_question("Where did Ada meet Bob?", {"Ada", "Bob"}).speakers == frozenset()


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        (
            "Can you list the order in which I brought up different aspects of my garden throughout our chats?",
            "my garden",
        ),
        ("Could you give me a short summary of how the shed was built?", "how the shed was built"),
        ("When did I say the beans were sown?", "When the beans were sown"),
        ("Can you summarize?", "Can you summarize?"),
    ],
)
def test_how_it_is_asked_is_not_looked_for(text: str, topic: str) -> None:
    assert read_question(text).topic == topic


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("What did I plant in May?", {"user"}),
        ("Which work about birds was it?", {"user"}),
        ("What would you suggest for dinner?", {"user"}),
        ("What did you recommend to me for dinner?", {"assistant"}),
        ("Can you give me a summary of my plans for the garden?", {"assistant"}),
    ],
)
def test_with_an_assistant_the_lines_of_the_user_count(text: str, asked: set[str]) -> None:
    assert read_question(text, {"user", "assistant"}).speakers == asked


def test_nobody_is_asked_about_where_nobody_is_a_role() -> None:
    assert read_question("What did I plant?", {"Ada", "Bob"}).speakers == frozenset()


@pytest.mark.parametrize(
    ("text", "day", "fit"),
    [
        ("on 7 May 2023", date(2023, 5, 7), 1.0),
        ("on May 7th, 2023", date(2023, 5, 8), 1.0),
        ("on 2023-05-07", date(2023, 5, 20), 0.33),
        ("in May 2023", date(2023, 5, 20), 0.67),
        ("in may", date(2022, 5, 20), 0.67),
        ("in May 2023", date(2022, 5, 20), 0.0),
        ("yesterday", date(2025, 6, 14), 1.0),
        ("three weeks ago", date(2025, 5, 25), 0.67),
        ("last month", date(2025, 5, 1), 0.67),
    ],
)
def test_dates(text: str, day: date, fit: float) -> None:
    question = read_question(f"What happened {text}?", (), now=NOW)
    assert max(when.fits(day) for when in question.dates) == fit


def test_may_is_a_verb_where_no_date_is_meant() -> None:
    assert read_question("may I march to the garden?").dates == ()


def test_who_is_asked_about_counts() -> None:
    ranked = ask("What does Ada grow?", [("Bob", "beans in pots"), ("Ada", "beans in pots")], session="")
    assert ranked[0][0] == 1
    assert "Ada says it" in ranked[0][1].reason


def test_a_rule_of_the_user_counts_and_a_preference_where_advice_is_asked_for() -> None:
    turns = [
        ("user", "we had beans for dinner"),
        ("user", "I prefer dinner without meat"),
        ("user", "always name the calories when I ask about dinner"),
        ("assistant", "I prefer dinner with beans"),
    ]
    places = [place for place, _ in ask("What was for dinner?", turns, session="")]
    assert (places[0], places[-1]) == (2, 3)
    assert {place for place, _ in ask("What would you suggest for dinner?", turns, session="")[:2]} == {1, 2}


def test_a_date_that_fits_counts() -> None:
    times = [datetime(2023, 4, 7, tzinfo=UTC), datetime(2023, 5, 7, tzinfo=UTC)]
    ranked = ask("What was sown on 7 May 2023?", [("", "beans")] * 2, session="", times=times)
    assert ranked[0][0] == 1
    assert "said on 2023-05-07" in ranked[0][1].reason


def test_of_two_that_fit_alike_the_newer_is_first() -> None:
    times = [datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 6, 14, tzinfo=UTC)]
    assert ask("beans", [("", "beans")] * 2, session="", times=times)[0][0] == 1


def test_what_answers_a_question_that_fits_is_above_a_stray_line() -> None:
    turns = [
        ("Bob", "unrelated"),
        ("Bob", "unrelated"),
        ("Bob", "What beans do you grow?"),
        ("Ada", "Runners, tall ones"),
    ]
    ranked = ask("beans grown", turns, meaning=[0.3, 0.3, 0.8, 0.3], words=[0, 0, 5.0, 0])
    order = [place for place, _ in ranked]
    assert order.index(3) < order.index(0)


def test_what_is_far_and_shares_no_word_is_not_found() -> None:
    assert ask("beans", [("", "quite another matter")], session="", meaning=[MIN_RELEVANCE - 0.01]) == []
    assert len(ask("beans", [("", "quite another matter")], session="", meaning=[MIN_RELEVANCE])) == 1


def test_half_of_the_telling_words_are_near_enough_without_vectors() -> None:
    assert len(ask("beans peas", [("", "two beans"), ("", "peas")], session="", meaning=[0.0, 0.0])) == 2
    assert ask("beans peas leeks", [("", "beans"), ("", "peas"), ("", "leeks")], session="", meaning=[0.0] * 3) == []


def test_what_is_further_goes_along_from_a_part_of_the_limit_or_with_its_session() -> None:
    turns = [("Bob", "What beans do you grow?"), ("Ada", "Runners, tall ones")]
    assert [place for place, _ in ask("beans grown", turns, meaning=[0.8, 0.0], words=[5.0, 0])] == [0, 1]
    assert len(ask("beans grown", turns, session="", meaning=[0.8, MIN_RELEVANCE / COMPANION_DIVISOR])) == 2
    assert len(ask("beans grown", turns, session="", meaning=[0.8, MIN_RELEVANCE / COMPANION_DIVISOR - 0.01])) == 1
    assert ask("beans grown", turns[1:], session="", meaning=[0.0]) == []


@pytest.mark.long
@given(
    st.lists(st.tuples(st.sampled_from(["", "Ada", "user"]), st.text(max_size=40)), min_size=1, max_size=12),
    st.text(max_size=60),
    st.sampled_from(["", "s"]),
    st.data(),
)
def test_parts_add_up_to_the_score(turns: list[tuple[str, str]], text: str, session: str, data: st.DataObject) -> None:
    unit = st.floats(-1, 1)
    meaning = data.draw(st.lists(unit | st.just(float("nan")), min_size=len(turns), max_size=len(turns)))
    words = data.draw(st.lists(st.floats(0, 30), min_size=len(turns), max_size=len(turns)))
    ranked = ask(text, turns, session=session, meaning=meaning, words=words)
    assert len({place for place, _ in ranked}) == len(ranked)
    assert all(one.score > two.score - 1e-5 for (_, one), (_, two) in itertools.pairwise(ranked))
    for _, one in ranked:
        assert one.reason
        assert all(0 <= part.value <= 1 and part.weight >= 0 for part in one.parts)
        assert one.score == pytest.approx(sum(part.value * part.weight for part in one.parts))
        assert -1e-6 <= one.score <= 1 + 1e-6
