"""Numbers of the task graph (SPEC 4.6). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

SEMANTIC_WEIGHT = 0.7
DECAY_DAYS = 14.0
SIMILAR = 0.8
"""Cosine from which two tasks are linked by themselves."""

MOST_SIMILAR = 5
"""Links that one new task gets by itself, the closest."""

_DAY = timedelta(days=1)


def semantic(squared_distance: float) -> float:
    """Likeness in [0, 1] from the squared L2 distance of two unit vectors: 1 - distance / 2, their cosine."""
    return min(1.0, max(0.0, 1.0 - squared_distance / 2.0))


def recency(at: datetime, now: datetime) -> float:
    """exp(-age in days / 14); 1 for what is new, or from the future."""
    return math.exp(-max(0.0, (now - at) / _DAY) / DECAY_DAYS)


def score(semantic_score: float, recency_score: float) -> float:
    """0.7 · semantic + 0.3 · recency, in [0, 1] when both are."""
    return SEMANTIC_WEIGHT * semantic_score + (1.0 - SEMANTIC_WEIGHT) * recency_score


def similar(found: Iterable[tuple[str, float]], itself: str) -> list[tuple[str, float]]:
    """Of tasks with their squared distances, those to link to: cosine >= 0.8, the closest first, each once."""
    best: dict[str, float] = {}
    for task_id, distance in found:
        cosine = semantic(distance)
        if task_id != itself and cosine >= SIMILAR:
            best[task_id] = max(cosine, best.get(task_id, 0.0))
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_SIMILAR]
