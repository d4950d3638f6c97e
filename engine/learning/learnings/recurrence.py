"""Finds entries with the same meaning across the sessions of a project (SPEC 6.2).

Entries made by rules are the same if their `about` is. All others are compared by their embeddings, or by their exact
words without embeddings. Entries that name different files, tests, options or numbers, or of which one negates or
contradicts the other (keep and drop, staging and production), are never the same.

Clusters are stars: the wording whose neighbours occur in most sessions becomes a centre (then the most certain, then
the first by its words), and every wording with a cosine similarity of at least 0.8 to it is a member; then the same for
the rest. The result does not depend on the order of the entries.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlmodel import col, delete, select

from engine.frozen import frozen
from engine.learning.learnings.store import LearningVector
from engine.model import LearningEntry, LearningKind, LearningScope, LearningType, Trust
from engine.model.learnings import normalise
from engine.storage.database import Database

# Computes the embedding of each text once, and stores it in the database (SPEC 6.2).


log = logging.getLogger(__name__)

BATCH_TEXTS = 400
"""Number of texts that are read or embedded at once."""

EmbedTexts = Callable[[Sequence[str]], Sequence[bytes] | None]
"""Computes the embeddings of texts; None when that is not possible now."""


class StoredVectors:
    """A store of embeddings in the database. From any thread."""

    def __init__(self, database: Database, make: EmbedTexts, model: Callable[[], str]) -> None:
        """`model` is the name of the model behind `make`; embeddings of different models are never compared."""
        self._database = database
        self._make = make
        self._model = model

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        """See `recurrence.Vectors`."""
        model = self._model()
        digests = {text: text_digest(text) for text in texts}
        by_digest = self._stored(model, list(digests.values()))
        missing = [text for text, digest in digests.items() if digest not in by_digest]
        for start in range(0, len(missing), BATCH_TEXTS):
            page = missing[start : start + BATCH_TEXTS]
            vectors = self._make(page)
            if vectors is None:
                log.info("%d learnings are compared by words only: no vectors can be made now", len(missing) - start)
                break
            new = {digests[text]: vector for text, vector in zip(page, vectors, strict=True)}
            rows = [LearningVector(digest=digest, model=model, vector=vector) for digest, vector in new.items()]
            self._database.write(lambda tx, rows=rows: [tx.session.merge(row) for row in rows])  # type: ignore[misc]
            by_digest |= new
        return [by_digest.get(digests[text]) for text in texts]

    def forget(self, texts: Iterable[str]) -> None:
        """Remove the embeddings of these texts, by all models."""
        digests = [text_digest(text) for text in texts]
        if digests:
            self._database.write(
                lambda tx: tx.session.exec(delete(LearningVector).where(col(LearningVector.digest).in_(digests)))
            )

    def _stored(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        by_digest: dict[str, bytes] = {}
        with self._database.read() as session:
            for start in range(0, len(digests), BATCH_TEXTS):
                query = select(LearningVector.digest, LearningVector.vector).where(
                    col(LearningVector.model) == model,
                    col(LearningVector.digest).in_(digests[start : start + BATCH_TEXTS]),
                )
                by_digest |= dict(session.exec(query).all())
        return by_digest


def text_digest(text: str) -> str:
    """A hash of a text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


MIN_SIMILARITY = 0.8
"""Minimum cosine similarity of two entries that are the same (SPEC 6.2)."""

DISTINCT_SESSIONS = 3
"""Minimum number of sessions before an entry is promoted to the project (SPEC 6.2)."""

CACHE_SIZE = 20_000
"""Number of texts in the caches below: each text is read several times in a row."""

