"""Everything is committed, pushed and green: nothing stands in front of you."""

from __future__ import annotations

import pytest

from tests.situations.conftest import Situation


@pytest.mark.long
def test_nothing_is_offered_at_any_hour(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    for _ in range(8):
        assert monday.kinds() == []
        monday.advance(hours=3)


@pytest.mark.long
def test_the_first_run_of_the_tests_is_upkeep_and_alone(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    assert monday.kinds() == ["first_run"]
    done = monday.approve(monday.cards()[0])
    assert done.summary.startswith("The one test passed")
    assert monday.kinds() == []


def test_a_repository_without_a_commit(monday: Situation) -> None:
    assert monday.kinds() == []
    monday.write("notes.txt", "buy milk\n")
    assert monday.kinds() == []


def test_a_repository_of_texts(monday: Situation) -> None:
    monday.commit("Letters", {"letter.txt": "Dear Ada\n"}, days_ago=3)
    monday.write("letter.txt", "Dear Ada,\n")
    assert monday.kinds() == []
