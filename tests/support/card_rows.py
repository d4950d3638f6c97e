"""Cards, and rows of cards for tests that write them past the store."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engine.model import Assignment, Band, Card, ConfidenceParts, Source, Status, Tier
from engine.prediction.card_rows import CardRow
from engine.wording import to_microusd


def make_card_row(card_id: str, at: datetime, **fields: Any) -> CardRow:
    """A card of a flow that is made and expires at this time; `fields` replace its values."""
    values = {
        "prompt": "run the tests", "target_agent": "a", "target_channel": "koji-core", "confidence": 0.7,
        "kind": "run_tests", "workspace": "/shop", "runner": "flow", "subject": card_id, "fingerprint": card_id,
        "created_at": at, "expires_at": at,
    }  # fmt: skip
    return CardRow(id=card_id, **values | fields)


def make_card(card_id: str, now: datetime, **changes: Any) -> Card:
    """A pending card of a flow; `changes` replace its values."""
    default = Card(
        id=card_id, kind="run_tests", tier=Tier.CHECK,
        assignment=Assignment("Run the tests", "koji-core", "/srv/shop", "flow", "run_tests", {"paths": ["cart.py"]}),
        agent="backend_builder", confidence=0.72, band=Band.SUGGESTED,
        parts=ConfidenceParts(0.8, 0.7, 0.6, 0.7, 0.72, stated=True), reasoning="3 modules changed",
        status=Status.PENDING, source=Source.TEMPLATE, created_at=now, expires_at=now + timedelta(hours=24),
        estimate=to_microusd(0.05),
    )  # fmt: skip
    return replace(default, **changes)
