"""Lessons: the rule in a sentence, whether it generalises, and its identity (SPEC 6.8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Pattern
from engine.model.lessons import added_sentences, distil, distil_rules, lesson_id, remove_lessons, topics_of


@pytest.mark.parametrize(
    "sentence",
    [
        "Docs end with a full stop.",
        "Always run the tests before you hand over",
        "Never touch the changelog by hand",
        "We decided to use uv for dependencies",
        "Decision: we keep the old parser for good",
        "Every public function has a docstring",
        "Keep summaries short",
        "Use British English",
        "A bug gets a failing test before it gets a fix",
        "When a test fails, look at the log first",
        "Before handing over, run the tests",
        "No emoji in commit messages",
        "Write docs in plain English",
        "I prefer tabs",
        "From now on put tests beside the code",
        "Commit messages end without a full stop",
        "Every test names what it checks",
        "All amounts are rounded half up",
        "Before every commit, run lint",
        "Rename files with git mv whenever they are tracked",
        "We no longer use pip",
    ],
)
def test_what_is_said_of_a_kind_of_thing_generalises(sentence: str) -> None:
    assert distil(sentence).general, distil(sentence).why


@pytest.mark.parametrize(
    "sentence",
    [
        "Rename the column total to sum",
        "Use the staging database",
        "Use tabs for this",
        "Also fix test_cart",
        "Run the tests of the cart",
        "Leave the README alone",
        "Write a greeting into hello.txt",
        "Round cart totals",
        "I want the total rounded",
        "Add logging to checkout",
        "Always run this test twice",
        "Do not rename the column",
        "Skip the slow tests today",
        "Draft the changelog with dates in ISO format",
        "Rename all the files in foo/",
        "Update every import of cart",
        "Delete any file that nobody reads",
        "Explain why each of the three tests fails",
        "Each of the three tests fails",
        "All the tests are slow",
        "Before committing the cart, run lint",
        "Bugs are in the cart module",
    ],
)
def test_an_order_about_one_thing_does_not(sentence: str) -> None:
    assert not distil(sentence).general, distil(sentence).why


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Please make sure that docs end with a full stop.", "docs end with a full stop"),
        ("Decision: we agreed to use uv", "use uv"),
        ("From now on, put tests beside the code!", "put tests beside the code"),
        ("No, actually, amounts are whole cents", "amounts are whole cents"),
        ("Keep README.md short", "Keep README.md short"),
        ("You should not use print", "do not use print"),
        ("Please note: you mustn’t use print.", "do not use print"),
        ("You must never use print", "never use print"),
    ],
)
def test_a_rule_is_what_is_left_without_what_leads_up_to_it(sentence: str, rule: str) -> None:
    assert distil(sentence).text == rule
    assert lesson_id(sentence) == lesson_id(rule)


@given(st.text(max_size=80))
def test_a_rule_says_itself_and_has_the_identity_of_its_sentence(text: str) -> None:
    rule = distil(text)
    assert distil(rule.text).text == rule.text
    assert lesson_id(rule.text) == lesson_id(text)


@pytest.mark.parametrize(
    ("original", "edited", "expected"),
    [
        ("Fix it", "Fix it and run the tests", ["and run the tests"]),
        ("Fix it", "fix it.", []),
        ("Fix the cart", "Check the cart", ["Check the cart"]),
        ("Fix it. Be quick", "Be quick", []),
    ],
)
def test_what_goes_on_with_a_sentence_is_told_alone(original: str, edited: str, expected: list[str]) -> None:
    assert added_sentences(original, edited) == expected


def test_what_was_put_in_is_told_sentence_by_sentence() -> None:
    edited = "Write the docs. Docs end with a full stop. And keep summaries short"
    assert added_sentences("Write the docs", edited) == ["Docs end with a full stop.", "And keep summaries short"]
    assert [rule.text for rule in distil_rules(edited)] == [
        "Write the docs",
        "Docs end with a full stop",
        "keep summaries short",
    ]


def test_the_topics_of_a_lesson_are_those_it_names_and_those_of_the_work() -> None:
    assert topics_of("docs end with a full stop", "code, builds, tests") == "documentation code builds tests"
    assert topics_of("be kind") == ""


def test_a_pattern_that_is_named_by_its_lesson_says_its_text_alone() -> None:
    assert Pattern("money_in_cents", "Whole cents").text_with_name == "money_in_cents: Whole cents"
    assert Pattern(lesson_id("Whole cents"), "Whole cents").text_with_name == "Whole cents"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Describe the cart. Docs end with a full stop. Go on", "Describe the cart. Go on"),
        ("task_1: Describe the cart, and docs end with a full stop", "task_1: Describe the cart"),
        ("Docs end with a full stop", ""),
        ("Docs end with a full stop!", ""),
        ("Run lint, and docs end with a full stop. Then go on.", "Run lint. Then go on."),
        ("Run lint. Then go on.", "Run lint. Then go on."),
        ("Docs end with a semicolon, and so on", "Docs end with a semicolon, and so on"),
    ],
)
def test_a_text_loses_what_says_a_lesson_and_no_more(text: str, left: str) -> None:
    assert remove_lessons(text, frozenset({lesson_id("docs end with a full stop")})) == left
    assert remove_lessons(text, frozenset()) == text
