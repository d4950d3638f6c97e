"""What recurs in three sessions, at a cosine of 0.8 (SPEC 6.2)."""

from collections.abc import Sequence

import pytest

from engine.learning.learnings.recurrence import LoadVectors, find_clusters
from engine.model import LearningEntry
from tests.learning.learnings.made_up_entries import make_angle_vectors, make_entry, make_no_vectors

RUN_TESTS = "please run the tests of the whole shopping cart before you hand it over"
PARSER = "decision for the whole of this project and all who work on it we {} the old parser of the shop"
"""Texts so long that one more word, or another one, leaves them near."""


def make_equal_vectors(texts: Sequence[str]) -> list[bytes | None]:
    """All texts are as near as can be."""
    return make_angle_vectors(["a0"] * len(texts))


def cluster_texts(*texts: str, vectors: LoadVectors) -> list[list[LearningEntry]]:
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
    assert len(cluster_texts(*texts, vectors=make_equal_vectors)) == clusters
