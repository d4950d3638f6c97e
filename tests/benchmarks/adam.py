"""Minimises a function by its slope: the Adam method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]


def minimise(slope: Callable[[Vector], Vector], start: Vector, *, steps: int, least: float = -np.inf) -> Vector:
    """Where `slope` leads from `start`, no value below `least`."""
    values = start
    mean, square = np.zeros_like(start), np.zeros_like(start)
    for step in range(1, steps + 1):
        now = slope(values)
        mean, square = 0.9 * mean + 0.1 * now, 0.999 * square + 0.001 * now**2
        values = values - 0.05 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        values = np.maximum(values, least)
    return values
