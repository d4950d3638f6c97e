"""Tests fail, or the code does not compile: grouped by cause, at HEAD alone, and told in words (SPEC 2.10 to 2.12)."""

import pytest

from engine.model import Result, SessionView, Source, Tier
from engine.prediction.kinds import FIX_BY_AGENT
from tests.situations.situation import RIGHT_TOTAL, WRONG_TOTAL, Situation
from tests.support.programs import MAVEN_PROJECT, MAVEN_WRAPPER, make_java_class

TWO_CAUSES = {
    "cart.py": "def total(prices):\n    return max(prices)\n\n\ndef rate(country):\n    return {}[country]\n",
    "tests/test_cart.py": (
        "import pytest\nfrom cart import rate, total\n\n\n"
        "@pytest.mark.parametrize('name', ['de', 'fr', 'nl'])\ndef test_rate(name):\n    assert rate('de') > 0\n\n\n"
        "def test_total():\n    assert total([1, 2]) == 3\n\n\n"
        "def test_fine():\n    assert True\n"
    ),
}
"""Files of which three tests fail by one cause, and one by another."""


@pytest.mark.long
def test_failures_are_grouped_by_cause(shop: Situation):
    shop.commit("Rates", TWO_CAUSES, days_ago=2)
    shop.run_tests()

    session = shop.approve(
        shop.predict_top_card("still_red", Tier.BLOCKS, "Run the 4 failing tests alone and group the failures by cause")
    )
    assert session.summary == (
        "4 failures, 2 causes: KeyError: 'de', at cart.py:6 (3); assert 2 == 3, at tests/test_cart.py:11 (1)"
    )
    transcript = shop.read_transcript(session)
    assert "tests/test_cart.py::test_total  also fails alone" in transcript
    assert "The smallest selection that shows every cause: pytest 'tests/test_cart.py::test_rate[de]'" in transcript
    assert "still_red" not in shop.predict_kinds()


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
    assert session.summary.startswith("On HEAD alone 1 of 1 test failed in ")


@pytest.mark.long
def test_the_next_step_says_that_your_changes_broke_a_test(shop: Situation):
    session = check_head(shop, RIGHT_TOTAL)
    assert session.summary.startswith("tests/test_cart.py::test_total passes without your uncommitted changes: ")
    assert "without your uncommitted changes all tests pass" in shop.problem
    assert not {"bisect", "check_clean_head"} & set(shop.predict_kinds())


RIGHT, BROKEN = map(make_java_class, ("return a + b;", "return a + b"))


@pytest.fixture
def java(situation: Situation) -> Situation:
    """A project whose tests passed, and whose uncommitted code no longer compiles."""
    situation.write("mvnw", MAVEN_WRAPPER).chmod(0o755)
    situation.commit("Java", {**MAVEN_PROJECT, "Cart.java": RIGHT}, days_ago=3)
    assert situation.run_tests().summary.startswith("All 2 tests passed")
    situation.advance(minutes=5)
    situation.write("Cart.java", BROKEN)
    return situation


@pytest.mark.long
def test_the_summary_is_the_sentence_of_the_compiler(java: Situation):
    session = java.approve(java.predict_top_card("run_tests"))
    assert session.summary.startswith("1 error, no tests ran in "), session.summary
    assert session.summary.endswith("Cart.java:[1,42] ';' expected (the whole suite)"), session.summary
    assert (session.result, session.check.failing) == (Result.FAILED, ())


@pytest.mark.long
def test_no_card_takes_the_error_for_a_test(java: Situation):
    java.assign_coding_agent()
    java.run_tests()
    cards = java.predict_cards()
    assert [card.assignment.prompt for card in cards if "ERROR" in card.assignment.prompt] == []
    assert {"still_red", "rerun_failing", "bisect"}.isdisjoint(card.kind for card in cards)
    [fix] = [card for card in cards if card.kind == FIX_BY_AGENT]
    assert (fix.tier, fix.assignment.prompt) == (
        Tier.BLOCKS,
        "Make the whole suite pass, by the cause and not by the tests",
    )
    assert "';' expected" in fix.reasoning
