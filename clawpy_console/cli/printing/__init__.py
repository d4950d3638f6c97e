"""What the printers of documents share: colours, tables, times (SPEC 9.7, 9.8).

`work`, `learning` and `system` have a function for each verb, which `verbs.toml` names: it gives the lines of the
verb's document. `cli.main` calls it. Colour never carries meaning alone, and text from outside loses its control
characters here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from rich.cells import cell_len

from clawpy_console.fields import TONES, Document, Field, compute_label_width
from clawpy_console.fields.cards import make_outcome_label
from clawpy_console.formats import one_line, workspace_name
from engine.text import sanitise

Lines = Iterator[str]
"""The lines of a text, which can be read once."""


_ESCAPES = re.compile(r"\x1b\[\d*m")
"""The escape codes that `paint` writes."""


def strip_colours(text: str) -> str:
    """`text` without colours."""
    return _ESCAPES.sub("", text)


def clean(value: Any) -> Any:
    """A document without control characters in its texts."""
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, Mapping):
        return {clean(name): clean(each) for name, each in value.items()}
    return [clean(each) for each in value] if isinstance(value, (list, tuple)) else value


PAINTS = TONES["terminal"]
"""Escape codes of the tones of fields."""


def paint(tone: str, text: object) -> str:
    """`text` in the tone of a field."""
    return f"\x1b[{PAINTS[tone]}m{text}\x1b[0m" if tone in PAINTS and text != "" else str(text)


bold = partial(paint, "title")
dim = partial(paint, "grey")
good = partial(paint, "good")
bad = partial(paint, "wrong")
wants = partial(paint, "wants")


def format_fields(fields: Iterable[Field]) -> Lines:
    """Fields as lines, with a blank line before each part."""
    fields = list(fields)
    label_cells = compute_label_width(fields)
    for number, field in enumerate(fields):
        if number and field.tone == "heading":
            yield ""
        indent = "" if field.tone in ("title", "heading") else "  "
        name = f"  {field.name:<{label_cells}}" if field.name else indent
        text = field.text.rstrip()
        yield dim(name) + paint(field.tone, text) if text else dim(name.rstrip())


def format_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Lines:
    """A table with its headings, numbers aligned to the right; nothing without rows."""
    widths = [max(cell_len(str(cell)) for cell in column) for column in zip(heads, *rows, strict=True)]

    def format_row(cells: Sequence[object], like: Sequence[object]) -> str:
        texts = []
        for cell, value, width in zip(cells, like, widths, strict=True):
            padding = " " * (width - cell_len(str(cell)))
            is_number = isinstance(value, int) or str(value).startswith("$")
            texts.append(f"{padding}{cell}" if is_number else f"{cell}{padding}")
        return "  ".join(texts).rstrip()

    if rows:
        yield bold(format_row(heads, rows[0]))
    yield from (format_row(row, row) for row in rows)


def format_place(document: Document) -> str:
    """`shop → koji-core`: the workspace and the channel of a card or a session."""
    return f"{workspace_name(document['workspace'])} → {document['targetChannel']}"


def format_problems(problems: Iterable[Document]) -> Lines:
    """What is known to be wrong in workspaces, a line each."""
    for problem in problems:
        yield f"  {wants('problem')}  {workspace_name(problem['workspace'])}: {one_line(problem['text'])}"


def indent_lines(text: str) -> Lines:
    """The lines of a text, indented below their entry."""
    return (f"    {line}" for line in text.splitlines())


def paint_session_outcome(session: Document) -> str:
    """The state of a session, coloured as on the screens."""
    check = session["check"] or {"failed": 0, "errors": 0}
    label = make_outcome_label(session["state"], session["result"], session["flow"], check["failed"], check["errors"])
    return paint(label.tone, label.words)


def format_time(instant: str | None) -> str:
    """An instant in local time: the hour today, else with the date."""
    if not instant:
        return "now"
    local = datetime.fromisoformat(instant).astimezone()
    return local.strftime("%H:%M" if local.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M")


def is_future(instant: str | None) -> bool:
    """Whether an instant is still to come; False for none."""
    return instant is not None and datetime.fromisoformat(instant) > datetime.now().astimezone()
