"""Rows of cards, for tests that write them past the store."""

from datetime import datetime
from typing import Any

from engine.prediction.card_rows import CardRow


def make_card_row(card_id: str, at: datetime, **fields: Any) -> CardRow:
    """A card of a flow that is made and expires at this time; `fields` replace its values."""
    values = {
        "prompt": "run the tests", "target_agent": "a", "target_channel": "koji-core", "confidence": 0.7,
        "kind": "run_tests", "workspace": "/shop", "runner": "flow", "subject": card_id, "fingerprint": card_id,
        "created_at": at, "expires_at": at,
    }  # fmt: skip
    return CardRow(id=card_id, **values | fields)
