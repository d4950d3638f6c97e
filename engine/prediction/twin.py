"""The Twin: predicts whether the operator would approve a card, and states its confidence (SPEC 2.3, 2.5, 2.6, 8.6).

The embedded Twin is a `Learner` that learns each decision once, in order, when the Twin is next asked. When a decision
is undone, so that it no longer counts, a new learner starts with the newest decisions.

confidence = 0.4 Twin + 0.25 pattern match + 0.2 urgency + 0.15 time relevance, each in [0, 1]. In phase 0 it is fixed.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sqlmodel import Session

from engine.background import BackgroundWorker
from engine.clock import is_weekend, part_of_day
from engine.frozen import frozen
from engine.inference import compute_calibration_bound, compute_calibration_error
from engine.learning.decisions import NO_FEATURES, CardFeatures, TextFeatures
from engine.learning.decisions.decisions import Decisions
from engine.memory.embedding import NoEmbedder
from engine.memory.memory import MemoryService
from engine.model import COLD_START_CONFIDENCE, Assignment, Band, CalibrationCheck, ConfidenceParts, Phase, Proposal
from engine.text import split_prompt_words

if TYPE_CHECKING:
    from engine.learning.decisions.learner import Learner

log = logging.getLogger(__name__)

MIN_DECISIONS = 30
"""Phase 1 begins with this many decisions of the operator."""

MIN_HELD_OUT = 100
"""Phase 2 needs a calibration that holds on at least this many held-out decisions (SPEC 2.6)."""

MAX_LEARNED_DECISIONS = 2_000
"""Maximum number of decisions that a new learner learns from, newest first, in about 0.2 s. Later ones are added."""

_LOWER_ENDS = {Band.ACT: 0.8, Band.SUGGESTED: 0.6, Band.CARD: 0.3}
"""Lower ends of the bands, the highest first; each band includes its lower end."""

MAX_CACHED_EMBEDDINGS = 2_000
"""Maximum number of embeddings that are kept, which is 3 MB. The oldest are dropped."""


class Calibrator(Protocol):
    """Corrects stated confidence by the decisions that followed (SPEC 8.6)."""

    def calibrate(self, kind: str, score: float) -> float:
        """The confidence in a card of this kind whose terms have the weighted sum `score`; both are in [0, 1]."""

    def check(self) -> CalibrationCheck:
        """Whether stated confidences agree with the decisions that followed."""


@frozen
class TwinAnswer:
    """A Twin's answer about a card. Its figures are in [0, 1]."""

    probability: float
    """The probability that the operator approves it."""
    pattern_share: float
    """The share of the most similar past cards that was approved."""
    time_share: float
    """The share of cards of this kind that was approved in this part of the day and week."""
    reasons: tuple[str, ...]


@frozen
class ConfidenceEstimate:
    """The parts of a card's confidence, and the text features that it was estimated from."""

    parts: ConfidenceParts
    features: TextFeatures


EmbedTexts = Callable[[Sequence[str]], Sequence[bytes | None]]
"""A function that returns the cached embeddings of texts, `EMBEDDING_SIZE` float32 each, and None for each text that
has none yet."""


def compute_phase(decisions: int, check: Callable[[], CalibrationCheck]) -> Phase:
    """The phase (SPEC 2.6) after this many decisions, with the reason in words. It is derived, never configured."""
    if decisions < MIN_DECISIONS:
        return Phase(0, decisions, f"the Twin starts after {MIN_DECISIONS} of your decisions", MIN_DECISIONS)
    calibration = check()  # not earlier, because it loads the Twin
    if calibration.is_calibrated and calibration.held_out >= MIN_HELD_OUT:
        return Phase(2, decisions, f"its calibration holds on {calibration.held_out} held-out decisions")
    return Phase(1, decisions, f"the Twin has {decisions} decisions to learn from; {calibration.reason}")


