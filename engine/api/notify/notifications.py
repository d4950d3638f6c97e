"""Reads events from the ledger, stores notifications in the outbox, and delivers them (SPEC 10.2).

Each surface has its own thread, so that a service that does not answer delays no other. In quiet hours only urgent
notifications are sent; the others follow in the morning. The engine has one; the verb `notify` and the queue call it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from engine.api.documents import Document, instant
from engine.api.notify.delivery import (
    EXAMPLE_FIX,
    Address,
    Addresses,
    Button,
    DeliveryFailure,
    IssuePass,
    deliver,
    make_buttons,
)
from engine.api.notify.notes import (
    FORMS,
    NOTIFIED_KINDS,
    URGENCY,
    Note,
    NotificationContent,
    NotificationKind,
    Urgency,
    find_notification_kind,
    get_setting_name,
    is_switched_on,
    make_content,
    make_digest,
    make_note,
)
from engine.api.notify.outbox import DeliveryState, NotificationRow, Outbox
from engine.background import Background
from engine.config.sections import Surface, make_address_variable
from engine.events import Subscription
from engine.model import Refusal, Waiting
from engine.storage.ledger import LedgerCursor, LedgerEntry

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

CURSOR_KEY = "notify.read"

BACKOFF_S = (30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds until the next attempt, by the number of failures in a row. The last value is used for all further ones."""

MAX_TRIES = 8
"""Maximum number of attempts for one notification."""

MAX_AGE = timedelta(hours=24)
"""A notification that was not sent by this age is given up. A ledger entry that was not read by this age is skipped."""

QUIET_POLL_S = 60.0
"""Seconds until the next check whether quiet hours are over."""

MAX_BATCH_NOTIFICATIONS = 50
"""Maximum number of notifications that are sent as one."""

CLOSE_TIMEOUT_S = 1.0
"""Seconds that `close` waits for a delivery in progress. If it is not finished then, it is repeated at the next
start."""

MAX_WAIT_S = 3600.0
"""Maximum seconds until a surface with waiting notifications is checked again, because a laptop may have slept."""

WAITING_PREFIX = "notify-"
"""The prefix of an id in the queue, which is followed by the name of a surface."""

Deliver = Callable[[Address, Note, Mapping[str, Button]], DeliveryFailure | None]


