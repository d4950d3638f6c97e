"""The signal `silence` (SPEC 2.2): how long the operator has done nothing that we can see.

Input at the console, by verb or API is one sign of life; files, index and HEAD of a workspace are another, as long
as no session of ours changed them. A person working in an editor or in another agent is not silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from engine.git.state import Touch
from engine.model import Signal
from engine.model.words import span
from engine.prediction.collectors import signal

AHEAD = timedelta(minutes=1)
"""A file dated further into the future than this was unpacked or copied so: it says nothing of anyone's presence."""


ANY_NEW_FILE: Final = "*"
"""Path of an `OurWrite` that stands for every untracked file: what a check of ours leaves lying about."""


@dataclass(frozen=True, slots=True)
class OurWrite:
    """A landing of ours wrote `path` (relative to the workspace), or a session of ours may have left untracked files
    (`ANY_NEW_FILE`), between two instants, both included."""

    path: str
    since: datetime
    until: datetime

    def covers(self, touch: Touch) -> bool:
        """True when `touch` is this write and not a later one of the operator."""
        ours = touch.path == self.path or (self.path == ANY_NEW_FILE and touch.untracked)
        return ours and self.since <= touch.at <= self.until


def last_sign_of_life(
    now: datetime, last_input: datetime | None, touches: Iterable[Touch], ours: Iterable[OurWrite] = ()
) -> datetime | None:
    """When the operator last did anything, None if nothing is known. Never later than `now`."""
    writes: dict[str, list[OurWrite]] = {}
    for write in ours:
        writes.setdefault(write.path, []).append(write)
    signs = [] if last_input is None else [min(last_input, now)]
    signs += [
        min(touch.at, now)
        for touch in touches
        if touch.at <= now + AHEAD
        and not any(write.covers(touch) for write in [*writes.get(touch.path, ()), *writes.get(ANY_NEW_FILE, ())])
    ]
    return max(signs, default=None)


def silence_of(
    now: datetime, last_input: datetime | None, touches: Iterable[Touch], ours: Iterable[OurWrite] = ()
) -> timedelta | None:
    """Time since the last sign of life (>= 0), None if there never was one."""
    sign = last_sign_of_life(now, last_input, touches, ours)
    return None if sign is None else now - sign


def silence_relevance(silence: timedelta | None, threshold: timedelta) -> float:
    """Grows evenly from 0 (just active) to 1 at `threshold` (`silenceThresholdMs`, > 0); 0 if nothing is known."""
    return 0.0 if silence is None else min(1.0, max(0.0, silence / threshold))


def silence_signal(silence: timedelta | None, threshold: timedelta) -> Signal:
    """The signal with its evidence."""
    words = "no activity seen yet" if silence is None else f"quiet for {span(silence)}"
    return signal("silence", silence_relevance(silence, threshold), words)
