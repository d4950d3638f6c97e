"""A button of a notification, from card to press (SPEC 10.2): a real engine, its gateway, and a server as ntfy is."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from engine.api.gateway.limits import Limits
from engine.config.notify import Surface
from engine.model import DecidedBy, Status
from tests.api.gateway.conftest import Serve, Served
from tests.api.notify.notification_server import NotificationServer


def press(button: dict[str, Any]) -> httpx.Response:
    return httpx.request(button["method"], button["url"], headers=button["headers"], timeout=30, trust_env=False)


def predict(served: Served, *flows: str) -> None:
    """Other programs predict these, and a cycle makes cards of them."""
    stamp = served.engine.clock.now().isoformat()
    lines = [
        {"prediction": flow, "confidence": 0.7, "channel": "koji-core", "reasoning": "", "timestamp": stamp}
        for flow in flows
    ]
    file = served.engine.home.data / "predictions.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    served.engine.predictions.run_cycle(requested=True)


@pytest.mark.long
def test_a_card_is_decided_from_the_phone_once(serve: Serve) -> None:
    served = serve(Limits())  # of a slow machine no request is cut short
    engine = served.engine
    with NotificationServer() as office:
        engine.settings.set("notify.phone.url", office.ntfy)
        engine.settings.set("notify.gateway", served.url)
        engine.settings.set("notify.digestMinutes", 0)
        engine.settings.set("quietHoursEnd", engine.settings.current.quiet_hours_start)  # it is told at any hour
        predict(served, "report_branches", "check_clean_head")
        engine.notify.catch_up()
        while engine.notify.step(Surface.PHONE) == 0:
            pass
    told = {}
    for post in office.posts:
        buttons = {load["label"]: load for load in json.loads(post.headers["x-actions"])}
        told[buttons["Approve"]["url"].split("/")[-2]] = buttons
    first, second = [one.id for one in engine.cards.pending() if one.id in told][:2]
    assert served.token not in str(told)

    assert press(told[first]["Approve"]).status_code == 200
    decided = engine.cards.get(first)
    assert (decided.status in (Status.CONFIRMED, Status.EXECUTED), decided.decided_by) == (True, DecidedBy.API)
    assert press(told[first]["Approve"]).status_code == 401, "a pass opens once"
    assert press(told[first]["Dismiss"]).status_code == 409, "and a card is decided once"

    assert press(told[second]["Later"]).status_code == 200
    assert engine.cards.get(second).snoozed_until is not None
    swapped = told[second]["Dismiss"] | {"headers": told[second]["Approve"]["headers"]}
    assert press(swapped).status_code == 401, "the pass of one button opens no other door"
    assert press(told[second]["Dismiss"]).status_code == 200
    assert engine.cards.get(second).status is Status.REJECTED