class EmbeddedTwin:
    """The Twin that needs no key and no network. It also calibrates the whole confidence, unless another calibrator is
    given. Thread-safe."""

    def __init__(
        self,
        decisions: Decisions,
        *,
        embed: EmbedTexts = lambda texts: [None] * len(texts),
        calibrator: Calibrator | None = None,
    ) -> None:
        self.calibrator = calibrator or self
        self._decisions = decisions
        self._embed = embed
        self._lock = threading.Lock()
        self._learner: Learner | None = None
        self._version = self._replaced = -1
        self._checked: tuple[int, CalibrationCheck] | None = None

    def find_usual_channel(self, kind: str, registered: Collection[str]) -> str | None:
        """The channel where the operator approves this kind; None after too few approvals."""
        with self._lock:
            return self._follow_decisions().habits.find_usual_channel(kind, registered)

    def predict(self, query: CardFeatures) -> TwinAnswer:
        """The probability that the operator approves this card, and its reasons."""
        with self._lock:
            learner = self._follow_decisions()
            habits = learner.habits
            probability, pattern_share = learner.estimate(query).probability, learner.compute_pattern_share(query)
            return TwinAnswer(probability, pattern_share, habits.compute_time_share(query), habits.explain(query))

    def find_usual_wait(self, kind: str) -> timedelta | None:
        """How long this kind of card usually waits before the operator approves it; None after too few approvals."""
        with self._lock:
            return self._follow_decisions().habits.find_usual_wait(kind)

    def read_features(self, prompt: str, latest: str, earlier: Sequence[str] = ()) -> TextFeatures:
        """Compare the text of a proposal with its evidence. While an embedding is missing, only words are compared."""
        if not prompt:
            return NO_FEATURES
        import numpy

        from engine.learning.decisions.learner import extract_features

        vectors = self._embed([prompt, latest, *earlier])
        return extract_features(
            prompt, latest, earlier, [None if vector is None else numpy.frombuffer(vector, "<f4") for vector in vectors]
        )

    def read_phase_within(self, session: Session) -> Phase:
        """The phase that the number of decisions and their calibration allow (SPEC 2.6)."""
        return compute_phase(self._decisions.count_decided_cards(session), self.calibrator.check)

    def read_phase(self) -> Phase:
        """`read_phase_within`, outside of a transaction."""
        with self._decisions.database.read() as session:
            return self.read_phase_within(session)

    def estimate(
        self,
        proposal: Proposal,
        assignment: Assignment,
        *,
        context: str,
        phase: Phase,
        local: datetime,
    ) -> ConfidenceEstimate:
        """The confidence of a proposal (SPEC 2.5) at a time in the operator's zone.

        If the source of the proposal states a confidence, that replaces only the Twin's part (SPEC 2.8).
        """
        features = self.read_features(assignment.prompt, proposal.reasoning, [context] if context else [])
        query = CardFeatures(
            kind=proposal.kind,
            channel=assignment.channel,
            workspace=proposal.workspace,
            flow=assignment.flow or "",
            words=split_prompt_words(assignment.prompt),
            part=part_of_day(local),
            weekend=is_weekend(local),
            at=local.astimezone(UTC),
            hour=local.hour,
            text=features,
        )
        answer, usual_wait = self.predict(query), self.find_usual_wait(proposal.kind)
        parts = compute_confidence(
            twin=answer.probability if proposal.confidence is None else proposal.confidence,
            pattern=answer.pattern_share,
            urgency=compute_urgency(proposal.evidence_at, local, usual_wait or timedelta(hours=proposal.usual_hours)),
            time=answer.time_share,
            phase=phase.number,
            calibrate=partial(self.calibrator.calibrate, proposal.kind),
            reasons=answer.reasons,
        )
        return ConfidenceEstimate(parts, features)

    # -- the calibrator (SPEC 8.6)

    def calibrate(self, kind: str, score: float) -> float:
        """The share that the operator approved of cards of this kind with about this weighted sum, in (0, 1)."""
        with self._lock:
            return self._follow_decisions().kind_calibration.calibrate(kind, score)

    def check(self) -> CalibrationCheck:
        """Whether the stated confidences agree with the decisions that followed (SPEC 2.6)."""
        with self._lock:
            learner = self._follow_decisions()
            if self._checked is None or self._checked[0] != self._version:
                self._checked = (self._version, _check_outcomes(list(learner.kind_calibration.outcomes)))
            return self._checked[1]

    def _follow_decisions(self) -> Learner:
        """The learner, after it learned the newest decisions. The caller holds the lock."""
        version, replaced = self._decisions.change_count, self._decisions.replacement_count
        if self._learner is None or replaced != self._replaced:
            from engine.learning.decisions.learner import Learner

            self._learner = Learner()
        elif version == self._version:
            return self._learner
        for decision in self._decisions.load_after(self._learner.last_id, MAX_LEARNED_DECISIONS):
            self._learner.learn(decision)
        self._version, self._replaced = version, replaced
        return self._learner


