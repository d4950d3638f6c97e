"""Notifications when surfaces fail or the engine crashes: each is sent once, and delays no other (SPEC 10.2)."""

import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
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
from engine.storage.ledger import Ledger
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


def test_nothing_is_tried_before_the_interval_is_over(phone_world: NotifyWorld, clock: FakeClock):
    phone_world.courier.failures[Surface.PHONE] = DeliveryFailure("it cannot be reached")
    phone_world.record_events(PAUSED, COST)
    phone_world.deliver()
    assert len(phone_world.courier.sent) == 1
    clock.advance(timedelta(seconds=BACKOFF_S[0] - 1))
    phone_world.record_events(PAUSED)
    assert phone_world.notifications.senders[Surface.PHONE].deliver_due() == 1
    assert len(phone_world.courier.sent) == 1
    phone_world.courier.failures.clear()
    clock.advance(timedelta(seconds=1))
    phone_world.deliver()
    assert len(phone_world.courier.sent) == 4
    assert phone_world.notifications.senders[Surface.PHONE].last_failure == ""


def test_a_retry_while_the_pause_is_looked_at_fails_nothing(phone_world: NotifyWorld, clock: FakeClock):
    """Another thread may end the pause between two looks at it."""
    phone_world.courier.failures[Surface.PHONE] = DeliveryFailure("it cannot be reached")
    phone_world.record_events(PAUSED)
    phone_world.deliver()

    class RetryingTime(datetime):
        """A time that is compared while a retry begins."""

        def __lt__(self, other: datetime) -> bool:
            phone_world.notifications.retry(Surface.PHONE)
            return super().__lt__(other)

    clock.now = lambda: RetryingTime.fromtimestamp(MONDAY_MORNING.timestamp(), UTC)
    assert phone_world.notifications.senders[Surface.PHONE].deliver_due() == BACKOFF_S[0]


def test_a_surface_without_an_address_any_more_gets_nothing(phone_world: NotifyWorld):
    phone_world.record_events(PAUSED)
    phone_world.set_addresses(phone="")
    phone_world.deliver()
    assert not phone_world.courier.sent
    assert phone_world.notifications.outbox.waiting_surfaces() == frozenset()


# Exactly once


def test_an_entry_that_is_read_twice_is_sent_once(phone_world: NotifyWorld, database: Database):
    """The cursor is stored after the rows: a crash between the two reads the entry again."""
    phone_world.record_events(PAUSED)
    entries = Ledger(database).read_since(0)
    phone_world.notifications._store([entry for entry in entries if entry.kind == "StateChanged"])
    phone_world.deliver()
    assert len(phone_world.courier.sent) == 1


def test_an_entry_older_than_a_day_is_skipped(phone_world: NotifyWorld, clock: FakeClock):
    phone_world.database.write(lambda tx: tx.record(PAUSED))
    clock.advance(MAX_AGE)
    phone_world.record_events(COST)
    phone_world.deliver()
    assert [note.body[:4] for note in phone_world.courier.find_notes(Surface.PHONE)] == ["82 %"]


def test_finished_rows_are_deleted_after_a_week(phone_world: NotifyWorld, clock: FakeClock):
    phone_world.record_events(PAUSED)
    phone_world.deliver()
    clock.advance(timedelta(days=7, seconds=1))
    phone_world.record_events(COST)
    with phone_world.database.read() as reading:
        count = reading.connection().exec_driver_sql("SELECT count(*) FROM notifications").scalar()
    assert count == 1


def test_an_entry_of_another_version_delays_no_other(phone_world: NotifyWorld):
    phone_world.database.write(
        lambda tx: tx.session.connection().exec_driver_sql(
            "INSERT INTO memory_events (at, kind, subject, workspace, payload)"
            " VALUES ('2026-01-05T09:30:00.000000Z', 'SessionEnded', 'sess_a', '', '{}')"
        )
    )
    phone_world.record_events(PAUSED)
    phone_world.deliver()
    assert len(phone_world.courier.sent) == 1


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
