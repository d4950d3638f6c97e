"""Finds entries with the same meaning across the sessions of a project (SPEC 6.2).

Two entries made by rules are the same if they have the same `about`. Other entries are compared by their embeddings, or
without embeddings by their exact words. Entries are never the same if they name different files, tests, options or
numbers, or if one negates or contradicts the other (keep and drop, staging and production).

Clusters are stars. The wording whose neighbours occur in most sessions becomes the first centre; among equals, the most
certain one, then the first by its words. Every free wording with a cosine similarity of at least 0.8 to the centre
becomes a member. Then the next centre is chosen. The result does not depend on the order of the entries. Embeddings are
stored, because computing them is slow.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, col, delete, select

from engine.files import read_table
from engine.frozen import frozen
from engine.model import LearningEntry, LearningScope, Trust
from engine.model.base import hex_hash
from engine.model.learnings import normalise
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row

log = logging.getLogger(__name__)

MIN_SIMILARITY = 0.8
"""Minimum cosine similarity of two entries that are the same (SPEC 6.2)."""

DISTINCT_SESSIONS = 3
"""Minimum number of sessions before an entry is promoted to the project (SPEC 6.2)."""

CACHE_SIZE = 20_000
"""Maximum number of texts in the caches below. They help because each text is read several times in a row."""

BATCH_TEXTS = 400
"""Number of texts that are embedded at once."""

BATCH_ROWS = 1_024
"""Number of wordings that are compared with all others at once. With 10,000 others this takes 40 MB."""

ROUNDING = 1e-6
"""Tolerance of a cosine of float32 vectors."""

_NAMES = re.compile(
    r"[\w./-]*\w(?:::\w+)+|"  # a test, a C++ or Rust name
    r"(?:[\w.-]*/){2,}[\w.-]*|[\w.-]+/[\w-]*\.\w+|"  # a path
    r"(?<!\S)--?[a-z][\w-]*|"  # an option
    r"\b[A-Za-z_][\w-]*\.[A-Za-z]\w{0,5}\b|"  # a file, a dotted name
    r"\b\w*[a-z]_[a-z]\w*|\b[a-z]+[A-Z]\w*|"  # snake_case, camelCase
    r"\b\d+(?:\.\d+)+\b|\b\d{2,}\b",  # a version, a number of weight
)
"""Matches a name: of a file, a test, an option, an identifier, a version or a number."""

_NO_NAMES = frozenset({"", "e.g", "i.e"})
"""Matches of `_NAMES` that are no names."""

_NEGATION = re.compile(
    r"\b(?:not|never|no longer|don['’]?t|doesn['’]?t|didn['’]?t|isn['’]?t|aren['’]?t|won['’]?t|can['’]?t|cannot"
    r"|mustn['’]?t|shouldn['’]?t|avoid|avoids|without|stop|forbidden|refused|denied|instead of|rather than)\b",
    re.IGNORECASE,
)
"""Matches a word that negates a sentence."""

_OPPOSITES = [
    (frozenset(words.split()), frozenset(opposites.split()))
    for words, opposites in read_table(__file__, "opposites.toml")["pairs"]
]
"""Words and their opposites."""


# -- comparing texts


def make_comparison_key(entry: LearningEntry) -> tuple[object, ...]:
    """The key of an entry: only entries with equal keys can be the same. Quotes are compared only with quotes, because
    a tool that repeats the operator's words adds no evidence."""
    subject = (entry.about,) if entry.about else (find_names(entry.text), _NEGATION.search(entry.text) is not None)
    return entry.kind, entry.type, entry.trust is Trust.QUOTED, *subject


@lru_cache(CACHE_SIZE)
def find_names(text: str) -> frozenset[str]:
    """The files, tests, options and numbers that a text names."""
    return frozenset(name.strip("./").lower() for name in _NAMES.findall(text)) - _NO_NAMES


@lru_cache(CACHE_SIZE)
def find_sides(text: str) -> tuple[int, ...]:
    """The side of a text in each pair of opposites: 1 or -1, or 0 for neither or both. Texts on different sides of a
    pair are not the same."""
    words_of_text = set(re.findall(r"[a-z-]+", text.casefold()))
    return tuple(bool(words_of_text & words) - bool(words_of_text & opposites) for words, opposites in _OPPOSITES)


def may_be_same(text: str, other: str) -> bool:
    """Whether two texts name the same things, and neither negates or contradicts the other."""
    is_negated, other_is_negated = _NEGATION.search(text) is not None, _NEGATION.search(other) is not None
    is_contrary = any(
        side * other_side < 0 for side, other_side in zip(find_sides(text), find_sides(other), strict=True)
    )
    return find_names(text) == find_names(other) and is_negated is other_is_negated and not is_contrary


