"""Operations on the engine as a whole (SPEC 9.8): a setting that is refused, its state, and notifications."""

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
from engine.model import Refusal
from engine.storage.database import Database
from tests.api.notify.notify_world import NotifyWorld
from tests.api.operations.conftest import Ask, Refused
from tests.autonomy.autonomy_world import AutonomyWorld


def test_a_coding_agent_that_the_settings_do_not_have_cannot_be_a_runner(ask: Ask, refused: Refused):
    setting = {"action": "set", "key": "channels.koji-core.runner", "value": "acp:ghost"}
    assert "no coding agent 'ghost'" in refused("config", **setting).message
    ask("config", action="set", key="acp.ghost.command", value='["ghost"]')
    assert ask("config", **setting)["value"] == "acp:ghost"


# status


def carry_out_alone(engines: AutonomyWorld, verb: str, **arguments: Any) -> dict[str, Any]:
    """The document of the verb, by an engine that was opened for it alone."""
    with engines.opened() as engine:
        return dispatch(engine, verb, arguments)


def test_the_last_state_is_that_of_an_engine_and_not_of_verbs(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    engines = AutonomyWorld(tmp_path, clock, monkeypatch)
    for _ in range(2):
        status = carry_out_alone(engines, "status")
        assert status["stateSince"] is None
        assert "last state" not in render_document("status", status)
    with engines.opened() as engine:
        engine.autonomy.start()
        began = dispatch(engine, "status", {})["stateSince"]
    status = carry_out_alone(engines, "status")
    assert status["stateSince"] == began
    assert "last state: WATCHING since " in render_document("status", status)


@pytest.mark.parametrize("is_stopped, state", [(False, "WATCHING"), (True, "DISABLED")])
def test_before_the_first_start_the_state_is_that_in_which_an_engine_would_begin(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, is_stopped: bool, state: str
):
    with AutonomyWorld(tmp_path, clock, monkeypatch).opened() as engine:
        if is_stopped:
            dispatch(engine, "stop", {})
        for _ in range(2):  # a question changes nothing
            status = dispatch(engine, "status", {})
            assert (status["state"], status["cause"]) == (state, "first start")
            assert (status["stateSince"], status["nextChange"]) == (None, None)


def test_a_stop_that_was_resumed_is_not_the_last_state(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    engines = AutonomyWorld(tmp_path, clock, monkeypatch)
    with engines.opened() as engine:
        engine.autonomy.start()
    carry_out_alone(engines, "stop", reason="enough")
    stopped = carry_out_alone(engines, "status")
    assert (stopped["state"], stopped["cause"]) == ("DISABLED", "kill switch")
    assert "last state: STOPPED since " in render_document("status", stopped)
    carry_out_alone(engines, "resume")
    resumed = carry_out_alone(engines, "status")
    assert (resumed["state"], resumed["cause"]) == ("WATCHING", "enabled and not stopped")
    assert "last state: WATCHING since " in render_document("status", resumed)


# notify


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


def print_notify(document: dict[str, Any]) -> str:
    return render_document("notify", document)


def test_every_surface_is_listed_with_what_is_missing(world: NotifyWorld):
    world.set_addresses(phone="ntfy://topic", discord="key")
    world.quiet = True
    assert print_notify(carry_out_notify(world)).splitlines() == [
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
    document = carry_out_notify(world)
    assert (document["surfaces"][0]["undelivered"], document["surfaces"][0]["why"]) == (1, "the server answers 401")
    assert "1 not delivered: the server answers 401; clawpy notify retry phone" in print_notify(document)
    retried = carry_out_notify(world, action="retry", surface="phone")
    assert retried["retried"] == 1
    assert print_notify(retried).startswith("1 tried again\n")
    world.deliver()
    assert carry_out_notify(world, action="dismiss")["dismissed"] == 1
    assert carry_out_notify(world)["surfaces"][0]["undelivered"] == 0


def test_a_test_notification_says_how_it_went(world: NotifyWorld):
    with pytest.raises(Refusal) as refused:
        carry_out_notify(world, action="test")
    assert refused.value.code == "no_surface"
    world.set_addresses(phone="ntfy://topic", watch="key")
    world.courier.failures[Surface.PHONE] = DeliveryFailure("it cannot be reached")
    document = carry_out_notify(world, action="test")
    assert [surface["delivered"] for surface in document["tested"]] == [False, False]
    assert print_notify(document).startswith(
        "✗ phone    it cannot be reached  is its address right? clawpy notify set phone\n"
    )
    world.courier.failures.clear()
    assert print_notify(carry_out_notify(world, action="test", surface="phone")).startswith(
        "✓ phone    accepted by the service"
    )
    assert world.courier.sent[-1][1].body == "a test of the phone: notifications arrive"
