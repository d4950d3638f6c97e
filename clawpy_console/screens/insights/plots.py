"""Plots made of text: shapes and numbers say everything, colour only where one should look first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words
from engine.values import ConfidenceBucket, Group, Slice

STEPS = " ▁▂▃▄▅▆▇█"
NOTHING = "·"
LABEL = 5
"""Cells of the scale on the left, its line included."""

WIDEST = 6
"""A bar is at most so wide."""

NAME, NUMBERS, COST = 14, 23, 8
"""Cells of a table's columns: a name that is not cut as a rule, the numbers, the cost."""


def bars(slices: Sequence[Slice], width: int, height: int) -> list[Content]:
    """The share approved in each slice as a bar, in `height` rows, and below how many were decided and when.

    Where nothing was decided stands a dot, where nothing was approved a line on the ground.
    """
    room = max(1, width - LABEL)
    shown = slices[-room:]
    cell = min(WIDEST, room // max(1, len(shown)))
    rows = _columns([one.approval_rate for one in shown], cell, height)
    rows.append(_counted(shown, cell))
    rows.append(_dated(shown, cell))
    return rows


def _columns(rates: Sequence[float | None], cell: int, height: int) -> list[Content]:
    """Rates as columns of `cell` cells, a gap between them where there is room, in `height` rows with their scale."""
    bar = max(1, cell - (cell > 1))
    rows = []
    for row in range(height):
        top = height - row  # of this row, in rows above the ground
        mark = {height: "100", (height + 1) // 2: " 50" if height % 2 == 0 or height > 3 else "", 1: "  0"}.get(top, "")
        scale = f"{mark:>3} {'┤' if mark.strip() else '│'}"
        cells = "".join(_cell(one, top, height) * bar + " " * (cell - bar) for one in rates)
        rows.append(Content.assemble((scale, "$faint"), (cells.rstrip(), "$accent")))
    return rows


def _cell(rate: float | None, top: int, height: int) -> str:
    if rate is None:
        return NOTHING if top == 1 else " "
    filled = max(rate * height * 8, 1.0)  # nothing approved is a line, not nothing
    return STEPS[min(8, max(0, round(filled - (top - 1) * 8)))]


def _counted(shown: Sequence[Slice], cell: int) -> Content:
    """How many were decided: as a number below each bar where there is room, else as a low bar against the most."""
    counts = [one.approved + one.rejected for one in shown]
    if cell >= 3 and max(counts, default=0) < 10 ** (cell - 1):
        numbers = "".join(f"{number if number else '':<{cell}}" for number in counts)
        return Content.styled(f"{'n':>{LABEL - 1}} {numbers}".rstrip(), "$grey")
    most = max(counts, default=0)
    steps = "".join(STEPS[1 + round(3 * number / most)] if number else NOTHING for number in counts) if most else ""
    wide = "".join(one * max(1, cell - (cell > 1)) + " " * (cell > 1) for one in steps)
    return Content.styled(f"{'n':>{LABEL - 1}} {wide}".rstrip(), "$grey")


def _dated(shown: Sequence[Slice], cell: int) -> Content:
    """The first day, the days on the way where there is room, and today."""
    if not shown:
        return Content("")
    whole = cell * len(shown)
    line = [" "] * (whole + 8)
    end = -1
    for number in sorted({0, len(shown) // 3, 2 * len(shown) // 3}):
        day = shown[number].start
        label, at = f"{day.day} {day:%b}", number * cell
        if at > end and at + len(label) <= whole - 6:
            line[at : at + len(label)] = label
            end = at + len(label)
    line[max(0, whole - 5) : max(0, whole - 5) + 5] = "today"
    return Content.styled(" " * LABEL + "".join(line).rstrip(), "$faint")


def calibration(buckets: Sequence[ConfidenceBucket], width: int) -> list[Content]:
    """Each range of confidence as a line from 0 to 100 %: what was stated, what came, and how far chance may carry
    that; then the numbers and the verdict in a word."""
    plot = max(12, min(72, width - 36))
    rows = []
    for one in buckets:
        name = f" {one.low:.2f}–{one.high:.2f} "
        if one.approval_rate is None:
            line = Content.assemble((name, "$faint"), ("·" * plot, "$faint"), ("   nothing decided", "$faint"))
            rows.append(line)
            continue
        said, style = verdict(one)
        numbers = f" {one.approval_rate:>4.0%} of {one.predictions:<4,} "
        rows.append(
            Content.assemble((name, "$ink"), *_range(one, one.approval_rate, plot), (numbers, "$ink"), (said, style))
        )
    half = plot // 2
    scale = f"{'0':<{half}}{'50':<{plot - half - 3}}100 %"
    rows.append(Content.styled(" " * 11 + scale, "$faint"))
    return rows


def verdict(one: ConfidenceBucket) -> tuple[str, str]:
    """How what was stated compares with what came, and its style."""
    if one.confidence is None or one.unstated == one.predictions:
        return "cold start", "$faint"
    if one.at_least <= one.confidence <= one.at_most:
        return ("✓ as stated", "$grey") if one.predictions >= 5 else ("few", "$faint")
    return ("▲ too low", "$wants") if one.confidence < one.at_least else ("▼ too high", "$wrong")


def _range(one: ConfidenceBucket, rate: float, plot: int) -> list[tuple[str, str]]:
    def place(share: float) -> int:
        return min(plot - 1, round(share * (plot - 1)))

    low, high, came = place(one.at_least), place(one.at_most), place(rate)
    line = ["·"] * plot
    line[low : high + 1] = "─" * (high + 1 - low)
    line[low], line[high] = "├", "┤"
    stated = -1
    if one.confidence is not None and one.unstated < one.predictions:
        stated = place(one.confidence)
        line[stated] = "┃"
    line[came] = "◉" if came == stated else "●"
    styles = ["$faint" if sign == "·" else "$grey" if sign in "├─┤" else "bold $accent" for sign in line]
    parts: list[tuple[str, str]] = []
    for sign, style in zip(line, styles, strict=True):
        if parts and parts[-1][1] == style:
            parts[-1] = (parts[-1][0] + sign, style)
        else:
            parts.append((sign, style))
    return parts


def legend() -> Content:
    """What the signs of `calibration` mean."""
    return Content.assemble(
        ("┃", "bold $accent"), (" stated  ", "not bold $faint"), ("●", "bold $accent"),
        (" approved  ", "not bold $faint"), ("├─┤", "$grey"), (" 95 % of chance", "not bold $faint"),
    )  # fmt: skip


def clock(hours: Sequence[Group], width: int, height: int = 1) -> list[Content]:
    """The share approved at each hour of the day in `height` rows, how many were decided, and the hours."""
    by_hour = {int(one.name): one for one in hours}
    cell = 2 if width >= 24 * 2 + 6 else 1
    bar = cell if height == 1 else 1
    most = max((one.decided for one in hours), default=0)
    rates: list[float | None] = []
    counts = ""
    for hour in range(24):
        one = by_hour.get(hour)
        rates.append(None if one is None else one.approval_rate)
        count = NOTHING if one is None or not one.decided else STEPS[max(1, round(one.decided / most * 8))]
        counts += count * bar + " " * (cell - bar)
    labels = "".join(f"{hour:<{3 * cell}}" for hour in range(0, 24, 3))
    below = [
        Content.assemble((f"{'n':<{LABEL}} " if height == 1 else f"{'n':>{LABEL - 1}} ", "$faint"), (counts, "$grey")),
        Content.styled(f"{'hour' if height == 1 else '':<{LABEL}}{' ' * (height == 1)}{labels}".rstrip(), "$faint"),
    ]
    if height > 1:
        return [*_columns(rates, cell, height), *below]
    signs = "".join(NOTHING * cell if one is None else STEPS[max(1, round(one * 8))] * cell for one in rates)
    return [Content.assemble(("rate  ", "$faint"), (signs, "$accent")), *below]


def table(groups: Sequence[Group], width: int, *, what: str, most: int, costs: bool = True) -> list[Content]:
    """Groups as rows: cards, decided, the share approved as a number and a bar, cost of an accepted one. Where room is
    short the bar goes first, for the sake of a name too, then the cost: names and numbers say more."""
    priced = costs and width >= NAME + NUMBERS + COST
    left = width - NUMBERS - (COST if priced else 0)
    named = min(22, max(NAME, *(cell_len(one.name) + 1 for one in groups[:most]), 0))
    bar = min(10, left - named - 2)
    bar = bar if bar >= 4 else 0
    size = max(6, min(22, left - (bar + 2 if bar else 0)))
    gap = " " * (bar + 2 if bar else 0)
    head = f"{words.fit(what, size)}{'cards':>6}{'decided':>8}{'approved':>9}{gap}{'cost' if priced else '':>{COST}}"
    rows = [Content.styled(words.crop(head.rstrip(), width), "$faint")]
    for one in groups[:most]:
        rate = one.approval_rate
        full = 0 if rate is None else round(rate * bar)
        line = Content.assemble(
            (words.fit(one.name or "–", size), "$ink"),
            (f"{one.predictions:>6,}{one.decided:>8,}", "$grey"),
            (f"{'–' if rate is None else f'{rate:.0%}':>9}", "$ink"),
            ("  " if bar else "", ""),
            ("━" * full, "$accent"),
            ("·" * (bar - full), "$faint"),
            (f"{_each(one):>{COST}}" if priced else "", "$grey"),
        )
        rows.append(line)
    if len(groups) > most:
        rows.append(Content.styled(f"and {len(groups) - most} more", "$faint"))
    return rows


def _each(one: Group) -> str:
    return "–" if one.cost_per_accepted is None else words.money(round(one.cost_per_accepted))
