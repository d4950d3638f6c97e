"""The seven layers of memory (SPEC 4.1-4.7), and their states as screens show them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen


class Layer(StrEnum):
    """The seven layers (SPEC 4.1-4.7)."""

    MARKDOWN = "A"
    LEDGER = "B"
    VECTORS = "C"
    CAPTURE = "D"
    CONTEXT = "E"
    GRAPH = "F"
    PARA = "G"


@frozen
class LayerState:
    """The state of a layer: ready, building, degraded or off. `progress` is from 0 to 1, `fresh_at` the time of its
    newest entry."""

    layer: Layer
    count: int
    fresh_at: datetime | None
    state: str
    words: str = ""
    progress: float = 1.0
