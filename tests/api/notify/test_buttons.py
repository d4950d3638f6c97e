"""What a button calls, and when there is none."""

from __future__ import annotations

from engine.api.notify.buttons import LASTS, GatewayButtons
from engine.clock import FakeClock
from engine.config import Settings
from engine.config_notify import NotifySettings
from tests.api.notify.world import SomeSettings


class Gateway:
    def __init__(self, word: str) -> None:
        self.word = word
        self.asked: list[tuple[str, str, float]] = []

    def pass_for(self, method: str, path: str, *, until: float) -> str:
        self.asked.append((method, path, until))
        return self.word


def settings(address: str) -> SomeSettings:
    return SomeSettings(Settings(notify=NotifySettings(gateway=address)))


def test_each_is_bound_to_its_card_and_verb_and_does_not_last(clock: FakeClock) -> None:
    gateway = Gateway("pass_word")
    found = GatewayButtons(settings("https://laptop.example/"), lambda: gateway, clock).of(
        "pred_a", ("approve", "snooze")
    )
    assert {name: one.url for name, one in found.items()} == {
        "approve": "https://laptop.example/api/v1/predictions/pred_a/confirm",
        "snooze": "https://laptop.example/api/v1/predictions/pred_a/snooze",
    }
    until = (clock.now() + LASTS).timestamp()
    assert gateway.asked == [
        ("POST", "/api/v1/predictions/pred_a/confirm", until),
        ("POST", "/api/v1/predictions/pred_a/snooze", until),
    ]
    assert "pass_word" not in repr(found)


def test_there_is_none_where_it_could_not_be_pressed(clock: FakeClock) -> None:
    silent = Gateway("")
    assert GatewayButtons(settings("https://laptop.example"), lambda: silent, clock).of("pred_a", ("approve",)) == {}
    assert GatewayButtons(settings(""), lambda: Gateway("pass_word"), clock).of("pred_a", ("approve",)) == {}
