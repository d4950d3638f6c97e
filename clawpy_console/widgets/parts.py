"""Pieces that lines of several screens are made of: a value with its name, a score with its bar. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words

LABEL = 11
"""Cells for the name of a value, in a column."""

BAR = 10
"""Cells of a bar."""


def named(name: str, value: str, width: int, style: str = "$ink") -> list[Content]:
    """A value beside its name, wrapped below itself."""
    first, *rest = Content.styled(value or " ", style).wrap(max(8, width - LABEL))
    return [
        Content.assemble((f"{name:<{LABEL}}", "$faint"), first),
        *(Content.assemble(" " * LABEL, line) for line in rest),
    ]


def score(name: str, value: float, reasons: Sequence[str], width: int) -> list[Content]:
    """A value from 0 to 1 as a bar and a number, why it is that below it."""
    filled = round(max(0.0, min(1.0, value)) * BAR)
    head = Content.assemble(
        (f"{name:<{LABEL}}", "$faint"), ("▇" * filled, "$accent"), ("·" * (BAR - filled), "$faint"), f" {value:.2f}"
    )
    why = words.one_line("; ".join(reasons))
    rest = Content.styled(why, "$grey").wrap(max(8, width - LABEL)) if why else []
    return [head, *(Content.assemble(" " * LABEL, line) for line in rest)]


def cropped(parts: Iterable[tuple[str, str]], width: int) -> Content:
    """Pieces of text, each with its style, as one line of at most `width` cells."""
    kept: list[tuple[str, str]] = []
    for text, style in parts:
        kept.append((words.crop(text, width), style))
        width -= cell_len(kept[-1][0])
        if width <= 0:
            break
    return Content.assemble(*kept)
