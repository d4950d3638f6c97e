"""A branch that is behind, parted from its upstream, or in the way of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.model import Tier
from tests.conftest import Repository
from tests.situations.conftest import Situation

FEATURE = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}
MAIN = {"cart.py": "def total(prices):\n    return sum(price for price in prices)\n"}


def colleague(monday: Situation, bare: Path, files: dict[str, str], branch: str = "main") -> None:
    """Somebody else pushes a commit to the remote, and it is fetched."""
    other = Repository(monday.path.parent / "colleague")
    other.git("init", "-q")
    other.git("fetch", "-q", str(bare), branch)
    other.git("checkout", "-q", "-B", branch, "FETCH_HEAD")
    other.commit("A colleague's change", files, at=monday.at(1))
    other.git("push", "-q", str(bare), branch)
    monday.git("fetch", "-q", "origin")


@pytest.mark.long
def test_a_branch_behind_main_that_would_conflict(monday: Situation) -> None:
    monday.shop()
    monday.git("checkout", "-q", "-b", "rounding")
    monday.commit("Round", FEATURE, days_ago=0.5)
    monday.git("checkout", "-q", "main")
    monday.commit("Sum by a generator", MAIN, days_ago=0.2)
    monday.git("checkout", "-q", "rounding")
    objects = set((monday.path / ".git/objects").rglob("*"))

    first = monday.first()
    assert (first.kind, first.tier) == ("rehearse_merge", Tier.BLOCKS)
    assert first.assignment.prompt == "Rehearse merging main into rounding"
    assert first.reasoning == "main has 1 commit that rounding lacks; merging it conflicts in cart.py."
    assert set((monday.path / ".git/objects").rglob("*")) == objects

    done = monday.approve(first)
    assert done.summary.startswith("Merging main into rounding conflicts in 1 file: cart.py; a rebase stops at ")
    said = monday.transcript(done)
    assert "Sum by a generator" in said
    assert "`git merge main`, or `git rebase main`" in said


@pytest.mark.long
def test_a_base_known_from_the_remote_alone(monday: Situation) -> None:
    monday.shop()
    bare = monday.remote()
    monday.git("checkout", "-q", "-b", "größe", "--no-track", "origin/main")
    monday.git("branch", "-q", "-D", "main")
    monday.commit("Round", FEATURE, days_ago=0.5)
    colleague(monday, bare, {"notes.txt": "new\n"})

    [card] = [card for card in monday.cards() if card.kind == "rehearse_merge"]
    assert card.reasoning == "origin/main has 1 commit that größe lacks; it still merges cleanly."
    done = monday.approve(card)
    assert done.summary.startswith("origin/main merges cleanly into größe, the one test passed")
    assert done.summary.endswith("a rebase of 1 commit would be clean")
    assert done.check is not None


@pytest.mark.long
def test_a_branch_that_parted_from_its_own_upstream(monday: Situation) -> None:
    monday.shop()
    bare = monday.remote()
    monday.commit("Round", FEATURE, days_ago=0.5)
    colleague(monday, bare, MAIN)
    first = monday.first()
    assert first.kind == "rehearse_merge"
    assert first.reasoning == "origin/main has 1 commit that main lacks; merging it conflicts in cart.py."


@pytest.mark.long
def test_nothing_of_your_own_is_no_card(monday: Situation) -> None:
    monday.shop()
    bare = monday.remote()
    colleague(monday, bare, MAIN)
    assert "rehearse_merge" not in monday.kinds()


def test_an_upstream_that_was_rewritten_here_is_no_merge(monday: Situation) -> None:
    monday.shop()
    monday.commit("Round", FEATURE, days_ago=0.5)
    monday.remote()
    monday.write("cart.py", MAIN["cart.py"])
    monday.git("commit", "-qa", "--amend", "-m", "Round, better")
    assert "rehearse_merge" not in monday.kinds()


@pytest.mark.long
def test_branches_that_collide(monday: Situation) -> None:
    monday.shop()
    lines = [f"line_{number} = {number}\n" for number in range(20)]
    monday.commit("Table", {"table.py": "".join(lines)}, days_ago=9)
    for number, (name, changes) in enumerate({"wide": (3, 15), "low": (3,), "high": (15,), "apart": ()}.items()):
        monday.git("checkout", "-q", "-b", name, "main")
        mine = [f"{name} = {at}\n" if at in changes else line for at, line in enumerate(lines)]
        monday.commit(f"Work of {name}", {"table.py": "".join(mine), f"{name}.py": "x = 1\n"}, days_ago=5 - number)
    monday.git("checkout", "-q", "main")

    [card] = [card for card in monday.cards() if card.kind == "forecast_conflicts"]
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Find the order of merging high, wide and low with the least conflict"
    assert card.reasoning == "high, wide and low change the same lines of table.py."
    done = monday.approve(card)
    assert "1 file in conflict" in done.summary
    assert done.summary.startswith("Merge ")
    assert done.summary.endswith("the worst order has 2")


def test_open_branches_that_do_not_touch_each_other_are_no_card(monday: Situation) -> None:
    monday.shop()
    for name in ("one", "two"):
        monday.git("checkout", "-q", "-b", name, "main")
        monday.commit(name, {f"{name}.py": "x = 1\n"}, days_ago=2)
    monday.git("checkout", "-q", "main")
    assert "forecast_conflicts" not in monday.kinds()


def test_a_branch_that_was_squashed_into_main_is_not_behind_it(monday: Situation) -> None:
    monday.shop()
    monday.git("checkout", "-q", "-b", "rounding")
    monday.commit("Round", FEATURE, days_ago=2)
    monday.commit("Notes", {"notes.txt": "a\n"}, days_ago=2)
    monday.git("checkout", "-q", "-b", "other", "main")
    monday.commit("Sum by a generator", MAIN, days_ago=0.2)
    monday.git("checkout", "-q", "main")
    monday.git("merge", "-q", "--squash", "rounding")
    monday.git("commit", "-qm", "Round (#1)", days_ago=1)
    monday.git("checkout", "-q", "rounding")
    assert not {"rehearse_merge", "forecast_conflicts"} & {*monday.kinds()}
