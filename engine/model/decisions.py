"""Decisions of the operator, how far the Twin may be trusted (SPEC 2.6, 8), and the figures shown (8.4 to 8.6).

Rates, confidences and bounds are in [0, 1], or None without data; money is in micro-dollars.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.rails import DecidedBy


class DecisionSignal(StrEnum):
    """What the operator did with a card (SPEC 8.1)."""

    APPROVED = "approved"
    ORIGINAL = "original"  # what an edit replaced, beside the approval of what it became
    DISMISSED = "dismissed"
    KEPT = "kept"  # executed by itself and not undone within 24 h
    UNDONE = "undone"
    DISCARDED = "discarded"
    EXPIRED = "expired"  # after it was shown
    DID_HIMSELF = "did_himself"


@frozen
class DecidedCard:
    """A card at the time of its signal, for learners and preference pairs (SPEC 8.1, 8.2).

    `context` is the situation in words when the card was made; `evidence_at` is the time of its evidence.
    """

    prediction_id: str
    kind: str
    channel: str
    workspace: str
    flow: str
    prompt: str
    confidence: float
    decided_by: DecidedBy
    context: str = ""
    evidence_at: datetime | None = None
    original_prompt: str = ""
    """The prompt before the operator edited it; "" if it was not edited."""
    seen: bytes = b""
    """Its text features when it was made (`TextFeatures.pack`), b"" without any."""
    raw: float | None = None
    """The weighted sum of the confidence before calibration, in [0, 1]; None for cards without one."""


@frozen
class CalibrationCheck:
    """Whether stated confidences come true (SPEC 2.6, 8.6). `error` is the expected calibration error over 10 bins on
    `held_out` decisions, `bound` the 95th percentile of what perfectly calibrated scores would show."""

    held_out: int
    holds: bool
    reason: str
    error: float | None = None
    bound: float | None = None


@frozen
class Phase:
    """The phase of the Twin (SPEC 2.6): 0 templates only, 1 a Twin, 2 a Twin whose confidence is calibrated."""

    number: int
    decisions: int
    reason: str
    needed: int = 0
    """Number of decisions with which phase 1 begins."""

    @property
    def learning(self) -> str:
        """`Learning: 3 of 30` from the first decision until the Twin joins in, else ""."""
        return f"Learning: {self.decisions} of {self.needed}" if self.number == 0 and self.decisions else ""


# -- figures


@frozen
class ConfidenceBucket:
    """Cards whose stated confidence lies in a range: how many a person decided, the share approved with its 95 %
    interval, and the mean confidence; None and the whole range where there is none. `unstated` of
    them had that of a cold start, which says nothing."""

    low: float
    high: float
    predictions: int
    approval_rate: float | None
    confidence: float | None = None
    at_least: float = 0.0
    at_most: float = 1.0
    unstated: int = 0

    @property
    def name(self) -> str:
        """`0.3-0.4`."""
        return f"{self.low:.1f}-{self.high:.1f}"


@frozen
class Group:
    """Cards that have something in common. `cost_per_accepted` is None while nothing was accepted."""

    name: str
    predictions: int
    approved: int
    rejected: int
    approval_rate: float | None
    cost_per_accepted: float | None

    @property
    def decided(self) -> int:
        """How many of them a person decided."""
        return self.approved + self.rejected


@frozen
class Slice:
    """The decisions of a person from `start` on, before `end`: both local midnights."""

    start: datetime
    end: datetime
    approved: int
    rejected: int

    @property
    def approval_rate(self) -> float | None:
        decided = self.approved + self.rejected
        return self.approved / decided if decided else None


@frozen
class Metrics:
    """The figures of SPEC 8.5.

    The operator deleted the work of `discarded` cards. The evidence of `withdrawn` cards disappeared. Cards of
    `cannot_run` were approved and lacked something, so they count in no rate. `undecided` cards wait. `own` prompts
    were typed by the operator and are no proposals: they count only in the costs, the sources and the channels.
    """

    total: int
    approved: int
    rejected: int
    discarded: int
    expired: int
    withdrawn: int
    cannot_run: int
    undecided: int
    own: int
    auto_executed: int
    auto_undone: int
    approval_rate: float | None
    auto_success_rate: float | None
    confidence: float | None
    approved_confidence: float | None
    rejected_confidence: float | None
    calibration: tuple[ConfidenceBucket, ...]
    trend: str
    sources: tuple[Group, ...]
    channels: tuple[Group, ...]
    kinds: tuple[Group, ...]
    parts: tuple[Group, ...]
    hours: tuple[Group, ...]
    spent: int
    cost_per_accepted: float | None


@frozen
class Shift:
    """A kind of card that is decided otherwise than before: `approved` of `decided` lately, and the share approved
    `before`, in [0, 1]."""

    kind: str
    approved: int
    decided: int
    before: float


@frozen
class Drift:
    """Whether the newest `decisions` of a person were otherwise than those before, by kind of card; `words` says it."""

    decisions: int
    words: str
    shifts: tuple[Shift, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any kind is decided otherwise."""
        return bool(self.shifts)


@frozen
class TrainingRunView:
    """A training run as screens see it. `agreement` and `former_agreement`: the share of held-back decisions that the
    new model and the one before it agree with."""

    id: str
    state: str
    method: str
    provider: str
    base_model: str
    records: int
    model: str
    former_model: str
    agreement: float | None
    former_agreement: float | None
    held_back: int
    cost: int
    note: str
    created_at: datetime
    updated_at: datetime


@frozen
class TrainingOffer:
    """A description of the training that could be started now."""

    method: str
    """Either "sft" or "dpo"."""
    provider: str
    """Gets the examples, at `base_url`."""
    base_url: str
    base_model: str
    """The model that is trained."""
    records: int
    """Number of examples."""
    size: int
    """Their bytes."""
    held_back: int
    """Number of further examples that stay here to evaluate the result."""
    cost_cap: int
    """Maximum cost."""
    current_model: str
    """In use until a better one is trained."""


@frozen
class TrainingView:
    """The state of training: `pairs` that no training saw yet of the `needed`, in `words` what is missing, the run that
    is under way, the newest runs, the Twin model in use ("" for none) and whether it is asked at all."""

    pairs: int
    needed: int
    words: str
    active: TrainingRunView | None
    runs: tuple[TrainingRunView, ...]
    model: str
    enabled: bool
    automatic: bool

    @property
    def swap(self) -> TrainingRunView | None:
        """The run whose model can be swapped in ("kept_old"), or taken out again ("adopted"); None for none."""
        ended = (run for run in self.runs if run.state in ("adopted", "kept_old") and run.model)
        return max(ended, key=lambda run: run.updated_at, default=None)


@frozen
class Insights:
    """All that the insights screen shows, of the last `days` (None for ever) and one `workspace` ("" for all).

    `at_threshold` are the cards whose stated confidence would let them act by themselves, `earning` what else that
    needs, in words.
    """

    days: int | None
    workspace: str
    metrics: Metrics
    over_time: tuple[Slice, ...]
    phase: Phase
    check: CalibrationCheck
    threshold: float
    at_threshold: ConfidenceBucket
    earning: str
    drift: Drift
    training: TrainingView
