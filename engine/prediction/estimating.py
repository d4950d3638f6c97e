"""How sure a piece of work is, put together from what was learnt (SPEC 2.5): the four terms of one assignment."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from engine.feedback.query import Query, Seen
from engine.prediction.confidence import confidence_of, urgency_of
from engine.prediction.twin import Calibrator, EmbeddedTwin
from engine.values import Assignment, ConfidenceParts, Phase, Proposal, part_of_day, prompt_words


class Estimator:
    """Asks the Twin and the calibrator."""

    def __init__(self, twin: EmbeddedTwin, calibrator: Calibrator) -> None:
        self._twin = twin
        self._calibrator = calibrator

    def estimate(
        self, proposal: Proposal, assignment: Assignment, *, context: str, phase: Phase, now: datetime, local: datetime
    ) -> tuple[ConfidenceParts, Seen]:
        """The parts of its confidence as of `now`, which is `local` here, and what the Twin saw of it. What the source
        of a proposal says of its own confidence is the Twin's term and no more (SPEC 2.8)."""
        seen = self._twin.see(assignment.prompt, proposal.reasoning, [context] if context else [])
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
        word, usual = self._twin.predict(query), self._twin.usual(proposal.kind)
        parts = confidence_of(
            twin=word.probability if proposal.confidence is None else proposal.confidence,
            pattern=self._twin.pattern(query),
            urgency=urgency_of(proposal.evidence_at, now, usual or timedelta(hours=proposal.usual_hours)),
            time=self._twin.time(query),
            phase=phase.number,
            calibrate=partial(self._calibrator.apply, proposal.kind),
            words=word.words,
        )
        return parts, seen
