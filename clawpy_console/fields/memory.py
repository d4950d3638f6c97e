"""Memories that were recalled or are to be forgotten, as fields, for the memory screen and for verbs (SPEC 4)."""

from __future__ import annotations

from collections.abc import Iterator

from clawpy_console import formats
from clawpy_console.fields import Document, Field
from clawpy_console.formats import crop, one_line

MAX_RECALLED_CHARS = 300
"""Maximum number of characters of a recalled memory that are shown."""

MAX_PLACES = 6
"""Maximum number of places of a text to forget that are shown."""


def recalled_fields(memory: Document) -> Iterator[Field]:
    """A memory that was recalled: score, layer and text, then its source and the reason why it was found."""
    excerpt = crop(one_line(memory["text"]), MAX_RECALLED_CHARS)
    yield Field("", f"{memory['score']:.2f}  {memory['layer']}  {excerpt}")
    origin = " · ".join(
        part for part in (memory["speaker"], (memory["timestamp"] or "")[:10], memory["source"]) if part
    )
    yield Field("", f"  {origin or memory['id']}; {one_line(memory['reason'])}", "grey")


def forgetting_fields(report: Document) -> Iterator[Field]:
    """The places where forgetting removes a text, by store, and what stays."""
    counts = " · ".join(f"{count:,} in {store}" for store, count in report["counts"].items())
    yield Field("", f"{formats.count(sum(report['counts'].values()), 'place')}: {counts}")
    if not report["forgotten"]:
        for place in report["places"][:MAX_PLACES]:
            yield Field("", f"▸ {place['store']}: {crop(one_line(place['text']), 120)}", "grey")
        if (more := sum(report["counts"].values()) - MAX_PLACES) > 0:
            yield Field("", f"and {more:,} more", "faint")
    yield from (Field("", f"stays: {one_line(remainder)}", "grey") for remainder in report["left"])
    if not report["forgotten"]:
        yield Field("", "Empty entries stay, so that graphs and chains stay complete. This cannot be undone.")
