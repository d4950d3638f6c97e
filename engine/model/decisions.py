"""What was decided on cards, and what is computed of it: mutes (SPEC 2.9), the phase of the Twin (2.6), the figures of
the insights screen and its trainings (8.4 to 8.6).

Rates, confidences and bounds are in [0, 1], or None without data; money is in micro-dollars.

`engine.learning.decisions` computes them; the insights screen and `clawpy metrics` show them.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.cards import DismissReason
from engine.model.rails import DecidedBy


class DecisionSignal(StrEnum):
    """The operator's reaction to a card (SPEC 8.1)."""

    APPROVED = "approved"
    ORIGINAL = "original"  # the prompt that an edit replaced; the edited prompt is approved
    DISMISSED = "dismissed"
    KEPT = "kept"  # executed by itself and not undone within 24 h
    UNDONE = "undone"
    DISCARDED = "discarded"
    EXPIRED = "expired"  # after it was shown
    DONE_BY_OPERATOR = "did_himself"


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
    text_features: bytes = b""
    """Its text features when it was made (`TextFeatures.pack`), b"" without any."""
    raw: float | None = None
    """The weighted sum of the confidence before calibration, in [0, 1]; None for cards without one."""


@frozen
class Correction:
    """The operator's edit of a card's prompt before approval."""

    original: str
    edited: str
    agent: str = ""
    kind: str = ""
    channel: str = ""
    session: str = ""
    estimate: int = 0
    """Estimated cost of the work in micro-dollars."""
    reach: int = 1
    """Number of cards on the same channel among the latest 200 decided ones, at least 1."""


@frozen
class CalibrationCheck:
    """Whether stated confidences come true (SPEC 2.6, 8.6). `error` is the expected calibration error over 10 bins on
    `held_out` decisions. `bound` is the 95th percentile of this error for perfectly calibrated scores."""

    held_out: int
    is_calibrated: bool
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
    def progress_words(self) -> str:
        """`Learning from your decisions: 3 of 30` from the first one until the Twin joins in, else ""."""
        is_learning = self.number == 0 and self.decisions
        return f"Learning from your decisions: {self.decisions} of {self.needed}" if is_learning else ""


@frozen
class Mute:
    """A subject or kind of card that is not shown because the operator dismissed it (SPEC 2.9).

    `subject` "" is the whole kind, `workspace` "" is everywhere. `until` None is until the operator ends it.
    `dismissals` is their number; `at`, `reason`, `card` and `prompt` are of the last one.
    """

    id: str
    kind: str
    workspace: str
    subject: str
    dismissals: int
    at: datetime
    until: datetime | None
    reason: DismissReason | None = None
    card: str = ""
    prompt: str = ""
    tier: int = 1
    """The lowest tier of the dismissed cards: only a rise to tier 1 ends the mute of a subject earlier."""

    @property
    def why(self) -> str:
        """The reason of the mute in words."""
        match self.reason:
            case DismissReason.NEVER_HERE if not self.subject:
                return "you said never here"
            case DismissReason.NEVER_ANYWHERE if not self.subject:
                return "you said never anywhere"
        times = {1: "once", 2: "twice"}.get(self.dismissals, f"{self.dismissals} times")
        reason = f", most recently as “{self.reason.value.replace('-', ' ')}”" if self.reason else ""
        return f"dismissed {times}{reason}"


# -- figures


@frozen
class ConfidenceBucket:
    """The cards whose stated confidence is in a range: the number that a person decided, the share approved with its
    95 % interval, and the mean confidence. Without decisions, the shares are None and the interval is from 0 to 1.
    `unstated` of the cards had the confidence of a cold start."""

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
class CardGroup:
    """Cards with a common property. `cost_per_accepted` is None if no card was accepted."""

    name: str
    predictions: int
    approved: int
    rejected: int
    approval_rate: float | None
    cost_per_accepted: float | None

    @property
    def decided(self) -> int:
        """The number of these cards that a person decided."""
        return self.approved + self.rejected


@frozen
class DecisionSlice:
    """A person's decisions between `start` (included) and `end` (not included), which are local midnights."""

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
    sources: tuple[CardGroup, ...]
    channels: tuple[CardGroup, ...]
    kinds: tuple[CardGroup, ...]
    parts: tuple[CardGroup, ...]
    hours: tuple[CardGroup, ...]
    spent: int
    cost_per_accepted: float | None


@frozen
class TasteShift:
    """A kind of card on which the operator decides differently than before: `approved` of the newest `decided`, and the
    share approved `before` these, in [0, 1]."""

    kind: str
    approved: int
    decided: int
    before: float


@frozen
class TasteDrift:
    """The kinds of card on which a person's newest `decisions` differ from those before; `words` describes that."""

    decisions: int
    words: str
    shifts: tuple[TasteShift, ...] = ()

    @property
    def has_shifts(self) -> bool:
        """Whether there is any such kind; the JSON of the figures has it as `changed`."""
        return bool(self.shifts)


@frozen
class TrainingRunView:
    """A training run for screens. `agreement` and `former_agreement` are the shares of held-back decisions with which
    the new and the former model agree."""

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
    """The provider that gets the examples, at `base_url`."""
    base_url: str
    base_model: str
    """The model that is trained."""
    records: int
    """Number of examples."""
    size: int
    """Size of the examples in bytes."""
    held_back: int
    """Number of further examples that stay here to evaluate the result."""
    cost_cap: int
    """Maximum cost in micro-dollars."""
    current_model: str
    """The model that stays in use until a better one is trained."""


@frozen
class TrainingView:
    """The state of training. `pairs` is the number of pairs that were not used yet, `needed` the number for the next
    run, and `words` what is missing. `active` is the run in progress, `runs` are the newest runs. `model` is the Twin
    model in use ("" for none), and `enabled` says whether it is asked."""

    pairs: int
    needed: int
    words: str
    active: TrainingRunView | None
    runs: tuple[TrainingRunView, ...]
    model: str
    enabled: bool
    automatic: bool

    @property
    def swappable_run(self) -> TrainingRunView | None:
        """The run whose model can be put into use ("kept_old") or out of use ("adopted"), None for none."""
        ended = (run for run in self.runs if run.state in ("adopted", "kept_old") and run.model)
        return max(ended, key=lambda run: run.updated_at, default=None)


@frozen
class Insights:
    """The figures of the insights screen, for the last `days` (None for all time) and one `workspace` ("" for all).

    `at_threshold` are the cards whose stated confidence is high enough to run by themselves. `earning` says in words
    what else they need for that.
    """

    days: int | None
    workspace: str
    metrics: Metrics
    over_time: tuple[DecisionSlice, ...]
    phase: Phase
    check: CalibrationCheck
    threshold: float
    at_threshold: ConfidenceBucket
    earning: str
    drift: TasteDrift
    training: TrainingView
