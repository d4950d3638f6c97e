"""Entries that recur in three distinct sessions, at a cosine of 0.8 (SPEC 6.2), in whatever order they are read."""

import pytest

from engine.learning.learnings.recurrence import Vectors, find_clusters, find_names, find_sides
from engine.model import LearningEntry
from tests.learning.learnings.made_up_entries import make_angle_vectors, make_entry, make_no_vectors, make_word_vectors

RUN_TESTS = "please run the tests of the whole shopping cart before you hand it over"
PARSER = "decision for the whole of this project and all who work on it we {} the old parser of the shop"
"""Texts so long that one more word, or another one, leaves them near."""


def cluster_texts(*texts: str, vectors: Vectors = make_word_vectors) -> list[list[LearningEntry]]:
    """The clusters of these texts, each from a session of its own."""
    return find_clusters([make_entry(text, f"s{number}") for number, text in enumerate(texts)], vectors)


def test_a_cluster_has_three_distinct_sessions():
    twice = [make_entry("use uv", "s1"), make_entry("use uv", "s2")]
    assert find_clusters(twice, make_no_vectors) == []
    assert find_clusters([*twice, make_entry("Use uv!", "s2", id="lrn_again")], make_no_vectors) == []
    (cluster,) = find_clusters([*twice, make_entry("use UV.", "s3")], make_no_vectors)
    assert {entry.session_id for entry in cluster} == {"s1", "s2", "s3"}


@pytest.mark.parametrize("angle, clusters", [("a36x86", 1), ("a36x88", 0)], ids=["0.80010", "0.79989"])
def test_the_threshold_is_a_cosine_of_four_fifths(angle: str, clusters: int):
    assert len(cluster_texts("a0 one", "a0 two", f"{angle} three", vectors=make_angle_vectors)) == clusters


def test_findings_of_rules_are_the_same_if_they_are_about_the_same():
    text = "a test breaks here unnoticed, run it before handing over"
    about_one = [make_entry(f"{text} {number}", f"s{number}", about="healed/tests/a.py") for number in range(3)]
    about_many = [
        make_entry(f"{text} {number}", f"s{number}", about=f"healed/tests/{number}.py") for number in range(3)
    ]
    (cluster,) = find_clusters([*about_one, *about_many], make_word_vectors)
    assert {member.about for member in cluster} == {"healed/tests/a.py"}


@pytest.mark.parametrize(
    "texts, clusters",
    [
        ([f"{RUN_TESTS} {name}" for name in ("tests/cart.py", "tests/user.py", "tests/till.py")], 0),
        ([RUN_TESTS, RUN_TESTS, f"never {RUN_TESTS}"], 0),
        ([RUN_TESTS, RUN_TESTS, f"always {RUN_TESTS}"], 1),
        ([PARSER.format("keep"), PARSER.format("keep") + " now", PARSER.format("drop")], 0),
        ([PARSER.format("keep"), PARSER.format("keep") + " now", PARSER.format("retain")], 1),
    ],
    ids=["different files", "negated", "not negated", "opposite", "synonym"],
)
def test_different_names_negations_and_opposites_are_not_the_same_however_near(texts: list[str], clusters: int):
    assert len(cluster_texts(*texts)) == clusters


def test_a_text_with_both_opposites_or_none_is_on_no_side():
    assert [any(find_sides(text)[:-1]) for text in ("keep it", "keep it or drop it", "it")] == [True, False, False]


def test_names_are_files_tests_options_and_numbers():
    text = "run tests/a.py::test_b with --fast on port 8080, e.g. twice and/or in 3 goes"
    assert find_names(text) == {"tests/a.py::test_b", "--fast", "8080"}


def test_the_same_words_with_other_names_are_not_the_same():
    texts = ("Run it with --fast.", "Run it with fast.", "Run it with -fast.")
    entries = [make_entry(text, session=f"s{number}") for number, text in enumerate(texts)]
    assert find_clusters(entries, lambda texts: [None] * len(texts)) == []
