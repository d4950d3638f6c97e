"""The verb `remember` (SPEC 9.8): lines of JSON by the batch, and how far their vectors are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.memory.remember import read

if TYPE_CHECKING:
    from engine.engine import Engine

PATIENCE = 30.0
"""Seconds that one question may wait for vectors."""


def remember(engine: Engine, arguments: Arguments) -> Document:
    """Remember `lines`, `first` being the number of the first in `source`; then wait up to `settle` seconds for the
    vectors of all that was ever remembered. What is acknowledged is on disk.

    `remembered` are new, `known` were there before; `bad` lines are passed over, or `kept` without what was wrong.
    """
    lines = arguments.texts("lines")
    first = int(arguments.number("first", 1, least=1, most=10**12))
    items, bad = read(lines, first=first, source=arguments.text("source"))
    done = engine.memory.add(items) if items else None
    seconds = arguments.number("settle", 0, least=0, most=PATIENCE)
    settled = engine.memory.settle(seconds, indexed=True) if seconds else False
    missing, trouble = engine.memory.missing()
    return {
        "remembered": done.new if done else 0,
        "known": len(items) - done.new if done else 0,
        "bad": [{"line": one.line, "message": one.message, "kept": one.kept} for one in bad],
        "settled": settled,
        "missing": missing,
        "index": engine.memory.index.state.state,
        "trouble": trouble,
    }
