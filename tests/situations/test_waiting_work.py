"""Work that waits for days: files in no commit, commits that nobody has (SPEC 2.9)."""

import pytest

from engine.model import Tier
from tests.situations.situation import HARMLESS_TOTAL, RIGHT_TOTAL, Situation


@pytest.mark.long
def test_changes_of_last_week_are_in_no_commit(pushed: Situation):
    pushed.write("cart.py", "def total(prices):\n    return sum(prices) or 0\n", days_ago=4)
    pushed.write("price list.py", "def price(name):\n    return 1\n", days_ago=3.5)
    pushed.write(
        "tests/test_cart.py", "def test_total():\n    from cart import total\n    assert not total([])\n", days_ago=3
    )
    pushed.write("README.md", "# Shop\n", days_ago=3)

    card = pushed.predict_top_card(
        "waiting_work", Tier.BLOCKS, "Look at what is not committed yet: README.md, cart.py, price list.py and 1 more"
    )
    assert card.reasoning == "4 files changed since 1 January are in no commit."
    session = pushed.approve(card)
    assert session.summary == "4 files not committed; could be 3 commits: cart, documentation and price list"
    assert "git add -- cart.py tests/test_cart.py && git commit" in pushed.read_transcript(session)
    assert session.next_step == "run_tests"
    assert pushed.git("status", "--porcelain").count("\n") == 3  # it only looked


def test_commits_that_were_never_pushed_are_named(pushed: Situation):
    pushed.git("switch", "-q", "-c", "faster", "--no-track")
    pushed.commit("Faster", {"cart.py": HARMLESS_TOTAL}, days_ago=5)
    assert (
        pushed.approve(pushed.predict_top_card("waiting_work", prompt="Look through the commit to push")).summary
        == "1 unpushed commit, nothing that should not be pushed"
    )


def test_commits_without_a_remote_logs_and_work_of_yesterday_are_no_card(shop: Situation):
    shop.commit("Faster", {"cart.py": HARMLESS_TOTAL}, days_ago=5)  # no remote
    shop.write("out.log", "x\n", days_ago=9)
    shop.write(".idea/shop.xml", "x\n", days_ago=9)
    shop.write("cart.py", RIGHT_TOTAL, days_ago=1)  # of yesterday
    assert "waiting_work" not in shop.predict_kinds()
