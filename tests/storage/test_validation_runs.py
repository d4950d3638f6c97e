"""What stored runs say (SPEC 4.9): of one test, whether it passed, and whether it did both with the same files; of a
workspace, its last result."""

import dataclasses

import pytest

from engine.model import CheckResult, Refusal, SessionView
from engine.storage.database import Database
from engine.storage.validation_runs import ValidationRuns, find_unreliable_tests, read_verdict_on
from tests.support.past_run import PastRun
from tests.support.sessions import make_session_view


def test_a_test_passed_if_it_was_measured_or_the_whole_suite_ran():
    assert read_verdict_on(PastRun("h", failing=("t",)), "t") is False
    assert read_verdict_on(PastRun("h"), "t") is True
    assert read_verdict_on(PastRun("h", full=False), "t") is None
    assert read_verdict_on(PastRun("h", full=False, durations=(("t", 0.1),)), "t") is True
    assert read_verdict_on(PastRun("h", passed=0), "t") is None


def test_a_flip_needs_the_same_files():
    red, green = PastRun("h", failing=("t",), tree="1"), PastRun("h", tree="1")
    assert find_unreliable_tests([red, green]) == [("t", "1")]
    assert find_unreliable_tests([red, dataclasses.replace(green, tree="2")]) == []
    assert find_unreliable_tests([dataclasses.replace(red, tree=""), dataclasses.replace(green, tree="")]) == []


BROKEN = CheckResult("go", 3, 0, errors=1, error="cart.go:2: undefined: total")


@pytest.mark.parametrize(
    "session_check, error",
    [
        pytest.param(BROKEN, BROKEN.error, id="the session ended with this run"),
        pytest.param(dataclasses.replace(BROKEN, passed=4), "", id="another run came after it"),
        pytest.param(None, "", id="the session has no result"),
    ],
)
def test_what_was_wrong_besides_tests_is_with_the_session_that_ended_with_the_run(
    database: Database, session_check: CheckResult | None, error: str
):
    runs = ValidationRuns(database)
    database.write(lambda tx: runs.record(tx, check=BROKEN, session_id="sess_1", workspace="/w/shop"))

    last_check = runs.find_last_check("/w/shop", lambda id: make_session_view(id=id, check=session_check))

    assert (last_check.errors, last_check.error) == (1, error)


def test_the_last_result_outlives_its_session(database: Database):
    def refuse(session_id: str) -> SessionView:
        raise Refusal("unknown_session", session_id)

    runs = ValidationRuns(database)
    assert runs.find_last_check("/w/shop", refuse) is None
    database.write(lambda tx: runs.record(tx, check=BROKEN, session_id="sess_1", workspace="/w/shop"))
    last_check = runs.find_last_check("/w/shop", refuse)
    assert last_check == dataclasses.replace(BROKEN, error="")
