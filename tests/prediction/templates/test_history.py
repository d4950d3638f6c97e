"""Templates about the history (SPEC 2.3): which commits only release, when a working day begins, how a meeting is
prepared."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from engine.prediction.signals import Meeting
from engine.prediction.templates.history import PREPARATION_TIME, ROUTINE_SUBJECT, prepare_meeting
from engine.prediction.templates.offers import find_day_begin
from tests.conftest import Repository
from tests.prediction.sensing import NOW, SensedWorkspace, commit_at
from tests.support.helpers import read_table

ROWS = read_table(__file__)

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("subject, routine", ROWS["subjects"])
def test_a_commit_that_only_releases_is_known_by_its_subject(subject: str, routine: bool):
    assert (ROUTINE_SUBJECT.match(subject) is not None) is routine


@pytest.mark.parametrize(
    "at, begin",
    [
        (datetime(2026, 1, 5, 5, tzinfo=UTC), datetime(2026, 1, 5, 5, tzinfo=UTC)),
        (datetime(2026, 1, 5, 4, 59, tzinfo=UTC), datetime(2026, 1, 4, 5, tzinfo=UTC)),
        (datetime(2026, 1, 5, 23, 59, tzinfo=UTC), datetime(2026, 1, 5, 5, tzinfo=UTC)),
    ],
)
def test_a_working_day_begins_at_five(at: datetime, begin: datetime):
    assert find_day_begin(at) == begin


def test_a_working_day_begins_at_five_also_when_the_clocks_change():
    begin = find_day_begin(datetime(2026, 10, 25, 19, tzinfo=BERLIN))
    assert begin.isoformat() == "2026-10-25T05:00:00+01:00"
    assert find_day_begin(begin - timedelta(hours=1)).isoformat() == "2026-10-24T05:00:00+02:00"


def test_a_meeting_is_prepared_for_an_hour_before(repository: Repository):
    commit_at(repository, "round the cart", {"cart.py": "1"}, NOW - timedelta(hours=20))
    world = SensedWorkspace(repository.path)
    context = world.sense()

    def prepare_prompts(meetings: list[Meeting]) -> list[str]:
        return [proposal.prompt for proposal in prepare_meeting(replace(context, meetings=tuple(meetings)))]

    [prompt] = prepare_prompts([Meeting("Stand-up", NOW + PREPARATION_TIME, NOW - timedelta(days=3))])
    assert prompt.startswith("Prepare for “Stand-up” at ")
    assert "sum up 1 commit since" in prompt
    assert prepare_prompts([Meeting("Stand-up", NOW + PREPARATION_TIME + timedelta(seconds=1))]) == []
    no_commit_since = Meeting("Stand-up", NOW + PREPARATION_TIME, NOW - timedelta(hours=1))
    assert prepare_prompts([no_commit_since]) == []
