"""The buttons of a phone's notifications, each of which calls the gateway with a pass of its own (SPEC 10.1, 10.2)."""

import json
from typing import Any

import httpx
import pytest

from engine.api.gateway.guard import GatewayLimits
from engine.config.external_sections import Surface
from engine.model import DecidedBy, Status
from tests.api.gateway.served import Serve, Served
from tests.support.notification_server import NotificationServer


def press_button(button: dict[str, Any]) -> httpx.Response:
    return httpx.request(button["method"], button["url"], headers=button["headers"], timeout=30, trust_env=False)


def make_predicted_cards(served: Served, *flows: str):
    """Have a cycle make cards of flows that another program predicts."""
    stamp = served.engine.clock.now().isoformat()
    lines = [
        {"prediction": flow, "confidence": 0.7, "channel": "koji-core", "reasoning": "", "timestamp": stamp}
        for flow in flows
    ]
    file = served.engine.home.data / "predictions.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    served.engine.checks.run(requested=True)


def notify_phone(served: Served, server: NotificationServer) -> dict[str, dict[str, dict[str, Any]]]:
    """Send the phone a notification of each of two new cards; the buttons there by the card's id and by their label."""
    engine = served.engine
    engine.settings.set("notify.phone.url", server.ntfy)
    engine.settings.set("notify.gateway", served.url)
    engine.settings.set("notify.digestMinutes", 0)
    engine.settings.set("quietHoursEnd", engine.settings.current.quiet_hours_start)  # no hour is quiet
    make_predicted_cards(served, "report_branches", "check_clean_head")
    engine.notify.catch_up()
    while engine.notify.senders[Surface.PHONE].deliver_due() == 0:
        pass
    buttons_by_card = {}
    for post in server.posts:
        buttons = {button["label"]: button for button in json.loads(post.headers["x-actions"])}
        buttons_by_card[buttons["Approve"]["url"].split("/")[-2]] = buttons
    return buttons_by_card


@pytest.mark.long
def test_each_button_of_the_phone_has_a_pass_of_its_own_which_works_once(serve: Serve):
    served = serve(limits=GatewayLimits())  # a slow machine's requests are not cut short
    with NotificationServer() as server:
        buttons_by_card = notify_phone(served, server)
    assert served.token not in str(buttons_by_card)
    (first, buttons), (second, others) = buttons_by_card.items()
    assert press_button(buttons["Approve"]).status_code == 200
    assert served.engine.cards.get(first).decided_by is DecidedBy.API
    assert press_button(buttons["Approve"]).status_code == 401, "a pass opens once"
    assert press_button(buttons["Dismiss"]).status_code == 409, "and a card is decided once"
    swapped = others["Dismiss"] | {"headers": others["Approve"]["headers"]}
    assert press_button(swapped).status_code == 401, "the pass of one button opens no other door"
    assert press_button(others["Dismiss"]).status_code == 200
    assert served.engine.cards.get(second).status is Status.DISMISSED
