"""The router (SPEC 10.2): reads the ledger, fills the outbox, and delivers, each surface in a thread of its own.

The first thread follows the facts with a durable cursor and decides by the matrix who is to hear of them. Each surface
has a sender that waits for nobody but its own service: one that is dead delays nothing else. A row is marked after it
was delivered, so that a crash in between delivers it twice and never loses it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from engine.api.notify import moments, notes, timing
from engine.api.notify.addresses import Addresses
from engine.api.notify.delivery import AppriseCourier, Courier, Failure
from engine.api.notify.matrix import URGENCY, Happening, Urgency, allowed, form_of
from engine.api.notify.notes import Note
from engine.api.notify.outbox import Dead, NotificationRow, Outbox
from engine.api.notify.sender import Buttons, Sender
from engine.clock import Clock
from engine.config import SettingsSource
from engine.config_notify import Surface
from engine.events import EventBus, Subscription
from engine.model import Card, Refusal, SessionView, Waiting
from engine.storage.database import Database
from engine.storage.facts_read import Fact, Facts, FactsRead

log = logging.getLogger(__name__)

CURSOR = "notify.read"
CLOSE_SECONDS = 1.0
"""`close` waits so long for a delivery that is under way; it is marked or comes again at the next start."""

UNDELIVERED = "notify-"
"""How the id of an entry of the queue begins; a surface follows."""

PRUNE_EVERY = timedelta(hours=6)


class CardStack(Protocol):
    """The cards."""

    def get(self, card_id: str) -> Card: ...
    def pending(self) -> list[Card]: ...


class SessionList(Protocol):
    """The sessions."""

    def get(self, session_id: str) -> SessionView: ...


class Router:
    """`engine.notify`. All methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        bus: EventBus,
        settings: SettingsSource,
        addresses: Addresses,
        facts: Facts,
        cards: CardStack,
        sessions: SessionList,
        quiet: Callable[[], bool],
        secrets: Callable[[], Sequence[str]] = tuple,
        buttons: Buttons = lambda card_id, actions: {},
        courier: Courier | None = None,
    ) -> None:
        self.outbox = Outbox(database)
        self.clock = clock
        self._bus = bus
        self.settings = settings
        self.addresses = addresses
        self._facts = facts
        self._cards = cards
        self._sessions = sessions
        self.quiet = quiet
        self._secrets = secrets
        self.buttons = buttons
        self.courier = courier or AppriseCourier()
        self._read = FactsRead(database, facts, CURSOR, lambda fact: fact.kind in moments.KINDS)
        self._senders = {surface: Sender(self, surface) for surface in Surface}
        self._subscription: Subscription | None = None
        self._awake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._pruned: datetime | None = None

    # -- life

    def start(self) -> None:
        """Begin, with what happened while nobody followed."""
        self._subscription = self._bus.subscribe(self._awake.set, capacity=1_000)
        self._thread = threading.Thread(target=self._follow, name="clawpy-notify", daemon=True)  # before it begins
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether anything is delivered by itself; until then somebody calls `step`."""
        return self._thread is not None

    def close(self) -> None:
        """Stop. Safe to call twice."""
        self._closing.set()
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        self._awake.set()
        for sender in self._senders.values():
            sender.stop()
        end = time.monotonic() + CLOSE_SECONDS
        for sender in self._senders.values():
            sender.join(max(0.0, end - time.monotonic()))
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            self._thread = None

    def _follow(self) -> None:
        subscription = self._subscription
        assert subscription is not None
        concerns = True
        while not self._closing.is_set():
            if concerns:
                try:
                    self._wake_senders()
                    self.catch_up()
                except Exception:  # a full disk, for instance: nothing was taken, and comes again
                    if not self._closing.is_set():
                        log.exception("what happened could not be read; it is read again when more happens")
            self._awake.wait()
            self._awake.clear()
            # Most of what happens concerns nobody outside; then the ledger is not even asked.
            heard = subscription.drain()
            concerns = bool(subscription.dropped) or any(one.kind in moments.KINDS for one in heard)

    def _wake_senders(self) -> None:
        for surface in self.outbox.surfaces():
            self._senders[surface].wake()

    # -- facts

    def catch_up(self) -> None:
        """Put what happened since the last time into the outbox; in this thread."""
        self._read.each(self._take)

    def _take(self, facts: Sequence[Fact]) -> None:
        now = self.clock.now()
        rows = [row for fact in facts if now - fact.at < timing.OLDEST for row in self._rows(fact, now)]
        if self.outbox.put(rows):
            for surface in {row.surface for row in rows}:
                self._senders[Surface(surface)].wake()
        if self._pruned is None or now - self._pruned >= PRUNE_EVERY:
            self._pruned = now
            self.outbox.prune()

    def _rows(self, fact: Fact, now: datetime) -> list[NotificationRow]:
        try:
            happening = moments.happening_of(fact)
        except (KeyError, TypeError):  # of another version; what comes after it is not held up
            log.exception("a %s cannot be understood and is not sent", fact.kind)
            return []
        if happening is None:
            return []
        settings = self.settings.current
        wished = [
            surface
            for surface in Surface
            if form_of(happening, surface) and allowed(surface, settings) and self.addresses.named(surface)
        ]
        if not wished:
            return []
        window = timedelta(minutes=settings.notify.digest_minutes)
        urgency = URGENCY[happening]
        gathered, due = timing.entry(urgency, now, quiet=self.quiet(), window=window)
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
            for surface in wished
        ]

    # -- delivery

    def step(self, surface: Surface) -> float | None:
        """Deliver what goes next to a surface, if anything does. Returns after how many seconds to look again, 0 for at
        once, None when nothing waits."""
        return self._senders[surface].step()

    def test(self, surface: Surface) -> Failure | None:
        """Send a notification that says it is one, now; None when it was taken.

        Raises `Refusal` as `Addresses.of`, and `no_surface` when there is no address.
        """
        address = self.addresses.of(surface)
        if address is None:
            fix = f"clawpy notify set {surface.value}, then paste, for example, ntfys://ntfy.sh/my-secret-topic"
            raise Refusal("no_surface", f"{surface.value} has no address", fix)
        form = form_of(Happening.NEW_HIGH, surface) or form_of(Happening.COMPLETED, surface)
        assert form is not None
        words = f"a test of the {surface.value}: notifications arrive"
        told = moments.Moment(Happening.COMPLETED, self.clock.now(), words)
        said = notes.note(told, form, pending=len(self._cards.pending()), now=self.clock.now())
        return self.courier.deliver(address, said, {})

    def notes(self, surface: Surface, items: Sequence[timing.Item]) -> list[tuple[timing.Item, Note | None]]:
        """What each of `items` says now; None for one that needs no telling any more."""
        now = self.clock.now()
        pending = len(self._cards.pending())
        known = (*self._secrets(), *self.addresses.secrets())
        found: list[tuple[timing.Item, Note | None]] = []
        for item in items:
            form = form_of(Happening(item.happening), surface)
            fact = next(iter(self._facts.since(item.fact_id - 1, 1)), None)
            told = None
            if fact is not None and fact.id == item.fact_id and form is not None:
                told = moments.moment(fact, self._cards, self._sessions, now)
            said = (
                None
                if told is None or form is None
                else notes.note(told, form, pending=pending, now=now, secrets=known)
            )
            found.append((item, said))
        return found

    # -- looking

    def waiting(self) -> list[Waiting]:
        """Surfaces that did not get something, for the operator's queue (SPEC 9.3)."""
        return [
            Waiting("notification", f"{UNDELIVERED}{one.surface.value}", _undelivered(one), one.since)
            for one in self.outbox.dead()
        ]

    def trouble(self, surface: Surface) -> str:
        """Why a surface is left alone for now, "" when it is not."""
        return self._senders[surface].trouble

    def retry_waiting(self, waiting_id: str) -> int:
        """`retry` by the id of an entry of the queue."""
        return self.retry(Surface(waiting_id.removeprefix(UNDELIVERED)))

    def dismiss_waiting(self, waiting_id: str) -> int:
        """Let go of what an entry of the queue tells of."""
        return self.outbox.dismiss(Surface(waiting_id.removeprefix(UNDELIVERED)))

    def retry(self, surface: Surface | None = None) -> int:
        """Try again at once what was given up; how many that are."""
        revived = self.outbox.revive(surface)
        for one, sender in self._senders.items():
            if surface in (None, one):
                sender.mend()
        self._wake_senders()
        return revived


def _undelivered(one: Dead) -> str:
    told = "a notification" if one.count == 1 else f"{one.count} notifications"
    return f"{one.surface.value} missed {told}: {one.note}"
