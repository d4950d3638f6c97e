"""The features of a card that learners compare, past decisions with them, and the part of them that is stored with a
decision. Without numpy."""

from __future__ import annotations

import struct
from datetime import datetime

from engine.frozen import frozen
from engine.model import PartOfDay

EMBEDDING_SIZE = 384
"""Dimensions of an embedding."""

FEATURE_NAMES = (
    "near the latest", "near all before", "nearest of all", "how long ago it was about", "words of the latest",
    "words of all before", "length", "length of the evidence", "lines of evidence", "what is new in the evidence",
)  # fmt: skip
"""Names of `TextFeatures.numbers`, in order. Over ordinary text each has a mean of about 0 and a deviation of 1."""

_FORMAT = 1
_NUMBERS = struct.Struct(f"<B{len(FEATURE_NAMES)}f")


@frozen
class TextFeatures:
    """Features of a proposal's text beside its evidence. `Decision.seen` stores them."""

    numbers: tuple[float, ...]
    """One for each of `FEATURE_NAMES`."""
    embedding: bytes = b""
    """The embedding in `EMBEDDING_SIZE` signed bytes, b"" without one."""

    def pack(self) -> bytes:
        """The bytes that are stored with a decision."""
        return _NUMBERS.pack(_FORMAT, *self.numbers) + self.embedding


NO_FEATURES = TextFeatures((0.0,) * len(FEATURE_NAMES))
"""The features of a proposal without text."""


def unpack_features(stored: bytes) -> TextFeatures:
    """The features that `pack` made into bytes; `NO_FEATURES` for b"" and for the format of another version."""
    if len(stored) not in (_NUMBERS.size, _NUMBERS.size + EMBEDDING_SIZE) or stored[0] != _FORMAT:
        return NO_FEATURES
    return TextFeatures(tuple(_NUMBERS.unpack_from(stored)[1:]), stored[_NUMBERS.size :])


@frozen
class CardFeatures:
    """A card that the Twin is asked about; `part`, `weekend` and `hour` are of the operator's local time."""

    kind: str
    channel: str
    workspace: str
    flow: str
    words: frozenset[str]
    part: PartOfDay
    weekend: bool
    at: datetime
    hour: int | None = None
    text: TextFeatures = NO_FEATURES


@frozen
class PastDecision:
    """One signal of SPEC 8.1 about a `card`, as learners read it. `chosen` is its label, `weight` is in (0, 1];
    `waited_hours` is the time from the evidence to the decision."""

    card: CardFeatures
    chosen: bool
    weight: float
    waited_hours: float | None
    id: int = 0
    raw: float | None = None
    """The confidence of the card before calibration, see `DecidedCard.raw`."""
