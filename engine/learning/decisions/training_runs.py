"""Training runs (SPEC 8.4): the row of each, when the next one is due, its examples, and how its model is measured. The
service `training` carries them out.

prepared → uploaded → started → trained → adopted | kept_old        at any step: failed, cancelled

A fifth of the situations, chosen by a hash, is held back, so that no model is measured on its own training examples. An
answer of a model agrees with the operator if it is more similar to the chosen half of the pair than to the rejected
half.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from sqlmodel import Field, Session

from engine.frozen import frozen
from engine.learning.decisions.decisions import SIDE_SEPARATOR, Preference, count_pairs
from engine.learning.decisions.exporting import (
    MORE_PAIRS,
    Exporter,
    Shape,
    encode_lines,
    format_example,
    format_preference,
)
from engine.learning.decisions.training_provider import Provider
from engine.model import Refusal, TrainingRunView
from engine.storage import Row, load, load_first, value_of
from engine.storage.database import Transaction
from engine.text import jaccard
from engine.wording import count

SFT, DPO = "sft", "dpo"
"""Training methods: on conversations, on pairs."""


@frozen
class TrainingPlan:
    """The settings of training."""

    provider: str
    base_model: str
    cost_cap: int
    """Maximum cost of a run in micro-dollars."""
    current_model: str
    """The Twin model in use as `PROVIDER:MODEL`, "" for none."""
    automatic: bool = False
    """Whether training begins by itself."""
    enabled: bool = False
    """Whether the Twin model is asked about cards."""
    base_url: str = ""


class RunState(StrEnum):
    """The state of a training run."""

    PREPARED = "prepared"
    UPLOADED = "uploaded"
    STARTED = "started"
    TRAINED = "trained"
    ADOPTED = "adopted"
    KEPT_OLD = "kept_old"
    """The trained model is not used; the former model stays in use."""
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE_STATES = (RunState.PREPARED, RunState.UPLOADED, RunState.STARTED, RunState.TRAINED)
"""States of a run in progress."""


class TrainingRun(Row, table=True):
    """One training run."""

    __tablename__ = "training_runs"

    id: str = Field(primary_key=True)
    state: str
    method: str
    provider: str
    base_model: str
    checkpoint: str = ""
    records: int
    pairs_to: int
    """The highest id of a pair among its examples, 0 for conversations."""
    file_id: str = ""
    job_id: str = ""
    model: str = ""
    former_model: str = ""
    agreement: float | None = None
    former_agreement: float | None = None
    held_back: int = 0
    cost_entry: int | None = None
    """The cost entry that reserves money for it, None after it is settled."""
    cost_microusd: int = 0
    note: str = ""
    """The newest message about the run."""
    created_at: datetime
    updated_at: datetime

    @property
    def view(self) -> TrainingRunView:
        """The run for screens and JSON."""
        base_model = self.checkpoint or self.base_model
        return value_of(self, TrainingRunView, base_model=base_model, cost=self.cost_microusd)


def load_run(session: Session, run_id: str) -> TrainingRun:
    """The run with this id. Runs are never deleted."""
    run = load(session, TrainingRun, run_id)
    assert run is not None
    return run


_NEWEST_OF_STATES = "WHERE state IN (SELECT value FROM json_each(:states)) ORDER BY updated_at DESC LIMIT 1"


def find_newest_run(session: Session, states: Collection[RunState] = tuple(RunState)) -> TrainingRun | None:
    """The run in one of these states that changed last."""
    return load_first(session, TrainingRun, _NEWEST_OF_STATES, {"states": tuple(states)})


class BudgetReservation(Protocol):
    """Reserves money and settles it, within the caps (SPEC 3.2)."""

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int) -> int: ...

    def settle(self, transaction: Transaction, entry_id: int, amount: int) -> None: ...

    def release(self, transaction: Transaction, entry_id: int) -> None: ...


@frozen
class TwinModel:
    """The functions of the Twin model that training uses."""

    plan: Callable[[], TrainingPlan]
    """Reads the settings."""
    open_provider: Callable[[], Provider]
    """Opens the provider. Raises `Refusal` if there is no key."""
    answer: Callable[[str, str], str | None]
    """`answer(model, situation)` asks a model, `PROVIDER:MODEL`, and returns its `prompt → channel`, None for an
    unusable reply. Raises `TrainingError` if the model cannot be asked."""
    adopt: Callable[[str], None]
    """Puts a model into the settings."""


# -- when the next run is due

MIN_PAIRS = 50
"""Minimum number of pairs before the first training on pairs."""

PAIRS_UNTIL_NEXT_RUN = 100
"""Number of new pairs after which the next run is due."""

TIME_UNTIL_NEXT_RUN = timedelta(days=7)
"""Time after which the next run is due if there is any new pair."""

MEASURED_STATES = (RunState.ADOPTED, RunState.KEPT_OLD)
"""The states of runs that came to their end. Their pairs count as used for training; those of others do not."""

_LAST_WITH_PAIRS = f"""
    WHERE method = '{DPO}' AND state IN (SELECT value FROM json_each(:states)) ORDER BY created_at DESC LIMIT 1
