"""The layers of memory and how each stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Layer(StrEnum):
    """The seven layers (SPEC 4.1-4.7)."""

    MARKDOWN = "A"
    LEDGER = "B"
    VECTORS = "C"
    CAPTURE = "D"
    CONTEXT = "E"
    GRAPH = "F"
    PARA = "G"


@dataclass(frozen=True, slots=True)
class LayerState:
    """How a layer stands. `state` is ready, building, degraded or off; `progress` in [0, 1]; `fresh_at` its newest."""

    layer: Layer
    count: int
    fresh_at: datetime | None
    state: str
    words: str = ""
    progress: float = 1.0
