"""The signals (SPEC 2.1, 2.2): what raises silence and tasks."""

from datetime import datetime, timedelta

import pytest

from engine.git.state import Touch
from engine.prediction.signals import ANY_NEW_FILE, OurWrite, find_last_activity, make_silence_signal, make_tasks_signal
from tests.prediction.builders import NOW, make_task

HALF_HOUR = timedelta(minutes=30)


@pytest.mark.parametrize(
    "silence, relevance",
    [
        (timedelta(minutes=15), 0.5),
        (timedelta(minutes=29, seconds=59), pytest.approx(1.0, abs=0.001)),
        (HALF_HOUR, 1.0),
    ],
)
def test_silence_grows_to_one_at_the_threshold(silence: timedelta, relevance: float):
    assert make_silence_signal(silence, HALF_HOUR, NOW).relevance == relevance


MOMENT, MINUTE, DAY = timedelta(microseconds=1), timedelta(minutes=1), timedelta(days=1)
EDIT, BEFORE = NOW - timedelta(minutes=5), NOW - timedelta(hours=2)
LANDING = OurWrite("cart.py", EDIT - timedelta(seconds=1), EDIT)
CHECK = OurWrite(ANY_NEW_FILE, EDIT, NOW)
REPORT = Touch("coverage.xml", EDIT, untracked=True)


@pytest.mark.parametrize(
    "last_input, touch, ours, expected",
    [
        (BEFORE, Touch("cart.py", EDIT), None, EDIT),
        (None, Touch("cart.py", EDIT), LANDING, None),
        (None, Touch("cart.py", EDIT + MOMENT), LANDING, EDIT + MOMENT),
        (None, REPORT, CHECK, None),
        (None, Touch("cart.py", EDIT), CHECK, EDIT),
        (None, Touch("cart.py", NOW + DAY), None, None),
        (None, Touch("cart.py", NOW + MINUTE), None, NOW),
    ],
    ids=[
        "an edit after input",
        "our own landing",
        "an edit after our landing",
        "a file of our own check",
        "a tracked file during our check",
        "a time a day ahead",
        "a clock a minute ahead",
    ],
)
def test_input_and_edits_are_activity_and_our_own_writes_are_none(
    last_input: datetime | None, touch: Touch, ours: OurWrite | None, expected: datetime | None
):
    assert find_last_activity(NOW, last_input, [touch], [ours] if ours else []) == expected


def test_the_stalest_task_counts_and_is_named_first():
    tasks = [make_task("ship it", timedelta(hours=1)), make_task("cart rounding", timedelta(days=4))]
    collected = make_tasks_signal(tasks, NOW)
    assert collected.evidence[0] == "“cart rounding”, unchanged since 1 January"
    assert collected.relevance == pytest.approx(0.3 + 0.7 * 4 / 7)
    assert make_tasks_signal([make_task("x", timedelta(days=7))], NOW).relevance == 1.0
