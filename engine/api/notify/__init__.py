"""Notifications on the surfaces that the operator configured (SPEC 10.2).

Here is the service `engine.notify`, which stores a notification for each event that a surface shows, and has it sent.
`Engine` builds it, starts it with its schedule, and closes it. The queue shows what was not delivered. The verb
`notify` lists it, sends it again, or sends a test.

`addresses` finds the address of a surface. `notes` decides which events are notified on which surface, and writes the
texts. `outbox` stores notifications that wait or were given up, and a `sender` for each surface sends them. `delivery`
sends one note in the form that its service shows.

Each surface has its own `Sender` with a thread, so that a service that does not answer delays no other. In quiet hours
only urgent notifications are sent; the others follow in the morning.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from engine.api.documents import Document, instant
from engine.api.notify.addresses import EXAMPLE_FIX, Addresses, get_setting_name, is_switched_on
from engine.api.notify.delivery import Deliver, deliver
from engine.api.notify.notes import (
    FORMS,
    NOTIFIED_KINDS,
    URGENCY,
    NotificationContent,
    NotificationKind,
    Urgency,
    find_notification_kind,
    make_note,
)
from engine.api.notify.outbox import NotificationRow, Outbox
from engine.api.notify.sender import MAX_NOTIFICATION_AGE, IssuePass, Sender
from engine.background import BackgroundWorker
from engine.config.external_sections import Surface, make_address_variable
from engine.events import Subscription
from engine.model import Refusal, Waiting
from engine.storage.ledger import LedgerCursor, LedgerEntry

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

CURSOR_KEY = "notify.read"
"""Key in the state table: the last ledger entry for which notifications were stored."""

CLOSE_TIMEOUT_S = 1.0
"""Seconds that `close` waits for a delivery in progress. If it is not finished then, it is repeated at the next
start."""

WAITING_PREFIX = "notify-"
"""The prefix of an id in the queue, which is followed by the name of a surface."""


class Notifications:
    """The service. Callable from any thread."""

    def __init__(
        self,
        engine: Services,
        *,
        issue_pass: IssuePass,
        addresses: Addresses | None = None,
        deliver_note: Deliver = deliver,
    ) -> None:
        """By default the addresses are those of the settings, the key stores and the environment."""
        self.outbox = Outbox(engine.database)
        self.addresses = addresses or Addresses(engine.settings, engine.keys)
        self.senders = {
            surface: Sender(
                engine,
                self.outbox,
                surface,
                addresses=self.addresses,
                issue_pass=issue_pass,
                deliver_note=deliver_note,
            )
            for surface in Surface
        }
        self._engine = engine
        self._deliver_note = deliver_note
        self._cursor = LedgerCursor(engine.ledger, CURSOR_KEY, lambda entry: entry.kind in NOTIFIED_KINDS)
        self._follower = BackgroundWorker("clawpy-notify", self._follow)
        self._subscription: Subscription | None = None
        self._has_caught_up = False
        self._closed = threading.Event()

    # Life cycle

    def start(self) -> None:
        """Begin to follow events in threads. Without them, call `catch_up`, and `deliver_due` of the `senders`."""
        self._subscription = self._engine.bus.subscribe(self._follower.wake, capacity=1_000)
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
            self._wake(self.outbox.find_waiting_surfaces())
            self.catch_up()
        except Exception:  # for instance a full disk: nothing was handled, and the next attempt reads it again
            if not self._closed.is_set():
                log.exception("what happened could not be read; it is read again when more happens")

    def _wake(self, surfaces: Iterable[Surface]) -> None:
        """Wake the threads of these surfaces. Nothing happens before `start`."""
        if self._subscription is not None:
            for surface in surfaces:
                self.senders[surface].background.wake()

    # Storing notifications

    def catch_up(self) -> None:
        """Store notifications for the new ledger entries, in the calling thread."""
        self._cursor.handle_new(self._store)

    def _store(self, entries: Sequence[LedgerEntry]) -> None:
        now = self._engine.clock.now()
        recent_entries = [entry for entry in entries if now - entry.at < MAX_NOTIFICATION_AGE]
        rows = [row for entry in recent_entries for row in self._make_rows(entry, now)]
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
        is_urgent = URGENCY[kind] is Urgency.URGENT
        waits_for_morning = not is_urgent and bool(self._engine.autonomy.find_quiet_reason())
        has_window = URGENCY[kind] is Urgency.LOW and not waits_for_morning
        window = timedelta(minutes=self._engine.settings.current.notify.digest_minutes if has_window else 0)
        return [
            NotificationRow(
                entry_id=entry.id,
                surface=surface.value,
                kind=kind.value,
                subject=entry.subject,
                urgent=is_urgent,
                is_collected=waits_for_morning or bool(window),
                created_at=now,
                due_at=now + window,
                changed_at=now,
            )
            for surface in FORMS[kind]
            if self.senders[surface].is_enabled
        ]

    # Undelivered notifications

    def waiting(self) -> list[Waiting]:
        """Surfaces with undelivered notifications, for the queue (SPEC 9.3)."""
        return [
            Waiting("notification", f"{WAITING_PREFIX}{undelivered.surface}", undelivered.title, undelivered.since)
            for undelivered in self.outbox.list_undelivered()
        ]

    def retry_waiting(self, waiting_id: str) -> int:
        """Send the notifications of an entry in the queue again; returns their number."""
        return self.retry(Surface(waiting_id.removeprefix(WAITING_PREFIX)))

    def dismiss_waiting(self, waiting_id: str) -> int:
        """Dismiss the notifications of an entry in the queue; returns their number."""
        return self.outbox.dismiss(Surface(waiting_id.removeprefix(WAITING_PREFIX)))

    def retry(self, surface: Surface | None) -> int:
        """Send again the notifications that were given up, on one surface or all; returns their number."""
        retried_count = self.outbox.retry(surface, self._engine.clock.now())
        for sender_surface, sender in self.senders.items():
            if surface in (None, sender_surface):
                sender.end_pause()
        self._wake(self.outbox.find_waiting_surfaces())
        return retried_count

    # The verb

    def send_test(self, surface: Surface | None) -> list[Document]:
        """Send a test to a surface, or to all that have an address. Returns the results. Raises `Refusal`
        `no_surface`."""
        tested_surfaces = [surface] if surface else list(filter(self.addresses.is_configured, Surface))
        if not tested_surfaces:
            raise Refusal("no_surface", "no address is set", EXAMPLE_FIX.format("phone"))
        return list(map(self._send_test, tested_surfaces))

    def _send_test(self, surface: Surface) -> Document:
        reply: Document = {"surface": surface.value, "delivered": False}
        try:
            address = self.addresses.find(surface)
        except Refusal as refusal:
            return reply | {"message": refusal.message, "fix": refusal.fix}
        if address is None:
            return reply | {"message": f"{surface} has no address", "fix": EXAMPLE_FIX.format(surface)}
        now, message = self._engine.clock.now(), f"a test of the {surface}: notifications arrive"
        content = NotificationContent(NotificationKind.COMPLETED, now, message)
        form = FORMS[NotificationKind.NEW_HIGH][surface]
        note = make_note(content, form, pending=len(self._engine.cards.list_pending()), now=now)
        if failure := self._deliver_note(address, note, {}):
            return reply | {"message": failure.message, "fix": f"is its address right? clawpy notify set {surface}"}
        return reply | {"delivered": True, "message": "accepted by the service; check whether it arrived", "fix": ""}

    def describe_surfaces(self) -> list[Document]:
        """Each surface with its address and its undelivered notifications."""
        undelivered_by_surface = {undelivered.surface: undelivered for undelivered in self.outbox.list_undelivered()}
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
        is_on, setting = is_switched_on(surface, self._engine.settings.current), get_setting_name(surface)
        reply: Document = {"service": "", "source": "", "enabled": is_on, "message": "", "fix": ""}
        try:
            address = self.addresses.find(surface)
        except Refusal as refusal:
            return reply | {"message": refusal.message, "fix": refusal.fix}
        if address is None:
            fix = f"clawpy notify set {surface}, or set {make_address_variable(surface)}"
            return reply | {"message": "no address", "fix": fix}
        reply |= {"service": address.service, "source": address.source}
        return reply if is_on else reply | {"message": f"{setting} is off", "fix": f"clawpy config set {setting} true"}
