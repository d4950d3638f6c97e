"""The code does not compile, so no test runs: the error of the build is no test, in no card and no run (SPEC 2.12)."""

import pytest

from engine.model import CheckResult, PromptRequest, Result, SessionState, Tier
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


def test_an_agent_that_is_asked_next_reads_the_sentence_of_the_compiler(java: Situation):
    java.run_tests()
    prompt = java.engine.prompts.assemble(PromptRequest("", "koji-core", str(java.path), "fix the build"))
    [tests] = [line.text for part in prompt.parts for line in part.lines if "expected" in line.text]
    assert tests.startswith("error: ")


def test_the_error_of_an_earlier_run_of_the_same_session_is_not_that_of_the_last(java: Situation):
    session, engine = java.run_tests(), java.engine
    passed, place = CheckResult(session.check.tool, 2, 0), {"session_id": session.id, "workspace": str(java.path)}
    engine.database.write(lambda tx: engine.validation_runs.record(tx, check=passed, **place))
    prompt = engine.prompts.assemble(PromptRequest("", "koji-core", str(java.path), "add a button"))
    assert not any("expected" in line.text for part in prompt.parts for line in part.lines)


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


def test_after_an_edit_the_whole_suite_runs_again(java: Situation):
    java.run_tests()
    java.advance(minutes=5)
    java.write("Cart.java", WRONG)
    session = java.approve(java.predict_card("rerun_failing", prompt="Run the whole suite again"))
    assert (session.check.failed, session.check.failing) == (2, ("CartTest#adds", "CartTest#more"))
    assert java.problem


def test_head_without_the_broken_file_is_offered(java: Situation):
    java.commit("No run saw this commit", {"Cart.java": make_java_class("return b + a;")}, days_ago=0)
    java.write("Cart.java", BROKEN)
    java.run_tests()
    assert java.approve(
        java.predict_card("check_clean_head", prompt="Does the whole suite fail without your uncommitted changes, too?")
    ).summary.startswith("HEAD is complete: all 2 tests passed")


def test_a_run_of_named_tests_that_ran_none_is_no_success(java: Situation):
    java.write("Cart.java", RIGHT)
    session = java.approve(java.propose("run_tests tests=CartTest#gone"))
    assert (session.state, session.check) == (SessionState.CANNOT_RUN, None)
    assert "found no tests" in session.error


def test_packages_that_maven_cannot_fetch_are_no_error_of_the_build(java: Situation):
    java.write(
        "mvnw",
        "#!/bin/sh\necho '[WARNING] Failed to create parent directories for tracking file x.lastUpdated'\n"
        "echo '[ERROR] Cannot access central (https://repo.maven.apache.org/maven2) in offline mode'; exit 1\n",
    ).chmod(0o755)
    session = java.run_tests()
    assert session.state is SessionState.CANNOT_RUN
    assert "repo.maven.apache.org could not be reached" in session.error