class Notifications:
    """The service `engine.notify`. Callable from any thread."""

    def __init__(self, engine: Services, *, issue_pass: IssuePass, deliver: Deliver = deliver) -> None:
        self.engine = engine
        self.outbox = Outbox(engine.database)
        self.addresses = Addresses(engine.settings, engine.keys)
        self.deliver = deliver
        self.issue_pass = issue_pass
        self._cursor = LedgerCursor(engine.ledger, CURSOR_KEY, lambda entry: entry.kind in NOTIFIED_KINDS)
        self.senders = {surface: Sender(self, surface) for surface in Surface}
        self._follower = Background("clawpy-notify", self._follow)
        self._subscription: Subscription | None = None
        self._has_caught_up = False
        self._closed = threading.Event()

    # -- life cycle

    def start(self) -> None:
        """Begin to follow events in threads. Without them, call `catch_up`, and `deliver_due` of the `senders`."""
        self._subscription = self.engine.bus.subscribe(self._follower.wake, capacity=1_000)
        self._follower.wake()

    def close(self) -> None:
        """Stop. Safe to call twice."""
        self._closed.set()
        if self._subscription is not None:
            self._subscription.close()
        threads = [sender.background for sender in self.senders.values()] + [self._follower]
        for thread in threads:
            thread.close(0)
        end = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in threads:
            thread.close(max(0.0, end - time.monotonic()))

    def _follow(self) -> None:
        assert self._subscription is not None
        events = self._subscription.drain()
        # Most events are not notified; for them the ledger is not read.
        is_concerned = self._subscription.dropped or any(event.kind in NOTIFIED_KINDS for event in events)
        if self._has_caught_up and not is_concerned:
            return
        self._has_caught_up = True
        try:
            self._wake(self.outbox.waiting_surfaces())
            self.catch_up()
        except Exception:  # for instance a full disk: nothing was handled, and the next attempt reads it again
            if not self._closed.is_set():
                log.exception("what happened could not be read; it is read again when more happens")

    def _wake(self, surfaces: Iterable[Surface]) -> None:
        """Wake the threads of these surfaces. Nothing happens before `start`."""
        if self._subscription is not None:
            for surface in surfaces:
                self.senders[surface].background.wake()

    # -- storing notifications

    def catch_up(self) -> None:
        """Store notifications for the new ledger entries, in the calling thread."""
        self._cursor.handle_new(self._store)

    def _store(self, entries: Sequence[LedgerEntry]) -> None:
        now = self.engine.clock.now()
        rows = [row for entry in entries if now - entry.at < MAX_AGE for row in self._make_rows(entry, now)]
        if self.outbox.put(rows):
            self._wake({Surface(row.surface) for row in rows})

    def _make_rows(self, entry: LedgerEntry, now: datetime) -> list[NotificationRow]:
        """The rows for a ledger entry. Low notifications are collected, and in quiet hours all that are not urgent."""
        try:
            kind = find_notification_kind(entry)
        except (KeyError, TypeError):  # an entry of another version is skipped, so that the next ones are handled
            log.exception("a %s cannot be understood and is not sent", entry.kind)
            return []
        if kind is None:
            return []
        urgency = URGENCY[kind]
        is_quiet = urgency is not Urgency.URGENT and bool(self.engine.autonomy.quiet())
        is_in_digest = urgency is Urgency.LOW and not is_quiet
        digest_minutes = self.engine.settings.current.notify.digest_minutes if is_in_digest else 0
        return [
            NotificationRow(
                entry_id=entry.id,
                surface=surface.value,
                kind=kind.value,
                subject=entry.subject,
                urgent=urgency is Urgency.URGENT,
                is_collected=is_quiet or digest_minutes > 0,
                created_at=now,
                due_at=now + timedelta(minutes=digest_minutes),
                changed_at=now,
            )
            for surface in FORMS[kind]
            if self.is_enabled(surface)
        ]

    def is_enabled(self, surface: Surface) -> bool:
        """Whether a surface has an address and is switched on."""
        return is_switched_on(surface, self.engine.settings.current) and self.addresses.is_configured(surface)

    # -- undelivered notifications

    def waiting(self) -> list[Waiting]:
        """Surfaces with undelivered notifications, for the queue (SPEC 9.3)."""
        return [
            Waiting("notification", f"{WAITING_PREFIX}{undelivered.surface}", undelivered.title, undelivered.since)
            for undelivered in self.outbox.undelivered()
        ]

    def retry_waiting(self, waiting_id: str) -> int:
        """Send the notifications of an entry in the queue again; returns their number."""
        return self.retry(Surface(waiting_id.removeprefix(WAITING_PREFIX)))

    def dismiss_waiting(self, waiting_id: str) -> int:
        """Dismiss the notifications of an entry in the queue; returns their number."""
        return self.outbox.dismiss(Surface(waiting_id.removeprefix(WAITING_PREFIX)))

    def retry(self, surface: Surface | None) -> int:
        """Send again the notifications that were given up, on one surface or all; returns their number."""
        revived = self.outbox.revive(surface)
        for sender_surface, sender in self.senders.items():
            if surface in (None, sender_surface):
                sender.blocked_until = None
        self._wake(self.outbox.waiting_surfaces())
        return revived

    # -- the verb

    def test(self, surface: Surface | None) -> list[Document]:
        """Send a test to a surface, or to all that have an address. Returns the results. Raises `Refusal`
        `no_surface`."""
        tested_surfaces = [surface] if surface else list(filter(self.addresses.is_configured, Surface))
        if not tested_surfaces:
            raise Refusal("no_surface", "no address is set", EXAMPLE_FIX.format("phone"))
        return list(map(self._test, tested_surfaces))

    def _test(self, surface: Surface) -> Document:
        reply: Document = {"surface": surface.value, "delivered": False}
        try:
            address = self.addresses.of(surface)
        except Refusal as refusal:
            return reply | {"message": refusal.message, "fix": refusal.fix}
        if address is None:
            return reply | {"message": f"{surface} has no address", "fix": EXAMPLE_FIX.format(surface)}
        now, message = self.engine.clock.now(), f"a test of the {surface}: notifications arrive"
        content = NotificationContent(NotificationKind.COMPLETED, now, message)
        form = FORMS[NotificationKind.NEW_HIGH][surface]
        note = make_note(content, form, pending=len(self.engine.cards.list_pending()), now=now)
        if failure := self.deliver(address, note, {}):
            return reply | {"message": failure.message, "fix": f"is its address right? clawpy notify set {surface}"}
        return reply | {"delivered": True, "message": "accepted by the service; check whether it arrived", "fix": ""}

    def surfaces(self) -> list[Document]:
        """Each surface with its address and its undelivered notifications."""
        undelivered_by_surface = {undelivered.surface: undelivered for undelivered in self.outbox.undelivered()}
        replies = []
        for surface in Surface:
            undelivered = undelivered_by_surface.get(surface)
            replies.append(
                {
                    "surface": surface.value,
                    **self._describe_address(surface),
                    "undelivered": undelivered.count if undelivered else 0,
                    "since": instant(undelivered.since) if undelivered else None,
                    "why": undelivered.reason if undelivered else self.senders[surface].last_failure,
                }
            )
        return replies

    def _describe_address(self, surface: Surface) -> Document:
        """The service of a surface, or what is missing to use it."""
        is_on, setting = is_switched_on(surface, self.engine.settings.current), get_setting_name(surface)
        reply: Document = {"service": "", "source": "", "enabled": is_on, "message": "", "fix": ""}
        try:
            address = self.addresses.of(surface)
        except Refusal as refusal:
            return reply | {"message": refusal.message, "fix": refusal.fix}
        if address is None:
            fix = f"clawpy notify set {surface}, or set {make_address_variable(surface)}"
            return reply | {"message": "no address", "fix": fix}
        reply |= {"service": address.service, "source": address.source}
        return reply if is_on else reply | {"message": f"{setting} is off", "fix": f"clawpy config set {setting} true"}


