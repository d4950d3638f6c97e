"""Where an address comes from, and which may stand in the settings (SPEC 11.1)."""

from __future__ import annotations

import pickle

import pytest

from engine.api.notify.addresses import Address, Addresses
from engine.config import Settings
from engine.config.config_problems import BadConfig
from engine.config.notify import NotifySettings, Surface, SurfaceSettings, address_problem
from engine.config.toml_settings import read_settings
from engine.model import Refusal
from tests.api.notify.world import SomeKeys, SomeSettings


def settings(url: str) -> SomeSettings:
    return SomeSettings(Settings(notify=NotifySettings(phone=SurfaceSettings(url=url))))


@pytest.mark.parametrize(
    "url",
    ["", "key", "ntfy://topic", "ntfys://ntfy.sh/topic", "json://127.0.0.1:8080/push?method=PUT", "desktop://",
     "speak://", "dbus://"],
)  # fmt: skip
def test_addresses_without_a_secret_may_stand_in_the_settings(url: str) -> None:
    assert address_problem(url) == ""


@pytest.mark.parametrize(
    "url",
    ["ntfy://user:hunter2@ntfy.sh/topic", "ntfy://tk_abc@ntfy.sh/topic", "ntfys://ntfy.sh/topic?token=tk_hunter2",
     "discord://4242/hunter2", "tgram://hunter2/12", "json://host/x?+Authorization=hunter2", "slack://a/b/hunter2",
     "https://discord.com/api/webhooks/1/hunter2", "hunter2", "ntfy://a b/hunter2", "json://[::1/hunter2"],
)  # fmt: skip
def test_all_others_are_refused_and_not_repeated(url: str) -> None:
    assert address_problem(url)
    with pytest.raises(BadConfig) as refused:
        read_settings(f'[notify.phone]\nurl = "{url}"\n', file="config.toml", environment={})
    assert "hunter2" not in str(refused.value)
    assert "tk_abc" not in str(refused.value)
    assert "config.toml:2: notify.phone.url" in str(refused.value)


def test_the_environment_comes_first_then_the_key_then_the_settings() -> None:
    keys, environment = SomeKeys({"notify-phone": "discord://1/kept"}), {"CLAWPY_NOTIFY_PHONE_URL": "ntfy://mine"}
    found = Addresses(settings("key"), keys, environment=environment).of(Surface.PHONE)
    assert found is not None
    assert (found.url, found.source) == ("ntfy://mine", "environment")
    found = Addresses(settings("key"), keys, environment={}).of(Surface.PHONE)
    assert found is not None
    assert (found.url, found.source, found.service) == ("discord://1/kept", "keyring", "discord")
    found = Addresses(settings("ntfy://topic"), keys, environment={}).of(Surface.PHONE)
    assert found is not None
    assert (found.url, found.source) == ("ntfy://topic", "settings")


@pytest.mark.parametrize(("kept", "code"), [({}, "no_address"), ({"notify-phone": "hunter2"}, "bad_address")])
def test_what_is_said_to_be_kept_and_is_not(kept: dict[str, str], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        Addresses(settings("key"), SomeKeys(kept), environment={}).of(Surface.PHONE)
    assert refused.value.code == code
    assert "hunter2" not in str(refused.value)


def test_an_address_is_neither_shown_nor_stored() -> None:
    one = Address(Surface.PHONE, "discord://1/hunter2", "keyring")
    assert repr(one) == "Address('phone', 'discord', 'keyring')"
    with pytest.raises(TypeError):
        pickle.dumps(one)


def test_what_is_secret_of_an_address_is_known() -> None:
    environment = {"CLAWPY_NOTIFY_DISCORD_URL": "discord://4242/hunter2hunter2?x=y"}
    assert "hunter2hunter2" in Addresses(settings(""), SomeKeys(), environment=environment).secrets()
    kept = Addresses(
        settings("key"), SomeKeys({"notify-phone": "ntfys://me:passw0rd1@ntfy.sh/services"}), environment={}
    )
    assert kept.secrets() == ()
    kept.of(Surface.PHONE)
    assert "passw0rd1" in kept.secrets()
    assert "services" not in kept.secrets(), "a word of everyday use is cut out of nothing"
