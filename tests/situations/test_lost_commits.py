"""Commits that no branch holds are at risk, and get one (SPEC 2.11).

Rewritten commits are not lost: each helper rewrites the commit “Invoices”.
"""

from collections.abc import Callable

import pytest

from engine.model import Tier
from tests.situations.situation import ROUNDED_TOTAL, Situation

pytestmark = pytest.mark.long


def amend(situation: Situation):
    situation.write("cart.py", ROUNDED_TOTAL)
    situation.git("commit", "-qa", "--amend", "-m", "Another name", days_ago=0.2)


def rebase(situation: Situation):
    situation.checkout("-b", "feature", "HEAD~1", days_ago=0.9)
    situation.commit("Feature", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    situation.git("rebase", "-q", "main", days_ago=0.7)


def squash(situation: Situation):
    situation.commit("More", {"more.py": "def more():\n    return 'more of it'\n"}, days_ago=0.8)
    situation.git("reset", "-q", "--soft", "HEAD~2", days_ago=0.7)
    situation.git("commit", "-qm", "Both at once", days_ago=0.6)


def autosquash(situation: Situation):
    situation.commit("fixup! Invoices", {"bill.py": "def bill(cart):\n    return round(cart.total)\n"}, days_ago=0.8)
    situation.git("-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", "HEAD~2", days_ago=0.7)


def reset_and_keep_files(situation: Situation):
    situation.git("reset", "-q", "HEAD~1", days_ago=0.7)


def test_commits_on_a_detached_head_are_kept_in_a_branch(shop: Situation):
    shop.checkout("--detach", days_ago=1)
    shop.commit("Try tax", {"tax.py": "RATE = 7\n"}, days_ago=0.5)
    tip = shop.commit("Use tax", {"tax.py": "RATE = 19\n"}, days_ago=0.4)

    card = shop.predict_top_card("lost_commits", Tier.AT_RISK, "Make a branch for 2 commits that no branch holds")
    assert card.reasoning == (
        "HEAD is detached: 2 commits up to “Use tax” are on no branch, and the next checkout leaves them behind."
    )
    session = shop.approve(card)
    assert session.summary == f"Made rescued-{tip[:10]} (2 commits); to remove it: `git branch -D rescued-{tip[:10]}`"
    assert shop.git("rev-parse", f"rescued-{tip[:10]}") == tip
    assert shop.git("branch", "--show-current") == "", "nothing is checked out"
    assert "lost_commits" not in shop.predict_kinds()


def test_commits_that_a_reset_left_are_found(shop: Situation):
    tip = shop.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=2)
    shop.git("reset", "-q", "--hard", "HEAD~1", days_ago=1)
    card = shop.predict_top_card("lost_commits")
    assert card.reasoning == "“Invoices” is on no branch any more, left yesterday 09:30."
    shop.approve(card)
    assert shop.git("branch", "--contains", tip).strip() == f"rescued-{tip[:10]}"


@pytest.mark.parametrize("rewrite", [amend, rebase, squash, autosquash, reset_and_keep_files])
def test_rewritten_commits_are_not_lost(shop: Situation, rewrite: Callable[[Situation], None]):
    shop.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=1)
    rewrite(shop)
    assert "lost_commits" not in shop.predict_kinds()
