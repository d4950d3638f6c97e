"""A set for benchmarks of recall: summaries of sessions about one project (layer E) and statements from them (layer C),
with questions in other words."""

from __future__ import annotations

from datetime import timedelta

from engine.memory.capture_rules import digest
from engine.model import Layer, NewMemory
from tests.benchmarks.recall_sets import NOW, Conversation, Question
from tests.support.helpers import read_table

WORK = read_table(__file__)


def work() -> Conversation:
    """Forty days of work."""
    turns, questions = [], []
    for number, (kind, text, question) in enumerate(WORK["said"]):
        ref = f"cap_{digest(text)[:12]}"
        turns.append(
            NewMemory(text, kind=kind, speaker="koji-core", session=f"s{number // 3}", agent="koji-core",
                      workspace="/src/invoices", at=NOW - timedelta(days=2 * number), ref=ref)
        )  # fmt: skip
        questions.append(Question(question, frozenset({ref})))
    for number, (task, outcome, files, question) in enumerate(WORK["done"]):
        ref = f"summary:d{number}"
        text = f"Task: {task}. Outcome: {outcome}." + (f" Files: {', '.join(files)}." if files else "")
        turns.append(
            NewMemory(text, layer=Layer.CONTEXT, kind="summary", speaker="koji-core", session=f"d{number}",
                      agent="koji-core", workspace="/src/invoices", at=NOW - timedelta(days=3 * number), ref=ref)
        )  # fmt: skip
        questions.append(Question(question, frozenset({ref})))
    return Conversation("work on a project", tuple(turns), tuple(questions))
