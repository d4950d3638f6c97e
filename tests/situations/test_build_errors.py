"""The code does not compile, so no test runs: the error of the build is no test, in no card and no run (SPEC 2.12)."""

import pytest

from engine.model import Result, SessionState, Tier
from engine.prediction.kinds import FIX_BY_AGENT
from tests.situations.situation import Situation
from tests.support.programs import MAVEN_PROJECT, MAVEN_WRAPPER, make_java_class

pytestmark = pytest.mark.long

RIGHT, BROKEN, WRONG = map(make_java_class, ("return a + b;", "return a + b", "return a - b;"))


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


def test_a_run_of_named_tests_that_ran_none_is_no_success(java: Situation):
    java.write("Cart.java", RIGHT)
    session = java.approve(java.propose("run_tests tests=CartTest#gone"))
    assert (session.state, session.check) == (SessionState.CANNOT_RUN, None)
    assert "found no tests" in session.error
