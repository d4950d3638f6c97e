"""Minimises a function by its gradient with the Adam method."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]


def minimise(gradient_of: Callable[[Vector], Vector], start: Vector, *, steps: int, minimum: float = -np.inf) -> Vector:
    """The values after `steps` steps from `start`, none below `minimum`."""
    values = start
    mean, square = np.zeros_like(start), np.zeros_like(start)
    for step in range(1, steps + 1):
        gradient = gradient_of(values)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        values = values - 0.05 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        values = np.maximum(values, minimum)
    return values
