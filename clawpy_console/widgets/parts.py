"""Pieces that lines of several screens are made of: a value with its name, a score with its bar. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words
from clawpy_console.fields import Field, label_width

LABEL = 11
"""Cells for the name of a value, in a column."""

BAR = 10
"""Cells of a bar."""


def named(name: str, value: str, width: int, style: str = "$ink", label: int = LABEL) -> list[Content]:
    """A value beside its name, wrapped below itself; the name takes `label` cells."""
    first, *rest = Content.styled(value or " ", style).wrap(max(8, width - label))
    return [
        Content.assemble((f"{name:<{label}}", "$faint"), first),
        *(Content.assemble(" " * label, line) for line in rest),
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


TONES = {"title": "bold $ink", "heading": "bold $faint"}
"""Styles of the tones that are no colour."""


def drawn(fields: Iterable[Field], width: int) -> list[Content]:
    """Fields as lines of at most `width` cells, each wrapped below itself."""
    lines: list[Content] = []
    fields = list(fields)
    label = label_width(fields)
    for one in fields:
        style = TONES.get(one.tone, f"${one.tone}")
        if one.tone == "heading":
            lines += [Content("")] if lines else []
            lines.append(Content.styled(words.crop(one.text.upper(), width), style))
        elif one.name:
            lines += named(one.name, one.text, width, style, label)
        else:
            lines += Content.styled(one.text or " ", style).wrap(max(8, width))
    return lines


def cropped(parts: Iterable[tuple[str, str]], width: int) -> Content:
    """Pieces of text, each with its style, as one line of at most `width` cells."""
    kept: list[tuple[str, str]] = []
    for text, style in parts:
        kept.append((words.crop(text, width), style))
        width -= cell_len(kept[-1][0])
        if width <= 0:
            break
    return Content.assemble(*kept)