_NAMES = re.compile(
    r"[\w./-]*\w(?:::\w+)+|"  # a test, a C++ or Rust name
    r"(?:[\w.-]*/){2,}[\w.-]*|[\w.-]+/[\w-]*\.\w+|"  # a path
    r"(?<!\S)--?[a-z][\w-]*|"  # an option
    r"\b[A-Za-z_][\w-]*\.[A-Za-z]\w{0,5}\b|"  # a file, a dotted name
    r"\b\w*[a-z]_[a-z]\w*|\b[a-z]+[A-Z]\w*|"  # snake_case, camelCase
    r"\b\d+(?:\.\d+)+\b|\b\d{2,}\b",  # a version, a number of weight
)
_WORDS = frozenset({"", "e.g", "i.e"})
_NOT = re.compile(
    r"\b(?:not|never|no longer|don['’]?t|doesn['’]?t|didn['’]?t|isn['’]?t|aren['’]?t|won['’]?t|can['’]?t|cannot"
    r"|mustn['’]?t|shouldn['’]?t|avoid|avoids|without|stop|forbidden|refused|denied|instead of|rather than)\b",
    re.IGNORECASE,
)


_OPPOSITES: tuple[tuple[str, str], ...] = (
    ("keep keeps kept retain", "drop drops dropped remove removes removed delete deletes discard discards abandon"),
    ("staging test-environment", "production prod live"),
    ("tab tabs", "space spaces"),
    ("before first", "after afterwards last"),
    ("enable enables enabled on", "disable disables disabled off"),
    ("allow allows allowed permit permits accept accepts", "deny denies forbid forbids refuse refuses reject rejects"),
    ("add adds added insert include includes", "exclude excludes omit omits strip strips"),
    ("sync synchronous blocking", "async asynchronous nonblocking"),
    ("local locally offline", "remote remotely online"),
    ("old former legacy", "new newest modern"),
    ("increase raise raises grow", "decrease lower lowers shrink reduce"),
    ("public exported", "private internal hidden"),
    ("read reads reading", "write writes writing"),
    ("start starts begin open opens", "stop stops end close closes"),
    ("client frontend", "server backend"),
    ("minimum least min", "maximum most max"),
    ("short brief", "long verbose"),
    ("single one", "multiple many several"),
    ("required mandatory must", "optional may"),
    ("true yes", "false no"),
    ("upper uppercase", "lowercase"),
    ("merge merges", "rebase rebases"),
    ("automatic automatically", "manual manually hand"),
    ("ascending", "descending"),
    ("net", "gross"),
)
"""Words and their opposites."""

AXES = len(_OPPOSITES)
_SIDES = {
    word: (axis, side)
    for axis, pair in enumerate(_OPPOSITES)
    for side, words in zip((1, -1), pair, strict=True)
    for word in words.split()
}


@frozen
class ComparisonKey:
    """Only entries with equal keys can be the same."""

    kind: LearningKind
    type: LearningType
    about: str
    names: frozenset[str]
    negative: bool
    quoted: bool


def comparison_key(entry: LearningEntry) -> ComparisonKey:
    """The key of an entry. Quotes are compared with quotes only: a tool that repeats the operator adds no evidence."""
    quoted = entry.trust is Trust.QUOTED
    if entry.about:
        return ComparisonKey(entry.kind, entry.type, entry.about, frozenset(), False, quoted)
    return ComparisonKey(entry.kind, entry.type, "", names(entry.text), _negative(entry.text), quoted)


@lru_cache(CACHE_SIZE)
def _negative(text: str) -> bool:
    return _NOT.search(text) is not None


@lru_cache(CACHE_SIZE)
def names(text: str) -> frozenset[str]:
    """The files, tests, options and numbers that a text names."""
    return frozenset(name.strip("./").lower() for name in _NAMES.findall(text)) - _WORDS


@lru_cache(CACHE_SIZE)
def sides(text: str) -> tuple[int, ...]:
    """The side of a text in each pair of opposites: 1 or -1, 0 for neither or both. Texts on different sides of any
    pair are not the same."""
    sides_by_axis: dict[int, set[int]] = {}
    for word in re.findall(r"[a-z-]+", text.casefold()):
        if word in _SIDES:
            axis, side = _SIDES[word]
            sides_by_axis.setdefault(axis, set()).add(side)
    return tuple(sum(sides_by_axis.get(axis, ())) for axis in range(AXES))


