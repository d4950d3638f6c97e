"""What did not reach a surface waits among the rest, and is tried again there (SPEC 9.3), with the real engine."""

from __future__ import annotations

import pytest

from clawpy_console.app import ConsoleApp
from engine import open_engine
from engine.events import StateChanged
from engine.home import Home
from tests.api.notify.notification_server import NotificationServer
from tests.console.conftest import live, screen_text, until

PAUSED = StateChanged(before="WATCHING", after="PAUSED", cause="3 rejections in a row")


@pytest.mark.long
async def test_it_is_tried_again_from_what_waits(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ConsoleApp(lambda: open_engine(home, start_schedule=False), home, [])
    app.animation_level = "none"
    with NotificationServer(status=401) as office:
        monkeypatch.setenv("CLAWPY_NOTIFY_PHONE_URL", office.ntfy)
        async with app.run_test(size=(160, 40)) as pilot:
            await live(pilot)
            engine = app.engine
            assert engine is not None
            engine.notify.start()
            engine.database.write(lambda tx: tx.record(PAUSED))
            await until(pilot, lambda: any(item.kind == "notification" for item in app.state.waiting))
            assert "phone missed a notification" in screen_text(app)
            office.status = 200
            await pilot.press("tab", "enter")
            await until(pilot, lambda: "Try again?" in screen_text(app))
            await pilot.press("y")
            await until(pilot, lambda: not app.state.waiting and len(office.posts) == 2)
    assert office.posts[-1].body["message"] == "Paused: 3 rejections in a row"
