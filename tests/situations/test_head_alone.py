"""Does HEAD pass without what is not committed, and did a commit or your changes break a test? (SPEC 2.10, 2.12)"""

import pytest

from engine.model import SessionView, Source, Tier
from tests.situations.situation import RIGHT_TOTAL, WRONG_TOTAL, Situation


def check_head(shop: Situation, committed: str) -> SessionView:
    """Commit this, break it in an edit, and run the card that asks whether HEAD fails too."""
    shop.commit("Rounding", {"cart.py": f"# rounded\n{committed}"}, days_ago=0)
    shop.write("cart.py", f"# not committed\n{WRONG_TOTAL}")
    assert not shop.run_tests().check.green
    card = shop.predict_card("check_clean_head", prompt="Does `test_total` fail without your uncommitted changes, too?")
    assert card.source is Source.FOLLOW_UP
    return shop.approve(card)


@pytest.mark.long
def test_head_does_not_pass_without_the_uncommitted_file(shop: Situation):
    shop.record_test_run()
    shop.commit("Prices have a module", {"cart.py": "from prices import add\ntotal = add\n"}, days_ago=0)
    shop.write("prices.py", "def add(prices):\n    return sum(prices)\n")
    card = shop.predict_card("check_clean_head", Tier.CHECK, "Does HEAD pass without prices.py?")
    assert card.reasoning == "It is in no commit: others get main without it."
    shop.write("README.md", "# Shop with prices\n")
    card = shop.predict_card("check_clean_head", prompt="Does HEAD pass without your 2 uncommitted files?")
    assert card.reasoning == "prices.py is in no commit: others get main without it."
    session = shop.approve(card)
    assert not session.check.green
    assert session.summary.endswith("; 1 of 1 passed with the uncommitted files")


@pytest.mark.long
def test_the_next_step_says_that_your_changes_broke_a_test(shop: Situation):
    session = check_head(shop, RIGHT_TOTAL)
    assert session.summary.startswith("tests/test_cart.py::test_total passes without your uncommitted changes: ")
    assert "without your uncommitted changes all tests pass" in shop.problem
    assert not {"bisect", "check_clean_head"} & set(shop.predict_kinds())


@pytest.mark.long
def test_the_next_step_says_that_a_commit_broke_a_test(shop: Situation):
    session = check_head(shop, WRONG_TOTAL)
    assert session.summary.startswith(
        "tests/test_cart.py::test_total fails without your uncommitted changes. On HEAD alone 1 of 1 test failed"
    )
    assert "without your uncommitted changes all tests pass" not in shop.problem
    kinds = shop.predict_kinds()
    assert "bisect" in kinds
    assert "check_clean_head" not in kinds
