"""What a run is trained on and what it is measured on (SPEC 8.4, 8.5). Pure.

A fifth of the situations is held back from every training, chosen by a hash of each, so that no model was ever trained
on what it is measured on: neither by a pair nor by a conversation, and whatever is decided there later. A model is
measured by its own answers: for the situation of a pair, is what it proposes nearer to what the operator chose or to
what he turned down?
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.learning.decisions.records import ARROW, Preference

HELD_BACK = 5
"""One situation in so many is held back."""

MEASURED_MOST = 50
"""So many held-back pairs, the newest, are asked about."""

MEASURED_LEAST = 5
"""Below so many a model is not swapped in: nothing speaks for it."""


@dataclass(frozen=True, slots=True)
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
    for pair, said in zip(pairs, answers, strict=True):
        if said is not None:
            nearer = likeness(said, pair.chosen) - likeness(said, pair.rejected)
            points += 0.5 if nearer == 0 else float(nearer > 0)
    asked = len(pairs)
    return Agreement(points / asked if asked else 0.0, asked, sum(said is None for said in answers))


def likeness(one: str, other: str) -> float:
    """How like two sides are, in [0, 1]: half for the same channel, half for the share of words they have in common."""
    prompt, _, channel = one.rpartition(ARROW)
    like_prompt, _, like_channel = other.rpartition(ARROW)
    words, like_words = set(prompt.casefold().split()), set(like_prompt.casefold().split())
    together = len(words | like_words)
    return 0.5 * (channel == like_channel) + 0.5 * (len(words & like_words) / together if together else 0.0)


def no_worse(new: Agreement, old: Agreement) -> bool:
    """Whether a new model may take an old one's place (SPEC 8.4): it answered enough, and agrees at least as often."""
    return new.asked - new.unanswered >= MEASURED_LEAST and new.share >= old.share
