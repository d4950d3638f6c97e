"""The Twin: what this operator would say (SPEC 2.3, 2.5), and how far confidence may be believed (2.6, 8.6).

The embedded Twin is a `Learner` that follows the decisions: each is learnt once, in order, when the Twin is next asked.
Where a decision no longer counts a new learner learns the newest ones again.

confidence = 0.4 Twin + 0.25 pattern match + 0.2 urgency + 0.15 time relevance, each in [0, 1]. In phase 0 it is fixed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sqlmodel import Session

from engine.frozen import frozen
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.query import NOTHING, Query, Seen
from engine.model import (
    COLD_START,
    Assignment,
    Band,
    CalibrationCheck,
    ConfidenceParts,
    Phase,
    Proposal,
    part_of_day,
    prompt_words,
)

if TYPE_CHECKING:
    from engine.learning.decisions.learner import Learner

TWIN_FROM = 30
"""Phase 1 begins with this many decisions of the operator."""

HELD_OUT_NEEDED = 100
"""Phase 2 needs a calibration that holds on at least so many held-out decisions (SPEC 2.6)."""

LEARNT_FROM = 2_000
"""The Twin learns from so many of the newest decisions when it begins, in about 0.2 s; later ones are added."""


class Calibrator(Protocol):
    """Makes stated confidence agree with what happened (SPEC 8.6)."""

    def apply(self, kind: str, score: float) -> float: ...

    def check(self) -> CalibrationCheck: ...


@frozen
class TwinAnswer:
    """A Twin's answer, each in [0, 1]: the probability that the operator approves; the shrunk share approved among the
    most similar past decisions (`pattern`), and of the like in this part of the day and week (`time`); and why."""

    probability: float
    pattern: float
    time: float
    words: tuple[str, ...]


Meanings = Callable[[Sequence[str]], Sequence[bytes | None]]
"""Vectors of meaning (`MEANING` float32 each) of texts, at once: None for one that there is no vector of yet."""


def phase_of(decisions: int, check: Callable[[], CalibrationCheck]) -> Phase:
    """How far so many decisions carry (SPEC 2.6), and in words what comes next; derived, never configured. How far it
    is to phase 1 is said in one place: `Phase.learning`."""
    if decisions < TWIN_FROM:
        return Phase(0, decisions, f"the Twin starts after {TWIN_FROM} of your decisions", TWIN_FROM)
    calibration = check()  # not before: it loads the Twin
    if calibration.holds and calibration.held_out >= HELD_OUT_NEEDED:
        return Phase(2, decisions, f"its calibration holds on {calibration.held_out} held-out decisions")
    return Phase(1, decisions, f"the Twin has {decisions} decisions to learn from; {calibration.reason}")


class EmbeddedTwin:
    """The Twin that needs no key and no network. Also the calibrator of the whole confidence, unless another is given.
    From any thread."""

    def __init__(
        self,
        history: Decisions,
        *,
        meanings: Meanings = lambda texts: [None] * len(texts),
        calibrator: Calibrator | None = None,
    ) -> None:
        self.calibrator = calibrator or self
        self._history = history
        self._meanings = meanings
        self._lock = threading.Lock()
        self._learner: Learner | None = None
        self._version = self._unsaid = -1
        self._checked: tuple[int, CalibrationCheck] | None = None

    def channel(self, kind: str, registered: Collection[str]) -> str | None:
        """The channel that the operator has such work done on; None while too little is known."""
        with self._lock:
            return self._now().habits.channel(kind, registered)

    def predict(self, query: Query) -> TwinAnswer:
        """What the operator would say, and why."""
        with self._lock:
            learner = self._now()
            habits = learner.habits
            probability, pattern = learner.score(query).probability, learner.pattern(query)
            return TwinAnswer(probability, pattern, habits.time(query), habits.words(query))

    def usual(self, kind: str) -> timedelta | None:
        """How long this kind of card usually waits before the operator approves it; None while too little is known."""
        with self._lock:
            return self._now().habits.usual(kind)

    def see(self, prompt: str, latest: str, earlier: Sequence[str] = ()) -> Seen:
        """A proposal beside the evidence that it rests on; by words alone while a vector of meaning is missing."""
        if not prompt:
            return NOTHING
        import numpy

        from engine.learning.decisions.learner import look

        vectors = self._meanings([prompt, latest, *earlier])
        return look(
            prompt, latest, earlier, [None if vector is None else numpy.frombuffer(vector, "<f4") for vector in vectors]
        )

    def phase(self, session: Session) -> Phase:
        """How far the operator's decisions carry (SPEC 2.6)."""
        return phase_of(self._history.total(session), self.calibrator.check)

    def estimate(
        self,
        proposal: Proposal,
        assignment: Assignment,
        *,
        context: str,
        phase: Phase,
        now: datetime,
        local: datetime,
    ) -> tuple[ConfidenceParts, Seen]:
        """The parts of its confidence (SPEC 2.5) as of `now`, which is `local` here, and what the Twin saw of it. What
        the source of a proposal says of its own confidence is the Twin's term and no more (SPEC 2.8)."""
        seen = self.see(assignment.prompt, proposal.reasoning, [context] if context else [])
        query = Query(
            kind=proposal.kind,
            channel=assignment.channel,
            workspace=proposal.workspace,
            flow=assignment.flow or "",
            words=prompt_words(assignment.prompt),
            part=part_of_day(local),
            weekend=local.weekday() >= 5,
            at=now,
            hour=local.hour,
            seen=seen,
        )
        word, usual = self.predict(query), self.usual(proposal.kind)
        parts = confidence_of(
            twin=word.probability if proposal.confidence is None else proposal.confidence,
            pattern=word.pattern,
            urgency=urgency_of(proposal.evidence_at, now, usual or timedelta(hours=proposal.usual_hours)),
            time=word.time,
            phase=phase.number,
            calibrate=partial(self.calibrator.apply, proposal.kind),
            words=word.words,
        )
        return parts, seen

    # -- the calibrator (SPEC 8.6)

    def apply(self, kind: str, score: float) -> float:
        """A weighted sum of confidence as it has come true for this operator and kind, in (0, 1)."""
        with self._lock:
            return self._now().sums.apply(kind, score)

    def check(self) -> CalibrationCheck:
        """Whether confidences that were stated before their decision have come true (SPEC 2.6)."""
        with self._lock:
            learner = self._now()
            if self._checked is None or self._checked[0] != self._version:
                self._checked = (self._version, _checked(list(learner.sums.held)))
            return self._checked[1]

    # -- inside

    def _now(self) -> Learner:
        """The learner, with all that was decided. The lock is held."""
        version, unsaid = self._history.version, self._history.replaced
        if self._learner is None or unsaid != self._unsaid:
            from engine.learning.decisions.learner import Learner

            self._learner = Learner()
        elif version == self._version:
            return self._learner
        for decision in self._history.after(self._learner.upto, LEARNT_FROM):
            self._learner.learn(decision)
        self._version, self._unsaid = version, unsaid
        return self._learner


