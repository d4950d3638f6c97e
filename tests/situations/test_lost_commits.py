"""Commits that no branch holds, and those that only seem so."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

ROUND = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}


@pytest.mark.long
def test_commits_on_a_detached_head(monday: Situation) -> None:
    monday.shop()
    monday.git("checkout", "-q", "--detach", days_ago=1)
    monday.commit("Try tax", {"tax.py": "RATE = 7\n"}, days_ago=0.5)
    tip = monday.commit("Use tax", {"tax.py": "RATE = 19\n"}, days_ago=0.4)

    first = monday.first()
    assert (first.kind, first.tier) == ("lost_commits", Tier.BROKEN)
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
    monday.shop()
    tip = monday.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=2)
    monday.git("reset", "-q", "--hard", "HEAD~1", days_ago=1)
    first = monday.first()
    assert first.kind == "lost_commits"
    assert first.reasoning == "“Invoices” is on no branch any more, left yesterday 09:30."
    monday.approve(first)
    assert monday.git("branch", "--contains", tip).strip() == f"rescued-{tip[:10]}"


def test_a_branch_that_was_deleted(monday: Situation) -> None:
    monday.shop()
    monday.git("checkout", "-q", "-b", "idee/größe", days_ago=3)
    monday.commit("An idea", {"idea.py": "def idea():\n    return 42\n"}, days_ago=2)
    monday.git("checkout", "-q", "main", days_ago=1)
    monday.git("branch", "-q", "-D", "idee/größe")
    assert monday.first().kind == "lost_commits"


def amended(monday: Situation) -> None:
    monday.write("cart.py", ROUND["cart.py"])
    monday.git("commit", "-qa", "--amend", "-m", "Another name", days_ago=0.2)


def rebased(monday: Situation) -> None:
    monday.git("checkout", "-q", "-b", "feature", "HEAD~1", days_ago=0.9)
    monday.commit("Feature", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    monday.git("rebase", "-q", "main", days_ago=0.7)


def squashed(monday: Situation) -> None:
    monday.commit("More", {"more.py": "def more():\n    return 'more of it'\n"}, days_ago=0.8)
    monday.git("reset", "-q", "--soft", "HEAD~2", days_ago=0.7)
    monday.git("commit", "-qm", "Both at once", days_ago=0.6)


def squash_merged(monday: Situation) -> None:
    monday.git("checkout", "-q", "-b", "feature", days_ago=0.9)
    monday.commit("Part one", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    monday.commit("Part two", {"other.py": "def other():\n    return None\n"}, days_ago=0.7)
    monday.git("checkout", "-q", "main", days_ago=0.6)
    monday.git("merge", "-q", "--squash", "feature", days_ago=0.6)
    monday.git("commit", "-qm", "Feature (#1)", days_ago=0.6)
    monday.git("branch", "-q", "-D", "feature", days_ago=0.5)
    monday.commit("Feature goes on", {"other.py": "def other():\n    return None  # yet\n"}, days_ago=0.4)


def autosquashed(monday: Situation) -> None:
    monday.commit("fixup! Invoices", {"bill.py": "def bill(cart):\n    return round(cart.total)\n"}, days_ago=0.8)
    monday.git("-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", "HEAD~2", days_ago=0.7)


def left_to_be_done_again(monday: Situation) -> None:
    monday.git("reset", "-q", "HEAD~1", days_ago=0.7)


def checked_out_from_others(monday: Situation) -> None:
    monday.git("-c", "user.name=X", "-c", "user.email=x@example.org", "commit", "-q", "--allow-empty", "-m", "Theirs")
    theirs = monday.git("rev-parse", "HEAD")
    monday.git("reset", "-q", "--hard", "HEAD~1")
    (monday.path / ".git/logs/HEAD").unlink()
    (monday.path / ".git/logs/refs/heads/main").unlink()
    monday.git("checkout", "-q", "--detach", theirs)


@pytest.mark.long
@pytest.mark.parametrize(
    "rewrite",
    [
        amended, rebased, squashed, squash_merged, autosquashed, left_to_be_done_again, checked_out_from_others,
    ],
)  # fmt: skip
def test_what_was_rewritten_is_not_lost(monday: Situation, rewrite: object) -> None:
    monday.shop()
    monday.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=1)
    assert callable(rewrite)
    rewrite(monday)
    assert "lost_commits" not in monday.kinds()


def test_what_was_left_long_ago_is_let_go(monday: Situation) -> None:
    monday.shop(days_ago=60)
    monday.commit("Invoices", {"bill.py": "x = 'something'\n"}, days_ago=50)
    monday.git("reset", "-q", "--hard", "HEAD~1", days_ago=40)
    assert "lost_commits" not in monday.kinds()