def _check_outcomes(scored_outcomes: Sequence[tuple[float, bool]]) -> CalibrationCheck:
    """Compare confidences with their outcomes. The calibration holds if chance alone can explain the error."""
    number = len(scored_outcomes)
    if number < MIN_HELD_OUT:
        reason = f"{number} of {MIN_HELD_OUT} held-out decisions are available to check its confidence"
        return CalibrationCheck(held_out=number, is_calibrated=False, reason=reason)
    scores, outcomes = zip(*scored_outcomes, strict=True)
    error, bound = compute_calibration_error(scores, outcomes), compute_calibration_bound(scores)
    is_calibrated = error <= bound
    reason = f"its confidence was off by {error:.3f} on {number} held-out decisions"
    why = (
        f"; chance alone explains up to {bound:.3f}"
        if is_calibrated
        else f", more than the {bound:.3f} that chance explains"
    )
    return CalibrationCheck(number, is_calibrated, reason + why, error, bound)


def find_band(confidence: float) -> Band:
    """The band of a confidence: [0, 0.3) discarded, [0.3, 0.6) card, [0.6, 0.8) suggested, [0.8, 1] act."""
    return next((band for band, lower_end in _LOWER_ENDS.items() if confidence >= lower_end), Band.DISCARDED)


def compute_confidence(
    *,
    twin: float,
    pattern: float,
    urgency: float,
    time: float,
    phase: int,
    calibrate: Callable[[float], float],
    reasons: tuple[str, ...] = (),
) -> ConfidenceParts:
    """The four terms, each clamped to [0, 1], and the total that decides the band.

    In phase 0 the total is fixed. From phase 1 on, it is the calibrated weighted sum. It is rounded to six digits, so
    that a sum of 0.6 does not become 0.5999… and fall into a lower band.
    """
    twin, pattern, urgency, time = (min(max(term, 0.0), 1.0) for term in (twin, pattern, urgency, time))
    parts = ConfidenceParts(twin, pattern, urgency, time, COLD_START_CONFIDENCE, reasons, stated=phase > 0)
    return replace(parts, total=round(min(max(calibrate(parts.weighted), 0.0), 1.0), 6)) if phase else parts


def compute_urgency(evidence_at: datetime | None, now: datetime, usual_wait: timedelta) -> float:
    """The age of the evidence as a share of `usual_wait`: 0 when it is new, 1 from `usual_wait` on. It is 0.5 for
    evidence without a time."""
    if evidence_at is None or usual_wait <= timedelta(0):
        return 0.5
    return min(max((now - evidence_at) / usual_wait, 0.0), 1.0)


class EmbeddingCache:
    """Returns the embeddings of texts without waiting, and None for those that it does not have.

    It computes these in the background for the next call, if the helper process of memory is already running.
    """

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory
        self._vectors: OrderedDict[str, bytes] = OrderedDict()
        self._missing: set[str] = set()
        self._lock = threading.Lock()
        self._background = BackgroundWorker("clawpy-meanings", self._make)

    def __call__(self, texts: Sequence[str]) -> list[bytes | None]:
        """See `EmbedTexts`."""
        with self._lock:
            vectors = [self._vectors.get(text) for text in texts]
            if None in vectors and self._memory.is_embedder_running:
                self._missing.update(texts)
                self._background.wake()
        return vectors

    def close(self) -> None:
        """Stop the background thread."""
        self._background.close(0)

    def _make(self) -> None:
        """Compute the embeddings that were missing, in the background thread."""
        with self._lock:
            missing = [text for text in self._missing if text not in self._vectors]
            self._missing.clear()
        try:
            vectors = self._memory.embed_texts(missing)
        except NoEmbedder as error:
            log.info("the Twin compares words only: %s", error)
            return
        with self._lock:
            self._vectors.update(zip(missing, vectors, strict=True))
            while len(self._vectors) > MAX_CACHED_EMBEDDINGS:
                self._vectors.popitem(last=False)