"""
"""Selects the last run on pairs in one of some states."""


@frozen
class PairProgress:
    """How far it is until the next training on pairs: the number of `unused` pairs, the number at which it is due, and
    the last run that used pairs."""

    unused: int
    needed: int
    last_run: TrainingRun | None


def read_progress(session: Session) -> PairProgress:
    """Read how far it is until the next training on pairs."""
    last_run = load_first(session, TrainingRun, _LAST_WITH_PAIRS, {"states": MEASURED_STATES})
    unused = count_pairs(session, after=last_run.pairs_to if last_run else 0)
    return PairProgress(unused, PAIRS_UNTIL_NEXT_RUN if last_run else MIN_PAIRS, last_run)


def describe_missing(progress: PairProgress, now: datetime) -> str:
    """What is missing until the next training on pairs, "" if it is due (SPEC 8.4): after 50 pairs, then after every
    100 new pairs, or every week with any new pair."""
    last_run = progress.last_run
    if progress.unused >= progress.needed:
        return ""
    more = count(progress.needed - progress.unused, "more pair")
    if last_run is None:
        return f"{more} until the first training"
    day = last_run.created_at + TIME_UNTIL_NEXT_RUN
    if progress.unused and now >= day:
        return ""
    return f"{more}, or any by {day:%d %B}, until the next training"


# -- examples

MIN_CONVERSATIONS = 10
"""Minimum number of conversations before the first training; providers refuse fewer."""

HELD_BACK_DIVISOR = 5
"""One situation in this many is held back."""


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


def make_batch(exporter: Exporter, *, is_first: bool) -> Batch:
    """The examples of the next run. For the first run they are conversations if there are enough, else pairs.

    Raises `Refusal` `few_pairs`.
    """
    examples = exporter.load_examples()
    if is_first and len(examples) >= MIN_CONVERSATIONS:
        lines = [format_example(example) for example in examples if not is_held_back(example.situation)]
        return Batch(SFT, len(lines), encode_lines(lines), 0, len(examples) - len(lines))
    pairs = exporter.load_preferences()
    if len(pairs) < MIN_PAIRS:
        message = f"{count(len(pairs), 'pair')}; training on pairs starts at {MIN_PAIRS}"
        fix = f"or approve {MIN_CONVERSATIONS} cards for a first run on conversations" if is_first else MORE_PAIRS
        raise Refusal("few_pairs", message, fix)
    training, held_back = split_pairs(pairs)
    distinct = {(pair.context, pair.chosen, pair.rejected): pair for pair in training}
    lines = [format_preference(pair, Shape.OPENAI) for pair in distinct.values()]
    return Batch(DPO, len(lines), encode_lines(lines), max(pair.id for pair in pairs), len(held_back))


def is_held_back(situation: str) -> bool:
    """Whether the decisions in a situation are never trained on."""
    return hashlib.sha256(situation.encode()).digest()[0] % HELD_BACK_DIVISOR == 0


def split_pairs(pairs: Iterable[Preference]) -> tuple[list[Preference], list[Preference]]:
    """(pairs to train on, pairs held back)."""
    training: list[Preference] = []
    held_back: list[Preference] = []
    for pair in pairs:
        (held_back if is_held_back(pair.context) else training).append(pair)
    return training, held_back


# -- agreement

MAX_MEASURED_PAIRS = 50
"""Maximum number of held-back pairs that a model is measured on, the newest."""

MIN_MEASURED_PAIRS = 5
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


def measure_agreement(pairs: Sequence[Preference], answers: Sequence[str | None]) -> Agreement:
    """The agreement of answers (`prompt → channel`, or None) with their pairs."""
    points = 0.0
    for pair, answer in zip(pairs, answers, strict=True):
        if answer is not None:
            difference = compute_similarity(answer, pair.chosen) - compute_similarity(answer, pair.rejected)
            points += 0.5 if difference == 0 else float(difference > 0)
    total = len(pairs)
    return Agreement(points / total if total else 0.0, total, sum(answer is None for answer in answers))


def compute_similarity(text: str, other: str) -> float:
    """Similarity of two halves, in [0, 1]: up to one half for the same channel, and one half for the share of common
    words."""
    prompt, _, channel = text.rpartition(SIDE_SEPARATOR)
    other_prompt, _, other_channel = other.rpartition(SIDE_SEPARATOR)
    same_words = jaccard(prompt.casefold().split(), other_prompt.casefold().split())
    return 0.5 * (channel == other_channel) + 0.5 * same_words


def may_replace(new: Agreement, old: Agreement) -> bool:
    """Whether a new model may replace an old one (SPEC 8.4): it answered often enough, and agrees at least as often."""
    return new.asked - new.unanswered >= MIN_MEASURED_PAIRS and new.share >= old.share
