"""The verb `notify`: where notifications go, whether they arrive, what did not; and where an address is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clawpy_console.cli.printing.render import render_document
from engine.api.notify.delivery import Failure
from engine.api.notify.surfaces import store_address
from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.config.notify import Surface
from engine.events import EventBus, StateChanged
from engine.home import Home
from engine.model import Refusal
from engine.storage.database import Database
from tests.api.notify.world import World

PAUSED = StateChanged(before="WATCHING", after="PAUSED", cause="3 rejections in a row")


@pytest.fixture
def world(database: Database, clock: FakeClock, bus: EventBus) -> World:
    return World(database, clock, bus)


def ask(world: World, **given: Any) -> dict[str, Any]:
    engine: Any = SimpleNamespace(
        notify=world.notifications,
        settings=world.settings,
        autonomy=SimpleNamespace(quiet=lambda: world.quiet, heard=lambda what: None),
    )
    return dispatch(engine, "notify", given)


def printed(document: dict[str, Any]) -> str:
    return render_document("notify", document)


def test_every_surface_is_listed_with_what_is_missing(world: World) -> None:
    world.at(phone="ntfy://topic", discord="key")
    world.quiet = True
    said = printed(ask(world)).splitlines()
    assert said == [
        "✓ phone    ntfy (settings)",
        "- watch    no address  clawpy notify set watch, or set CLAWPY_NOTIFY_WATCH_URL",
        "- glasses  no address  clawpy notify set glasses, or set CLAWPY_NOTIFY_GLASSES_URL",
        '- discord  notify.discord.url is "key", but no address is stored for discord'
        "  clawpy notify set discord, or set CLAWPY_NOTIFY_DISCORD_URL",
        "- web      no address  clawpy notify set web, or set CLAWPY_NOTIFY_WEB_URL",
        "- desktop  no address  clawpy notify set desktop, or set CLAWPY_NOTIFY_DESKTOP_URL",
        "quiet hours: only urgent notifications are sent until the morning",
    ]


def test_what_did_not_arrive_is_shown_tried_again_and_let_go(world: World) -> None:
    world.at(phone="ntfy://topic")
    world.courier.failures[Surface.PHONE] = Failure("the server answers 401", lasting=True)
    world.happen(PAUSED)
    world.deliver()
    shown = ask(world)
    assert (shown["surfaces"][0]["undelivered"], shown["surfaces"][0]["why"]) == (1, "the server answers 401")
    assert "1 not delivered: the server answers 401; clawpy notify retry phone" in printed(shown)
    again = ask(world, action="retry", surface="phone")
    assert again["retried"] == 1
    assert printed(again).startswith("1 tried again\n")
    world.deliver()
    assert ask(world, action="dismiss")["dismissed"] == 1
    assert ask(world)["surfaces"][0]["undelivered"] == 0


def test_a_test_says_how_it_went(world: World) -> None:
    with pytest.raises(Refusal) as refused:
        ask(world, action="test")
    assert refused.value.code == "no_surface"
    world.at(phone="ntfy://topic", watch="key")
    world.courier.failures[Surface.PHONE] = Failure("it cannot be reached")
    tested = ask(world, action="test")
    assert [one["delivered"] for one in tested["tested"]] == [False, False]
    assert printed(tested).splitlines()[0] == (
        "✗ phone    it cannot be reached  is its address right? clawpy notify set phone"
    )
    world.courier.failures.clear()
    assert printed(ask(world, action="test", surface="phone")).startswith("✓ phone    accepted by the service")
    assert world.courier.sent[-1][1].body == "a test of the phone: notifications arrive"


class TestKeeping:
    def keep(self, home: Home, name: str, url: str) -> tuple[dict[str, Any], dict[str, str]]:
        written: dict[str, str] = {}
        said = store_address(home, name, url, in_file=True, write=written.__setitem__)
        return said, written

    def test_what_is_switched_off_is_said(self, home: Home) -> None:
        said, _ = self.keep(home, "glasses", "speak://")
        assert said["message"].endswith("first: clawpy config set glassesAlertsEnabled true")

    def test_without_a_keyring_it_says_what_else_there_is(self, home: Home) -> None:
        with pytest.raises(Refusal) as refused:
            store_address(home, "discord", "discord://4242424242/hunter2hunter2", in_file=False, write={}.__setitem__)
        assert refused.value.code == "no_keyring"
        assert "export CLAWPY_NOTIFY_DISCORD_URL=…" in refused.value.fix
        assert "clawpy notify set discord --store file" in refused.value.fix
