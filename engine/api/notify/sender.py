"""Sends what waits for one surface, in a thread of its own, so that a dead service delays no other (SPEC 10.2)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from engine.api.notify import timing
from engine.api.notify.delivery import Failure
from engine.api.notify.notes import Note, make_digest
from engine.api.notify.outbox import DeliveryState, NotificationRow, Outbox
from engine.background import Background
from engine.config.notify import Surface
from engine.model import Refusal

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

MAX_WAIT_S = 3600.0
"""Seconds until a surface with something to send is looked at again: a laptop may have slept."""


class SurfaceSender:
    """Delivers to one surface. A row is marked after its delivery: a crash in between delivers it twice, and never
    loses it."""

    def __init__(
        self,
        engine: Services,
        outbox: Outbox,
        surface: Surface,
        *,
        note_of: Callable[[NotificationRow], Note | None],
        is_enabled: Callable[[Surface], bool],
        deliver: Callable[[Surface, Note], Failure | None],
    ) -> None:
        """`note_of` returns the note of a row as it is now, None when it is no longer needed."""
        self.trouble = ""
        """Why the last delivery failed, "" when it did not."""
        self.blocked_until: datetime | None = None
        """After a failure nothing is tried before then."""
        self.background = Background(f"clawpy-notify-{surface}", self._work, interruptible=True)
        self._engine = engine
        self._outbox = outbox
        self._surface = surface
        self._note_of = note_of
        self._is_enabled = is_enabled
        self._deliver = deliver
        self._failures = 0
        self._step_lock = threading.Lock()

    def _work(self) -> float | None:
        try:
            wait = self.step()
        except Exception as error:
            if isinstance(error, Refusal) and error.code == "engine_closed":
                return None
            log.exception("the %s gets no notifications for a while", self._surface)
            return timing.BACKOFF_S[-1]
        return None if wait is None else min(wait, MAX_WAIT_S)

    def step(self) -> float | None:
        """Deliver what is due. Returns the seconds until the next step: 0 for at once, None when nothing waits."""
        with self._step_lock:
            now, rows = self._engine.clock.now(), self._outbox.waiting(self._surface)
            if not rows:
                return None
            if self.blocked_until is not None and now < self.blocked_until:
                return (self.blocked_until - now).total_seconds()
            plan = timing.plan_delivery(rows, now, quiet=self._engine.autonomy.quiet())
            return self._send(plan.batch) if plan.batch else plan.wait

    def _send(self, rows: Sequence[NotificationRow]) -> float:
        """Send rows as one note; the seconds until the next step."""
        notes = {row.id: note for row in rows if (note := self._note_of(row)) is not None}
        self._outbox.settle([row for row in rows if row.id not in notes], DeliveryState.DROPPED, "overtaken")
        rows = [row for row in rows if row.id in notes]
        if not self._is_enabled(self._surface):
            self._outbox.settle(rows, DeliveryState.DROPPED, "notifications there were switched off")
        elif rows:
            first, *others = notes.values()
            failure = self._deliver(self._surface, make_digest([first, *others]) if others else first)
            if failure is not None:
                return self._count_failure(rows, failure)
            self._outbox.settle(rows, DeliveryState.SENT)
            self._failures, self.blocked_until, self.trouble = 0, None, ""
        return 0.0

    def _count_failure(self, rows: Sequence[NotificationRow], failure: Failure) -> float:
        """Give up what will not be tried again, postpone the rest; the seconds until the next attempt."""
        now = self._engine.clock.now()
        self._failures += 1
        pause = timing.backoff_s(self._failures)
        self.blocked_until, self.trouble = now + timedelta(seconds=pause), failure.words
        over = [row for row in rows if failure.lasting or timing.is_expired(row.tries + 1, now - row.created_at)]
        if over:
            self._outbox.give_up(self._surface, over, failure.words)
        self._outbox.postpone([row for row in rows if row not in over], self.blocked_until, failure.words)
        return pause
