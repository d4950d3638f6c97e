"""What recurs among 10,000 entries of 500 sessions is found in under 10 s (SPEC 6.2).

The baseline compares every pair of entries in Python, and joins equal ones. It is measured on a part of the entries,
because its time grows with the square of their number.

pytest tests/benchmarks/test_recurrence_speed.py -m benchmark -s
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from engine.learning.learnings.page import Change
from engine.learning.learnings.promotion import plan_project
from engine.learning.learnings.recurrence import StoredVectors, find_clusters
from engine.learning.learnings.store import LearningFiles, LearningStore, Scope
from engine.model import LearningEntry, LearningKind, LearningScope
from engine.storage.database import Database
from tests.benchmarks.measuring import Measured
from tests.learning.learnings.made_up_entries import make_entry
from tests.support import MONDAY_MORNING

ENTRIES, SESSIONS, TOPICS, DIMENSIONS = 10_000, 500, 1_500, 384
PART = 600
"""Entries that the baseline compares."""

PROJECT = Scope("shop")


class Topics:
    """Texts with vectors like those of a model: wordings of one topic are near each other, those of others are not."""

    def __init__(self):
        chance = numpy.random.default_rng(7)
        centres = chance.standard_normal((TOPICS, DIMENSIONS)).astype("<f4")
        self.centres = centres / numpy.linalg.norm(centres, axis=1, keepdims=True)
        self.known: dict[str, bytes] = {}
        self._chance = chance

    def make_text(self, topic: int, number: int) -> str:
        """A new wording of a topic."""
        text = f"{_spell(number)} {_spell(topic)} is what is known of it"
        noise = self._chance.standard_normal(DIMENSIONS).astype("<f4") * 0.02
        vector = self.centres[topic] + noise
        self.known[text] = (vector / numpy.linalg.norm(vector)).astype("<f4").tobytes()
        return text

    def embed(self, texts: Sequence[str], /) -> list[bytes]:
        return [self.known[text] for text in texts]


def _spell(number: int) -> str:
    """A number as a word, because two texts with different numbers are never the same."""
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def make_entries(topics: Topics) -> list[LearningEntry]:
    chance = numpy.random.default_rng(11)
    entries = []
    for number in range(ENTRIES):
        session = f"sess_{number % SESSIONS:04d}"
        text = topics.make_text(int(chance.integers(TOPICS)), number)
        scope = Scope("shop", session)
        entry = make_entry(text, session, scope=LearningScope.SESSION, scope_id=session)
        entries.append(replace(entry, path=scope.page(LearningKind.INSTITUTIONAL, entry.id)))
    return entries


def count_pairwise_clusters(entries: Sequence[LearningEntry], topics: Topics) -> int:
    """Compare every pair by itself; returns the number of groups with three sessions."""
    vectors = [numpy.frombuffer(topics.known[entry.text], dtype="<f4") for entry in entries]
    group = list(range(len(entries)))
    for left in range(len(entries)):
        for right in range(left):
            if float(vectors[left] @ vectors[right]) >= 0.8:
                old, new = group[left], group[right]
                group = [new if number == old else number for number in group]
    sessions: dict[int, set[str]] = {}
    for index, entry in enumerate(entries):
        sessions.setdefault(group[index], set()).add(entry.session_id)
    return sum(len(session) >= 3 for session in sessions.values())


def test_clusters_of_ten_thousand_entries_are_found_quickly(tmp_path: Path, database: Database):
    topics = Topics()
    entries = make_entries(topics)
    files = LearningStore(tmp_path, database)
    files.apply([Change(entry) for entry in entries])
    StoredVectors(database, topics.embed, "made").load([entry.text for entry in entries])
    fresh = LearningFiles(tmp_path)
    stored_vectors = StoredVectors(database, topics.embed, "made")

    clustering = Measured(lambda: find_clusters(entries, topics.embed))
    baseline = Measured(lambda: count_pairwise_clusters(entries[:PART], topics))
    reading = Measured(lambda: fresh.read_entries(PROJECT))
    planning = Measured(lambda: plan_project(reading.result, [], PROJECT, stored_vectors.load, MONDAY_MORNING))
    promoted = [change for change in planning.result if not change.fields]

    baseline_seconds = baseline.seconds * (ENTRIES / PART) ** 2
    rows: list[tuple[str, Measured[Any]]] = [
        ("clusters, vectors at hand", clustering),
        ("read 500 pages", reading),
        ("plan: vectors from SQLite, clusters, reinforcement", planning),
    ]
    clusters = clustering.result
    print(f"\n{ENTRIES:,} entries, {SESSIONS} sessions, {len(clusters)} clusters of three sessions and more")
    for name, measured in rows:
        print(f"  {name:<52} {measured.seconds:8.2f} s, {measured.processor:8.2f} s of processors")
    print(f"  {'one by one, reckoned from 600':<52} {baseline_seconds:8.2f} s")
    print(f"  {'ratio, one by one to clusters':<52} {baseline_seconds / clustering.seconds:8.0f}")
    assert clustering.seconds < 10
    assert reading.processor + planning.processor < 10
    assert len(promoted) == len(clusters) > TOPICS / 2
