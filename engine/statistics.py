"""Wilson bounds of a share. Pure."""

from __future__ import annotations

from math import sqrt

Z_ONE_SIDED_95 = 1.645
"""One-sided 95 % of the normal distribution."""


def wilson_lower_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
    """One-sided lower bound, in [0, 1], of the true share after `hits` of `total` cases; 0 without cases.

    With z = 1.645 it reaches 0.8 from 11 of 11, 19 of 20, 26 of 28 on.
    """
    if not 0 <= hits <= total:
        raise ValueError(f"{hits} of {total} is not a share")
    if hits == 0:
        return 0.0  # exactly, where the formula leaves a rounding error
    share = hits / total
    spread = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (share + z * z / (2 * total) - spread) / (1 + z * z / total))


def wilson_upper_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
    """One-sided upper bound, in [0, 1], of the true share after `hits` of `total` cases; 1 without cases."""
    return 1.0 - wilson_lower_bound(total - hits, total, z)
