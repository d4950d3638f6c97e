"""Lessons: the rule in a sentence, whether it generalises, and its identity (SPEC 6.8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.learnings import (
    distil_rule,
    find_added_sentences,
    find_topics,
    make_lesson_id,
    remove_lessons,
    split_sentences,
)


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
def test_a_sentence_about_a_kind_of_thing_generalises(sentence: str):
    assert distil_rule(sentence).general, distil_rule(sentence).why


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
def test_an_order_about_one_thing_does_not_generalise(sentence: str):
    assert not distil_rule(sentence).general, distil_rule(sentence).why


@pytest.mark.parametrize(
    "sentence, rule",
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
def test_a_rule_is_the_sentence_without_its_introduction(sentence: str, rule: str):
    assert distil_rule(sentence).text == rule
    assert make_lesson_id(sentence) == make_lesson_id(rule)


@given(st.text(max_size=80))
def test_a_rule_is_its_own_rule_and_has_the_id_of_its_sentence(text: str):
    rule = distil_rule(text)
    assert distil_rule(rule.text).text == rule.text
    assert make_lesson_id(rule.text) == make_lesson_id(text)


def test_added_sentences_are_listed_one_by_one():
    edited = "Write the docs. Docs end with a full stop. And keep summaries short"
    assert find_added_sentences("Write the docs", edited) == ["Docs end with a full stop.", "And keep summaries short"]
    assert [rule.text for rule in map(distil_rule, split_sentences(edited))] == [
        "Write the docs",
        "Docs end with a full stop",
        "keep summaries short",
    ]


def test_topics_are_those_of_the_text_and_of_the_work():
    assert find_topics("docs end with a full stop", "code, builds, tests") == "documentation code builds tests"
    assert find_topics("be kind") == ""


@pytest.mark.parametrize(
    "text, remaining",
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
def test_only_the_sentences_of_a_lesson_are_removed(text: str, remaining: str):
    assert remove_lessons(text, frozenset({make_lesson_id("docs end with a full stop")})) == remaining
    assert remove_lessons(text, frozenset()) == text
