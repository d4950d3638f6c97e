"""Values as the documents that verbs print, for screens that show the same."""

from __future__ import annotations

from engine.doors import adapting, learning
from engine.doors.wire import Document
from engine.values import LearningEntry, LearningView
from engine.values.adaptation import Candidate, CandidateView


def document(value: Candidate | CandidateView | LearningEntry | LearningView) -> Document:
    """`value` as `clawpy candidates` or `clawpy learnings` print it in JSON."""
    match value:
        case Candidate():
            return adapting.candidate(value)
        case CandidateView():
            return adapting.view(value)
        case LearningEntry():
            return learning.entry(value)
    return learning.view(value)
