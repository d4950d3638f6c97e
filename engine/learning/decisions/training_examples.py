"""The examples of a training run, and the measurement of a trained model (SPEC 8.4).

A fifth of the situations, chosen by a hash, is held back, so that no model is measured on its own training examples. An
answer of a model agrees with the operator if it is more similar to the chosen half of the pair than to the rejected
half.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from engine.frozen import frozen
from engine.learning.decisions.exporting import Exporter
from engine.learning.decisions.preferences import (
    ARROW,
    MORE_PAIRS,
    Preference,
    Shape,
    encode_lines,
    format_exchange,
    format_preference,
)
from engine.model import Refusal
from engine.model.text import count, jaccard

HELD_BACK = 5
"""One situation in this many is held back."""

MAX_MEASURED = 50
"""Maximum number of held-back pairs that a model is measured on, the newest."""

MIN_MEASURED = 5
"""Minimum number of answers before a model can replace another."""


@frozen
class Agreement:
    """The agreement of a model with the operator. A share of one half is no better than a coin toss."""

    share: float
    """In [0, 1]."""
    asked: int
    """Number of pairs about which the model was asked."""
    unanswered: int = 0
    """Number of pairs without a usable answer, which count as disagreement."""


def is_held_back(situation: str) -> bool:
    """Whether the decisions in a situation are never trained on."""
    return hashlib.sha256(situation.encode()).digest()[0] % HELD_BACK == 0


def split_pairs(pairs: Iterable[Preference]) -> tuple[list[Preference], list[Preference]]:
    """(pairs to train on, pairs held back)."""
    training: list[Preference] = []
    held_back: list[Preference] = []
    for pair in pairs:
        (held_back if is_held_back(pair.context) else training).append(pair)
    return training, held_back


def measure_agreement(pairs: Sequence[Preference], answers: Sequence[str | None]) -> Agreement:
    """The agreement of answers (`prompt → channel`, or None) with their pairs."""
    points = 0.0
    for pair, answer in zip(pairs, answers, strict=True):
        if answer is not None:
            difference = similarity(answer, pair.chosen) - similarity(answer, pair.rejected)
            points += 0.5 if difference == 0 else float(difference > 0)
    total = len(pairs)
    return Agreement(points / total if total else 0.0, total, sum(answer is None for answer in answers))


def similarity(text: str, other: str) -> float:
    """Similarity of two halves, in [0, 1]: up to one half for the same channel, and one half for the share of common
    words."""
    prompt, _, channel = text.rpartition(ARROW)
    other_prompt, _, other_channel = other.rpartition(ARROW)
    same_words = jaccard(prompt.casefold().split(), other_prompt.casefold().split())
    return 0.5 * (channel == other_channel) + 0.5 * same_words


def may_replace(new: Agreement, old: Agreement) -> bool:
    """Whether a new model may replace an old one (SPEC 8.4): it answered often enough, and agrees at least as often."""
    return new.asked - new.unanswered >= MIN_MEASURED and new.share >= old.share


MIN_PAIRS = 50
"""Minimum number of pairs before the first training on pairs."""

MIN_CONVERSATIONS = 10
"""Minimum number of conversations before the first training; providers refuse fewer."""

SFT, DPO = "sft", "dpo"
"""Training methods: on conversations, on pairs."""


@frozen
class Batch:
    """The file of examples for one training run."""

    method: str
    records: int
    data: bytes
    last_pair: int
    """The highest id of a pair, 0 for conversations."""
    held_back: int
    """Number of examples that were left out to measure the model."""


def make_batch(exporter: Exporter, *, first: bool) -> Batch:
    """The examples of the next run. For the `first` run they are conversations if there are enough, else pairs.

    Raises `Refusal` `few_pairs`.
    """
    exchanges = exporter.load_exchanges()
    if first and len(exchanges) >= MIN_CONVERSATIONS:
        lines = [format_exchange(exchange) for exchange in exchanges if not is_held_back(exchange.situation)]
        return Batch(SFT, len(lines), encode_lines(lines), 0, len(exchanges) - len(lines))
    pairs = exporter.load_preferences()
    if len(pairs) < MIN_PAIRS:
        message = f"{count(len(pairs), 'pair')}; training on pairs starts at {MIN_PAIRS}"
        fix = f"or approve {MIN_CONVERSATIONS} cards for a first run on conversations" if first else MORE_PAIRS
        raise Refusal("few_pairs", message, fix)
    training, held_back = split_pairs(pairs)
    distinct = {(pair.context, pair.chosen, pair.rejected): pair for pair in training}
    lines = [format_preference(pair, Shape.OPENAI) for pair in distinct.values()]
    return Batch(DPO, len(lines), encode_lines(lines), max(pair.id for pair in pairs), len(held_back))
