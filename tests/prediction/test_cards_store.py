"""The table keeps what the seed asks for, and refuses what cannot be (SPEC 2.7)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import inspect
from sqlalchemy.exc import IntegrityError
from sqlmodel import SQLModel

from engine.clock import FakeClock
from engine.learning.decisions.decisions import DpoPair
from engine.prediction.card_rows import Prediction
from engine.storage.database import Database
from tests.prediction.deciding import World, proposal

SEED = {
    Prediction: "id user_id prompt target_agent target_channel confidence reasoning status source created_at "
    "confirmed_at executed_at task_id dpo_exported",
    DpoPair: "id user_id context chosen rejected chosen_confidence rejected_confidence created_at exported_at",
}


@pytest.mark.parametrize("table", SEED)
def test_columns_of_the_seed_come_first(table: type[SQLModel]) -> None:
    columns = [column.name for column in inspect(table).columns]
    assert columns[: len(SEED[table].split())] == SEED[table].split()


def test_indexes_of_the_seed(database: Database) -> None:
    with database.read() as session:
        rows = session.connection().exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'index'").all()
    indexes = {row.name: row.sql for row in rows}
    assert "(status)" in indexes["idx_predictions_status"]
    assert "(user_id, created_at DESC)" in indexes["idx_predictions_user"]
    assert "WHERE exported_at IS NULL" in indexes["idx_dpo_exported"]


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
