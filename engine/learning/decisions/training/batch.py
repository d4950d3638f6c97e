"""What the next run is made of: conversations first, then pairs (SPEC 8.4), and where the settings send them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.learning.decisions import pairs
from engine.learning.decisions.exporting import Exporter
from engine.learning.decisions.records import (
    Preference,
    Shape,
    exchange_line,
    preference_line,
)
from engine.learning.decisions.training.examples import held_back, split
from engine.model import Refusal
from engine.model.text import count

FIRST_FROM = 50
"""So many pairs before the first training on pairs."""

EXAMPLES_FROM = 10
"""So many conversations before the first training; providers refuse fewer."""

SFT, DPO = "sft", "dpo"


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
    every, exchanges = exporter.every_pair(), exporter.exchanges()
    if first and len(exchanges) >= EXAMPLES_FROM:
        method, lines = SFT, [exchange_line(one) for one in exchanges if not held_back(one.situation)]
        kept, pairs_to = len(exchanges) - len(lines), 0
    else:
        if len(every) < FIRST_FROM:
            words = f"{count(len(every), 'pair')}; training on pairs starts at {FIRST_FROM}"
            fix = f"or approve {EXAMPLES_FROM} cards for a first run on conversations" if first else pairs.MORE
            raise Refusal("few_pairs", words, fix)
        taken, left = split(every)
        method, lines = DPO, [preference_line(one, Shape.OPENAI) for one in _each_once(taken)]
        kept, pairs_to = len(left), max(one.id for one in every)
    return Batch(method, len(lines), "".join(f"{line}\n" for line in lines).encode(), pairs_to, kept)


def _each_once(found: Sequence[Preference]) -> list[Preference]:
    """Pairs that say the same are trained on once."""
    return [*{(one.context, one.chosen, one.rejected): one for one in found}.values()]
