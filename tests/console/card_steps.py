"""Steps of stories about the stack of cards on mission control."""

from dataclasses import replace

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.card_stack import CardStack
from clawpy_console.widgets import Rows
from engine.model import Card, Source
from tests.console import stand_in_data
from tests.console.stand_in import StandIn
from tests.console.stories import Given, Step, Until, find_stand_in

FIRST = "pred_000000000001"
SECOND = "pred_000000000002"
RISKY = "pred_000000000003"
BLOG_CARD = "pred_000000000004"
CHECK_CARD = "pred_000000000005"
"""The cards as they lie. All but the fourth are of the shop."""

RISK_SHOWN = Until("the risk", lambda app: find_stack(app).is_risk_shown)
"""The risk of the card in front is shown, and the next key may approve it."""


def find_stack(app: ConsoleApp) -> CardStack:
    """The stack of cards on mission control."""
    return app.screen.query_one("#stack", CardStack)


def find_front_id(app: ConsoleApp) -> str:
    """The id of the card in front, "" for none."""
    card = find_stack(app).front
    return card.id if card else ""


def in_front(card: str) -> Until:
    """This card is the one that is shown."""
    return Until(f"card {card}", lambda app: find_front_id(app) == card)


NEW_CARD = stand_in_data.make_card(77, "Something hotter", confidence=0.79)
"""A card that the stack does not have yet."""

FOLLOW_UP_CARD = replace(NEW_CARD, id="pred_000000000078", source=Source.FOLLOW_UP)


def engine_replaces_cards(card: Card | None, *gone: str) -> Step:
    """The engine adds a card before the others, None for no card; the cards `gone` are pending no more."""

    def change(app: ConsoleApp):
        cards = find_stand_in(app).cards
        remaining = {id: other for id, other in cards.all.items() if id not in gone}
        cards.all = remaining if card is None else {card.id: card, **remaining}
        app.reload(["cards"])

    return change


def with_first_card(**fields: object) -> Given:
    """The first card has these fields."""

    def change(engine: StandIn):
        engine.cards.all[FIRST] = replace(engine.cards.all[FIRST], **fields)

    return Given(change)


def shows_tiers(*words: str) -> Until:
    """The list of cards shows these tiers, from the top."""

    def is_met(app: ConsoleApp) -> bool:
        return [row.mark.strip() for row in app.screen.query_one("#cards", Rows).rows] == [*words]

    return Until(f"the tiers {words}", is_met)
