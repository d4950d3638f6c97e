"""The features of a proposal that are stored with a decision, and the query to a learner. Imports no numpy."""

from __future__ import annotations

import struct
from datetime import datetime

from engine.frozen import frozen
from engine.model import PartOfDay

MEANING = 384
"""Dimensions of a vector of meaning."""

NAMES = (
    "near the latest", "near all before", "nearest of all", "how long ago it was about", "words of the latest",
    "words of all before", "length", "length of the evidence", "lines of evidence", "what is new in the evidence",
)  # fmt: skip
"""The numbers, in order. Each is about 0 on average and 1 in spread over ordinary text."""

_FORMAT = 1
_NUMBERS = struct.Struct(f"<B{len(NAMES)}f")


@frozen
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


@frozen
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
