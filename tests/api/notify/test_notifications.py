"""Which event reaches which surface, with which words and when, also if a surface fails or the engine crashes (SPEC
10.2)."""

import io
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.api.notify import outbox
from engine.api.notify.addresses import Address
from engine.api.notify.delivery import DeliveryFailure
from engine.api.notify.notes import Form
from engine.api.notify.sender import BACKOFF_S, MAX_NOTIFICATION_AGE, MAX_TRIES
from engine.clock import FakeClock
from engine.config.external_sections import Surface
from engine.events import Event, EventBus
from engine.model import SessionState, Tier
from engine.storage.database import Database
from tests.api.notify.notify_world import (
    COST_WARNING,
    EVERYWHERE,
    ONE_FAILED_TEST,
    PAUSED_EVENT,
    NotifyWorld,
    make_created,
    make_ended,
)
from tests.support.notification_server import NotificationServer
from tests.support.sessions import make_session_view


def read_forms(world: NotifyWorld) -> dict[Surface, Form]:
    return {surface: note.form for surface, note in world.courier.sent}


# What reaches which surface


@pytest.mark.parametrize(
    "tier, stated, confidence, high",
    [
        (Tier.AT_RISK, False, 0.4, True),
        (Tier.AT_RISK, True, 0.1, True),
        (Tier.BLOCKS, True, 0.6, True),
        (Tier.BLOCKS, True, 0.59, False),
        (Tier.BLOCKS, False, 0.9, False),  # a confidence that is not stated says nothing
    ],
)
def test_a_card_is_high_if_it_is_at_risk_or_likely_wanted(
    world: NotifyWorld, tier: Tier, stated: bool, confidence: float, high: bool
):
    world.set_addresses(**EVERYWHERE)
    world.add_card(tier=tier, confidence=confidence)
    world.record_events(make_created(confidence=confidence, tier=int(tier), stated=stated))
    world.deliver()
    assert (Surface.GLASSES in read_forms(world)) is high  # they get only high cards


@pytest.mark.parametrize(
    "event, words",
    [
        (make_ended(), "Problem found: 41 passed"),
        (make_ended("failed", "2 tests"), "Failed: 2 tests"),
        (make_ended("interrupted", ""), "Failed: Run the tests"),
        (COST_WARNING, "82 % of the day's cap: $16.40 of $20.00"),
        (PAUSED_EVENT, "Paused: 3 dismissals in a row"),
    ],
)
def test_the_phone_shows_an_entry_in_these_words(phone_world: NotifyWorld, event: Event, words: str):
    session = make_session_view(prompt="Run the tests", state=SessionState.SUCCEEDED, check=ONE_FAILED_TEST)
    phone_world.sessions["sess_a"] = session
    phone_world.record_events(event)
    phone_world.deliver()
    [note] = phone_world.courier.find_notes(Surface.PHONE)
    assert (note.form, note.body) == (Form.BANNER, words)


def test_a_card_that_was_decided_or_snoozed_meanwhile_is_not_sent(phone_world: NotifyWorld, clock: FakeClock):
    for name in ("pred_a", "pred_b", "pred_c"):
        phone_world.add_card(name, confidence=0.4)
        phone_world.record_events(make_created(name, 0.4))
    phone_world.dismiss("pred_a")
    phone_world.add_card("pred_c", snoozed_until=clock.now() + timedelta(hours=2))
    clock.advance(timedelta(seconds=299))
    phone_world.deliver()
    assert not phone_world.courier.sent, "cards that are not urgent are collected for five minutes"
    clock.advance(timedelta(seconds=1))
    phone_world.deliver()
    [note] = phone_world.courier.find_notes(Surface.PHONE)
    assert note.prediction_id == "pred_b"
    assert note.actions == ("approve", "reject", "snooze")


# Quiet hours


def test_at_night_only_urgent_ones_are_sent_and_the_rest_in_the_morning(
    phone_world: NotifyWorld, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outbox, "MAX_READ_ROWS", 2)  # an urgent one is read before others that wait for longer
    phone_world.add_card()
    phone_world.quiet = True
    phone_world.record_events(make_created(), make_ended("failed", "2 tests"), COST_WARNING)
    phone_world.deliver()
    assert [note.body[:4] for note in phone_world.courier.find_notes(Surface.PHONE)] == ["82 %"]
    clock.advance(timedelta(hours=8))
    phone_world.quiet = False
    phone_world.deliver()
    [_, morning] = phone_world.courier.find_notes(Surface.PHONE)
    assert morning.subtitle == "2 notifications"
    assert "Failed: 2 tests" in morning.body


# Secrets


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    """What reaches the root's handlers, and the engine's log."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    loggers = [logging.getLogger(), logging.getLogger("engine")]
    for logger in loggers:
        logger.addHandler(handler)
    yield text
    for logger in loggers:
        logger.removeHandler(handler)


def test_no_part_of_an_address_is_written_anywhere(
    server: NotificationServer, database: Database, clock: FakeClock, bus: EventBus, log_text: io.StringIO
):
    """SPEC 11.1: the database, the queue and the log have the failure, and none of them the token."""
    server.status = 401
    world = NotifyWorld(database, clock, bus, real=True)
    world.environment["CLAWPY_NOTIFY_PHONE_URL"] = f"ntfy://tk_verysecrettoken@127.0.0.1:{server.port}/secrettopic"
    world.record_events(PAUSED_EVENT)
    world.deliver()
    assert server.posts[0].headers["authorization"] == "Bearer tk_verysecrettoken"
    texts = "".join(waiting.title for waiting in world.notifications.waiting()) + log_text.getvalue()
    stored = b"".join(file.read_bytes() for file in Path(database.path).parent.glob("clawpy.db*"))
    assert "the server answers 401" in texts
    for secret in ("verysecrettoken", "secrettopic"):
        assert secret not in texts
        assert secret.encode() not in stored
        assert secret not in repr(world.notifications.addresses.find(Surface.PHONE))


def test_a_dead_surface_is_tried_at_growing_intervals_and_given_up(phone_world: NotifyWorld, clock: FakeClock):
    phone_world.courier.failures[Surface.PHONE] = DeliveryFailure("it cannot be reached")
    phone_world.record_events(PAUSED_EVENT)
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
    phone_world.database.write(lambda tx: tx.record(PAUSED_EVENT))
    clock.advance(MAX_NOTIFICATION_AGE)
    phone_world.record_events(COST_WARNING)
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
        world.database.write(lambda tx: tx.record(PAUSED_EVENT))
        assert delivered.wait(20)
    finally:
        release.set()
        world.notifications.close()
