"""Reads training runs, and says when the next one is due (SPEC 8.4).

The class is the base of the service `training.Training`, through which screens and the schedule use it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, select

from engine.learning.decisions.preferences import count_pairs
from engine.learning.decisions.training_examples import MIN_PAIRS
from engine.learning.decisions.training_runs import IS_ACTIVE, USED_PAIRS, RunState, TrainingRun, TwinModel, newest_run
from engine.model import TrainingView
from engine.model.text import count
from engine.storage.database import Database

MAX_VIEWED = 5
"""Maximum number of runs that a screen shows."""

AGAIN_FROM = 100
"""Number of new pairs after which the next run is due."""

AGAIN_AFTER = timedelta(days=7)
"""Time after which the next run is due if there is any new pair."""

COOL_DOWNS = {RunState.FAILED: timedelta(days=1), RunState.CANCELLED: timedelta(days=7)}
"""Time after a run in this state in which no run begins by itself, because it may fail again and cost money."""


class TrainingViews:
    """Reads runs, and says when the next one is due. Methods may be called from any thread."""

    def __init__(self, database: Database, twin: TwinModel) -> None:
        self._database = database
        self._twin = twin

    def runs(self, limit: int = 50) -> list[TrainingRun]:
        """The newest runs first."""
        with self._database.read() as session:
            newest = select(TrainingRun).order_by(col(TrainingRun.created_at).desc(), col(TrainingRun.id)).limit(limit)
            return list(session.exec(newest))

    def active(self) -> TrainingRun | None:
        """The run in progress, None without one."""
        return self._newest(IS_ACTIVE)

    def may_start(self, now: datetime) -> bool:
        """Whether a run may begin by itself: it is due, and the cool-down after a failed or cancelled one is over."""
        last = self._newest()
        cool_down = COOL_DOWNS.get(RunState(last.state)) if last else None
        is_cooling = last is not None and cool_down is not None and now - last.updated_at < cool_down
        return not self.missing(now) and not is_cooling

    def progress(self) -> tuple[int, int]:
        """(number of pairs that were not used for training yet, number at which the next run is due)."""
        last = self._newest(USED_PAIRS, by_start=True)
        with self._database.read() as session:
            return count_pairs(session, after=last.pairs_to if last else 0), AGAIN_FROM if last else MIN_PAIRS

    def view(self, now: datetime) -> TrainingView:
        """The state of training, for a screen."""
        plan, (new, needed), active = self._twin.plan(), self.progress(), self.active()
        return TrainingView(
            new, needed, self.missing(now), None if active is None else active.view,
            tuple(run.view for run in self.runs(MAX_VIEWED)), plan.current_model, plan.enabled, plan.automatic,
        )  # fmt: skip

    def missing(self, now: datetime) -> str:
        """What is missing until the next training on pairs, "" if it is due (SPEC 8.4): after 50 pairs, then after
        every 100 new pairs, or every week with any new pair."""
        if self.active() is not None:
            return "a training is in progress"
        new, needed = self.progress()
        last = self._newest(USED_PAIRS, by_start=True)
        if new >= needed:
            return ""
        more = count(needed - new, "more pair")
        if last is None:
            return f"{more} until the first training"
        day = last.created_at + AGAIN_AFTER
        if new and now >= day:
            return ""
        return f"{more}, or any by {day:%d %B}, until the next training"

    def _newest(self, *where: ColumnElement[bool] | bool, by_start: bool = False) -> TrainingRun | None:
        with self._database.read() as session:
            return newest_run(session, *where, by_start=by_start)
