"""What the verb `notify` answers (SPEC 10.2)."""

from types import SimpleNamespace
from typing import Any

from clawpy_console.cli.main import render_document
from engine.api.notify.delivery import DeliveryFailure
from engine.api.operations import dispatch
from engine.config.external_sections import Surface
from tests.api.notify.notify_world import PAUSED_EVENT, NotifyWorld
from tests.support.checks import refused


def carry_out_notify(world: NotifyWorld, **arguments: Any) -> dict[str, Any]:
    """The document of the verb `notify`."""
    engine = SimpleNamespace(
        notify=world.notifications,
        settings=world.settings,
        autonomy=SimpleNamespace(
            find_quiet_reason=lambda: world.quiet, find_dnd_end=lambda: None, note_activity=lambda: None
        ),
    )
    return dispatch(engine, "notify", arguments)


def test_a_test_notification_says_how_it_went(world: NotifyWorld):
    refused("no_surface", lambda: carry_out_notify(world, action="test"))
    world.set_addresses(phone="ntfy://topic")
    world.courier.failures[Surface.PHONE] = DeliveryFailure("it cannot be reached")
    shown = render_document("notify", carry_out_notify(world, action="test"))
    assert shown == "✗ phone    it cannot be reached  is its address right? clawpy notify set phone"
    world.courier.failures.clear()
    assert carry_out_notify(world, action="test")["tested"][0]["delivered"]


def test_an_undelivered_notification_is_shown_retried_and_dismissed(world: NotifyWorld):
    world.set_addresses(phone="ntfy://topic")
    world.courier.failures[Surface.PHONE] = DeliveryFailure("the server answers 401", is_lasting=True)
    world.record_events(PAUSED_EVENT)
    world.deliver()
    shown = render_document("notify", carry_out_notify(world))
    assert "1 not delivered: the server answers 401; clawpy notify retry phone" in shown
    assert carry_out_notify(world, action="retry", surface="phone")["retried"] == 1
    world.deliver()
    assert carry_out_notify(world, action="dismiss")["dismissed"] == 1
    assert carry_out_notify(world)["surfaces"][0]["undelivered"] == 0
