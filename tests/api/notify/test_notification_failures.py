"""Notifications when surfaces fail or the engine crashes: each is sent once, and delays no other (SPEC 10.2)."""

import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.notify.delivery import Address, Button, DeliveryFailure
from engine.api.notify.notes import Note
from engine.api.notify.outbox import BACKOFF_S, MAX_AGE, MAX_TRIES
from engine.clock import FakeClock
from engine.config.sections import Surface
from engine.events import CostWarned, EventBus
from engine.model import microusd
from engine.storage.database import Database
from tests.api.notify.notify_events import COST, EVERYWHERE, PAUSED
from tests.api.notify.notify_world import NotifyWorld
from tests.conftest import MONDAY_MORNING


def test_a_dead_surface_is_tried_at_growing_intervals_and_given_up(phone_world: NotifyWorld, clock: FakeClock):
    phone_world.courier.failures[Surface.PHONE] = DeliveryFailure("it cannot be reached")
    phone_world.record_events(PAUSED)
    waits = []
    while (wait := phone_world.notifications.senders[Surface.PHONE].deliver_due()) is not None:
        waits.append(wait)
        clock.advance(timedelta(seconds=wait))
    assert len(phone_world.courier.sent) == MAX_TRIES
    assert waits[: len(BACKOFF_S)] == list(BACKOFF_S)
    [waiting] = phone_world.notifications.waiting()
    assert (waiting.kind, waiting.title) == ("notification", "phone missed a notification: it cannot be reached")


# Exactly once


def test_an_entry_older_than_a_day_is_skipped(phone_world: NotifyWorld, clock: FakeClock):
    phone_world.database.write(lambda tx: tx.record(PAUSED))
    clock.advance(MAX_AGE)
    phone_world.record_events(COST)
    phone_world.deliver()
    assert [note.body[:4] for note in phone_world.courier.find_notes(Surface.PHONE)] == ["82 %"]


# Threads


def test_a_dead_surface_delays_no_other(world: NotifyWorld):
    """The service of the phone does not answer. The watch gets its note nevertheless."""
    release, delivered = threading.Event(), threading.Event()

    def deliver(address: Address, note: object, buttons: object) -> DeliveryFailure | None:
        if address.surface is Surface.PHONE:
            release.wait(20)
        else:
            delivered.set()
        return None

    world.courier.deliver = deliver
    world.set_addresses(phone=EVERYWHERE["phone"], watch=EVERYWHERE["watch"])
    world.notifications.start()
    try:
        world.database.write(lambda tx: tx.record(PAUSED))
        assert delivered.wait(20)
    finally:
        release.set()
        world.notifications.close()


# Each is delivered at least once, and twice only after a crash, whatever fails and when


class Crash(BaseException):
    """The process ends here."""


class StandInPhone:
    """Takes notes, unless it fails, or crashes after it took one."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        """How often it took a note with each amount."""
        self.fails = self.crashes = False

    def deliver(self, address: Address, note: Note, buttons: Mapping[str, Button]) -> DeliveryFailure | None:
        if self.fails:
            return DeliveryFailure("it cannot be reached")
        self.counts.update(word for word in note.body.split() if word.startswith("$") and word.endswith("7"))
        if self.crashes:
            self.crashes = False
            raise Crash
        return None


STEP = st.sampled_from(
    ["happen", "happen", "read", "deliver", "deliver", "fail", "recover", "wait", "restart", "crash", "quiet"]
)


def check_steps(steps: list[str], database: Database, clock: FakeClock):
    """Carry the steps out, then let everything be delivered, and count the notes on the phone."""
    phone, amounts, crashed = StandInPhone(), [], False

    def restart() -> NotifyWorld:
        world = NotifyWorld(database, clock, EventBus())
        world.set_addresses(phone=EVERYWHERE["phone"])
        world.courier.deliver = phone.deliver
        return world

    world = restart()
    for step in [*steps, "recover", "restart", "read", "wait", "deliver", "wait", "deliver"]:
        if step == "happen":
            amounts.append(f"${len(amounts)}.07")
            spent = microusd(float(amounts[-1][1:]))
            database.write(lambda tx, spent=spent: tx.record(CostWarned(window="day", spent=spent, cap=microusd(1))))
        elif step == "read":
            world.notifications.catch_up()
        elif step in ("fail", "recover"):
            phone.fails = step == "fail"
        elif step == "wait":
            clock.advance(timedelta(minutes=31))
        elif step == "quiet":
            world.quiet = not world.quiet
        elif step == "restart":
            world = restart()
        else:
            phone.crashes = step == "crash"
            try:
                world.deliver([Surface.PHONE])
            except Crash:
                crashed = True
                world = restart()
            phone.crashes = False
    missed = {notes.surface for notes in world.notifications.outbox.undelivered()}
    assert set(phone.counts) == set(amounts) or missed
    if not crashed:
        assert all(number == 1 for number in phone.counts.values())


@pytest.mark.long
@settings(max_examples=25)
@given(steps=st.lists(STEP, max_size=25))
def test_no_notification_is_lost_or_doubled_whatever_fails(steps: list[str]):
    clock = FakeClock(MONDAY_MORNING)
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "clawpy.db", clock=clock, bus=EventBus())
        try:
            check_steps(steps, database, clock)
        finally:
            database.close()
