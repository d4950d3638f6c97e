"""Values as the documents that verbs print, for screens that show the same."""

from __future__ import annotations

from engine.doors import adapting, learning, measuring
from engine.doors.wire import Document
from engine.values import Insights, LearningEntry, LearningView
from engine.values.adaptation import Candidate, CandidateView


def document(value: Candidate | CandidateView | LearningEntry | LearningView | Insights) -> Document:
    """`value` as `clawpy candidates`, `learnings` or `metrics` print it in JSON."""
    match value:
        case Candidate():
            return adapting.candidate(value)
        case CandidateView():
            return adapting.view(value)
        case LearningEntry():
            return learning.entry(value)
        case LearningView():
            return learning.view(value)
    return measuring.figures(value)
