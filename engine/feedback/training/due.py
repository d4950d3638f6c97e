"""When training on pairs is due: the first at 50, then every 100 new ones, or weekly if there is any (SPEC 8.4)."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session

from engine.feedback import pairs
from engine.feedback.training.batch import FIRST_FROM
from engine.feedback.training.records import CANCELLED, FAILED, active_run, last_on_pairs, newest_run
from engine.values.text import count

AGAIN_FROM = 100
"""So many new pairs make the next one due."""

AGAIN_AFTER = timedelta(days=7)
"""After so long any new pair does."""

RESTS = {FAILED: timedelta(days=1), CANCELLED: timedelta(days=7)}
"""After such an end nothing begins by itself for so long: what failed would fail again, and each try may cost."""


def progress(session: Session) -> tuple[int, int]:
    """How many pairs no training has seen yet, and how many make the next one due."""
    last = last_on_pairs(session)
    return pairs.count(session, after=last.pairs_to if last else 0), AGAIN_FROM if last else FIRST_FROM


def missing(session: Session, now: datetime) -> str:
    """What is missing until the next training on pairs, in words; "" when it is due."""
    if active_run(session) is not None:
        return "a run is under way"
    last = last_on_pairs(session)
    new, _ = progress(session)
    if last is None:
        return "" if new >= FIRST_FROM else f"{count(FIRST_FROM - new, 'more pair')} until the first training"
    if new >= AGAIN_FROM or (new and now - last.created_at >= AGAIN_AFTER):
        return ""
    day = f"{last.created_at + AGAIN_AFTER:%d %B}"
    return f"{count(AGAIN_FROM - new, 'more pair')}, or any by {day}, until the next training"


def rests(session: Session, now: datetime) -> bool:
    """Whether what ended the last run too early is not long enough ago for another to begin by itself."""
    last = newest_run(session)
    rest = RESTS.get(last.state) if last else None
    return last is not None and rest is not None and now - last.updated_at < rest
