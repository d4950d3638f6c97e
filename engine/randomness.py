"""The source of ids and random numbers that services get as an argument (ARCHITECTURE rule 7).

With a seed it gives the same sequences again, so that a simulated month can be repeated.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping


class Randomness:
    """The source of ids and random numbers. With a seed, it gives the same sequence again (ARCHITECTURE rule 7).

    Each kind of id has its own sequence, and so have the random numbers. So threads that draw from one sequence do not
    change another.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        self._random: random.Random = random.Random(seed) if seed is not None else random.SystemRandom()
        self._ids: dict[str, random.Random] = {}
        self._lock = threading.Lock()

    def new_id(self, prefix: str) -> str:
        """A fresh id such as `pred_7k2m9x4qd1ab`: 12 characters of 36 after the prefix."""
        with self._lock:
            ids = self._ids.get(prefix)
            if ids is None:
                ids = self._random if self._seed is None else random.Random(f"{self._seed}/{prefix}")
                self._ids[prefix] = ids
            return f"{prefix}_" + "".join(ids.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=12))

    def pick(self, weights: Mapping[str, float]) -> str:
        """A key, drawn with a probability proportional to its weight. The sum of the weights must be above 0."""
        with self._lock:
            return self._random.choices(list(weights), weights=list(weights.values()))[0]

    def uniform(self) -> float:
        """A number in [0, 1)."""
        with self._lock:
            return self._random.random()
