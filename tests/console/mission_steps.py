"""Steps of stories about mission control around the cards."""

import dataclasses
from datetime import datetime

from engine.model import SessionState
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import SHOP
from tests.console.stories import Given, Step, Until


def in_pane(name: str) -> Until:
    """This pane has the focus."""
    return Until(f"pane {name}", lambda app: app.screen.pane == name)


def go_to(pane: str) -> Step:
    """Put the focus on this pane."""
    return lambda app: app.screen.go_to(pane)


def with_session(number: int, **fields: object) -> Given:
    """The session at this place of the list has these fields."""

    def change(engine: StandIn):
        engine.sessions.all[number] = dataclasses.replace(engine.sessions.all[number], **fields)

    return Given(change)


def remove_cards(engine: StandIn):
    """No card, and no session that failed."""
    engine.cards.all = {}
    engine.sessions.all = engine.sessions.all[:2]


def remove_all_that_waits(engine: StandIn):
    """No card, no failed session and no changes."""
    remove_cards(engine)
    engine.changes.all = []


def add_problem(engine: StandIn, checked_at: datetime, kind: str = "secret"):
    """The last run found a problem of this kind that is not committed, and the newest check was at this time."""
    facts = {"has_problem": True, "next": kind, "findings": [{"commit": "", "line": 3}]}
    fields = {"state": SessionState.SUCCEEDED, "error": "", "summary": "Do not push: 1 likely secret", "facts": facts}
    with_session(1, **fields).change(engine)
    engine.checks.read_last_checked = lambda: {SHOP: checked_at}