def sort_entries(entries: Iterable[LearningEntry]) -> list[LearningEntry]:
    """Sort entries by content, so that results do not depend on their order."""
    return sorted(
        entries, key=lambda entry: (entry.kind.value, entry.type.value, entry.about, normalise(entry.text), entry.id)
    )


BATCH_ROWS = 1_024
"""Number of wordings that are compared with all others at once; uses 40 MB for 10,000."""

ROUNDING = 1e-6
"""Tolerance for float32."""

Vectors = Callable[[Sequence[str]], Sequence[bytes | None]]
"""Reads the embedding of each text, unit vectors of float32; None where there is none."""


@frozen
class Cluster:
    """Entries that are the same."""

    centre: LearningEntry
    """The entry whose words represent the cluster."""
    members: tuple[LearningEntry, ...]
    """All entries, `centre` first."""
    sessions: tuple[str, ...]
    """The distinct pieces of work that they come from, sorted."""


@dataclass(slots=True)
class _Wording:
    """Entries with the same words."""

    entries: list[LearningEntry]
    vector: bytes | None = None

    @property
    def text(self) -> str:
        return self.entries[0].text

    @property
    def best(self) -> LearningEntry:
        """The entry with the highest confidence; of equal ones the one in the highest scope."""
        return min(
            self.entries,
            key=lambda entry: (-entry.confidence, -entry.importance, entry.scope is LearningScope.TEAM, entry.id),
        )


def find_clusters(
    entries: Iterable[LearningEntry], vectors: Vectors, *, min_sessions: int = DISTINCT_SESSIONS
) -> list[Cluster]:
    """Clusters from at least `min_sessions` distinct sessions, ordered by content."""
    partitions = [
        wordings
        for wordings in _group_wordings(entries).values()
        if len({entry.work for wording in wordings for entry in wording.entries}) >= min_sessions
    ]
    _load_vectors([wording for wordings in partitions if len(wordings) > 1 for wording in wordings], vectors)
    return [cluster for wordings in partitions for cluster in _find_stars(wordings, min_sessions)]


def find_matches(
    entries: Iterable[LearningEntry], candidates: Iterable[LearningEntry], vectors: Vectors
) -> dict[str, LearningEntry]:
    """The nearest candidate that is the same as each entry, by the entry's id; entries without one are left out."""
    by_key = _group_wordings(candidates)
    pairs = [
        (wordings, by_key[relation]) for relation, wordings in _group_wordings(entries).items() if relation in by_key
    ]
    _load_vectors([wording for wordings, others in pairs for wording in (*wordings, *others)], vectors)
    matched: dict[str, LearningEntry] = {}
    for wordings, others in pairs:
        for wording, best in zip(wordings, _nearest(wordings, others), strict=True):
            if best is not None:
                matched |= {entry.id: best for entry in wording.entries}
    return matched


def _group_wordings(entries: Iterable[LearningEntry]) -> dict[ComparisonKey, list[_Wording]]:
    """Wordings by comparison key, ordered by content."""
    grouped: dict[ComparisonKey, dict[str, _Wording]] = defaultdict(dict)
    for entry in sort_entries(entries):
        relation = comparison_key(entry)
        words = "" if relation.about else normalise(entry.text)
        grouped[relation].setdefault(words, _Wording([])).entries.append(entry)
    return {relation: list(group.values()) for relation, group in grouped.items()}


def _load_vectors(wordings: Sequence[_Wording], vectors: Vectors) -> None:
    """Load the embeddings of wordings that are compared by them."""
    compared = [wording for wording in wordings if not wording.entries[0].about]
    if compared:
        for wording, vector in zip(compared, vectors([each.text for each in compared]), strict=True):
            wording.vector = vector


