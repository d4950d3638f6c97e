"""Compares the same tasks in two phases: whether more of them passed than chance explains."""

import math
from collections.abc import Mapping, Sequence

PHASES_HEADING = "\nchange                     before  after   more  fewer   p (sign test, one-sided)"
"""The heading of the rows that `compare_phases` prints."""


def compare_phases(passed: Mapping[str, Sequence[bool]], before: str, after: str, *, rises: bool = True) -> float:
    """Compare two phases of `passed` by a one-sided sign test, and print a row. `passed` says of each task whether it
    passed, by phase. Returns the probability that chance alone makes so many more tasks pass; without `rises`, so many
    fewer."""
    pairs = list(zip(passed[before], passed[after], strict=True))
    more = sum(second and not first for first, second in pairs)
    fewer = sum(first and not second for first, second in pairs)
    changed, expected = more + fewer, more if rises else fewer
    chance = sum(math.comb(changed, count) for count in range(expected, changed + 1)) / 2**changed
    rates = (sum(passed[name]) / len(passed[name]) for name in (before, after))
    figures = "  ".join(f"{rate:6.0%}" for rate in rates)
    print(f"{before + ' to ' + after:25}  {figures}  {more:5}  {fewer:5}   {chance:.4f}")
    return chance
