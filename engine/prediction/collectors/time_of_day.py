"""The signal `time`: mornings review and plan, afternoons work deeply, evenings summarise (SPEC 2.1)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from engine.model import PartOfDay, Signal, part_of_day
from engine.prediction.collectors import signal


class Activity(StrEnum):
    """What a proposal is, as far as the time of day is concerned."""

    REVIEW = "review"  # look over and plan
    WORK = "work"  # deep work: check, search, change
    SUMMARY = "summary"  # put into words what was done
    REPAIR = "repair"  # something is broken: it does not wait for its hour


FIT: Final[dict[PartOfDay, dict[Activity, float]]] = {
    PartOfDay.MORNING: {Activity.REVIEW: 1.0, Activity.WORK: 0.6, Activity.SUMMARY: 0.3, Activity.REPAIR: 1.0},
    PartOfDay.AFTERNOON: {Activity.REVIEW: 0.5, Activity.WORK: 1.0, Activity.SUMMARY: 0.3, Activity.REPAIR: 1.0},
    PartOfDay.EVENING: {Activity.REVIEW: 0.4, Activity.WORK: 0.5, Activity.SUMMARY: 1.0, Activity.REPAIR: 0.8},
    PartOfDay.NIGHT: {Activity.REVIEW: 0.2, Activity.WORK: 0.3, Activity.SUMMARY: 0.4, Activity.REPAIR: 0.5},
}
"""How well an activity fits a part of the day, in [0, 1]."""

HABIT: Final = {
    PartOfDay.MORNING: "morning: review and plan",
    PartOfDay.AFTERNOON: "afternoon: deep work",
    PartOfDay.EVENING: "evening: summarise the day",
    PartOfDay.NIGHT: "night: little is urgent",
}


def time_relevance(part: PartOfDay, *activities: Activity) -> float:
    """How well the best fitting of `activities` fits `part`; without any, the best that anything reaches then."""
    return max(FIT[part][activity] for activity in activities or tuple(Activity))


def time_signal(local: datetime, *activities: Activity) -> Signal:
    """The signal for a proposal of these activities, or, without any, for the workspace as a whole."""
    part = part_of_day(local)
    return signal("time", time_relevance(part, *activities), HABIT[part])