def _checked(held: Sequence[tuple[float, bool]]) -> CalibrationCheck:
    number = len(held)
    if number < HELD_OUT_NEEDED:
        reason = f"{number} of {HELD_OUT_NEEDED} held-out decisions are available to check its confidence"
        return CalibrationCheck(held_out=number, holds=False, reason=reason)
    from engine.learning.decisions.calibration import calibration_bound, calibration_error

    scores, outcomes = [score for score, _ in held], [yes for _, yes in held]
    error, bound = calibration_error(scores, outcomes), calibration_bound(scores)
    holds = error <= bound
    reason = f"its confidence was off by {error:.3f} on {number} held-out decisions"
    why = f"; chance alone explains up to {bound:.3f}" if holds else f", more than the {bound:.3f} that chance explains"
    return CalibrationCheck(number, holds, reason + why, error, bound)


CARD_FROM, SUGGESTED_FROM, ACT_FROM = 0.3, 0.6, 0.8
"""Lower ends of the bands; each band includes its lower end."""

LIKE_APPROVED_FROM = 0.8
"""Auto-execution needs Wilson's lower bound of the approval of like cards to be at least this."""


def band_of(confidence: float) -> Band:
    """What a confidence in [0, 1] means: [0, 0.3) discarded, [0.3, 0.6) card, [0.6, 0.8) suggested, [0.8, 1] act."""
    if confidence >= ACT_FROM:
        return Band.ACT
    if confidence >= SUGGESTED_FROM:
        return Band.SUGGESTED
    if confidence >= CARD_FROM:
        return Band.CARD
    return Band.DISCARDED


def confidence_of(
    *,
    twin: float,
    pattern: float,
    urgency: float,
    time: float,
    phase: int,
    calibrate: Callable[[float], float],
    words: tuple[str, ...] = (),
) -> ConfidenceParts:
    """The four terms (each is clamped to [0, 1]) and the total that bands use.

    In phase 0 the total is fixed; from phase 1 on the weighted sum goes through `calibrate`. The total is rounded to
    six digits, so that a sum which is 0.6 in arithmetic is not 0.5999… in a band.
    """
    twin, pattern, urgency, time = (min(max(term, 0.0), 1.0) for term in (twin, pattern, urgency, time))
    parts = ConfidenceParts(twin, pattern, urgency, time, COLD_START, words, stated=phase > 0)
    return replace(parts, total=round(min(max(calibrate(parts.weighted), 0.0), 1.0), 6)) if phase else parts


def urgency_of(evidence_at: datetime | None, now: datetime, usual: timedelta) -> float:
    """How long the evidence has waited against how long the like usually waits: 0 when fresh, 1 from `usual` on.

    Evidence without a time says nothing about urgency: 0.5.
    """
    if evidence_at is None or usual <= timedelta(0):
        return 0.5
    return min(max((now - evidence_at) / usual, 0.0), 1.0)
