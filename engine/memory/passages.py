"""How a memory is seen by the embedder: cut into chunks that fit it, each in its context. Pure.

A turn of a conversation means little alone ("Yes, last week!"): it is embedded behind the turn before it, the date and
who speaks.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.memory.question import MONTHS
from engine.model import Memory

VERSION = 2
"""Changes with whatever here changes the texts that are embedded: then all are embedded again."""

MOST_TOKENS = 96
"""Tokens of a chunk, some sentences: one vector for more of them blurs what a single one says. What is put before it
must fit into the embedder's 256 as well."""

OVERLAP = 16
"""Tokens that a chunk shares with the one before it."""

MOST_CHUNKS = 64
"""Chunks of one memory that get vectors, about 4,000 words; what follows is found by its words alone."""

READ = 40_000
"""Characters that are looked at for chunks."""

FORMER = 240
"""Characters of the turn before that count, its last ones."""


def short(text: str) -> bool:
    """True when `text` is one chunk for certain: no token is shorter than a character."""
    return len(text) <= MOST_TOKENS


def chunks(offsets: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Stretches of a text of `length` characters, given where its tokens begin and end: at most `MOST_TOKENS` each,
    overlapping by `OVERLAP`, together the whole of it."""
    if len(offsets) <= MOST_TOKENS:
        return [(0, length)]
    found: list[tuple[int, int]] = []
    first = 0
    while len(found) < MOST_CHUNKS:
        last = min(first + MOST_TOKENS, len(offsets))
        start = 0 if not found else offsets[first][0]
        found.append((start, length if last == len(offsets) else offsets[last - 1][1]))
        if last == len(offsets):
            break
        first = last - OVERLAP
    return found


def head(memory: Memory, former: Memory | None) -> str:
    """What stands before a chunk of `one`, `former` being the turn before it in its session."""
    before = f"{former.text[-FORMER:]} " if former is not None and former.text else ""
    who = f"{memory.speaker}: " if memory.speaker else ""
    return f"{before}[{memory.at.day:02d} {list(MONTHS)[memory.at.month - 1].capitalize()} {memory.at.year}] {who}"
