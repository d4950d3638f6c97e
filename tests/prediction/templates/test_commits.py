"""When your commits become a card (SPEC 2.3c): a meeting to prepare, and what a change log mentions."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from engine.prediction.signals import Meeting
from engine.prediction.templates.commits import PREPARATION_TIME, ROUTINE_SUBJECT, prepare_meeting
from tests.prediction.builders import NOW
from tests.prediction.sensing import SensedWorkspace
from tests.support import read_table
from tests.support.repository import Repository


@pytest.mark.parametrize("subject, routine", read_table(__file__)["subjects"])
def test_a_commit_that_only_releases_is_known_by_its_subject(subject: str, routine: bool):
    assert (ROUTINE_SUBJECT.match(subject) is not None) is routine


def test_a_meeting_is_prepared_for_an_hour_before(repository: Repository):
    repository.commit("round the cart", {"cart.py": "1"}, at=NOW - timedelta(hours=20))
    context = SensedWorkspace(repository.path).sense()

    def prepare_prompts(begins: datetime, last_held: timedelta) -> list[str]:
        meeting = Meeting("Stand-up", begins, NOW - last_held)
        return [proposal.prompt for proposal in prepare_meeting(replace(context, meetings=(meeting,)))]

    [prompt] = prepare_prompts(NOW + PREPARATION_TIME, timedelta(days=3))
    assert prompt.startswith("Prepare for “Stand-up” at ")
    assert "sum up 1 commit since" in prompt
    assert prepare_prompts(NOW + PREPARATION_TIME + timedelta(seconds=1), timedelta(days=3)) == []
    assert prepare_prompts(NOW + PREPARATION_TIME, timedelta(hours=1)) == [], "there is no commit since the last one"
