"""What came of an effect: runs that went well with it and without it, the difference and how sure that is (SPEC 5.7).
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words
from clawpy_console.widgets.parts import LABEL, cropped
from engine.values.adaptation import CandidateStatus, Lift, Overlay

VERDICTS: Mapping[str, tuple[str, str]] = {
    "helps": ("✓", "$good"), "harms": ("✗", "bold $wrong"), "no difference": ("=", "$grey"),
    "not enough evidence": ("◐", "$grey"),
}  # fmt: skip

AXES = (10, 25, 50, 75, 100)
"""Where the axis of a lift ends, in points: the first that holds its interval."""


def points(share: float) -> str:
    """A difference of shares in points of a hundred, signed: `+24`, `±0`."""
    value = round(share * 100)
    return f"{value:+d}" if value else "±0"


def lift_lines(
    lift: Lift | None, overlays: Sequence[Overlay], status: CandidateStatus, now: datetime, width: int
) -> list[Content]:
    """What an effect does to the share of runs that go well, and since when it is, or was, in force."""
    lines: list[Content] = []
    if lift is not None:
        lines += _chart(lift, width)
    elif status is CandidateStatus.PROMOTED:
        lines.append(Content.styled("Not measured: no run has tried it yet.", "$grey"))
    else:
        lines.append(Content.styled("Nothing to measure: it is not active.", "$grey"))
    return [*lines, *(_in_force(overlay, now, width) for overlay in overlays[:6])]


def _chart(lift: Lift, width: int) -> list[Content]:
    glyph, style = VERDICTS.get(lift.verdict, ("◐", "$grey"))
    runs = lift.with_runs + lift.without_runs
    both = bool(lift.with_runs and lift.without_runs)
    lines = [
        cropped([(f"{glyph} {lift.verdict}", style), (f" · {words.count(runs, 'run')} so far", "$grey")], width),
        _arm("with it", lift.with_good, lift.with_runs, width),
        _arm("without", lift.without_good, lift.without_runs, width),
    ]
    if not both:
        return lines
    said = f"{points(lift.difference)} points; 80 % interval: {points(lift.low)} to {points(lift.high)}"
    return [
        *lines,
        *interval(lift, min(64, width - LABEL)),
        cropped([(f"{'difference':<{LABEL}}", "$faint"), (said, "$ink")], width),
    ]


def _arm(name: str, good: int, runs: int, width: int) -> Content:
    figures = f"  {good:>3} of {runs:>3} went well" + (f", {good / runs * 100:>3.0f} %" if runs else "")
    cells = max(6, min(24, width - LABEL - cell_len(figures)))
    filled = round(good / runs * cells) if runs else 0
    bar = [("▇" * filled, "$accent"), ("·" * (cells - filled), "$faint")]
    return cropped([(f"{name:<{LABEL}}", "$faint"), *bar, (figures, "$ink" if runs else "$grey")], width)


def interval(lift: Lift, cells: int) -> list[Content]:
    """The difference on an axis, `├──●──┤`, nothing at its middle, and what its ends mean."""
    cells = max(21, cells) | 1  # odd: nothing has a cell of its own
    end = next((one for one in AXES if max(abs(lift.low), abs(lift.high)) * 100 <= one), AXES[-1])

    def place(share: float) -> int:
        return min(cells - 1, max(0, round((share * 100 / end + 1) / 2 * (cells - 1))))

    low, middle, high, zero = place(lift.low), place(lift.difference), place(lift.high), cells // 2
    axis = ["·"] * cells
    axis[low : high + 1] = "─" * (high + 1 - low)
    axis[low], axis[high] = "├", "┤"
    if axis[zero] in "·─":
        axis[zero] = "┼" if axis[zero] == "─" else "│"
    axis[middle] = "●"
    pad = " " * LABEL
    drawn = "".join(axis)
    left, right = f"worse {-end}", f"+{end} better"
    gap = cells - len(left) - len(right)
    scale = (
        f"{left}{'0':^{gap}}{right}" if gap > 2 else f"{-end}{'0':^{cells - len(str(-end)) - len(str(end)) - 1}}+{end}"
    )
    return [
        Content.assemble(
            pad, (drawn[:low], "$faint"), (drawn[low : high + 1], "$accent"), (drawn[high + 1 :], "$faint")
        ),
        Content.assemble(pad, (scale, "$faint")),
    ]


def _in_force(one: Overlay, now: datetime, width: int) -> Content:
    who = ", ".join(part for part in (one.agent_id, one.run_kind, words.name(one.workspace)) if part and part != ".")
    since = f"since {words.moment(one.since, now)}"
    told = f"{since}" if one.until is None else f"from {words.moment(one.since, now)} to {words.moment(one.until, now)}"
    mark = ("● in force ", "$accent") if one.until is None else ("▼ was in force ", "$grey")
    return cropped([mark, (told, "$ink"), (f"  {who}" if who else "", "$grey")], width)
