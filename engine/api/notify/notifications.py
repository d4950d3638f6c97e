"""Reads events from the ledger, stores notifications in the outbox, and delivers them (SPEC 10.2).

Each surface has its own thread and its own back-off, so that a dead service delays no other. A row is marked after its
delivery: a crash in between delivers it twice, and never loses it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from engine.api.notify import moments, notes, timing
from engine.api.notify.addresses import Address, Addresses
from engine.api.notify.delivery import Button, Failure, PassFor, buttons, deliver
from engine.api.notify.matrix import URGENCY, Happening, Urgency, form_of, is_allowed
from engine.api.notify.notes import Note
from engine.api.notify.outbox import DeliveryState, NotificationRow, Outbox, UndeliveredNotes
from engine.background import Background
from engine.config.notify import Surface
from engine.events import Subscription
from engine.model import Refusal, Waiting
from engine.storage.ledger import LedgerCursor, LedgerEntry

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

CURSOR = "notify.read"
CLOSE_SECONDS = 1.0
"""Seconds that `close` waits for a delivery in progress; it is marked, or repeated at the next start."""

MAX_WAIT = 3600.0
"""Seconds until a surface with something to send is looked at again: a laptop may have slept."""

UNDELIVERED = "notify-"
"""The prefix of an id in the queue; the name of a surface follows."""

PRUNE_EVERY = timedelta(hours=6)

Deliver = Callable[[Address, Note, Mapping[str, Button]], Failure | None]


class Notifications:
    """The service `engine.notify`. Callable from any thread."""

    def __init__(self, engine: Services, *, pass_for: PassFor, deliver: Deliver = deliver) -> None:
        self.outbox = Outbox(engine.database)
        self.addresses = Addresses(engine.settings, engine.keys)
        self.deliver = deliver
        self.pass_for = pass_for
        self._engine = engine
        self._read = LedgerCursor(engine.ledger, CURSOR, lambda fact: fact.kind in moments.KINDS)
        self._senders = {surface: _Sender(self, engine, surface) for surface in Surface}
        self._follower = Background("clawpy-notify", self._follow)
        self._subscription: Subscription | None = None
        self._begun = False
        self._closed = threading.Event()
        self._pruned: datetime | None = None

    # -- life

    def start(self) -> None:
        """Start to follow events. Without it somebody calls `catch_up` and `step`."""
        self._subscription = self._engine.bus.subscribe(self._follower.wake, capacity=1_000)
        self._follower.wake()

    def close(self) -> None:
        """Stop. Safe to call twice."""
        self._closed.set()
        if self._subscription is not None:
            self._subscription.close()
        workers = [sender.background for sender in self._senders.values()] + [self._follower]
        for worker in workers:
            worker.close(0)
        end = time.monotonic() + CLOSE_SECONDS
        for worker in workers:
            worker.close(max(0.0, end - time.monotonic()))

    def _follow(self) -> None:
        assert self._subscription is not None
        events, was_begun = self._subscription.drain(), self._begun
        # Most of what happens concerns nobody outside; then the ledger is not even asked.
        if was_begun and not self._subscription.dropped and all(event.kind not in moments.KINDS for event in events):
            return
        self._begun = True
        try:
            self._wake_senders()
            self.catch_up()
        except Exception:  # a full disk, for instance: nothing was taken, and comes again
            if not self._closed.is_set():
                log.exception("what happened could not be read; it is read again when more happens")

    def _wake_senders(self) -> None:
        for surface in self.outbox.surfaces():
            self._wake(surface)

    def _wake(self, surface: Surface) -> None:
        if self._subscription is not None:
            self._senders[surface].background.wake()

    # -- facts

    def catch_up(self) -> None:
        """Store notifications for what happened since the last time, in this thread."""
        self._read.each(self._take)

    def _take(self, facts: Sequence[LedgerEntry]) -> None:
        now = self._engine.clock.now()
        rows = [row for fact in facts if now - fact.at < timing.MAX_AGE for row in self._rows(fact, now)]
        if self.outbox.put(rows):
            for surface in {row.surface for row in rows}:
                self._wake(Surface(surface))
        if self._pruned is None or now - self._pruned >= PRUNE_EVERY:
            self._pruned = now
            self.outbox.prune()

    def _rows(self, fact: LedgerEntry, now: datetime) -> list[NotificationRow]:
        try:
            happening = moments.happening_of(fact)
        except (KeyError, TypeError):  # of another version; what comes after it is not held up
            log.exception("a %s cannot be understood and is not sent", fact.kind)
            return []
        if happening is None:
            return []
        urgency = URGENCY[happening]
        window = timedelta(minutes=self._engine.settings.current.notify.digest_minutes)
        gathered, due = timing.schedule(urgency, now, quiet=self._engine.autonomy.quiet(), window=window)
        return [
            NotificationRow(
                fact_id=fact.id,
                surface=surface.value,
                happening=happening.value,
                subject=fact.subject,
                urgent=urgency is Urgency.URGENT,
                gathered=gathered,
                created_at=now,
                due_at=due,
                changed_at=now,
            )
            for surface in Surface
            if form_of(happening, surface) and self.is_enabled(surface)
        ]

    def is_enabled(self, surface: Surface) -> bool:
        """Whether a surface has an address and is switched on."""
        return is_allowed(surface, self._engine.settings.current) and self.addresses.is_configured(surface)

    # -- delivery

    def step(self, surface: Surface) -> float | None:
        """Deliver what is due on a surface. Returns the seconds until the next look: 0 for at once, None when nothing
        waits."""
        return self._senders[surface].step()

    def test(self, surface: Surface) -> Failure | None:
        """Send a test notification now; None when it was accepted.

        Raises `Refusal` as `Addresses.of`, and `no_surface` without an address.
        """
        address = self.addresses.of(surface)
        if address is None:
            fix = f"clawpy notify set {surface.value}, then paste, for example, ntfys://ntfy.sh/my-secret-topic"
            raise Refusal("no_surface", f"{surface.value} has no address", fix)
        form = form_of(Happening.NEW_HIGH, surface) or form_of(Happening.COMPLETED, surface)
        assert form is not None
        now = self._engine.clock.now()
        subject = moments.Moment(Happening.COMPLETED, now, f"a test of the {surface.value}: notifications arrive")
        return self.deliver(address, notes.note(subject, form, pending=len(self._engine.cards.pending()), now=now), {})

    def note(self, row: NotificationRow) -> Note | None:
        """The note of a row as it is now; None when it is no longer needed."""
        engine, form = self._engine, form_of(Happening(row.happening), Surface(row.surface))
        fact = next(iter(engine.ledger.since(row.fact_id - 1, 1)), None)
        if form is None or fact is None or fact.id != row.fact_id:
            return None
        now = engine.clock.now()
        subject = moments.moment(fact, engine.cards.get, engine.sessions.get, now)
        if subject is None:
            return None
        secrets = (*engine.keys.secrets(), *self.addresses.secrets())
        return notes.note(subject, form, pending=len(engine.cards.pending()), now=now, secrets=secrets)

    # -- looking

    def waiting(self) -> list[Waiting]:
        """Surfaces with undelivered notifications, for the queue (SPEC 9.3)."""
        return [
            Waiting("notification", f"{UNDELIVERED}{dead.surface.value}", _undelivered(dead), dead.since)
            for dead in self.outbox.dead()
        ]

    def trouble(self, surface: Surface) -> str:
        """Why a surface is in back-off, "" when it is not."""
        return self._senders[surface].trouble

    def retry_waiting(self, waiting_id: str) -> int:
        """`retry` by the id of an entry of the queue."""
        return self.retry(Surface(waiting_id.removeprefix(UNDELIVERED)))

    def dismiss_waiting(self, waiting_id: str) -> int:
        """Dismiss what an entry of the queue is about; the number of notifications."""
        return self.outbox.dismiss(Surface(waiting_id.removeprefix(UNDELIVERED)))

    def retry(self, surface: Surface | None = None) -> int:
        """Send again what was given up, at once; the number of notifications."""
        revived = self.outbox.revive(surface)
        for each, sender in self._senders.items():
            if surface in (None, each):
                sender.shut_until = None
        self._wake_senders()
        return revived


class _Sender:
    """Delivers to one surface. `shut_until`: it failed, and is not tried before then."""

    def __init__(self, hub: Notifications, engine: Services, surface: Surface) -> None:
        self.trouble = ""
        self.shut_until: datetime | None = None
        self.background = Background(f"clawpy-notify-{surface.value}", self._work, interruptible=True)
        self._hub = hub
        self._engine = engine
        self._surface = surface
        self._failures = 0
        self._stepping = threading.Lock()

    def _work(self) -> float | None:
        try:
            wait = self.step()
        except Exception as error:
            if isinstance(error, Refusal) and error.code == "engine_closed":
                return None
            log.exception("the %s gets no notifications for a while", self._surface.value)
            return timing.BACKOFF[-1]
        return None if wait is None else min(wait, MAX_WAIT)

    def step(self) -> float | None:
        """See `Notifications.step`."""
        with self._stepping:
            return self._step()

    def _step(self) -> float | None:
        hub, now = self._hub, self._engine.clock.now()
        waiting = hub.outbox.waiting(self._surface)
        if not waiting:
            return None
        if self.shut_until is not None and now < self.shut_until:
            return (self.shut_until - now).total_seconds()
        plan = timing.plan(waiting, now, quiet=self._engine.autonomy.quiet())
        if not plan.batch:
            return plan.wait
        pairs = [(row, hub.note(row)) for row in plan.batch]
        hub.outbox.settle([row for row, note in pairs if note is None], DeliveryState.DROPPED, "overtaken")
        rows = [row for row, note in pairs if note is not None]
        sendable = [note for _, note in pairs if note is not None]
        if not hub.is_enabled(self._surface):
            hub.outbox.settle(rows, DeliveryState.DROPPED, "notifications there were switched off")
        elif sendable:
            failure = self._deliver(sendable[0] if len(sendable) == 1 else notes.digest(sendable))
            if failure is not None:
                return self._failed(rows, failure)
            hub.outbox.settle(rows, DeliveryState.SENT)
            self._failures, self.shut_until, self.trouble = 0, None, ""
        return 0.0

    def _deliver(self, note: Note) -> Failure | None:
        try:
            address = self._hub.addresses.of(self._surface)
        except Refusal as refusal:
            return Failure(refusal.message, lasting=True)
        if address is None:
            return Failure("it has no address", lasting=True)
        try:
            return self._hub.deliver(
                address, note, buttons(self._engine, self._hub.pass_for, note.prediction_id, note.actions)
            )
        except Exception as error:
            # Of a library's fault only the kind is told: its words may hold the address.
            log.warning("the %s could not be reached: %s", self._surface.value, type(error).__name__)
            return Failure(f"its delivery failed ({type(error).__name__})")

    def _failed(self, rows: Sequence[NotificationRow], failure: Failure) -> float:
        outbox, now = self._hub.outbox, self._engine.clock.now()
        self._failures += 1
        pause = timing.backoff_s(self._failures)
        self.shut_until, self.trouble = now + timedelta(seconds=pause), failure.words
        over = [row for row in rows if failure.lasting or timing.is_expired(row.tries + 1, now - row.created_at)]
        outbox.give_up(self._surface, over, failure.words)
        outbox.later([row for row in rows if row not in over], self.shut_until, failure.words)
        return pause


def _undelivered(dead: UndeliveredNotes) -> str:
    number = "a notification" if dead.count == 1 else f"{dead.count} notifications"
    return f"{dead.surface.value} missed {number}: {dead.note}"
