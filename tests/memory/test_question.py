"""How a question is read (SPEC 4.4): its topic, the speakers that it is about, and the dates that it names."""

from datetime import UTC, date, datetime

import pytest

from engine.memory.question import MONTH_FIT, OTHER_DAY_FIT, parse_question

NOW = datetime(2025, 6, 15, 12, tzinfo=UTC)


def test_stop_words_and_names_are_not_searched_for():
    question = parse_question("What did Caroline's mother plant in the garden?", {"Caroline", "Melanie"})
    assert question.words == ("mother", "plant", "garden")
    assert question.speakers == {"caroline"}
    assert question.topic == "What did mother plant in the garden"


@pytest.mark.parametrize("text", ["Where did Ada meet Bob?", "What did I plant?"], ids=["two persons", "first person"])
def test_a_question_that_does_not_name_one_person_is_about_nobody(text: str):
    assert parse_question(text, {"Ada", "Bob"}).speakers == frozenset()


@pytest.mark.parametrize(
    "text, topic",
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
def test_how_a_question_asks_is_no_part_of_its_topic(text: str, topic: str):
    assert parse_question(text).topic == topic


@pytest.mark.parametrize(
    "text, speakers",
    [
        ("What did I plant in May?", {"user"}),
        ("Which work about birds was it?", {"user"}),
        ("What would you suggest for dinner?", {"user"}),
        ("What did you recommend to me for dinner?", {"assistant"}),
        ("Can you give me a summary of my plans for the garden?", {"assistant"}),
    ],
)
def test_with_an_assistant_a_question_is_about_what_the_user_or_it_said(text: str, speakers: set[str]):
    assert parse_question(text, {"user", "assistant"}).speakers == speakers


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


def test_may_and_march_are_months_only_beside_a_date():
    assert parse_question("may I march to the garden?").dates == ()
