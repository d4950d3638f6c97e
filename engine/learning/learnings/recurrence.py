"""Finds entries with the same meaning across the sessions of a project (SPEC 6.2).

Two entries made by rules are the same if they have the same `about`. Other entries are the same if they have the same
words, or similar embeddings, unless they name different files, tests, options or numbers, or one negates or contradicts
the other (keep and drop, staging and production). Quotes are the same only as quotes, because a tool that repeats the
operator's words adds no evidence.

Clusters are stars. The wording whose neighbours occur in most sessions becomes the first centre; among equals, the most
certain one, then the first by its words. Every free wording with a cosine similarity of at least 0.8 to the centre
becomes a member. Then the next centre is chosen. The result does not depend on the order of the entries. Embeddings are
stored, because computing them is slow.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sqlmodel import Field

from engine.learning import find_names, may_be_same
from engine.lessons import normalise
from engine.model import LearningEntry, LearningScope, LearningStatus, Trust
from engine.storage import Row, ask
from engine.storage.database import Database, Transaction
from engine.text import hex_hash

log = logging.getLogger(__name__)

MIN_SIMILARITY = 0.8
"""Minimum cosine similarity of two entries that are the same (SPEC 6.2)."""

DISTINCT_SESSIONS = 3
"""Minimum number of sessions before an entry is promoted to the project (SPEC 6.2)."""

BATCH_TEXTS = 400
"""Number of texts that are embedded at once."""

BATCH_ROWS = 1_024
"""Number of wordings that are compared with all others at once. With 10,000 others this takes 40 MB."""

ROUNDING = 1e-6
"""Tolerance of a cosine of float32 vectors."""

LoadVectors = Callable[[Sequence[str]], Sequence[bytes | None]]
"""Reads the embedding of each text, unit vectors of float32; None where there is none."""

EmbedTexts = Callable[[Sequence[str]], Sequence[bytes] | None]
"""Computes the embeddings of texts; None if that is not possible now."""


# -- stored vectors

_SELECT_VECTORS = (
    "SELECT digest, vector FROM learning_vectors "
    "WHERE model = :model AND digest IN (SELECT value FROM json_each(:digests))"
)
_INSERT_VECTOR = "INSERT OR REPLACE INTO learning_vectors (digest, model, vector) VALUES (?, ?, ?)"
_DELETE_VECTOR = "DELETE FROM learning_vectors WHERE digest = ?"


class LearningVector(Row, table=True):
    """The embedding of a text by one model; `digest` is the hash of the text."""

    __tablename__ = "learning_vectors"

    digest: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    vector: bytes


class StoredVectors:
    """Computes the embedding of each text once, and stores it in the database. From any thread."""

    def __init__(self, database: Database, embed: EmbedTexts, model: str) -> None:
        """`model` is the name of the model that `embed` uses. Embeddings of different models are never compared."""
        self._database = database
        self._embed = embed
        self._model = model

    def load(self, texts: Sequence[str], /) -> list[bytes | None]:
        """See `LoadVectors`."""
        by_digest = {hash_text(text): text for text in texts}
        with self._database.read() as session:
            values = {"model": self._model, "digests": json.dumps(list(by_digest))}
            vectors = {by_digest[digest]: vector for digest, vector in ask(session, _SELECT_VECTORS, values)}
        missing_texts = [text for text in by_digest.values() if text not in vectors]
        for start in range(0, len(missing_texts), BATCH_TEXTS):
            batch = missing_texts[start : start + BATCH_TEXTS]
            embedded = self._embed(batch)
            if embedded is None:
                log.info("%d learnings are compared by words only: they cannot be embedded now", len(missing_texts))
                break
            rows = [(hash_text(text), self._model, vector) for text, vector in zip(batch, embedded, strict=True)]
            self._database.write(partial(_store_vectors, rows))
            vectors |= zip(batch, embedded, strict=True)
        return [vectors.get(text) for text in texts]

    def forget(self, texts: Iterable[str]) -> None:
        """Remove the embeddings of these texts, by all models."""
        digests = [(hash_text(text),) for text in texts]
        self._database.write(lambda tx: tx.driver.executemany(_DELETE_VECTOR, digests))


def _store_vectors(rows: Sequence[tuple[str, str, bytes]], tx: Transaction) -> None:
    """Store rows of `LearningVector`."""
    tx.driver.executemany(_INSERT_VECTOR, rows)


def hash_text(text: str) -> str:
    """A hash of a text."""
    return hex_hash(text, 32)


# -- entries that are the same

Wordings = dict[str, list[LearningEntry]]
"""Entries by their words and names, those of the best entry first. Entries with the same `about` have the words ""."""


def find_clusters(
    entries: Iterable[LearningEntry], vectors: LoadVectors, *, min_sessions: int = DISTINCT_SESSIONS
) -> list[list[LearningEntry]]:
    """The entries that are the same, in clusters from at least `min_sessions` distinct pieces of work, ordered by
    content. The words of the first entry of a cluster represent it."""
    return [
        cluster
        for wordings in _group_entries(entries).values()
        for cluster in _find_stars(wordings, vectors, min_sessions)
    ]


def find_matches(
    entries: Iterable[LearningEntry], candidates: Iterable[LearningEntry], vectors: LoadVectors
) -> dict[str, LearningEntry]:
    """For the id of each entry, the nearest candidate that is the same. It has the same lesson, even if the operator
    edited its text, or the same meaning. Entries without one are left out, and so are merged candidates."""
    present = [candidate for candidate in candidates if candidate.status is not LearningStatus.COMPACTED]
    by_lesson = {_make_lesson_key(candidate): candidate for candidate in sorted(present, key=_rank, reverse=True)}
    others_by_key = _group_entries(present)
    matches: dict[str, LearningEntry] = {}
    for key, wordings in _group_entries(entries).items():
        others = others_by_key.get(key, {})
        for same, near in zip(wordings.values(), _find_near(wordings, others, vectors), strict=True):
            for entry in same:
                if match := by_lesson.get(_make_lesson_key(entry)):
                    matches[entry.id] = match
                elif near:
                    matches[entry.id] = others[near[0]][0]
    return matches


def _make_lesson_key(entry: LearningEntry) -> tuple[object, ...]:
    """Entries with equal keys have the same lesson."""
    return entry.kind, entry.trust is Trust.QUOTED, entry.about or entry.lesson


def _rank(entry: LearningEntry) -> tuple[object, ...]:
    """Orders entries by content, and of those with the same words the best one first."""
    is_best_first = -entry.confidence, -entry.importance, entry.scope is LearningScope.TEAM
    return entry.kind, entry.type, entry.about, normalise(entry.text), *is_best_first, entry.id


def _group_entries(entries: Iterable[LearningEntry]) -> dict[tuple[object, ...], Wordings]:
    """The entries that can be the same, by their words. Groups, words and entries are ordered by content."""
    groups: dict[tuple[object, ...], Wordings] = defaultdict(lambda: defaultdict(list))
    for entry in sorted(entries, key=_rank):
        key = entry.kind, entry.type, entry.trust is Trust.QUOTED, entry.about
        names = sorted(find_names(entry.text))  # `--fast` is not `fast`
        groups[key]["" if entry.about else " ".join((normalise(entry.text), *names))].append(entry)
    return groups


def _find_stars(wordings: Wordings, vectors: LoadVectors, min_sessions: int) -> Iterator[list[LearningEntry]]:
    """The clusters of wordings that can be the same."""

    def count_work(words: Iterable[str]) -> int:
        return len({entry.work for wording in words for entry in wordings[wording]})

    if count_work(wordings) < min_sessions:
        return
    near = dict(zip(wordings, _find_near(wordings, wordings, vectors), strict=True))

    def rank(centre: str) -> tuple[object, ...]:
        best = wordings[centre][0]
        return -count_work(near[centre]), -best.confidence, -best.importance, centre

    free = set(wordings)
    for centre in sorted(wordings, key=rank):
        members = [words for words in near[centre] if words in free]
        if centre in free and count_work(members) >= min_sessions:
            free.difference_update(members)
            yield [entry for words in members for entry in wordings[words]]


def _find_near(wordings: Wordings, others: Wordings, vectors: LoadVectors) -> list[list[str]]:
    """For each wording, the other ones that are the same: the one with the same words, then the nearest ones."""
    near = [[words] if words in others else [] for words in wordings]
    texts, other_texts = ([same[0].text for same in group.values()] for group in (wordings, others))
    if not others or wordings.keys() == others.keys() == {*near[0]}:
        return near  # there is nothing else to compare
    import numpy

    found = vectors([*texts, *other_texts])
    no_vector = bytes(max(len(vector or b"") for vector in found) or 4)  # its cosines are 0
    matrix = numpy.frombuffer(b"".join(vector or no_vector for vector in found), "<f4").reshape(len(found), -1)
    other_words = list(others)
    for start in range(0, len(texts), BATCH_ROWS):
        rows = matrix[start : min(start + BATCH_ROWS, len(texts))]
        for row, cosines in enumerate(rows @ matrix[len(texts) :].T, start):
            columns = numpy.flatnonzero(cosines >= MIN_SIMILARITY - ROUNDING)
            near[row] += [
                other_words[column]
                for column in columns[numpy.argsort(-cosines[columns], kind="stable")]
                if other_words[column] not in near[row] and may_be_same(texts[row], other_texts[column])
            ]
    return near
