"""Sends the notifications that wait for one surface (SPEC 10.2): what is sent when, what is tried again, and what is
given up.

`Notifications` has a `Sender` for each surface, and wakes it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from engine.api.notify.addresses import Addresses, is_switched_on
from engine.api.notify.delivery import Button, Deliver, DeliveryFailure
from engine.api.notify.notes import FORMS, Note, NotificationKind, make_content, make_digest, make_note
from engine.api.notify.outbox import DeliveryState, NotificationRow, Outbox
from engine.background import BackgroundWorker
from engine.config.external_sections import Surface
from engine.model import Refusal

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

MAX_TRIES = 8
"""Maximum number of attempts for one notification."""

MAX_NOTIFICATION_AGE = timedelta(hours=24)
"""A notification that was not sent by this age is given up. A ledger entry that was not read by this age is skipped."""

BACKOFF_S = (30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds until the next attempt, by the number of failures in a row. The last value is used for all further ones."""

MAX_WAIT_S = 3600.0
"""Maximum seconds until a surface with waiting notifications is checked again, because a laptop may have slept."""

QUIET_POLL_S = 60.0
"""Seconds until the next check whether quiet hours are over."""

MAX_BATCH_NOTIFICATIONS = 50
"""Maximum number of notifications that are sent as one."""


BUTTON_LIFETIME = timedelta(hours=4)
"""Time during which a button works. After that, the card can be decided in the console."""

ACTION_PATHS = {"approve": "confirm", "reject": "reject", "snooze": "snooze"}
"""The last part of the gateway's path for each action of a button."""

IssuePass = Callable[..., str]
"""The type of `Gateway.issue_pass`, which returns a credential for a single request, "" if nothing listens."""


class DeliveryPlan(NamedTuple):
    """What is sent to a surface now."""

    batch: Sequence[NotificationRow]
    """The rows to send now as one notification."""
    wait: float | None
    """Seconds until the next check; None if nothing waits."""


def plan_delivery(waiting: Sequence[NotificationRow], now: datetime, *, is_quiet: bool) -> DeliveryPlan:
    """The plan for the rows of `Outbox.list_waiting`. The first that is due is sent, and if it is collected, all others
    that are collected are sent with it, also those that are not due yet."""
    sendable = [row for row in waiting if row.urgent or not is_quiet]
    first_due = next((row for row in sendable if row.due_at <= now), None)
    if first_due is None:
        waits_s = [(row.due_at - now).total_seconds() for row in sendable]
        if len(sendable) < len(waiting):
            waits_s.append(QUIET_POLL_S)
        return DeliveryPlan((), min(waits_s, default=None))
    batch = [row for row in sendable if row.is_collected] if first_due.is_collected else [first_due]
    return DeliveryPlan(batch[:MAX_BATCH_NOTIFICATIONS], 0.0)