def sort_entries(entries: Iterable[LearningEntry]) -> list[LearningEntry]:
    """Sort entries by content, so that results do not depend on their order."""
    return sorted(
        entries, key=lambda entry: (entry.kind.value, entry.type.value, entry.about, normalise(entry.text), entry.id)
    )


Vectors = Callable[[Sequence[str]], Sequence[bytes | None]]
"""Reads the embedding of each text, unit vectors of float32; None where there is none."""

EmbedTexts = Callable[[Sequence[str]], Sequence[bytes] | None]
"""Computes the embeddings of texts; None if that is not possible now."""


# -- stored vectors


class LearningVector(Row, table=True):
    """The embedding of a text by one model; `digest` is the hash of the text."""

    __tablename__ = "learning_vectors"

    digest: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    vector: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class StoredVectors:
    """Computes the embedding of each text once, and stores it in the database. From any thread."""

    def __init__(self, database: Database, embed: EmbedTexts, model_name: Callable[[], str]) -> None:
        """`model_name()` is the name of the model that `embed` uses. Embeddings of different models are never
        compared."""
        self._database = database
        self._embed = embed
        self._model_name = model_name

    def load(self, texts: Sequence[str], /) -> list[bytes | None]:
        """See `Vectors`."""
        model = self._model_name()
        digests = {text: hash_text(text) for text in texts}
        query = select(LearningVector.digest, LearningVector.vector).where(
            LearningVector.model == model, col(LearningVector.digest).in_(digests.values())
        )
        with self._database.read() as session:
            by_digest = dict(session.exec(query).all())
        missing_texts = [text for text, digest in digests.items() if digest not in by_digest]
        for start in range(0, len(missing_texts), BATCH_TEXTS):
            batch = missing_texts[start : start + BATCH_TEXTS]
            vectors = self._embed(batch)
            if vectors is None:
                log.info(
                    "%d learnings are compared by words only: they cannot be embedded now", len(missing_texts) - start
                )
                break
            new_vectors = {digests[text]: vector for text, vector in zip(batch, vectors, strict=True)}
            self._database.write(partial(_store_vectors, model=model, vectors=new_vectors))
            by_digest |= new_vectors
        return [by_digest.get(digests[text]) for text in texts]

    def forget(self, texts: Iterable[str]) -> None:
        """Remove the embeddings of these texts, by all models."""
        removal = delete(LearningVector).where(col(LearningVector.digest).in_(map(hash_text, texts)))
        self._database.write(lambda tx: tx.session.exec(removal))


def _store_vectors(tx: Transaction, *, model: str, vectors: Mapping[str, bytes]) -> None:
    """Store the embeddings of texts by a model, by the hash of the text."""
    for digest, vector in vectors.items():
        tx.session.merge(LearningVector(digest=digest, model=model, vector=vector))


def hash_text(text: str) -> str:
    """A hash of a text."""
    return hex_hash(text, 32)


# -- clusters


@frozen
class Cluster:
    """Entries that are the same."""

    centre: LearningEntry
    """The entry whose words represent the cluster."""
    members: tuple[LearningEntry, ...]
    """All entries, `centre` first."""
    sessions: tuple[str, ...]
    """The distinct pieces of work that they come from, sorted."""


