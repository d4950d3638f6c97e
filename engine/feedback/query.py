"""What is asked about a card, and what was seen of it: plain values, light to import (SPEC 2.3b)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime

from engine.values import PartOfDay

MEANING = 384
"""Dimensions of a vector of meaning."""

NAMES = (
    "near the latest", "near all before", "nearest of all", "how long ago it was about", "words of the latest",
    "words of all before", "length", "length of the evidence", "lines of evidence", "what is new in the evidence",
)  # fmt: skip
"""The numbers, in order. Each is about 0 on average and 1 in spread over ordinary text."""

TOLD = {
    "near the latest": ("it is about what was seen last", "it has little to do with what was seen last"),
    "near all before": ("it fits all that was seen", "it fits little of what was seen"),
    "nearest of all": ("it is close to something that was seen", "it is close to nothing that was seen"),
    "how long ago it was about": ("what it is about was seen long ago", "what it is about is new"),
    "words of the latest": ("it names what was seen last", "it names nothing of what was seen last"),
    "words of all before": ("it names what was seen", "it names little of what was seen"),
    "length": ("it says much", "it says little"),
    "length of the evidence": ("its evidence is long", "its evidence is short"),
    "lines of evidence": ("much was seen before it", "little was seen before it"),
    "what is new in the evidence": ("its evidence is new", "its evidence is nothing new"),
}
"""How a number that is above or below the ordinary is told."""

_FORMAT = 1
_NUMBERS = struct.Struct(f"<B{len(NAMES)}f")


@dataclass(frozen=True, slots=True)
class Seen:
    """A proposal as learners keep it: the numbers named by `NAMES`, and its vector of meaning when there was one."""

    numbers: tuple[float, ...]
    meaning: bytes = b""
    """`MEANING` signed bytes, b"" for none."""

    def packed(self) -> bytes:
        """As it is stored with a decision."""
        return _NUMBERS.pack(_FORMAT, *self.numbers) + self.meaning


NOTHING = Seen((0.0,) * len(NAMES))
"""A proposal of which only its kind is known."""


def unpacked(stored: bytes) -> Seen:
    """What `packed` made; `NOTHING` for b"" and for the format of another version."""
    if len(stored) not in (_NUMBERS.size, _NUMBERS.size + MEANING) or stored[0] != _FORMAT:
        return NOTHING
    return Seen(tuple(_NUMBERS.unpack_from(stored)[1:]), stored[_NUMBERS.size :])


@dataclass(frozen=True, slots=True)
class Query:
    """The card that is asked about; `part`, `weekend` and `hour` are of the operator's own time."""

    kind: str
    channel: str
    workspace: str
    flow: str
    words: frozenset[str]
    part: PartOfDay
    weekend: bool
    at: datetime
    hour: int | None = None
    seen: Seen = NOTHING
