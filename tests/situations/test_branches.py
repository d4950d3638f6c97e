"""Branches that are behind their base, or that collide, become cards that rehearse the merge (SPEC 2.11)."""

from pathlib import Path

import pytest

from engine.model import Tier
from tests.situations.situation import ROUNDED_TOTAL, Situation
from tests.support.repository import Repository

pytestmark = pytest.mark.long

ROUNDING = {"cart.py": ROUNDED_TOTAL}
GENERATOR = {"cart.py": "def total(prices):\n    return sum(price for price in prices)\n"}
"""Two changes of the same line."""


def push_as_colleague(situation: Situation, bare: Path, files: dict[str, str]):
    """Push a commit of somebody else to the remote, and fetch it."""
    colleague = Repository(situation.path.parent / "colleague")
    colleague.git("init", "-q")
    colleague.git("fetch", "-q", str(bare), "main")
    colleague.git("checkout", "-q", "-B", "main", "FETCH_HEAD")
    colleague.commit("A colleague's change", files, at=situation.get_time(1))
    colleague.git("push", "-q", str(bare), "main")
    situation.git("fetch", "-q", "origin")


def test_a_branch_behind_main_is_rehearsed_with_its_conflict(shop: Situation):
    shop.checkout("-b", "rounding")
    shop.commit("Round", ROUNDING, days_ago=0.5)
    shop.checkout("main")
    shop.commit("Sum by a generator", GENERATOR, days_ago=0.2)
    shop.checkout("rounding")
    objects = set((shop.path / ".git/objects").rglob("*"))

    card = shop.predict_top_card("rehearse_merge", Tier.BLOCKS, "Rehearse merging main into rounding")
    assert card.reasoning == "main has 1 commit that rounding lacks; merging it conflicts in cart.py."
    assert set((shop.path / ".git/objects").rglob("*")) == objects

    session = shop.approve(card)
    assert session.summary.startswith("Merging main into rounding conflicts in 1 file: cart.py; a rebase stops at ")
    transcript = shop.read_transcript(session)
    assert "Sum by a generator" in transcript
    assert "`git merge main`, or `git rebase main`" in transcript

    shop.approve(shop.propose("summarise_day"))
    assert "rehearse_merge" not in shop.predict_kinds()
    problem = "merging main into rounding still conflicts in cart.py"
    assert shop.problem == problem, "other work has run since"
    shop.git("merge", "-q", "-s", "ours", "main")
    shop.predict_cards()
    assert shop.problem == ""


def test_a_branch_that_parted_from_its_upstream_is_rehearsed_with_it(shop: Situation):
    bare = shop.add_remote()
    shop.commit("Round", ROUNDING, days_ago=0.5)
    push_as_colleague(shop, bare, GENERATOR)
    card = shop.predict_top_card("rehearse_merge")
    assert card.reasoning == "origin/main has 1 commit that main lacks; merging it conflicts in cart.py."


def test_branches_that_change_the_same_lines_are_ordered(shop: Situation):
    lines = [f"line_{number} = {number}\n" for number in range(20)]
    shop.commit("Table", {"table.py": "".join(lines)}, days_ago=9)
    changed_lines = {"wide": (3, 15), "low": (3,), "high": (15,), "apart": ()}
    for days_ago, (branch, changed) in zip((5, 4, 3, 2), changed_lines.items(), strict=True):
        shop.checkout("-b", branch, "main")
        table = "".join(f"{branch} = {at}\n" if at in changed else line for at, line in enumerate(lines))
        shop.commit(f"Work of {branch}", {"table.py": table, f"{branch}.py": "x = 1\n"}, days_ago=days_ago)
    shop.checkout("main")

    card = shop.predict_card(
        "forecast_conflicts", Tier.BLOCKS, "Find the order of merging high, wide and low with the least conflict"
    )
    assert card.reasoning == "high, wide and low change the same lines of table.py."
    session = shop.approve(card)
    assert "1 conflict" in session.summary
    assert session.summary.startswith("Merge ")
    assert session.summary.endswith("the worst order has 2")
