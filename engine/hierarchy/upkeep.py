"""What concerns the guidance of a home as a whole: its regular round, and the removal of a retracted lesson."""

from __future__ import annotations

from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.guided import GuidedSessions
from engine.hierarchy.profiles import Profiles
from engine.hierarchy.teaching import Teaching
from engine.model import FlushReport


def run_round(bubbles: Bubbles, guided_sessions: GuidedSessions, teaching: Teaching) -> FlushReport:
    """Flush the queue, report outdated guidance, and with `enable_m2` teach every worker (SPEC 1.6, 1.8, 5.1)."""
    report = bubbles.flush()
    guided_sessions.review()
    if teaching.is_enabled:
        teaching.round()
    return report


def remove_lesson(lesson: str, bubbles: Bubbles, profiles: Profiles, teaching: Teaching) -> list[str]:
    """Remove a retracted lesson from the queue, from profiles, and from souls that were written before. Returns the
    leaders that had it."""
    bubbles.drop(lesson)
    leaders = profiles.drop(lesson)
    if leaders and teaching.last() is not None:
        teaching.round()
    return leaders
