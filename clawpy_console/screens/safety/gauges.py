"""Money against its caps: spent and reserved told apart, how it went, and when the cap would be reached."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content

from clawpy_console import words
from clawpy_console.state import Known
from clawpy_console.widgets.status import cost_color
from engine.values import MICRO, Burn

STEPS = "▂▃▄▅▆▇█"
MOST = 24
"""So many buckets fit beside the words, and a whole day."""


def spark(burn: Burn, width: int) -> str:
    """One cell a bucket, the newest `width` that have begun: `▁` for nothing, higher for more."""
    begun = burn.buckets[: burn.elapsed][-width:]
    most = max(begun, default=0)
    cells = []
    for amount in begun:
        if amount <= 0:
            cells.append("▁")
        else:
            cells.append(STEPS[min(len(STEPS) - 1, amount * len(STEPS) // (most + 1))])
    return "".join(cells).ljust(width)


def bar(burn: Burn, cells: int) -> tuple[int, int]:
    """Cells for what is spent and for what is reserved; what is above nothing has one while there is room."""
    if burn.cap <= 0:
        return (cells, 0) if burn.spent or not burn.reserved else (0, cells)
    spent = min(cells, max(round(burn.spent / burn.cap * cells), 1 if burn.spent else 0))
    both = min(cells, max(round((burn.spent + burn.reserved) / burn.cap * cells), spent + (1 if burn.reserved else 0)))
    return spent, both - spent


def pace(burn: Burn, now: datetime) -> tuple[str, str]:
    """How fast, and when the cap comes at that pace."""
    if burn.spent + burn.reserved >= burn.cap:
        return "the cap is reached", "bold $wrong"
    if burn.pace <= 0:
        return "nothing recently", "$faint"
    speed = f"${burn.pace / MICRO:.2f}/h"
    if burn.reached_at is None:
        return f"{speed}: stays below", "$grey"
    return f"{speed}: full {words.moment(burn.reached_at, now)}", "$wants"


def legend() -> Content:
    """What the two fillings mean."""
    return Content.assemble(
        ("━━", "$accent"), (" spent  ", "not bold $faint"), ("╍╍", "$accent"), (" reserved", "not bold $faint")
    )


def gauges(known: Known, width: int, now: datetime, *, tall: bool) -> list[Content]:
    """One gauge a window; `tall` adds the burn line below each, else it stands beside while there is room."""
    if not known.burn:
        return [Content.styled("not read yet", "$faint")]
    lines: list[Content] = []
    cells = max(8, min(40, width - 31)) if tall else max(8, min(16, width - 60))
    for burn in known.burn:
        used = burn.spent + burn.reserved
        style = cost_color(used, burn.cap).removeprefix("bold ")
        fill = "$accent" if style == "$grey" else style
        spent, reserved = bar(burn, cells)
        share = used / burn.cap * 100 if burn.cap else 100.0
        line = Content.assemble(
            (f"{burn.window:<6}", "$faint"),
            ("━" * spent, fill),
            ("╍" * reserved, fill),
            ("·" * (cells - spent - reserved), "$faint"),
            (f" {share:>3.0f} %", style),
            (f"{f'${used / MICRO:.2f}':>8} of {words.cap(burn.cap):<4}", "$ink"),
        )
        said, said_style = pace(burn, now)
        if tall:
            below = Content.assemble(" " * 6, (spark(burn, MOST), "$grey"), "  ")
            room = max(0, width - below.cell_length)
            lines += [line, Content.assemble(below, (words.crop(said, room), said_style))]
        else:
            room = max(0, width - line.cell_length - 14)
            line = Content.assemble(line, " ", (spark(burn, 12), "$grey"), " ")
            lines.append(Content.assemble(line, (words.crop(said, room), said_style)))
    return lines
