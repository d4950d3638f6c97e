"""You wrote a test and its code, and committed neither."""

from __future__ import annotations

import pytest

from engine.model import SessionState, Tier
from tests.situations.conftest import Situation

NEW = "def test_empty_cart():\n    from cart import total\n    assert total([]) == 0\n"


@pytest.mark.long
def test_the_new_test_is_run_first(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.write("tests/test_empty.py", NEW)

    first = monday.first("run_tests", Tier.CHECK)
    assert first.assignment.prompt == "Run the tests of tests/test_empty.py"
    assert first.check_only

    done = monday.approve(first)
    assert done.state is SessionState.SUCCEEDED
    assert (done.check.passed, done.check.failed) == (1, 0)
    assert "run_tests" not in monday.kinds(), "it ran on just these files"


def test_also_where_no_run_is_known_yet(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("tests/test_empty.py", NEW)
    first = monday.first("run_tests", Tier.CHECK)
    assert first.assignment.parameters == {"paths": ["tests/test_empty.py"]}


@pytest.mark.long
def test_a_new_test_that_fails_is_looked_into_next(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.write("tests/test_empty.py", NEW.replace("== 0", "== 1"))
    done = monday.approve(monday.first("run_tests"))
    assert done.check.failing == ("tests/test_empty.py::test_empty_cart",)
    monday.first("still_red", Tier.BLOCKS)
