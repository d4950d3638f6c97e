"""Fixup commits not yet squashed, stashes and branches that were left."""

from __future__ import annotations

import shutil

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

ROUND = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}


@pytest.mark.long
def test_fixup_commits_are_squashed_in_rehearsal(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Round the total", ROUND, days_ago=0.9)
    monday.commit("Notes", {"notes.txt": "a\n"}, days_ago=0.8)
    monday.commit("fixup! Round the total", {"cart.py": ROUND["cart.py"].replace("2", "3")}, days_ago=0.7)
    monday.commit("squash! Notes", {"notes.txt": "a\nb\n"}, days_ago=0.6)
    head = monday.git("rev-parse", "HEAD")

    card = monday.card("autosquash")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Rehearse squashing 2 fixup commits into “Notes” and “Round the total”"
    done = monday.approve(card)
    onto = monday.git("rev-parse", "--short=10", "origin/main")
    assert done.summary.startswith("The autosquash is clean: 4 commits would become 2, with the same files at the end")
    assert done.summary.endswith(f"to do it: `git -c sequence.editor=: rebase -i --autosquash {onto}`")
    assert monday.git("rev-parse", "HEAD") == head

    monday.git("-c", "sequence.editor=:", "-c", "core.editor=:", "rebase", "-q", "-i", "--autosquash", onto)
    assert not {"autosquash", "lost_commits"} & {*monday.kinds()}


@pytest.mark.long
def test_a_fixup_that_conflicts_on_the_way(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Table", {"table.txt": "one\n"}, days_ago=3)
    monday.commit("Other", {"table.txt": "two\n"}, days_ago=2)
    monday.commit("fixup! Table", {"table.txt": "three\n"}, days_ago=1)
    card = monday.card("autosquash")
    done = monday.approve(card)
    assert done.summary.startswith("The autosquash stops at ")
    assert done.summary.endswith(" in table.txt")


def test_fixups_that_are_pushed_are_left_alone(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Round the total", ROUND, days_ago=0.9)
    monday.commit("fixup! Round the total", {"notes.txt": "a\n"}, days_ago=0.7)
    monday.add_remote()
    assert "autosquash" not in monday.kinds()


@pytest.mark.long
def test_stashes_of_three_weeks_ago(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", ROUND["cart.py"])
    monday.git("stash", "push", "-q", "-m", "rounding", days_ago=22)
    monday.write("größe neu.txt", "a\n")
    monday.git("stash", "push", "-q", "-u", days_ago=21)
    monday.commit("Round the total", ROUND, days_ago=20)
    assert monday.git("stash", "list").count("\n") == 1

    card = monday.card("old_stash")
    assert card.tier is Tier.UPKEEP
    assert card.assignment.prompt == "Look at 2 old stashes: what is in them, and do they still apply?"
    assert card.reasoning == (
        "“rounding” made on main with cart.py has been waiting since 14 December 2025, and 1 other older than two "
        "weeks."
    )
    done = monday.approve(card)
    assert "stash@{1} (rounding): already in HEAD" in done.summary
    assert "stash@{0} (" in done.summary
    assert ": still applies" in done.summary
    assert "`git stash drop stash@{1}`" in monday.transcript(done)
    assert monday.git("stash", "list").count("\n") == 1, "the stashes stay"


def test_a_stash_of_last_week_is_no_card(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", ROUND["cart.py"])
    monday.git("stash", days_ago=6)
    assert "old_stash" not in monday.kinds()


@pytest.mark.long
def test_merged_and_stale_branches_but_not_the_checked_out(monday: Situation) -> None:
    monday.commit_shop(days_ago=90)
    for name in ("done", "elsewhere"):
        monday.git("branch", "-q", name)
    monday.git("worktree", "add", "-q", str(monday.path.parent / "elsewhere"), "elsewhere")
    monday.checkout("-b", "old", days_ago=60)
    monday.commit("Old idea", {"old.py": "x = 1\n"}, days_ago=60)
    monday.checkout("main")
    monday.commit("Now", {"now.py": "x = 1\n"}, days_ago=1)
    monday.run_tests()

    card = monday.card("report_branches")
    assert card.assignment.prompt == "List 1 merged branch and 1 stale branch, with the commands that delete them"
    assert card.reasoning.startswith("done and old: ")
    done = monday.approve(card)
    transcript = monday.transcript(done)
    assert "git branch -d -- done" in transcript
    assert "git branch -d -- elsewhere" not in transcript
    shutil.rmtree(monday.path.parent / "elsewhere")
