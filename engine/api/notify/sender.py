"""Delivers to one surface, in a thread of its own, and waits for nobody but its service (SPEC 10.2).

A service that failed is left alone for a while, ever longer; a row is marked after it was delivered, so that a crash in
between delivers it twice and never loses it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from engine.api.notify import notes, timing
from engine.api.notify.addresses import Addresses
from engine.api.notify.buttons import Button
from engine.api.notify.delivery import Courier, Failure
from engine.api.notify.matrix import allowed
from engine.api.notify.notes import Note
from engine.api.notify.outbox import Outbox, Standing
from engine.clock import Clock
from engine.config import SettingsSource
from engine.config_notify import Surface
from engine.model import Refusal

log = logging.getLogger(__name__)

MOST_WAIT = 3600.0
"""Seconds after which a sender with something to send looks again, whatever it computed: a laptop may have slept."""

Buttons = Callable[[str, Sequence[str]], Mapping[str, Button]]
"""For a card and what may be done with it: a button for each action; empty when none could be pressed."""


class Hub(Protocol):
    """What senders share: the router."""

    clock: Clock
    settings: SettingsSource
    addresses: Addresses
    outbox: Outbox
    courier: Courier
    buttons: Buttons
    quiet: Callable[[], bool]

    @property
    def started(self) -> bool:
        """Whether senders work by themselves."""

    def notes(self, surface: Surface, items: Sequence[timing.Item]) -> list[tuple[timing.Item, Note | None]]:
        """What each of `items` says now; None for one that needs no telling any more."""


class Sender:
    """Delivers to one surface. `step` is called by one thread at a time."""

    def __init__(self, hub: Hub, surface: Surface) -> None:
        self.trouble = ""
        self._hub = hub
        self._surface = surface
        self._failures = 0
        self._shut_until: datetime | None = None
        """The circuit: until then the service is left alone."""
        self._condition = threading.Condition()
        self._stepping = threading.Lock()
        self._woken = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There may be something to send."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()
            if self._thread is None and self._hub.started and not self._closed:
                name = f"clawpy-notify-{self._surface.value}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def mend(self) -> None:
        """Whatever failed may be mended: ask the service again."""
        self._shut_until = None

    def stop(self) -> None:
        """Begin no further delivery."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the one that is under way."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._closed:
                    return
                self._woken = False
            try:
                wait = self.step()
            except Refusal as refusal:
                if refusal.code == "engine_closed":
                    return
                log.warning("the %s gets no notifications for a while: %s", self._surface.value, refusal)
                wait = timing.BACKOFF[-1]
            except Exception:
                log.exception("the %s gets no notifications for a while", self._surface.value)
                wait = timing.BACKOFF[-1]
            with self._condition:
                if wait != 0 and not self._closed:
                    seconds = None if wait is None else min(wait, MOST_WAIT)
                    self._condition.wait_for(lambda: self._woken or self._closed, seconds)

    def step(self) -> float | None:
        """Deliver what goes next, if anything does. Returns after how many seconds to look again, 0 for at once, None
        when nothing waits."""
        with self._stepping:
            return self._step()

    def _step(self) -> float | None:
        hub, now = self._hub, self._hub.clock.now()
        waiting = hub.outbox.waiting(self._surface)
        if not waiting:
            return None
        if self._shut_until is not None and now < self._shut_until:
            return (self._shut_until - now).total_seconds()
        plan = timing.plan(waiting, now, quiet=hub.quiet())
        if not plan.batch:
            return plan.wait
        said = hub.notes(self._surface, plan.batch)
        hub.outbox.settle([item.id for item, note in said if note is None], Standing.DROPPED, "overtaken")
        going = [(item, note) for item, note in said if note is not None]
        if not going or not self._wished([item for item, _ in going]):
            return 0.0
        items, said_now = [item for item, _ in going], [note for _, note in going]
        failure = self._deliver(said_now[0] if len(said_now) == 1 else notes.digest(said_now))
        if failure is None:
            hub.outbox.settle([item.id for item in items], Standing.SENT)
            self._failures, self._shut_until, self.trouble = 0, None, ""
            return 0.0
        return self._failed(items, failure)

    def _wished(self, items: Sequence[timing.Item]) -> bool:
        """Whether the operator still wants to hear of things there; else these are dropped."""
        hub = self._hub
        if allowed(self._surface, hub.settings.current) and hub.addresses.named(self._surface):
            return True
        hub.outbox.settle([item.id for item in items], Standing.DROPPED, "notifications there were switched off")
        return False

    def _deliver(self, note: Note) -> Failure | None:
        hub = self._hub
        try:
            address = hub.addresses.of(self._surface)
        except Refusal as refusal:
            return Failure(refusal.message, lasting=True)
        if address is None:
            return Failure("it has no address", lasting=True)
        buttons = hub.buttons(note.prediction_id, note.actions) if note.actions and note.prediction_id else {}
        try:
            return hub.courier.deliver(address, note, buttons)
        except Exception as error:
            # Of a library's fault only the kind is told: its words may hold the address.
            log.warning("the %s could not be reached: %s", self._surface.value, type(error).__name__)
            return Failure(f"its delivery failed ({type(error).__name__})")

    def _failed(self, items: Sequence[timing.Item], failure: Failure) -> float:
        hub, now = self._hub, self._hub.clock.now()
        self._failures += 1
        pause = timedelta(seconds=timing.pause(self._failures))
        self._shut_until, self.trouble = now + pause, failure.words
        over = [one for one in items if failure.lasting or timing.given_up(replace(one, tries=one.tries + 1), now)]
        hub.outbox.give_up(self._surface, [one.id for one in over], failure.words)
        hub.outbox.later([one.id for one in items if one not in over], now + pause, failure.words)
        return pause.total_seconds()
