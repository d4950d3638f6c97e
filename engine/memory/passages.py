"""Cuts a memory into chunks that fit the embedder, and gives each its context. Pure.

A turn of a conversation means little alone ("Yes, last week!"): it is embedded behind the turn before it, the date and
who speaks.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.memory.question import MONTHS
from engine.model import Memory

VERSION = 2
"""Changes with whatever here changes the texts that are embedded: then all are embedded again."""

MAX_TOKENS = 96
"""Tokens of a chunk, some sentences: one vector for more of them blurs what a single one says. What is put before it
must fit into the embedder's 256 as well."""

OVERLAP = 16
"""Tokens that a chunk shares with the one before it."""

MAX_CHUNKS = 64
"""Chunks of one memory that get vectors, about 4,000 words; what follows is found by its words alone."""

MAX_CHARACTERS = 40_000
"""Characters that are looked at for chunks."""

PREVIOUS_TURN = 240
"""Characters of the turn before that count, its last ones."""


def is_one_chunk(text: str) -> bool:
    """True when `text` is one chunk for certain: no token is shorter than a character."""
    return len(text) <= MAX_TOKENS


def chunks(offsets: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Stretches of a text of `length` characters, given where its tokens begin and end: at most `MAX_TOKENS` each,
    overlapping by `OVERLAP`, together the whole of it."""
    if len(offsets) <= MAX_TOKENS:
        return [(0, length)]
    stretches: list[tuple[int, int]] = []
    first = 0
    while len(stretches) < MAX_CHUNKS:
        stop = min(first + MAX_TOKENS, len(offsets))
        start = 0 if not stretches else offsets[first][0]
        stretches.append((start, length if stop == len(offsets) else offsets[stop - 1][1]))
        if stop == len(offsets):
            break
        first = stop - OVERLAP
    return stretches


def context_prefix(memory: Memory, previous: Memory | None) -> str:
    """What stands before a chunk of `memory`, `previous` being the turn before it in its session."""
    before = f"{previous.text[-PREVIOUS_TURN:]} " if previous is not None and previous.text else ""
    who = f"{memory.speaker}: " if memory.speaker else ""
    return f"{before}[{memory.at.day:02d} {list(MONTHS)[memory.at.month - 1].capitalize()} {memory.at.year}] {who}"
