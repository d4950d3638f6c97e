"""Fields: named lines of text that describe a thing, such as an agent or a learning.

Screens and verbs show the same fields. A function of this package takes the document of a thing, as verbs print it in
JSON, and gives its fields. `widgets.texts.render_fields` lays them out for a screen, and
`cli.printing.format_fields` for a terminal or a pipe. Nothing here needs Textual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich.cells import cell_len

from clawpy_console import formats
from engine.files import read_table
from engine.frozen import frozen

Document = Mapping[str, Any]
"""A value of the engine as verbs print it in JSON."""


@frozen
class Field:
    """One line of text, with or without a name."""

    name: str
    """"" for a line without a name."""
    text: str
    tone: str = "ink"
    """A colour of the theme (`ink`, `grey`, `wants` …), `title`, or `heading`, which begins a new part."""


Fields = Iterator[Field]
"""Lines that describe a thing, from its top."""


class Label(NamedTuple):
    """A state as it is shown."""

    sign: str
    tone: str
    words: str


_TABLE = read_table(__file__, "words.toml")

LABELS = {noun: {state: Label(*cells) for state, cells in states.items()} for noun, states in _TABLE["labels"].items()}
"""The labels of the states of a thing, by its noun in `words.toml`."""

SIGNS: Mapping[str, Mapping[str, Sequence[str]]] = _TABLE["signs"]
"""The sign and the tone of the states of a thing, by its noun in `words.toml`."""

WORDS: Mapping[str, Mapping[str, Any]] = _TABLE["words"]
"""The names of things, by the noun of `words.toml` that they fall under."""

TONES: Mapping[str, Mapping[str, str]] = _TABLE["tones"]
"""The styles of the parts of a view, by its name in `words.toml`."""


def compute_label_width(fields: Iterable[Field]) -> int:
    """The number of cells for the names of `fields` and the space after them."""
    return max((cell_len(field.name) for field in fields), default=0) + 2


def text_line(text: str, tone: str = "ink") -> Field:
    """A line without a name."""
    return Field("", text, tone)


def heading(text: str) -> Field:
    """The heading of a new part."""
    return text_line(text, "heading")


def make_fact_fields(facts: Iterable[tuple[str, str]], tone: str = "ink") -> Fields:
    """The facts, names and texts, that have a text."""
    return (Field(name, text, tone) for name, text in facts if text)


BAR_CELLS = 10
"""The number of cells of `draw_bar`."""


def draw_bar(share: float) -> str:
    """A share from 0 to 1 as `▇▇▇▇▇▇▇···`."""
    filled = round(max(0.0, min(1.0, share)) * BAR_CELLS)
    return "▇" * filled + "·" * (BAR_CELLS - filled)


def format_instant(instant: str | None, now: datetime) -> str:
    """An instant of a document as `formats.moment` writes it, "" for none."""
    return formats.moment(datetime.fromisoformat(instant), now) if instant else ""


MAX_TEXT_CHARS = 20_000
"""Maximum number of characters of a text that are shown."""


def make_text_fields(body: str) -> Fields:
    """A text line by line, headings of Markdown set off; at most `MAX_TEXT_CHARS` of it."""
    for line in body[:MAX_TEXT_CHARS].rstrip("\n").expandtabs(4).split("\n"):
        yield text_line(line, "accent" if line.startswith("#") else "ink")
    if len(body) > MAX_TEXT_CHARS:
        yield text_line(f"… {formats.count(len(body) - MAX_TEXT_CHARS, 'character')} more", "faint")


CONTEXT_LINES = 3
"""Lines that stay the same, shown before and after those that change."""


def make_change_fields(before: Sequence[str], after: Sequence[str]) -> Fields:
    """The lines that go (`-`) and come (`+`), with a few around them that stay."""
    import difflib  # not before the first frame

    tones = {"-": "wrong", "+": "good", "@": "faint"}
    for number, line in enumerate(difflib.unified_diff(before, after, n=CONTEXT_LINES, lineterm="")):
        is_name_of_file = number < 2
        is_part_at_top = number == 2 and line.startswith(("@@ -0,", "@@ -1,", "@@ -1 "))
        if is_name_of_file or is_part_at_top:
            continue
        text = "  ⋮" if line.startswith("@@") else f"{line[0]} {line[1:]}".expandtabs(4)
        yield text_line(text, tones.get(line[0], "grey"))


SPARKS = "▂▃▄▅▆▇█"
"""The cells of `draw_sparkline`, from a low value to the highest."""


def draw_sparkline(values: Sequence[float | None], top_value: float | None = None) -> str:
    """Values as one cell each, the highest, or `top_value`, as `█`; `▁` for nothing, `·` for no value."""
    top = top_value or max((value for value in values if value is not None), default=0)

    def choose_cell(value: float | None) -> str:
        if value is None:
            return "·"
        return SPARKS[min(len(SPARKS) - 1, int(value / top * len(SPARKS)))] if value > 0 else "▁"

    return "".join(map(choose_cell, values))
