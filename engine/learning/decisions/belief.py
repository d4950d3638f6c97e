"""Logistic regression that learns from one case at a time and knows how sure it is. Pure.

The weights are a normal distribution: what is expected before the first case, and how far it may be off. A case moves
their mean to where prior and case agree best along the direction that the case looks in, and narrows the spread there.
Cost of a case: the square of the number of features, however many cases came before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from engine.learning.decisions.calibration import squash

Array = Any


class Belief:
    """Weights with their spread."""

    def __init__(self, mean: Array, spread: Array) -> None:
        self.mean = numpy.array(mean, numpy.float64)
        self.covariance = numpy.diag(numpy.array(spread, numpy.float64) ** 2)

    def probability(self, features: Array) -> float:
        """Of a yes, in (0, 1); the less is known, the nearer to a half."""
        about = float(self.mean @ features)
        unsure = float(features @ self.covariance @ features)
        return squash(about / math.sqrt(1 + math.pi * unsure / 8))

    def learn(self, features: Array, yes: bool, weight: float = 1.0) -> None:
        """One case; `weight` in (0, 1] is how loudly it speaks."""
        towards = self.covariance @ features
        unsure, about, target = float(features @ towards), float(self.mean @ features), float(yes)
        step = 0.0
        for _ in range(20):  # Newton on the one number that says how far to go; it is concave, so this ends
            expected = squash(about + unsure * step)
            wrong = weight * (target - expected) - step
            slope = 1 + weight * expected * (1 - expected) * unsure
            step += wrong / slope
            if abs(wrong) < 1e-10:
                break
        expected = squash(about + unsure * step)
        self.mean += towards * step
        told = weight * expected * (1 - expected)
        self.covariance -= numpy.outer(towards, towards) * (told / (1 + told * unsure))
