"""Proposals with the verdicts of people, and baselines, for the benchmarks of the Twin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from engine.frozen import frozen
from engine.learning.decisions.decisions import CardFeatures, PastDecision
from engine.learning.decisions.learner import Learner
from engine.learning.decisions.text_features import TextFeatures, extract_features, unpack_features
from engine.memory.helper_main import MiniLM
from engine.model import PartOfDay, split_prompt_words

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)


@frozen
class Row:
    """A proposal: the events before it, its text, and whether most of the people who judged it wanted it."""

    trace: str
    events: tuple[str, ...]
    task: str
    wanted: bool
    seen: TextFeatures = field(default=TextFeatures(()), compare=False)

    def make_decision(self, number: int) -> PastDecision:
        """The decision that the Twin learns; nothing is known of its kind, channel or time."""
        card = replace(self.query(number), text=unpack_features(self.seen.pack()))
        return PastDecision(card, self.wanted, 1.0, None, id=number + 1)

    def query(self, number: int) -> CardFeatures:
        return CardFeatures(
            "proposal", "research", self.trace, "", split_prompt_words(self.task), PartOfDay.MORNING, weekend=False,
            at=BEGIN + timedelta(minutes=number), text=self.seen,
        )  # fmt: skip


def read_rows(path: Path) -> list[Row]:
    """Every row with a proposal, with its features. Rows are sorted by trace and time.

    Rows of one instant are in a random order, because the file sorts them by their labels, which no learner may see.
    """
    rows = []
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["pred_task"]:
            events = tuple(event["event"] for event in line["obs"])
            rows.append(Row(line["trace"], events, line["pred_task"], bool(line["valid"])))
    rows.sort(key=lambda row: (row.trace, len(row.events), sha256(f"{row.task}{row.events[-1]}".encode()).digest()))
    model = MiniLM()
    texts = sorted({text for row in rows for text in (row.task, *row.events)})
    vectors = {text: model.embed_question(text).array for text in texts}

    def find_features(row: Row) -> TextFeatures:
        *earlier, last = row.events
        return extract_features(row.task, last, earlier, [vectors[text] for text in (row.task, last, *earlier)])

    return [replace(row, seen=find_features(row)) for row in rows]


TEXTS = {
    "task": lambda row: row.task,
    "last event and task": lambda row: f"{row.events[-1]} {row.task}",
    "last three and task": lambda row: f"{' '.join(row.events[-3:])} {row.task}",
    "all events and task": lambda row: f"{' '.join(row.events)} {row.task}",
}
"""What a baseline reads of a row, by name."""

STRENGTHS = (0.1, 1.0, 10.0)
"""The inverse regularisation of the baselines."""


def make_baseline(strength: float) -> Pipeline:
    """TF-IDF over words and pairs of words, and logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectoriser = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    return make_pipeline(vectoriser, LogisticRegression(C=strength, max_iter=500))


def train_twin(rows: Sequence[Row]) -> Learner:
    """A Twin that learned these decisions, in this order."""
    learner = Learner()
    for number, row in enumerate(rows):
        learner.learn(row.make_decision(number))
    return learner
