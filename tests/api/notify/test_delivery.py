"""Addresses of surfaces, and deliveries (SPEC 10.2, 11.1): over HTTP to a server that speaks as ntfy and Discord do, or
by local programs."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from apprise.plugins.discord import NotifyDiscord

from engine.api.notify.addresses import Address, Addresses, store_address
from engine.api.notify.delivery import Button, DeliveryFailure, deliver
from engine.api.notify.notes import Form, Note, NotificationContent, NotificationKind, make_note
from engine.config.external_sections import NotifySettings, Surface, SurfaceSettings, find_address_problem
from engine.config.settings import Settings
from engine.config.settings_file import BadConfig, read_settings
from engine.home import Home
from tests.api.notify.notify_world import StandInKeys
from tests.support import MONDAY_MORNING as NOW
from tests.support import read_table
from tests.support.checks import refused
from tests.support.notification_server import NotificationServer
from tests.support.programs import make_program
from tests.support.settings import MutableSettings

TABLE = read_table(__file__)


def make_settings(url: str) -> MutableSettings:
    return MutableSettings(Settings(notify=NotifySettings(phone=SurfaceSettings(url=url))))


CARD = NotificationContent(
    NotificationKind.NEW_HIGH,
    NOW,
    "Run tests on <changed> *modules* @everyone",
    "pred_a",
    "koji-core",
    0.72,
    has_stated_confidence=True,
)


def make_test_note(form: Form, content: NotificationContent = CARD) -> Note:
    return make_note(content, form, pending=3, now=NOW + timedelta(minutes=2))


def send(url: str, note: Note, surface: Surface = Surface.PHONE, **buttons: Button) -> DeliveryFailure | None:
    return deliver(Address(surface, url, "settings"), note, buttons)


# Where an address comes from, and which may stand in the settings (SPEC 11.1).


@pytest.mark.parametrize("url", TABLE["open"])
def test_addresses_without_a_secret_may_stand_in_the_settings(url: str):
    assert find_address_problem(url) == ""


@pytest.mark.parametrize("url", TABLE["secret"])
def test_addresses_that_may_hold_a_secret_are_refused_and_not_repeated(url: str):
    assert find_address_problem(url)
    with pytest.raises(BadConfig) as raised:
        read_settings(f'[notify.phone]\nurl = "{url}"\n', file="config.toml", environment={})
    assert "hunter2" not in str(raised.value)
    assert "tk_abc" not in str(raised.value)
    assert "config.toml:2: notify.phone.url" in str(raised.value)


def test_secret_parts_of_known_addresses_are_listed():
    environment = {"CLAWPY_NOTIFY_DISCORD_URL": "discord://4242/hunter2hunter2?x=y"}
    assert "hunter2hunter2" in Addresses(make_settings(""), StandInKeys(), environment=environment).secrets()
    stored = Addresses(
        make_settings("key"), StandInKeys({"notify-phone": "ntfys://me:passw0rd1@ntfy.sh/services"}), environment={}
    )
    assert stored.secrets() == ()
    stored.find(Surface.PHONE)
    assert "passw0rd1" in stored.secrets()
    assert "services" not in stored.secrets(), "a word of everyday use is cut out of nothing"


def test_without_a_keyring_a_secret_address_is_refused_with_the_other_ways(home: Home):
    refusal = refused(
        "no_keyring",
        lambda: store_address(
            home, "discord", "discord://4242424242/hunter2hunter2", in_file=False, write={}.__setitem__
        ),
    )
    assert "export CLAWPY_NOTIFY_DISCORD_URL=…" in refusal.fix
    assert "clawpy notify set discord --store file" in refusal.fix


@pytest.mark.parametrize("form, key", [(Form.EMBED, "embeds"), (Form.RESULT, "embeds"), (Form.TICK, "content")])
def test_discord_shows_text_literally_and_mentions_nobody(
    server: NotificationServer, monkeypatch: pytest.MonkeyPatch, form: Form, key: str
):
    monkeypatch.setattr(NotifyDiscord, "notify_url", f"http://127.0.0.1:{server.port}/api/webhooks")
    assert send("discord://4242424242/abcdefghijklmnop", make_test_note(form), Surface.DISCORD) is None
    [post] = server.posts
    assert post.path == "/api/webhooks/4242424242/abcdefghijklmnop"
    value = post.body[key]
    text = value if isinstance(value, str) else value[0]["description"]
    assert r"Run tests on <changed\> \*modules\* @" "\u200beveryone" in text
    assert "avatar_url" not in post.body
    assert "allow_mentions" not in json.dumps(post.body)


@pytest.mark.parametrize("status, lasting", TABLE["statuses"])
def test_a_status_below_500_lasts_unless_it_asks_for_patience(server: NotificationServer, status: int, lasting: bool):
    server.status = status
    failure = DeliveryFailure(f"the server answers {status}", is_lasting=lasting)
    assert send(server.ntfy, make_test_note(Form.BANNER)) == failure


def test_a_machine_without_a_voice_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    assert "no program for speech" in send("speak://", make_test_note(Form.BANNER)).message


@pytest.mark.skipif(sys.platform == "darwin", reason="there it is osascript")
def test_a_program_of_the_desktop_shows_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    make_program(tmp_path / "notify-send", f"printf '%s|' \"$@\" > '{tmp_path}/shown'")
    assert send("Desktop://", make_test_note(Form.CARD), Surface.DESKTOP) is None
    shown = (tmp_path / "shown").read_text()
    assert shown.startswith("--app-name=clawpy|--urgency=normal|--|🔮 Cross-Pollination|")
    assert "Run tests on &lt;changed&gt; *modules* @everyone" in shown
