"""The signal `tasks` (SPEC 2.1): open tasks of the workspace, the stale ones first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from engine.model import Signal, Task
from engine.model.words import plain, span, words_of
from engine.prediction.collectors import signal

STALE = timedelta(days=7)
"""A task that nobody touched for so long cannot become more pressing."""

UNRELATED = 0.5
"""What an open task still adds to a proposal that has nothing to do with it."""


def open_tasks(tasks: Sequence[Task]) -> list[Task]:
    """The operator's open tasks, longest untouched first; the rows that sessions keep for themselves are left out, and
    what waits for other tasks."""
    opened = (task for task in tasks if task.state == "open" and task.source != "session" and not task.waits_for)
    return sorted(opened, key=lambda task: task.updated_at)


def staleness(task: Task, now: datetime) -> float:
    """0.3 for a task of this moment, growing evenly to 1 after seven days untouched."""
    return 0.3 + 0.7 * min(1.0, max(0.0, (now - task.updated_at) / STALE))


def related_task(tasks: Sequence[Task], text: str) -> Task | None:
    """The stalest open task that shares a word of at least four letters with `text`."""
    opened = open_tasks(tasks)
    words = words_of(text) if opened else set()
    return next((task for task in opened if words & words_of(task.title)), None)


def tasks_relevance(tasks: Sequence[Task], now: datetime, about: str | None = None) -> float:
    """The staleness of the stalest open task. For a proposal (`about` = its words) the one it is related to counts in
    full; if it is related to none, the stalest counts half."""
    opened = open_tasks(tasks)
    if not opened:
        return 0.0
    if about is None:
        return staleness(opened[0], now)
    related = related_task(opened, about)
    return staleness(related, now) if related else UNRELATED * staleness(opened[0], now)


def tasks_signal(tasks: Sequence[Task], now: datetime, about: str | None = None) -> Signal:
    """The signal, naming up to three tasks and how long each has waited."""
    opened = open_tasks(tasks)
    if about is not None and (related := related_task(opened, about)):
        opened = [related]
    evidence = [f"“{plain(task.title, 40)}” {span(now - task.updated_at)} old" for task in opened[:3]]
    return signal("tasks", tasks_relevance(tasks, now, about), *(evidence or ["no open tasks"]))
