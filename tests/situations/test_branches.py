"""A branch that is behind, parted from its upstream, or in the way of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.model import Tier
from tests.conftest import Repository
from tests.situations.conftest import Situation

FEATURE = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}
MAIN = {"cart.py": "def total(prices):\n    return sum(price for price in prices)\n"}


def push_as_colleague(monday: Situation, bare: Path, files: dict[str, str]) -> None:
    """Push a commit of somebody else to the remote, and fetch it."""
    other = Repository(monday.path.parent / "colleague")
    other.git("init", "-q")
    other.git("fetch", "-q", str(bare), "main")
    other.git("checkout", "-q", "-B", "main", "FETCH_HEAD")
    other.commit("A colleague's change", files, at=monday.at(1))
    other.git("push", "-q", str(bare), "main")
    monday.git("fetch", "-q", "origin")


@pytest.mark.long
def test_a_branch_behind_main_that_would_conflict(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("-b", "rounding")
    monday.commit("Round", FEATURE, days_ago=0.5)
    monday.checkout("main")
    monday.commit("Sum by a generator", MAIN, days_ago=0.2)
    monday.checkout("rounding")
    objects = set((monday.path / ".git/objects").rglob("*"))

    first = monday.first("rehearse_merge", Tier.BLOCKS)
    assert first.assignment.prompt == "Rehearse merging main into rounding"
    assert first.reasoning == "main has 1 commit that rounding lacks; merging it conflicts in cart.py."
    assert set((monday.path / ".git/objects").rglob("*")) == objects

    done = monday.approve(first)
    assert done.summary.startswith("Merging main into rounding conflicts in 1 file: cart.py; a rebase stops at ")
    transcript = monday.transcript(done)
    assert "Sum by a generator" in transcript
    assert "`git merge main`, or `git rebase main`" in transcript


@pytest.mark.long
def test_a_base_known_from_the_remote_alone(monday: Situation) -> None:
    monday.commit_shop()
    bare = monday.add_remote()
    monday.checkout("-b", "größe", "--no-track", "origin/main")
    monday.git("branch", "-q", "-D", "main")
    monday.commit("Round", FEATURE, days_ago=0.5)
    push_as_colleague(monday, bare, {"notes.txt": "new\n"})

    card = monday.card("rehearse_merge")
    assert card.reasoning == "origin/main has 1 commit that größe lacks; it still merges cleanly."
    done = monday.approve(card)
    assert done.summary.startswith("origin/main merges cleanly into größe, the one test passed")
    assert done.summary.endswith("a rebase of 1 commit would be clean")
    assert done.check is not None


@pytest.mark.long
def test_a_branch_that_parted_from_its_own_upstream(monday: Situation) -> None:
    monday.commit_shop()
    bare = monday.add_remote()
    monday.commit("Round", FEATURE, days_ago=0.5)
    push_as_colleague(monday, bare, MAIN)
    first = monday.first("rehearse_merge")
    assert first.reasoning == "origin/main has 1 commit that main lacks; merging it conflicts in cart.py."


@pytest.mark.long
def test_nothing_of_your_own_is_no_card(monday: Situation) -> None:
    monday.commit_shop()
    bare = monday.add_remote()
    push_as_colleague(monday, bare, MAIN)
    assert "rehearse_merge" not in monday.kinds()


def test_an_upstream_that_was_rewritten_here_is_no_merge(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Round", FEATURE, days_ago=0.5)
    monday.add_remote()
    monday.write("cart.py", MAIN["cart.py"])
    monday.git("commit", "-qa", "--amend", "-m", "Round, better")
    assert "rehearse_merge" not in monday.kinds()


@pytest.mark.long
def test_branches_that_collide(monday: Situation) -> None:
    monday.commit_shop()
    lines = [f"line_{number} = {number}\n" for number in range(20)]
    monday.commit("Table", {"table.py": "".join(lines)}, days_ago=9)
    for number, (name, changes) in enumerate({"wide": (3, 15), "low": (3,), "high": (15,), "apart": ()}.items()):
        monday.checkout("-b", name, "main")
        mine = [f"{name} = {at}\n" if at in changes else line for at, line in enumerate(lines)]
        monday.commit(f"Work of {name}", {"table.py": "".join(mine), f"{name}.py": "x = 1\n"}, days_ago=5 - number)
    monday.checkout("main")

    card = monday.card("forecast_conflicts")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Find the order of merging high, wide and low with the least conflict"
    assert card.reasoning == "high, wide and low change the same lines of table.py."
    done = monday.approve(card)
    assert "1 file in conflict" in done.summary
    assert done.summary.startswith("Merge ")
    assert done.summary.endswith("the worst order has 2")


def test_open_branches_that_do_not_touch_each_other_are_no_card(monday: Situation) -> None:
    monday.commit_shop()
    for name in ("one", "two"):
        monday.checkout("-b", name, "main")
        monday.commit(name, {f"{name}.py": "x = 1\n"}, days_ago=2)
    monday.checkout("main")
    assert "forecast_conflicts" not in monday.kinds()


def test_a_branch_that_was_squashed_into_main_is_not_behind_it(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("-b", "rounding")
    monday.commit("Round", FEATURE, days_ago=2)
    monday.commit("Notes", {"notes.txt": "a\n"}, days_ago=2)
    monday.checkout("-b", "other", "main")
    monday.commit("Sum by a generator", MAIN, days_ago=0.2)
    monday.checkout("main")
    monday.git("merge", "-q", "--squash", "rounding")
    monday.git("commit", "-qm", "Round (#1)", days_ago=1)
    monday.checkout("rounding")
    assert not {"rehearse_merge", "forecast_conflicts"} & {*monday.kinds()}
