"""Operations on the engine as a whole (SPEC 9.8): its state, and notifications."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawpy_console.cli.printing import render_document
from engine.api.notify.delivery import DeliveryFailure
from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.config.sections import Surface
from engine.events import EventBus, StateChanged
from engine.storage.database import Database
from tests.api.notify.notify_world import NotifyWorld
from tests.autonomy.autonomy_world import AutonomyWorld


def test_the_last_state_is_that_of_an_engine_and_not_of_verbs(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    engines = AutonomyWorld(tmp_path, clock, monkeypatch)
    with engines.opened() as engine:
        status = dispatch(engine, "status", {})
        assert (status["state"], status["cause"], status["stateSince"]) == ("WATCHING", "first start", None)
        assert "last state" not in render_document("status", status)
    with engines.opened() as engine:
        engine.autonomy.start()
        began = dispatch(engine, "status", {})["stateSince"]
    with engines.opened() as engine:
        status = dispatch(engine, "status", {})
    assert status["stateSince"] == began
    assert "last state: WATCHING since " in render_document("status", status)


@pytest.fixture
def world(database: Database, clock: FakeClock, bus: EventBus) -> NotifyWorld:
    return NotifyWorld(database, clock, bus)


def carry_out_notify(world: NotifyWorld, **arguments: Any) -> dict[str, Any]:
    """The document of the verb `notify`."""
    engine = SimpleNamespace(
        notify=world.notifications,
        settings=world.settings,
        autonomy=SimpleNamespace(
            find_quiet_reason=lambda: world.quiet, dnd_until=lambda: None, note_activity=lambda: None
        ),
    )
    return dispatch(engine, "notify", arguments)


def test_every_surface_is_listed_with_what_is_missing(world: NotifyWorld):
    world.set_addresses(phone="ntfy://topic", discord="key")
    world.quiet = True
    assert render_document("notify", carry_out_notify(world)).splitlines() == [
        "✓ phone    ntfy (settings)",
        "- watch    no address  clawpy notify set watch, or set CLAWPY_NOTIFY_WATCH_URL",
        "- glasses  no address  clawpy notify set glasses, or set CLAWPY_NOTIFY_GLASSES_URL",
        '- discord  notify.discord.url is "key", but no address is stored for discord'
        "  clawpy notify set discord, or set CLAWPY_NOTIFY_DISCORD_URL",
        "- web      no address  clawpy notify set web, or set CLAWPY_NOTIFY_WEB_URL",
        "- desktop  no address  clawpy notify set desktop, or set CLAWPY_NOTIFY_DESKTOP_URL",
        "quiet hours: only urgent notifications are sent until the morning",
    ]


def test_an_undelivered_notification_is_shown_retried_and_dismissed(world: NotifyWorld):
    world.set_addresses(phone="ntfy://topic")
    world.courier.failures[Surface.PHONE] = DeliveryFailure("the server answers 401", lasting=True)
    world.record_events(StateChanged(before="WATCHING", after="PAUSED", cause="3 dismissals in a row"))
    world.deliver()
    shown = render_document("notify", carry_out_notify(world))
    assert "1 not delivered: the server answers 401; clawpy notify retry phone" in shown
    assert carry_out_notify(world, action="retry", surface="phone")["retried"] == 1
    world.deliver()
    assert carry_out_notify(world, action="dismiss")["dismissed"] == 1
    assert carry_out_notify(world)["surfaces"][0]["undelivered"] == 0