class Sender:
    """Delivers to one surface, in a thread once `background` is woken. A row is marked after its delivery, so after a
    crash it may be delivered twice but is never lost. After a failure, delivery is tried again at growing intervals for
    a day."""

    def __init__(
        self,
        engine: Services,
        outbox: Outbox,
        surface: Surface,
        *,
        addresses: Addresses,
        issue_pass: IssuePass,
        deliver_note: Deliver,
    ) -> None:
        self.last_failure = ""
        """Why the last delivery failed, "" if it did not."""
        self.background = BackgroundWorker(f"clawpy-notify-{surface}", self._work, interruptible=True)
        self._engine = engine
        self._outbox = outbox
        self._surface = surface
        self._addresses = addresses
        self._issue_pass = issue_pass
        self._deliver_note = deliver_note
        self._failure_count = 0
        self._blocked_until: datetime | None = None
        """The time before which nothing is tried after a failure."""
        self._delivery_lock = threading.Lock()

    @property
    def is_enabled(self) -> bool:
        """Whether the surface has an address and is switched on."""
        is_on = is_switched_on(self._surface, self._engine.settings.current)
        return is_on and self._addresses.is_configured(self._surface)

    def end_pause(self) -> None:
        """Do not wait after earlier failures any more. A delivery that is in progress may fail, and begins a new
        pause."""
        self._blocked_until = None

    def deliver_due(self) -> float | None:
        """Deliver the notifications that are due. Returns the seconds until the next step: 0 for at once, None if
        nothing waits."""
        with self._delivery_lock:
            now, rows = self._engine.clock.now(), self._outbox.list_waiting(self._surface)
            blocked_until = self._blocked_until  # another thread may end the pause meanwhile
            if rows and blocked_until is not None and now < blocked_until:
                return (blocked_until - now).total_seconds()
            batch, wait = plan_delivery(rows, now, is_quiet=bool(self._engine.autonomy.find_quiet_reason()))
            return self._send(batch) if batch else wait

    def _work(self) -> float | None:
        try:
            wait = self.deliver_due()
        except Exception as error:
            if isinstance(error, Refusal) and error.code == "engine_closed":
                return None
            log.exception("the %s gets no notifications for a while", self._surface)
            return BACKOFF_S[-1]
        return None if wait is None else min(wait, MAX_WAIT_S)

    def _send(self, rows: Sequence[NotificationRow]) -> float:
        """Send rows as one note; returns the seconds until the next step. Rows that are no longer needed, or whose
        surface was switched off meanwhile, are dropped."""
        notes = {row.id: note for row in rows if self.is_enabled and (note := self._make_note(row)) is not None}
        if dropped_rows := [row for row in rows if row.id not in notes]:
            self._outbox.finish(dropped_rows, DeliveryState.DROPPED)
        if sent_rows := [row for row in rows if row.id in notes]:
            first, *others = notes.values()
            failure = self._deliver(make_digest([first, *others]) if others else first)
            if failure is not None:
                return self._count_failure(sent_rows, failure)
            self._outbox.finish(sent_rows, DeliveryState.SENT)
            self._failure_count, self._blocked_until, self.last_failure = 0, None, ""
        return 0.0

    def _make_note(self, row: NotificationRow) -> Note | None:
        """The present note of a row, None if it is no longer needed."""
        engine, now = self._engine, self._engine.clock.now()
        entry = next(iter(engine.ledger.read_since(row.entry_id - 1, 1)), None)
        if entry is None or entry.id != row.entry_id:
            return None
        content = make_content(entry, engine.cards.get, engine.sessions.get, now)
        if content is None:
            return None
        form = FORMS[NotificationKind(row.kind)][self._surface]
        secrets = (*engine.keys.secrets(), *self._addresses.secrets())
        return make_note(content, form, pending=len(engine.cards.list_pending()), now=now, secrets=secrets)

    def _deliver(self, note: Note) -> DeliveryFailure | None:
        """Deliver a note now; returns None on success."""
        try:
            address = self._addresses.find(self._surface)
            if address is None:
                return DeliveryFailure("it has no address", is_lasting=True)
            return self._deliver_note(address, note, self._make_buttons(note.prediction_id, note.actions))
        except Refusal as refusal:
            return DeliveryFailure(refusal.message, is_lasting=True)
        except Exception as error:
            # Only the type of a library's error is logged, because its message may contain the address.
            log.warning("the %s could not be reached: %s", self._surface, type(error).__name__)
            return DeliveryFailure(f"its delivery failed ({type(error).__name__})")

    def _make_buttons(self, card_id: str, actions: Sequence[str]) -> Mapping[str, Button]:
        """Make a button for each action on a card. Buttons call the gateway; if it does not listen, there are none.

        A notification passes through foreign servers, so it never has the token. Each button has a pass for one action
        on one card, valid for a few hours.
        """
        base = self._engine.settings.current.notify.gateway
        if not base or not card_id:
            return {}
        until = (self._engine.clock.now() + BUTTON_LIFETIME).timestamp()
        paths = {action: f"/api/v1/predictions/{card_id}/{ACTION_PATHS[action]}" for action in actions}
        passes = {action: self._issue_pass("POST", path, until=until) for action, path in paths.items()}
        return {action: Button(base + paths[action], credential) for action, credential in passes.items() if credential}

    def _count_failure(self, rows: Sequence[NotificationRow], failure: DeliveryFailure) -> float:
        """Give up rows that will not be tried again, and postpone the others. Returns the seconds until the next
        attempt."""
        now = self._engine.clock.now()
        pause = BACKOFF_S[min(self._failure_count, len(BACKOFF_S) - 1)]
        next_attempt = now + timedelta(seconds=pause)
        self._failure_count += 1
        self._blocked_until, self.last_failure = next_attempt, failure.message
        tried_again = [row for row in rows if row.tries + 1 < MAX_TRIES and now - row.created_at < MAX_NOTIFICATION_AGE]
        if failure.is_lasting:
            tried_again = []
        if given_up := [row for row in rows if row not in tried_again]:
            self._outbox.give_up(self._surface, given_up, failure.message)
        if tried_again:
            self._outbox.postpone(tried_again, next_attempt, failure.message)
        return pause