def _find_stars(wordings: Sequence[_Wording], min_sessions: int) -> list[Cluster]:
    import numpy

    near = _find_neighbours(wordings)
    works = [{entry.work for entry in wording.entries} for wording in wordings]
    # The number of entries near a wording bounds its number of sessions, which is counted when it is its turn.
    entries = numpy.array([len(wording.entries) for wording in wordings])
    is_free = numpy.ones(len(wordings), dtype=bool)

    def priority(at: int, bound: int) -> tuple[int, float, float, int]:
        best = wordings[at].best
        return -bound, -best.confidence, -best.importance, at

    bounds = ((at, int(entries[near[at]].sum())) for at in range(len(wordings)))
    queue = [priority(at, bound) for at, bound in bounds if bound >= min_sessions]
    heapq.heapify(queue)
    stars = []
    while queue:
        bound, *_, at = heapq.heappop(queue)
        if not is_free[at]:
            continue
        members = [int(priority) for priority in near[at] if is_free[priority]]
        count = len(set().union(*(works[member] for member in members)))
        if count < min_sessions:
            continue
        if count < -bound:  # another wording may have more
            heapq.heappush(queue, priority(at, count))
            continue
        is_free[members] = False
        stars.append(_cluster(wordings[at], [wordings[member] for member in members if member != at]))
    return stars


def _find_neighbours(wordings: Sequence[_Wording]) -> list[Any]:
    """For each wording the indexes of those that are the same, its own included, in order."""
    import numpy

    near = [numpy.array([at]) for at in range(len(wordings))]
    indexes = [at for at, entry in enumerate(wordings) if entry.vector is not None]
    if not indexes:
        return near
    matrix, opposites = _matrix(wordings, indexes), _sides(wordings, indexes)
    index_array = numpy.array(indexes)
    for start in range(0, len(indexes), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        same = matrix[rows] @ matrix.T >= MIN_SIMILARITY - ROUNDING
        for row in range(len(same)):
            similar = numpy.flatnonzero(same[row])
            similar = similar[(opposites[similar] * opposites[start + row] >= 0).all(axis=1)]
            near[indexes[start + row]] = numpy.union1d(index_array[similar], [indexes[start + row]])
    return near


def _cluster(centre: _Wording, others: Sequence[_Wording]) -> Cluster:
    first = centre.best
    members = [entry for wording in (centre, *others) for entry in sort_entries(wording.entries) if entry is not first]
    return Cluster(first, (first, *members), tuple(sorted({member.work for member in (first, *members)})))


def _nearest(wordings: Sequence[_Wording], candidates: Sequence[_Wording]) -> list[LearningEntry | None]:
    """For each wording the candidate that is the same, None without one."""
    if any(wording.entries[0].about for wording in candidates):
        return [candidates[0].entries[0]] * len(wordings)
    same = {normalise(wording.text): wording.entries[0] for wording in reversed(candidates)}
    nearest = [same.get(normalise(wording.text)) for wording in wordings]
    candidate_places = [at for at, entry in enumerate(candidates) if entry.vector is not None]
    open_places = [at for at, entry in enumerate(wordings) if entry.vector is not None and nearest[at] is None]
    if candidate_places and open_places:
        right, opposites = _matrix(candidates, candidate_places), _sides(candidates, candidate_places)
        for start in range(0, len(open_places), BATCH_ROWS):
            rows = open_places[start : start + BATCH_ROWS]
            products, own = _matrix(wordings, rows) @ right.T, _sides(wordings, rows)
            for row, at in enumerate(rows):
                product = products[row]
                product[(opposites * own[row] < 0).any(axis=1)] = -1.0
                best = int(product.argmax())
                if product[best] >= MIN_SIMILARITY - ROUNDING:
                    nearest[at] = candidates[candidate_places[best]].entries[0]
    return nearest


def _sides(wordings: Sequence[_Wording], indexes: Sequence[int]) -> Any:
    """The sides of the wordings in each pair of opposites, a row each; the product of two rows is negative where they
    contradict each other."""
    import numpy

    return numpy.array([sides(wordings[at].text) for at in indexes], dtype=numpy.int8).reshape(len(indexes), AXES)


def _matrix(wordings: Sequence[_Wording], indexes: Sequence[int]) -> Any:
    import numpy

    joined = b"".join(wordings[at].vector or b"" for at in indexes)
    return numpy.frombuffer(joined, dtype="<f4").reshape(len(indexes), -1)
