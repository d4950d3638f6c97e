"""Reads events from the ledger, stores notifications in the outbox, and has them delivered (SPEC 10.2)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from engine.api.notify import outbox
from engine.api.notify.delivery import Address, Addresses, Button, Failure, PassFor, deliver, make_buttons
from engine.api.notify.notes import (
    FACT_KINDS,
    FORMS,
    URGENCY,
    Note,
    NotificationContent,
    NotificationKind,
    Urgency,
    content_of,
    is_switched_on,
    kind_of,
    make_note,
)
from engine.api.notify.outbox import NotificationRow, Outbox, SurfaceSender
from engine.background import Background
from engine.config.sections import Surface
from engine.events import Subscription
from engine.model import Refusal, Waiting
from engine.storage.ledger import LedgerCursor, LedgerEntry

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

CURSOR_KEY = "notify.read"

CLOSE_TIMEOUT_S = 1.0
"""Seconds that `close` waits for a delivery in progress; it is marked, or repeated at the next start."""

WAITING_PREFIX = "notify-"
"""The prefix of an id in the queue; the name of a surface follows."""

Deliver = Callable[[Address, Note, Mapping[str, Button]], Failure | None]


class Notifications:
    """The service `engine.notify`. Callable from any thread."""

    def __init__(self, engine: Services, *, pass_for: PassFor, deliver: Deliver = deliver) -> None:
        self.outbox = Outbox(engine.database)
        self.addresses = Addresses(engine.settings, engine.keys)
        self.deliver = deliver
        self.pass_for = pass_for
        self._engine = engine
        self._cursor = LedgerCursor(engine.ledger, CURSOR_KEY, lambda fact: fact.kind in FACT_KINDS)
        self._senders = {
            surface: SurfaceSender(
                engine,
                self.outbox,
                surface,
                note_of=self._note_of,
                is_enabled=self.is_enabled,
                deliver=self._deliver_to,
            )
            for surface in Surface
        }
        self._follower = Background("clawpy-notify", self._follow)
        self._subscription: Subscription | None = None
        self._has_caught_up = False
        self._closed = threading.Event()

    # -- life cycle

    def start(self) -> None:
        """Start to follow events. Without it somebody calls `catch_up` and `step`."""
        self._subscription = self._engine.bus.subscribe(self._follower.wake, capacity=1_000)
        self._follower.wake()

    def close(self) -> None:
        """Stop. Safe to call twice."""
        self._closed.set()
        if self._subscription is not None:
            self._subscription.close()
        threads = [sender.background for sender in self._senders.values()] + [self._follower]
        for thread in threads:
            thread.close(0)
        end = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in threads:
            thread.close(max(0.0, end - time.monotonic()))

    def _follow(self) -> None:
        assert self._subscription is not None
        events = self._subscription.drain()
        # Most of what happens concerns nobody outside; then the ledger is not even asked.
        is_concerned = self._subscription.dropped or any(event.kind in FACT_KINDS for event in events)
        if self._has_caught_up and not is_concerned:
            return
        self._has_caught_up = True
        try:
            self._wake(self.outbox.waiting_surfaces())
            self.catch_up()
        except Exception:  # a full disk, for instance: nothing was handled, and comes again
            if not self._closed.is_set():
                log.exception("what happened could not be read; it is read again when more happens")

    def _wake(self, surfaces: Iterable[Surface]) -> None:
        if self._subscription is not None:
            for surface in surfaces:
                self._senders[surface].background.wake()

    # -- facts

    def catch_up(self) -> None:
        """Store notifications for what happened since the last time, in this thread."""
        self._cursor.each(self._store)

    def _store(self, facts: Sequence[LedgerEntry]) -> None:
        now = self._engine.clock.now()
        rows = [row for fact in facts if now - fact.at < outbox.MAX_AGE for row in self._rows_of(fact, now)]
        if self.outbox.put(rows):
            self._wake({Surface(row.surface) for row in rows})

    def _rows_of(self, fact: LedgerEntry, now: datetime) -> list[NotificationRow]:
        try:
            kind = kind_of(fact)
        except (KeyError, TypeError):  # of another version; what comes after it is not held up
            log.exception("a %s cannot be understood and is not sent", fact.kind)
            return []
        if kind is None:
            return []
        urgency = URGENCY[kind]
        window = timedelta(minutes=self._engine.settings.current.notify.digest_minutes)
        gathered, due = outbox.schedule(urgency, now, quiet=self._engine.autonomy.quiet(), window=window)
        return [
            NotificationRow(
                fact_id=fact.id,
                surface=surface.value,
                happening=kind.value,
                subject=fact.subject,
                urgent=urgency is Urgency.URGENT,
                gathered=gathered,
                created_at=now,
                due_at=due,
                changed_at=now,
            )
            for surface in FORMS[kind]
            if self.is_enabled(surface)
        ]

    def is_enabled(self, surface: Surface) -> bool:
        """Whether a surface has an address and is switched on."""
        return is_switched_on(surface, self._engine.settings.current) and self.addresses.is_configured(surface)

    # -- delivery

    def step(self, surface: Surface) -> float | None:
        """See `SurfaceSender.step`."""
        return self._senders[surface].step()

    def test(self, surface: Surface) -> Failure | None:
        """Send a test notification now; None when it was accepted.

        Raises `Refusal` as `Addresses.of`, and `no_surface` without an address.
        """
        address = self.addresses.of(surface)
        if address is None:
            fix = f"clawpy notify set {surface}, then paste, for example, ntfys://ntfy.sh/my-secret-topic"
            raise Refusal("no_surface", f"{surface} has no address", fix)
        now, words = self._engine.clock.now(), f"a test of the {surface}: notifications arrive"
        content = NotificationContent(NotificationKind.COMPLETED, now, words)
        form = FORMS[NotificationKind.NEW_HIGH][surface]
        return self.deliver(address, make_note(content, form, pending=len(self._engine.cards.pending()), now=now), {})

    def _note_of(self, row: NotificationRow) -> Note | None:
        engine, form = self._engine, FORMS[NotificationKind(row.happening)].get(Surface(row.surface))
        fact = next(iter(engine.ledger.since(row.fact_id - 1, 1)), None)
        if form is None or fact is None or fact.id != row.fact_id:
            return None
        now = engine.clock.now()
        content = content_of(fact, engine.cards.get, engine.sessions.get, now)
        if content is None:
            return None
        secrets = (*engine.keys.secrets(), *self.addresses.secrets())
        return make_note(content, form, pending=len(engine.cards.pending()), now=now, secrets=secrets)

    def _deliver_to(self, surface: Surface, note: Note) -> Failure | None:
        try:
            address = self.addresses.of(surface)
        except Refusal as refusal:
            return Failure(refusal.message, lasting=True)
        if address is None:
            return Failure("it has no address", lasting=True)
        try:
            return self.deliver(
                address, note, make_buttons(self._engine, self.pass_for, note.prediction_id, note.actions)
            )
        except Exception as error:
            # Of a library's fault only the kind is told: its words may hold the address.
            log.warning("the %s could not be reached: %s", surface, type(error).__name__)
            return Failure(f"its delivery failed ({type(error).__name__})")

    # -- what was not delivered

    def waiting(self) -> list[Waiting]:
        """Surfaces with undelivered notifications, for the queue (SPEC 9.3)."""
        return [
            Waiting("notification", f"{WAITING_PREFIX}{notes.surface}", notes.title, notes.since)
            for notes in self.outbox.undelivered()
        ]

    def trouble(self, surface: Surface) -> str:
        """Why the last delivery to a surface failed, "" when it did not."""
        return self._senders[surface].trouble

    def retry_waiting(self, waiting_id: str) -> int:
        """Send again what an entry of the queue is about; the number of notifications."""
        return self.retry(_surface_of(waiting_id))

    def dismiss_waiting(self, waiting_id: str) -> int:
        """Dismiss what an entry of the queue is about; the number of notifications."""
        return self.outbox.dismiss(_surface_of(waiting_id))

    def retry(self, surface: Surface | None) -> int:
        """Send again what was given up, on all surfaces or one; the number of notifications."""
        revived = self.outbox.revive(surface)
        for each, sender in self._senders.items():
            if surface in (None, each):
                sender.blocked_until = None
        self._wake(self.outbox.waiting_surfaces())
        return revived


def _surface_of(waiting_id: str) -> Surface:
    return Surface(waiting_id.removeprefix(WAITING_PREFIX))
