"""Commits that no branch holds, and those that only seem so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

ROUND = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}


@pytest.mark.long
def test_commits_on_a_detached_head(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("--detach", days_ago=1)
    monday.commit("Try tax", {"tax.py": "RATE = 7\n"}, days_ago=0.5)
    tip = monday.commit("Use tax", {"tax.py": "RATE = 19\n"}, days_ago=0.4)

    first = monday.first("lost_commits", Tier.BROKEN)
    assert first.assignment.prompt == "Make a branch for 2 commits that no branch holds"
    assert first.reasoning == (
        "HEAD is detached: 2 commits up to “Use tax” are on no branch, and the next checkout leaves them behind."
    )
    done = monday.approve(first)
    assert done.summary == f"Made rescued-{tip[:10]} (2 commits); to remove it: `git branch -D rescued-{tip[:10]}`"
    assert monday.git("rev-parse", f"rescued-{tip[:10]}") == tip
    assert monday.git("branch", "--show-current") == "", "nothing is checked out"
    assert "lost_commits" not in monday.kinds()


@pytest.mark.long
def test_commits_that_a_reset_left_behind(monday: Situation) -> None:
    monday.commit_shop()
    tip = monday.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=2)
    monday.git("reset", "-q", "--hard", "HEAD~1", days_ago=1)
    first = monday.first("lost_commits")
    assert first.reasoning == "“Invoices” is on no branch any more, left yesterday 09:30."
    monday.approve(first)
    assert monday.git("branch", "--contains", tip).strip() == f"rescued-{tip[:10]}"


def test_a_branch_that_was_deleted(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("-b", "idee/größe", days_ago=3)
    monday.commit("An idea", {"idea.py": "def idea():\n    return 42\n"}, days_ago=2)
    monday.checkout("main", days_ago=1)
    monday.git("branch", "-q", "-D", "idee/größe")
    monday.first("lost_commits")


def amend(monday: Situation) -> None:
    monday.write("cart.py", ROUND["cart.py"])
    monday.git("commit", "-qa", "--amend", "-m", "Another name", days_ago=0.2)


def rebase(monday: Situation) -> None:
    monday.checkout("-b", "feature", "HEAD~1", days_ago=0.9)
    monday.commit("Feature", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    monday.git("rebase", "-q", "main", days_ago=0.7)


def squash(monday: Situation) -> None:
    monday.commit("More", {"more.py": "def more():\n    return 'more of it'\n"}, days_ago=0.8)
    monday.git("reset", "-q", "--soft", "HEAD~2", days_ago=0.7)
    monday.git("commit", "-qm", "Both at once", days_ago=0.6)


def squash_merge(monday: Situation) -> None:
    monday.checkout("-b", "feature", days_ago=0.9)
    monday.commit("Part one", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    monday.commit("Part two", {"other.py": "def other():\n    return None\n"}, days_ago=0.7)
    monday.checkout("main", days_ago=0.6)
    monday.git("merge", "-q", "--squash", "feature", days_ago=0.6)
    monday.git("commit", "-qm", "Feature (#1)", days_ago=0.6)
    monday.git("branch", "-q", "-D", "feature", days_ago=0.5)
    monday.commit("Feature goes on", {"other.py": "def other():\n    return None  # yet\n"}, days_ago=0.4)


def autosquash(monday: Situation) -> None:
    monday.commit("fixup! Invoices", {"bill.py": "def bill(cart):\n    return round(cart.total)\n"}, days_ago=0.8)
    monday.git("-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", "HEAD~2", days_ago=0.7)


def reset_to_redo(monday: Situation) -> None:
    monday.git("reset", "-q", "HEAD~1", days_ago=0.7)


def checkout_from_others(monday: Situation) -> None:
    monday.git("-c", "user.name=X", "-c", "user.email=x@example.org", "commit", "-q", "--allow-empty", "-m", "Theirs")
    theirs = monday.git("rev-parse", "HEAD")
    monday.git("reset", "-q", "--hard", "HEAD~1")
    (monday.path / ".git/logs/HEAD").unlink()
    (monday.path / ".git/logs/refs/heads/main").unlink()
    monday.checkout("--detach", theirs)


@pytest.mark.long
@pytest.mark.parametrize(
    "rewrite",
    [amend, rebase, squash, squash_merge, autosquash, reset_to_redo, checkout_from_others],
)
def test_rewritten_commits_are_not_lost(monday: Situation, rewrite: Callable[[Situation], None]) -> None:
    monday.commit_shop()
    monday.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=1)
    rewrite(monday)
    assert "lost_commits" not in monday.kinds()


def test_commits_left_long_ago_are_no_card(monday: Situation) -> None:
    monday.commit_shop(days_ago=60)
    monday.commit("Invoices", {"bill.py": "x = 'something'\n"}, days_ago=50)
    monday.git("reset", "-q", "--hard", "HEAD~1", days_ago=40)
    assert "lost_commits" not in monday.kinds()
