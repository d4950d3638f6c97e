"""The ranking of a recall (SPEC 4.4): how a question is read, what puts a candidate before others, and which candidates
are relevant."""

import itertools
import math
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.question import MONTH_FIT, OTHER_DAY_FIT, parse_question
from engine.memory.ranking import (
    MIN_RELEVANCE,
    Feature,
    RankedCandidate,
    add_text_features,
    rank,
    select_candidates,
)
from engine.memory.store import MemoryRow

NOW = datetime(2025, 6, 15, 12, tzinfo=UTC)
LONG_AGO = "2000-01-01T00:00:00+00:00"


# How a question is read


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


# Which candidates are found, and in which order


def rank_turns(
    text: str, turns: list[tuple[str, str]], *, session: str, meaning: list[float], words: list[float]
) -> list[tuple[int, RankedCandidate]]:
    """Rank turns of (speaker, text) for a question. Returns those that are found, the best first, each with its place
    among the turns. `meaning` and `words` are the scores of the turns; a NaN is a turn without vectors."""
    speakers = [speaker for speaker, _ in turns]
    rows = [MemoryRow(place, speaker, session, LONG_AGO) for place, speaker in enumerate(speakers)]
    previous = {place: place - 1 for place in range(1, len(turns)) if session}
    near = [(value, place, place) for place, value in enumerate(meaning) if not math.isnan(value)]
    question = parse_question(text, set(speakers), now=NOW)
    selection = select_candidates(question, rows, previous, dict(enumerate(words)), sorted(near, reverse=True), NOW)
    places = [row.seq for row in selection.rows]
    texts = [turns[place][1] for place in places]
    candidates = add_text_features(selection, texts, [0.0] * len(places), selection.features[Feature.MEANING].tolist())
    return [(places[ranked.index], ranked) for ranked in rank(candidates)]


@pytest.mark.parametrize("similarity, found", [(MIN_RELEVANCE - 0.01, 0), (MIN_RELEVANCE, 1)])
def test_a_line_that_is_far_and_shares_no_word_is_not_found(similarity: float, found: int):
    assert MIN_RELEVANCE == 0.27
    turns = [("", "quite another matter")]
    assert len(rank_turns("beans", turns, session="", meaning=[similarity], words=[0.0])) == found


def test_lines_of_the_speaker_who_is_asked_about_come_first():
    turns = [("Bob", "beans in pots"), ("Ada", "beans in pots")]
    (place, first), _ = rank_turns("What does Ada grow?", turns, session="", meaning=[0.5, 0.5], words=[0.0, 0.0])
    assert place == 1
    assert "Ada says it" in first.reason


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
