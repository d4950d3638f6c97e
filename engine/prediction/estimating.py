"""How sure a piece of work is, put together from what was learnt (SPEC 2.5): the four terms of one assignment."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from engine.learning.decisions.learner import Query, Seen
from engine.model import Assignment, ConfidenceParts, Phase, Proposal, part_of_day, prompt_words
from engine.prediction.confidence import confidence_of, urgency_of
from engine.prediction.twin import Calibrator, EmbeddedTwin


def estimate(
    twin: EmbeddedTwin,
    calibrator: Calibrator,
    proposal: Proposal,
    assignment: Assignment,
    *,
    context: str,
    phase: Phase,
    now: datetime,
    local: datetime,
) -> tuple[ConfidenceParts, Seen]:
    """The parts of its confidence as of `now`, which is `local` here, and what the Twin saw of it. What the source
    of a proposal says of its own confidence is the Twin's term and no more (SPEC 2.8)."""
    seen = twin.see(assignment.prompt, proposal.reasoning, [context] if context else [])
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
    word, usual = twin.predict(query), twin.usual(proposal.kind)
    parts = confidence_of(
        twin=word.probability if proposal.confidence is None else proposal.confidence,
        pattern=word.pattern,
        urgency=urgency_of(proposal.evidence_at, now, usual or timedelta(hours=proposal.usual_hours)),
        time=word.time,
        phase=phase.number,
        calibrate=partial(calibrator.apply, proposal.kind),
        words=word.words,
    )
    return parts, seen
