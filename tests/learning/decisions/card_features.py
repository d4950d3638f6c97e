"""What decisions are learned from: the features of a card."""

from engine.learning.decisions.decisions import CardFeatures
from engine.model import PartOfDay
from tests.conftest import MONDAY_MORNING

MORNING_CARD = CardFeatures(
    "run_tests",
    "koji-core",
    "/shop",
    "run_tests",
    frozenset({"run", "tests"}),
    PartOfDay.MORNING,
    weekend=False,
    at=MONDAY_MORNING,
    hour=9,
)
"""A card in the morning of a working day."""
