"""What recurs in three distinct sessions, at a cosine of 0.8 (SPEC 6.2), in whatever order it is found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.learnings.promotion import is_about_own_tools
from engine.learning.learnings.recurrence import Cluster, find_clusters, find_matches, names, sides
from engine.model import LearningEntry
from tests.learning.learnings.world import Angles, WordMeaning, make_entry, no_vectors, shuffled


def said(found: list[Cluster]) -> list[tuple[str, list[str], tuple[str, ...]]]:
    return [(one.centre.id, [member.id for member in one.members], one.sessions) for one in found]


def test_three_distinct_sessions_and_not_two() -> None:
    twice = [make_entry("use uv", "s1"), make_entry("use uv", "s2")]
    assert find_clusters(twice, no_vectors) == []
    again = [*twice, make_entry("Use uv!", "s2", id="lrn_again")]
    assert find_clusters(again, no_vectors) == []
    (found,) = find_clusters([*twice, make_entry("use UV.", "s3")], no_vectors)
    assert found.sessions == ("s1", "s2", "s3")


def test_the_threshold_is_a_cosine_of_four_fifths() -> None:
    # 36.86° has a cosine of 0.80010, 36.88° one of 0.79989
    def three(last: str) -> list[LearningEntry]:
        return [make_entry("a0 one", "s1"), make_entry("a0 two", "s2"), make_entry(last, "s3")]

    assert len(find_clusters(three("a36x86 three"), Angles().vectors)) == 1
    assert find_clusters(three("a36x88 three"), Angles().vectors) == []


def test_what_a_rule_found_goes_by_what_it_is_about() -> None:
    words = "a test breaks here unnoticed, run it before handing over"
    same = [make_entry(f"{words} {n}", f"s{n}", about="healed/tests/a.py") for n in range(3)]
    other = [make_entry(f"{words} {n}", f"s{n}", about=f"healed/tests/{n}.py") for n in range(3)]
    (found,) = find_clusters([*same, *other], WordMeaning().vectors)
    assert {member.about for member in found.members} == {"healed/tests/a.py"}


def test_other_files_and_the_contrary_are_not_the_same_however_near() -> None:
    near = "please run the tests of the whole shopping cart before you hand it over"
    files = [make_entry(f"{near} {name}", f"s{name}") for name in ("tests/cart.py", "tests/user.py", "tests/till.py")]
    assert find_clusters(files, WordMeaning().vectors) == []
    assert (
        find_clusters(
            [make_entry(near, "s1"), make_entry(near, "s2"), make_entry(f"never {near}", "s3")], WordMeaning().vectors
        )
        == []
    )
    assert (
        len(
            find_clusters(
                [make_entry(near, "s1"), make_entry(near, "s2"), make_entry(f"always {near}", "s3")],
                WordMeaning().vectors,
            )
        )
        == 1
    )
    assert names("run tests/a.py::test_b with --fast on port 8080, e.g. twice and/or in 3 goes") == {
        "tests/a.py::test_b",
        "--fast",
        "8080",
    }


def test_opposites_are_not_the_same_however_near() -> None:
    near = "decision for the whole of this project and all who work on it we {} the old parser of the shop"
    kept = [make_entry(near.format("keep"), "s1"), make_entry(near.format("keep") + " now", "s2")]
    assert find_clusters([*kept, make_entry(near.format("drop"), "s3")], WordMeaning().vectors) == []
    assert len(find_clusters([*kept, make_entry(near.format("retain"), "s3")], WordMeaning().vectors)) == 1
    assert find_matches([make_entry(near.format("drop"), "s3")], kept, WordMeaning().vectors) == {}
    assert set(find_matches([kept[0]], [kept[1]], WordMeaning().vectors)) == {kept[0].id}
    assert [any(sides(text)) for text in ("keep it", "keep it or drop it", "it")] == [True, False, False]


@given(
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 5)), max_size=25),
    st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_order_changes_nothing_and_a_second_look_finds_nothing_new(made: list[tuple[int, int]], seed: int) -> None:
    entries = list({one.id: one for one in (make_entry(f"a{5 * a} w{a}", f"s{s}") for a, s in made)}.values())
    found = find_clusters(entries, Angles().vectors)
    assert said(find_clusters(shuffled(entries, seed), Angles().vectors)) == said(found)
    for one in found:
        assert len(one.sessions) >= 3
        assert len({member.session_id for member in one.members}) == len(one.sessions)
    known = find_matches(entries, [one.centre for one in found], Angles().vectors)
    assert {member.id for one in found for member in one.members} <= set(known)
    assert find_clusters([one for one in entries if one.id not in known], Angles().vectors) == []


# What is about an agent's tools, and what only sounds like it.


@pytest.mark.parametrize(
    ("about", "own"),
    [
        ("erred/edit/not_once: the old text is in the file # times", True),
        ("erred/acp:codex/the connection broke", True),
        ("erred/exec/bad_arguments: exec needs command", True),
        ("erred/exec/exec:ruff check: exit code #", False),
        ("refused/denied/git push origin main", True),
        ("denied/exec/git push origin main", False),
        ("healed/tests/test_cart.py::test_total", False),
    ],
)
def test_of_what_rules_found_they_say_what_it_is_about(about: str, own: bool) -> None:
    assert is_about_own_tools(make_entry("whatever it says", about=about)) is own