class _Wording:
    """Entries with the same words, or with the same `about`."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.entries: list[LearningEntry] = []
        self.vector: bytes | None = None

    @property
    def text(self) -> str:
        """The text of the first entry."""
        return self.entries[0].text

    @property
    def best(self) -> LearningEntry:
        """The entry with the highest confidence, and of several such entries the one in the highest scope."""
        return min(
            self.entries,
            key=lambda entry: (-entry.confidence, -entry.importance, entry.scope is LearningScope.TEAM, entry.id),
        )


def find_clusters(
    entries: Iterable[LearningEntry], vectors: Vectors, *, min_sessions: int = DISTINCT_SESSIONS
) -> list[Cluster]:
    """Clusters from at least `min_sessions` distinct sessions, ordered by content."""
    groups = [
        wordings
        for wordings in _group_wordings(entries).values()
        if len({entry.work for wording in wordings for entry in wording.entries}) >= min_sessions
    ]
    _load_vectors([wording for wordings in groups if len(wordings) > 1 for wording in wordings], vectors)
    return [cluster for wordings in groups for cluster in _find_stars(wordings, min_sessions)]


def find_matches(
    entries: Iterable[LearningEntry], candidates: Iterable[LearningEntry], vectors: Vectors
) -> dict[str, LearningEntry]:
    """For the id of each entry, the nearest candidate that is the same. Entries without one are left out."""
    candidates_by_key = _group_wordings(candidates)
    pairs = [
        (wordings, candidates_by_key[key])
        for key, wordings in _group_wordings(entries).items()
        if key in candidates_by_key
    ]
    _load_vectors([wording for wordings, others in pairs for wording in (*wordings, *others)], vectors)
    matches: dict[str, LearningEntry] = {}
    for wordings, others in pairs:
        matches |= _match_wordings(wordings, others)
    return matches


def _match_wordings(wordings: Sequence[_Wording], others: Sequence[_Wording]) -> dict[str, LearningEntry]:
    """For the id of each entry, the first entry of the nearest of the other wordings with the same key."""
    matches: dict[str, LearningEntry] = {}
    for wording, similar in zip(wordings, _find_similar(wordings, others), strict=True):
        if similar:
            nearest = others[similar[0]].entries[0]
            matches |= {entry.id: nearest for entry in wording.entries}
    return matches


def _group_wordings(entries: Iterable[LearningEntry]) -> dict[tuple[object, ...], list[_Wording]]:
    """Wordings by comparison key, ordered by content."""
    grouped: dict[tuple[object, ...], dict[str, _Wording]] = defaultdict(dict)
    for entry in sort_entries(entries):
        wording_key = "" if entry.about else normalise(entry.text)
        grouped[make_comparison_key(entry)].setdefault(wording_key, _Wording(wording_key)).entries.append(entry)
    return {key: list(group.values()) for key, group in grouped.items()}


def _load_vectors(wordings: Iterable[_Wording], vectors: Vectors) -> None:
    """Load the embeddings of wordings that are compared by them."""
    compared = [wording for wording in wordings if wording.words]
    if compared:
        for wording, vector in zip(compared, vectors([wording.text for wording in compared]), strict=True):
            wording.vector = vector


def _find_stars(wordings: Sequence[_Wording], min_sessions: int) -> list[Cluster]:
    """The clusters of wordings with the same key."""
    neighbours = _find_similar(wordings, wordings)

    def count_sessions(members: Iterable[int]) -> int:
        return len({entry.work for member in members for entry in wordings[member].entries})

    def rank(centre: int) -> tuple[float, ...]:
        best = wordings[centre].best
        return -count_sessions(neighbours[centre]), -best.confidence, -best.importance, centre

    clusters = []
    unassigned = set(range(len(wordings)))
    for centre in sorted(unassigned, key=rank):
        members = unassigned.intersection(neighbours[centre])
        if centre in members and count_sessions(members) >= min_sessions:
            unassigned -= members
            clusters.append(_make_cluster([wordings[index] for index in (centre, *sorted(members - {centre}))]))
    return clusters


def _make_cluster(wordings: Sequence[_Wording]) -> Cluster:
    """The cluster of these wordings, the centre first."""
    first = wordings[0].best
    members = [entry for wording in wordings for entry in sort_entries(wording.entries) if entry is not first]
    return Cluster(first, (first, *members), tuple(sorted({member.work for member in (first, *members)})))


def _find_similar(wordings: Sequence[_Wording], others: Sequence[_Wording]) -> list[list[int]]:
    """For each wording, the indexes of the others that are the same, nearest first."""
    by_words = {other.words: index for index, other in enumerate(others)}
    similar = [[by_words[wording.words]] if wording.words in by_words else [] for wording in wordings]
    rows = [index for index, wording in enumerate(wordings) if wording.vector]
    columns = [index for index, other in enumerate(others) if other.vector]
    for row, nearest in _find_near_vectors(wordings, rows, others, columns):
        similar[row] += [other for other in nearest if other not in similar[row]]
    return similar


def _find_near_vectors(
    wordings: Sequence[_Wording], rows: Sequence[int], others: Sequence[_Wording], columns: Sequence[int]
) -> Iterator[tuple[int, list[int]]]:
    """For each of the `rows`, which are indexes of wordings with a vector, the `columns` whose vectors are near and
    whose words are on no other side of a pair of opposites, nearest first."""
    if not rows or not columns:
        return
    import numpy

    matrix = _stack_vectors(others, columns)
    column_sides = numpy.array([find_sides(others[index].text) for index in columns], dtype=numpy.int8)
    for start in range(0, len(rows), BATCH_ROWS):
        batch = rows[start : start + BATCH_ROWS]
        for row, cosines in zip(batch, _stack_vectors(wordings, batch) @ matrix.T, strict=True):
            row_sides = numpy.array(find_sides(wordings[row].text), dtype=numpy.int8)
            cosines[(column_sides * row_sides < 0).any(axis=1)] = -1.0
            near_columns = numpy.flatnonzero(cosines >= MIN_SIMILARITY - ROUNDING)
            nearest = near_columns[numpy.argsort(-cosines[near_columns], kind="stable")]
            yield row, [columns[position] for position in nearest]


def _stack_vectors(wordings: Sequence[_Wording], indexes: Sequence[int]) -> Any:
    """The vectors of these wordings, a row each."""
    import numpy

    joined = b"".join(wordings[index].vector or b"" for index in indexes)
    return numpy.frombuffer(joined, dtype="<f4").reshape(len(indexes), -1)
