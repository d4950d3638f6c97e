"""Tests fail, always or sometimes, or the code does not compile (SPEC 2.10 to 2.12)."""

import pytest

from engine.model import Result, SessionView, Source, Tier
from engine.prediction import FIX_BY_AGENT
from tests.situations.situation import RIGHT_TOTAL, WRONG_TOTAL, Situation
from tests.support.maven import MAVEN_PROJECT, MAVEN_WRAPPER, make_java_class

pytestmark = pytest.mark.long

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


FAILS_EVERY_THIRD_TIME = """\
from pathlib import Path

import pytest


def test_total():
    counter = Path("counter")
    runs = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(runs))
    assert runs % 3
"""


def test_an_unreliable_test_is_skipped_until_a_day(shop: Situation):
    shop.commit("Luck", {"tests/test_cart.py": FAILS_EVERY_THIRD_TIME, ".gitignore": "counter\n.venv\n"}, days_ago=2)
    hunt = shop.approve(shop.propose('hunt_flakes {"tests": ["tests/test_cart.py::test_total"], "times": 3}'))
    assert hunt.summary.startswith("1 flaky: tests/test_cart.py::test_total ("), hunt.summary

    skipped = shop.approve(shop.predict_card("quarantine", prompt="Skip test_total until 19 January"))
    assert skipped.summary.startswith("1 test skipped until 2026-01-19; its file: "), skipped.summary
    shop.land(skipped)
    landed = shop.path.joinpath("tests/test_cart.py").read_text()
    assert 'reason="flaky: failed' in landed
    assert landed.startswith(
        "from datetime import date as _date\nfrom pathlib import Path\n\nimport pytest\n\n\n@pytest.mark.skipif("
    )
    shop.commit("Quarantine")
    assert {"hunt_flakes", "quarantine"}.isdisjoint(shop.predict_kinds())

    shop.advance(days=14)
    card = shop.predict_card("hunt_flakes")
    assert card.reasoning == "The quarantine ended on 19 January; take the skip away from what is steady."


def check_head(shop: Situation, committed: str) -> SessionView:
    """Commit this, break it in an edit, and run the card that asks whether HEAD fails too."""
    shop.commit("Rounding", {"cart.py": f"# rounded\n{committed}"}, days_ago=0)
    shop.write("cart.py", f"# not committed\n{WRONG_TOTAL}")
    assert not shop.run_tests().check.green
    card = shop.predict_card("check_clean_head", prompt="Does `test_total` fail without your uncommitted changes, too?")
    assert card.source is Source.FOLLOW_UP
    return shop.approve(card)


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


def test_the_summary_is_the_sentence_of_the_compiler(java: Situation):
    session = java.approve(java.predict_top_card("run_tests"))
    assert session.summary.startswith("1 error, no tests ran in "), session.summary
    assert session.summary.endswith("Cart.java:[1,42] ';' expected (the whole suite)"), session.summary
    assert (session.result, session.check.failing) == (Result.FAILED, ())


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
