"""The ranking of a recall (SPEC 4.4): what puts a candidate before others, and which candidates are relevant."""

import itertools
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.question import parse_question
from engine.memory.ranking import (
    COMPANION_DIVISOR,
    MIN_RELEVANCE,
    Feature,
    RankedCandidate,
    add_text_features,
    rank,
    select_candidates,
)
from engine.memory.store import MemoryRow

NOW = datetime(2025, 6, 15, 12, tzinfo=UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def rank_turns(
    text: str,
    turns: list[tuple[str, str]],
    *,
    session: str = "s",
    meaning: list[float] | None = None,
    words: list[float] | None = None,
    times: list[datetime] | None = None,
) -> list[tuple[int, RankedCandidate]]:
    """Rank turns of (speaker, text) for a question. Returns those that are found, the best first, each with its place
    among the turns. `meaning` and `words` are the scores of the turns; a NaN is a turn without vectors."""
    size = len(turns)
    speakers = [speaker for speaker, _ in turns]
    rows = [
        MemoryRow(place, speaker, session, at.isoformat())
        for place, (speaker, at) in enumerate(zip(speakers, times or [LONG_AGO] * size, strict=True))
    ]
    previous = {place: place - 1 for place in range(1, size) if session}
    similarities = enumerate(meaning or [0.5] * size)
    near = sorted(((value, place, place) for place, value in similarities if not math.isnan(value)), reverse=True)
    question = parse_question(text, set(speakers), now=NOW)
    selection = select_candidates(question, rows, previous, dict(enumerate(words or [0.0] * size)), near, NOW)
    places = [row.seq for row in selection.rows]
    texts = [turns[place][1] for place in places]
    candidates = add_text_features(selection, texts, [0.0] * len(places), selection.features[Feature.MEANING].tolist())
    return [(places[ranked.index], ranked) for ranked in rank(candidates)]


def test_no_reason_names_words_of_a_question_of_signs_alone():
    [(_, ranked)] = rank_turns('"*(', [("Ada", '"*( beans')], words=[1.0])
    assert ranked.reason == "near in meaning (0.50)"


def test_lines_of_the_speaker_who_is_asked_about_come_first():
    ranked = rank_turns("What does Ada grow?", [("Bob", "beans in pots"), ("Ada", "beans in pots")], session="")
    assert ranked[0][0] == 1
    assert "Ada says it" in ranked[0][1].reason


def test_rules_of_the_user_count_and_preferences_if_advice_is_asked_for():
    turns = [
        ("user", "we had beans for dinner"),
        ("user", "I prefer dinner without meat"),
        ("user", "always name the calories when I ask about dinner"),
        ("assistant", "I prefer dinner with beans"),
    ]
    places = [place for place, _ in rank_turns("What was for dinner?", turns, session="")]
    assert (places[0], places[-1]) == (2, 3)
    assert {place for place, _ in rank_turns("What would you suggest for dinner?", turns, session="")[:2]} == {1, 2}


def test_a_line_of_the_date_that_is_asked_about_comes_first():
    times = [datetime(2023, 4, 7, tzinfo=UTC), datetime(2023, 5, 7, tzinfo=UTC)]
    ranked = rank_turns("What was sown on 7 May 2023?", [("", "beans")] * 2, session="", times=times)
    assert ranked[0][0] == 1
    assert "said on 2023-05-07" in ranked[0][1].reason


def test_of_two_equal_lines_the_newer_comes_first():
    times = [datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 6, 14, tzinfo=UTC)]
    assert rank_turns("beans", [("", "beans")] * 2, session="", times=times)[0][0] == 1


def test_an_answer_to_a_matching_turn_is_above_an_unrelated_line():
    turns = [
        ("Bob", "unrelated"),
        ("Bob", "unrelated"),
        ("Bob", "What beans do you grow?"),
        ("Ada", "Runners, tall ones"),
    ]
    ranked = rank_turns("beans grown", turns, meaning=[0.3, 0.3, 0.8, 0.3], words=[0, 0, 5.0, 0])
    order = [place for place, _ in ranked]
    assert order.index(3) < order.index(0)


def test_a_line_that_is_far_and_shares_no_word_is_not_found():
    assert rank_turns("beans", [("", "quite another matter")], session="", meaning=[MIN_RELEVANCE - 0.01]) == []
    assert len(rank_turns("beans", [("", "quite another matter")], session="", meaning=[MIN_RELEVANCE])) == 1


def test_half_of_the_key_words_are_near_enough_without_vectors():
    assert len(rank_turns("beans peas", [("", "two beans"), ("", "peas")], session="", meaning=[0.0, 0.0])) == 2
    assert (
        rank_turns("beans peas leeks", [("", "beans"), ("", "peas"), ("", "leeks")], session="", meaning=[0.0] * 3)
        == []
    )


def test_farther_lines_are_found_beside_a_relevant_one_or_in_its_session():
    turns = [("Bob", "What beans do you grow?"), ("Ada", "Runners, tall ones")]
    assert [place for place, _ in rank_turns("beans grown", turns, meaning=[0.8, 0.0], words=[5.0, 0])] == [0, 1]
    assert len(rank_turns("beans grown", turns, session="", meaning=[0.8, MIN_RELEVANCE / COMPANION_DIVISOR])) == 2
    assert (
        len(rank_turns("beans grown", turns, session="", meaning=[0.8, MIN_RELEVANCE / COMPANION_DIVISOR - 0.01])) == 1
    )
    assert rank_turns("beans grown", turns[1:], session="", meaning=[0.0]) == []


@pytest.mark.long
@given(
    st.lists(st.tuples(st.sampled_from(["", "Ada", "user"]), st.text(max_size=40)), min_size=1, max_size=12),
    st.text(max_size=60),
    st.sampled_from(["", "s"]),
    st.data(),
)
def test_parts_add_up_to_the_score(turns: list[tuple[str, str]], text: str, session: str, data: st.DataObject):
    unit = st.floats(-1, 1)
    meaning = data.draw(st.lists(unit | st.just(float("nan")), min_size=len(turns), max_size=len(turns)))
    words = data.draw(st.lists(st.floats(0, 30), min_size=len(turns), max_size=len(turns)))
    ranked = rank_turns(text, turns, session=session, meaning=meaning, words=words)
    assert len({place for place, _ in ranked}) == len(ranked)
    scores = [candidate.score for _, candidate in ranked]
    assert all(score > next_score - 1e-5 for score, next_score in itertools.pairwise(scores))
    for _, candidate in ranked:
        assert candidate.reason
        assert all(0 <= part.value <= 1 and part.weight >= 0 for part in candidate.parts)
        assert candidate.score == pytest.approx(sum(part.value * part.weight for part in candidate.parts))
        assert -1e-6 <= candidate.score <= 1 + 1e-6
