"""Fields laid out for a screen. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from clawpy_console import words
from clawpy_console.fields import Field, label_width

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
            first, *rest = Content.styled(one.text or " ", style).wrap(max(8, width - label))
            lines.append(Content.assemble((f"{one.name:<{label}}", "$faint"), first))
            lines += [Content.assemble(" " * label, line) for line in rest]
        else:
            lines += Content.styled(one.text or " ", style).wrap(max(8, width))
    return lines
