"""Values as the documents that verbs print, for screens that show the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import adapting, learning, measuring, recalling, wire
from engine.api.wire import Document
from engine.model import Insights, LearningEntry, LearningView, Recalled
from engine.model.adaptation import Candidate, CandidateView

if TYPE_CHECKING:
    from engine.views import Since


def document(value: Candidate | CandidateView | LearningEntry | LearningView | Recalled | Since | Insights) -> Document:
    """`value` as `clawpy candidates`, `learnings`, `recall`, `status` or `metrics` print it in JSON."""
    match value:
        case Candidate():
            return adapting.candidate(value)
        case CandidateView():
            return adapting.view(value)
        case LearningEntry():
            return learning.entry(value)
        case LearningView():
            return learning.view(value)
        case Recalled():
            return recalling.result(value)
        case Insights():
            return measuring.figures(value)
    return wire.since(value)
