"""Lessons: the rule in a sentence, whether it generalises, and its identity (SPEC 6.8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lessons import distil_rule, find_added_sentences, make_lesson_id, remove_lessons, split_sentences
from tests.support import read_table

ROWS = read_table(__file__)


@pytest.mark.parametrize("sentence", ROWS["general"])
def test_a_sentence_about_a_kind_of_thing_generalises(sentence: str):
    assert distil_rule(sentence).is_general, distil_rule(sentence).why


@pytest.mark.parametrize("sentence", ROWS["single"])
def test_an_order_about_one_thing_does_not_generalise(sentence: str):
    assert not distil_rule(sentence).is_general, distil_rule(sentence).why


@pytest.mark.parametrize("sentence, rule", ROWS["introductions"])
def test_a_rule_is_the_sentence_without_its_introduction(sentence: str, rule: str):
    assert distil_rule(sentence).text == rule
    assert make_lesson_id(sentence) == make_lesson_id(rule)


@given(st.text(max_size=80))
def test_a_rule_is_its_own_rule_and_has_the_id_of_its_sentence(text: str):
    rule = distil_rule(text)
    assert distil_rule(rule.text).text == rule.text
    assert make_lesson_id(rule.text) == make_lesson_id(text)


def test_added_sentences_are_listed_one_by_one():
    edited = "Please. Write the docs. Docs end with a full stop. And keep summaries short"
    assert find_added_sentences("Write the docs", edited) == ["Docs end with a full stop.", "And keep summaries short"]
    assert find_added_sentences("Fix cart.py", "Fix cart.py, and add a test") == ["and add a test"]
    assert [rule.text for rule in map(distil_rule, split_sentences(edited))] == [
        "Write the docs",
        "Docs end with a full stop",
        "keep summaries short",
    ]


@pytest.mark.parametrize("text, remaining", ROWS["removed"])
def test_only_the_sentences_of_a_lesson_are_removed(text: str, remaining: str):
    assert remove_lessons(text, frozenset({make_lesson_id("docs end with a full stop")})) == remaining
    assert remove_lessons(text, frozenset()) == text
