"""The cards of the stand-in, and the stack that shows them."""

from __future__ import annotations

from textual.geometry import Region

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.mission.stack import CardStack
from tests.console.conftest import screen_text
from tests.console.stand_in import StandIn

FIRST, SECOND, RISKY = "pred_000000000001", "pred_000000000002", "pred_000000000003"


def stack(app: ConsoleApp) -> CardStack:
    return app.screen.query_one("#stack", CardStack)


def front(app: ConsoleApp) -> str:
    card = stack(app).front
    return card.id if card else ""


def calls_of(engine: StandIn, *names: str) -> list[tuple]:
    return [call for call in engine.noted if call[0] in names]


def shown(app: ConsoleApp, place: Region) -> str:
    """What stands on this part of the screen, as one line."""
    rows = screen_text(app).split("\n")[place.y : place.bottom]
    return " ".join(" ".join(row[place.x : place.right] for row in rows).split())