class DeliveryPlan(NamedTuple):
    """What is sent to a surface now."""

    batch: Sequence[NotificationRow]
    """The rows to send now as one notification."""
    wait: float | None
    """Seconds until the next check; None if nothing waits."""


def plan_delivery(waiting: Sequence[NotificationRow], now: datetime, *, quiet: bool) -> DeliveryPlan:
    """The plan for the rows that wait for a surface. Urgent rows come first, then the oldest. Collected rows are sent
    together, also those that are not due yet."""
    sendable = sorted((row for row in waiting if row.urgent or not quiet), key=lambda row: (not row.urgent, row.id))
    first = next((row for row in sendable if row.due_at <= now), None)
    if first is None:
        waits = [(row.due_at - now).total_seconds() for row in sendable]
        if len(sendable) < len(waiting):
            waits.append(QUIET_POLL_S)
        return DeliveryPlan((), min(waits, default=None))
    batch = [row for row in sendable if row.is_collected] if first.is_collected else [first]
    return DeliveryPlan(batch[:MAX_BATCH_NOTIFICATIONS], 0.0)


class Sender:
    """Delivers to one surface. A row is marked after its delivery, so after a crash it may be delivered twice but is
    never lost. After a failure, delivery is tried again at growing intervals for a day."""

    def __init__(self, service: Notifications, surface: Surface) -> None:
        self.last_failure = ""
        """Why the last delivery failed, "" if it did not."""
        self.blocked_until: datetime | None = None
        """The time before which nothing is tried after a failure."""
        self.background = Background(f"clawpy-notify-{surface}", self._work, interruptible=True)
        self._service = service
        self._surface = surface
        self._failures = 0
        self._lock = threading.Lock()

    def _work(self) -> float | None:
        try:
            wait = self.deliver_due()
        except Exception as error:
            if isinstance(error, Refusal) and error.code == "engine_closed":
                return None
            log.exception("the %s gets no notifications for a while", self._surface)
            return BACKOFF_S[-1]
        return None if wait is None else min(wait, MAX_WAIT_S)

    def deliver_due(self) -> float | None:
        """Deliver the notifications that are due. Returns the seconds until the next step: 0 for at once, None if
        nothing waits."""
        engine = self._service.engine
        with self._lock:
            now, rows = engine.clock.now(), self._service.outbox.waiting(self._surface)
            if rows and self.blocked_until is not None and now < self.blocked_until:
                return (self.blocked_until - now).total_seconds()
            batch, wait = plan_delivery(rows, now, quiet=bool(engine.autonomy.quiet()))
            return self._send(batch) if batch else wait

    def _send(self, rows: Sequence[NotificationRow]) -> float:
        """Send rows as one note; returns the seconds until the next step."""
        service, outbox = self._service, self._service.outbox
        notes = {row.id: note for row in rows if (note := self._make_note(row)) is not None}
        outbox.finish([row for row in rows if row.id not in notes], DeliveryState.DROPPED, "overtaken")
        rows = [row for row in rows if row.id in notes]
        if not service.is_enabled(self._surface):
            outbox.finish(rows, DeliveryState.DROPPED, "notifications there were switched off")
        elif rows:
            note = make_digest(list(notes.values())) if len(notes) > 1 else next(iter(notes.values()))
            failure = self._deliver(note)
            if failure is not None:
                return self._count_failure(rows, failure)
            outbox.finish(rows, DeliveryState.SENT)
            self._failures, self.blocked_until, self.last_failure = 0, None, ""
        return 0.0

    def _count_failure(self, rows: Sequence[NotificationRow], failure: DeliveryFailure) -> float:
        """Give up rows that will not be tried again, and postpone the others. Returns the seconds until the next
        attempt."""
        now, outbox = self._service.engine.clock.now(), self._service.outbox
        pause = BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
        self._failures += 1
        self.blocked_until, self.last_failure = now + timedelta(seconds=pause), failure.message
        over = [row for row in rows if failure.lasting or row.tries + 1 >= MAX_TRIES or now - row.created_at >= MAX_AGE]
        if over:
            outbox.give_up(self._surface, over, failure.message)
        outbox.postpone([row for row in rows if row not in over], self.blocked_until, failure.message)
        return pause

    def _make_note(self, row: NotificationRow) -> Note | None:
        """The present note of a row, None if it is no longer needed."""
        engine, form = self._service.engine, FORMS[NotificationKind(row.kind)].get(self._surface)
        entry = next(iter(engine.ledger.since(row.entry_id - 1, 1)), None)
        if form is None or entry is None or entry.id != row.entry_id:
            return None
        now = engine.clock.now()
        content = make_content(entry, engine.cards.get, engine.sessions.get, now)
        if content is None:
            return None
        secrets = (*engine.keys.secrets(), *self._service.addresses.secrets())
        return make_note(content, form, pending=len(engine.cards.list_pending()), now=now, secrets=secrets)

    def _deliver(self, note: Note) -> DeliveryFailure | None:
        """Deliver a note now; returns None on success."""
        service = self._service
        try:
            address = service.addresses.of(self._surface)
            if address is None:
                return DeliveryFailure("it has no address", lasting=True)
            buttons = make_buttons(service.engine, service.issue_pass, note.prediction_id, note.actions)
            return service.deliver(address, note, buttons)
        except Refusal as refusal:
            return DeliveryFailure(refusal.message, lasting=True)
        except Exception as error:
            # Only the type of a library's error is logged, because its message may contain the address.
            log.warning("the %s could not be reached: %s", self._surface, type(error).__name__)
            return DeliveryFailure(f"its delivery failed ({type(error).__name__})")
