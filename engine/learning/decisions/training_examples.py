"""Selects the examples that the next training run uses and those held back to measure it (SPEC 8.4, 8.5).

A fifth of the situations is held back, chosen by a hash, so that no model is ever measured on what it was trained on.
A model is measured by its answers: is what it proposes nearer to what the operator chose or to what was rejected?
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from engine.frozen import frozen
from engine.learning.decisions.decisions import MORE_PAIRS
from engine.learning.decisions.exporting import Exporter
from engine.learning.decisions.training_lines import ARROW, Preference, Shape, exchange_line, preference_line
from engine.model import Refusal
from engine.model.text import count

HELD_BACK = 5
"""One situation in so many is held back."""

MAX_MEASURED = 50
"""Maximum number of held-back pairs that are asked about, the newest."""

MIN_MEASURED = 5
"""Below so many a model is not swapped in: nothing speaks for it."""


@frozen
class Agreement:
    """How far a model agrees with the operator: `share` in [0, 1] of `asked` pairs; one half is no better than a coin.
    `unanswered` of them it gave no usable answer to, which agrees with nothing."""

    share: float
    asked: int
    unanswered: int = 0


def held_back(situation: str) -> bool:
    """Whether what was decided in a situation is kept from training, in whatever form it comes, now and later."""
    return hashlib.sha256(situation.encode()).digest()[0] % HELD_BACK == 0


def split(pairs: Iterable[Preference]) -> tuple[list[Preference], list[Preference]]:
    """(to train on, held back)."""
    sides: tuple[list[Preference], list[Preference]] = ([], [])
    for pair in pairs:
        sides[held_back(pair.context)].append(pair)
    return sides


def agreement(pairs: Sequence[Preference], answers: Sequence[str | None]) -> Agreement:
    """How far answers (`prompt → channel`, None for none) agree with the pairs they were given for."""
    points = 0.0
    for pair, answer in zip(pairs, answers, strict=True):
        if answer is not None:
            nearer = likeness(answer, pair.chosen) - likeness(answer, pair.rejected)
            points += 0.5 if nearer == 0 else float(nearer > 0)
    total = len(pairs)
    return Agreement(points / total if total else 0.0, total, sum(answer is None for answer in answers))


def likeness(text: str, other: str) -> float:
    """How like two sides are, in [0, 1]: half for the same channel, half for the share of words they have in common."""
    prompt, _, channel = text.rpartition(ARROW)
    like_prompt, _, like_channel = other.rpartition(ARROW)
    words, like_words = set(prompt.casefold().split()), set(like_prompt.casefold().split())
    together = len(words | like_words)
    return 0.5 * (channel == like_channel) + 0.5 * (len(words & like_words) / together if together else 0.0)


def no_worse(new: Agreement, old: Agreement) -> bool:
    """Whether a new model may take an old one's place (SPEC 8.4): it answered enough, and agrees at least as often."""
    return new.asked - new.unanswered >= MIN_MEASURED and new.share >= old.share


FIRST_FROM = 50
"""Minimum number of pairs before the first training on pairs."""

EXAMPLES_FROM = 10
"""Minimum number of conversations before the first training; providers refuse fewer."""

SFT, DPO = "sft", "dpo"


@frozen
class Plan:
    """What the settings say: where and from what to train, the most a run may cost in micro-dollars, and the Twin model
    in use now as `PROVIDER:MODEL`, "" for none. `enabled`: it is asked for cards; `automatic`: training begins by
    itself."""

    provider: str
    base_model: str
    cost_cap: int
    current_model: str
    automatic: bool = False
    enabled: bool = False
    base_url: str = ""


@frozen
class Batch:
    """Examples of one method, as the file that is sent. `pairs_to` is the highest pair among what there was, 0 for
    conversations; `held_back` examples are not in it."""

    method: str
    records: int
    data: bytes
    pairs_to: int
    held_back: int


def batch_of(exporter: Exporter, *, first: bool) -> Batch:
    """The examples of the next run; until a `first` one came to an end, on conversations where there are enough.

    Raises `Refusal` `few_pairs`.
    """
    pairs, exchanges = exporter.every_pair(), exporter.exchanges()
    if first and len(exchanges) >= EXAMPLES_FROM:
        method, lines = SFT, [exchange_line(change) for change in exchanges if not held_back(change.situation)]
        held_back_count, pairs_to = len(exchanges) - len(lines), 0
    else:
        if len(pairs) < FIRST_FROM:
            words = f"{count(len(pairs), 'pair')}; training on pairs starts at {FIRST_FROM}"
            fix = f"or approve {EXAMPLES_FROM} cards for a first run on conversations" if first else MORE_PAIRS
            raise Refusal("few_pairs", words, fix)
        training_pairs, held_out = split(pairs)
        method, lines = DPO, [preference_line(pair, Shape.OPENAI) for pair in _each_once(training_pairs)]
        held_back_count, pairs_to = len(held_out), max(pair.id for pair in pairs)
    return Batch(method, len(lines), "".join(f"{line}\n" for line in lines).encode(), pairs_to, held_back_count)


def _each_once(pairs: Sequence[Preference]) -> list[Preference]:
    """Pairs that say the same are trained on once."""
    return [*{(pair.context, pair.chosen, pair.rejected): pair for pair in pairs}.values()]
