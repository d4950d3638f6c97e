"""The table of cards refuses what cannot be (SPEC 2.7)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from engine.clock import FakeClock
from engine.prediction.card_rows import Prediction
from engine.storage.database import Database
from tests.prediction.deciding import World, proposal


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "approved"},
        {"source": "pulse"},
        {"confidence": 1.01},
        {"confidence": -0.01},
        {"decided_by": "nobody"},
        {"outcome": "fine"},
        {"trigger_type": "whim"},
        {"estimate_microusd": -1},
    ],
)
def test_what_cannot_be_is_refused(database: Database, clock: FakeClock, bad: dict[str, Any]) -> None:
    card = World(database, clock).one()

    def spoil(tx: Any) -> None:
        row = tx.session.get(Prediction, card.id)
        for name, value in bad.items():
            setattr(row, name, value)
        tx.session.flush()

    with pytest.raises(IntegrityError):
        database.write(spoil)


def test_two_pending_cards_are_never_about_the_same(database: Database, clock: FakeClock) -> None:
    first, second = World(database, clock).see(proposal("a"), proposal("b"))

    def spoil(tx: Any) -> None:
        tx.session.get(Prediction, second.id).subject = tx.session.get(Prediction, first.id).subject
        tx.session.flush()

    with pytest.raises(IntegrityError):
        database.write(spoil)
