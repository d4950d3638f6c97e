"""Finds entries that say the same across the sessions of a project (SPEC 6.2).

Entries made by rules are the same if their `about` is. All others are compared by meaning where there are vectors,
else by their exact words. Entries that name different files, tests, options or numbers, or of which one negates or
contradicts the other (keep and drop, staging and production), are never the same.

Clusters are stars: the wording whose neighbours occur in most sessions becomes a centre (then the most certain, then
the first by its words), and every wording with a cosine of 0.8 or more to it is a member; then the rest again. The
result does not depend on the order of the entries. `StoredVectors` makes each vector once.
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
from engine.model.lessons import folded
from engine.storage.database import Database

THRESHOLD = 0.8
"""Two entries are the same from this cosine on (SPEC 6.2)."""

DISTINCT_SESSIONS = 3
"""In so many sessions a thing must have come up before it becomes the project's (SPEC 6.2)."""

KEPT = 20_000
"""Texts of which it is remembered what they name: each is looked at several times in a row."""

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
"""What says the one thing, and what its opposite."""

AXES = len(_OPPOSITES)
_SIDES = {
    word: (axis, side)
    for axis, pair in enumerate(_OPPOSITES)
    for side, words in zip((1, -1), pair, strict=True)
    for word in words.split()
}


@frozen
class ComparisonKey:
    """Entries can only be the same within one of these."""

    kind: LearningKind
    type: LearningType
    about: str
    names: frozenset[str]
    negative: bool
    quoted: bool


def comparison_key(entry: LearningEntry) -> ComparisonKey:
    """Which entries this one could be the same as. Quotes are counted with quotes only: a tool that repeats what the
    operator says adds no weight to it, and takes none away."""
    quoted = entry.trust is Trust.QUOTED
    if entry.about:
        return ComparisonKey(entry.kind, entry.type, entry.about, frozenset(), False, quoted)
    return ComparisonKey(entry.kind, entry.type, "", names(entry.text), _negative(entry.text), quoted)


@lru_cache(KEPT)
def _negative(text: str) -> bool:
    return _NOT.search(text) is not None


@lru_cache(KEPT)
def names(text: str) -> frozenset[str]:
    """What a text names that is no ordinary word: files, tests, options, numbers."""
    return frozenset(name.strip("./").lower() for name in _NAMES.findall(text)) - _WORDS


@lru_cache(KEPT)
def sides(text: str) -> tuple[int, ...]:
    """On which side of each pair of opposites a text is: 1 or -1, 0 for neither or both. Two that are on different
    sides of any are not the same."""
    sides_by_axis: dict[int, set[int]] = {}
    for word in re.findall(r"[a-z-]+", text.casefold()):
        if word in _SIDES:
            axis, side = _SIDES[word]
            sides_by_axis.setdefault(axis, set()).add(side)
    return tuple(sum(sides_by_axis.get(axis, ())) for axis in range(AXES))


def ordered(entries: Iterable[LearningEntry]) -> list[LearningEntry]:
    """In an order that follows from what they are, not from how they came."""
    return sorted(
        entries, key=lambda entry: (entry.kind.value, entry.type.value, entry.about, folded(entry.text), entry.id)
    )


ROWS = 1_024
"""Number of wordings that are compared with all others at once: 40 MB for 10,000."""

SLACK = 1e-6
"""Float32 makes 0.8 of what is a hair less."""

Vectors = Callable[[Sequence[str]], Sequence[bytes | None]]
"""A unit vector (float32) for each text, all of one length; None where there is none, which then is the same as its own
words only."""


@frozen
class Cluster:
    """Entries that say the same. `centre` is the one whose words it goes by; `members` has it first, then the others
    in their order; `sessions` are distinct pieces of work, sorted."""

    centre: LearningEntry
    members: tuple[LearningEntry, ...]
    sessions: tuple[str, ...]


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
        """The best established one; of those the one that rose highest."""
        return min(
            self.entries,
            key=lambda entry: (-entry.confidence, -entry.importance, entry.scope is LearningScope.TEAM, entry.id),
        )


def clusters(
    entries: Iterable[LearningEntry], vectors: Vectors, *, min_sessions: int = DISTINCT_SESSIONS
) -> list[Cluster]:
    """Clusters that came up in at least `min_sessions` distinct sessions, in an order that follows from what they
    say."""
    partitions = [
        wordings
        for wordings in _partitioned(entries).values()
        if len({entry.work for wording in wordings for entry in wording.entries}) >= min_sessions
    ]
    _give_vectors([wording for wordings in partitions if len(wordings) > 1 for wording in wordings], vectors)
    return [cluster for wordings in partitions for cluster in _stars(wordings, min_sessions)]


def matches(
    entries: Iterable[LearningEntry], candidates: Iterable[LearningEntry], vectors: Vectors
) -> dict[str, LearningEntry]:
    """Which of the `candidates` each entry is the same as, the nearest one; by the entry's id, those without are left
    out."""
    by_key = _partitioned(candidates)
    pairs = [(wordings, by_key[relation]) for relation, wordings in _partitioned(entries).items() if relation in by_key]
    _give_vectors([wording for wordings, others in pairs for wording in (*wordings, *others)], vectors)
    matched: dict[str, LearningEntry] = {}
    for wordings, others in pairs:
        for wording, best in zip(wordings, _nearest(wordings, others), strict=True):
            if best is not None:
                matched |= {entry.id: best for entry in wording.entries}
    return matched


def _partitioned(entries: Iterable[LearningEntry]) -> dict[ComparisonKey, list[_Wording]]:
    """Wordings by what they may be compared with, in their order."""
    grouped: dict[ComparisonKey, dict[str, _Wording]] = defaultdict(dict)
    for entry in ordered(entries):
        relation = comparison_key(entry)
        words = "" if relation.about else folded(entry.text)
        grouped[relation].setdefault(words, _Wording([])).entries.append(entry)
    return {relation: list(group.values()) for relation, group in grouped.items()}


def _give_vectors(wordings: Sequence[_Wording], vectors: Vectors) -> None:
    """The vectors of wordings that are compared by meaning: no others are asked for."""
    compared = [wording for wording in wordings if not wording.entries[0].about]
    if compared:
        for wording, vector in zip(compared, vectors([each.text for each in compared]), strict=True):
            wording.vector = vector


def _stars(wordings: Sequence[_Wording], min_sessions: int) -> list[Cluster]:
    import numpy

    near = _near(wordings)
    works = [{entry.work for entry in wording.entries} for wording in wordings]
    # No wording has more sessions than its likes have entries: it is counted when it is its turn.
    entries = numpy.array([len(wording.entries) for wording in wordings])
    free = numpy.ones(len(wordings), dtype=bool)

    def place(at: int, bound: int) -> tuple[int, float, float, int]:
        best = wordings[at].best
        return -bound, -best.confidence, -best.importance, at

    bounds = ((at, int(entries[near[at]].sum())) for at in range(len(wordings)))
    queue = [place(at, bound) for at, bound in bounds if bound >= min_sessions]
    heapq.heapify(queue)
    stars = []
    while queue:
        bound, *_, at = heapq.heappop(queue)
        if not free[at]:
            continue
        members = [int(place) for place in near[at] if free[place]]
        count = len(set().union(*(works[member] for member in members)))
        if count < min_sessions:
            continue
        if count < -bound:  # perhaps there is a greater one
            heapq.heappush(queue, place(at, count))
            continue
        free[members] = False
        stars.append(_cluster(wordings[at], [wordings[member] for member in members if member != at]))
    return stars


def _near(wordings: Sequence[_Wording]) -> list[Any]:
    """For each wording the places of those that are the same as it, itself with them, in order."""
    import numpy

    near = [numpy.array([at]) for at in range(len(wordings))]
    places = [at for at, entry in enumerate(wordings) if entry.vector is not None]
    if not places:
        return near
    matrix, opposites = _matrix(wordings, places), _sides(wordings, places)
    at_home = numpy.array(places)
    for start in range(0, len(places), ROWS):
        rows = slice(start, start + ROWS)
        same = matrix[rows] @ matrix.T >= THRESHOLD - SLACK
        for row in range(len(same)):
            like = numpy.flatnonzero(same[row])
            like = like[(opposites[like] * opposites[start + row] >= 0).all(axis=1)]
            near[places[start + row]] = numpy.union1d(at_home[like], [places[start + row]])
    return near


def _cluster(centre: _Wording, others: Sequence[_Wording]) -> Cluster:
    first = centre.best
    members = [entry for wording in (centre, *others) for entry in ordered(wording.entries) if entry is not first]
    return Cluster(first, (first, *members), tuple(sorted({member.work for member in (first, *members)})))


def _nearest(wordings: Sequence[_Wording], candidates: Sequence[_Wording]) -> list[LearningEntry | None]:
    """For each wording the known one that it is the same as."""
    if any(wording.entries[0].about for wording in candidates):
        return [candidates[0].entries[0]] * len(wordings)
    same = {folded(wording.text): wording.entries[0] for wording in reversed(candidates)}
    nearest = [same.get(folded(wording.text)) for wording in wordings]
    candidate_places = [at for at, entry in enumerate(candidates) if entry.vector is not None]
    open_places = [at for at, entry in enumerate(wordings) if entry.vector is not None and nearest[at] is None]
    if candidate_places and open_places:
        right, opposites = _matrix(candidates, candidate_places), _sides(candidates, candidate_places)
        for start in range(0, len(open_places), ROWS):
            rows = open_places[start : start + ROWS]
            products, own = _matrix(wordings, rows) @ right.T, _sides(wordings, rows)
            for row, at in enumerate(rows):
                product = products[row]
                product[(opposites * own[row] < 0).any(axis=1)] = -1.0
                best = int(product.argmax())
                if product[best] >= THRESHOLD - SLACK:
                    nearest[at] = candidates[candidate_places[best]].entries[0]
    return nearest


def _sides(wordings: Sequence[_Wording], places: Sequence[int]) -> Any:
    """On which side of each pair of opposites the wordings are, a row for each; the product of two rows is negative
    where one says the opposite of the other."""
    import numpy

    return numpy.array([sides(wordings[at].text) for at in places], dtype=numpy.int8).reshape(len(places), AXES)


def _matrix(wordings: Sequence[_Wording], places: Sequence[int]) -> Any:
    import numpy

    joined = b"".join(wordings[at].vector or b"" for at in places)
    return numpy.frombuffer(joined, dtype="<f4").reshape(len(places), -1)


log = logging.getLogger(__name__)

PAGE = 400
"""Texts that are looked up, or made, at once."""

Make = Callable[[Sequence[str]], Sequence[bytes] | None]
"""Makes unit vectors of texts; None when none can be made now."""


class StoredVectors:
    """Vectors out of the database, and new ones into it. From any thread."""

    def __init__(self, database: Database, make: Make, model: Callable[[], str]) -> None:
        """`model` names what `make` makes: vectors of different models are never compared."""
        self._database = database
        self._make = make
        self._model = model

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        """See `recurrence.Vectors`."""
        model = self._model()
        digests = {text: text_digest(text) for text in texts}
        by_digest = self._stored(model, list(digests.values()))
        missing = [text for text, digest in digests.items() if digest not in by_digest]
        for start in range(0, len(missing), PAGE):
            page = missing[start : start + PAGE]
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
        """Drop the vectors of these texts, whatever model made them."""
        digests = [text_digest(text) for text in texts]
        if digests:
            self._database.write(
                lambda tx: tx.session.exec(delete(LearningVector).where(col(LearningVector.digest).in_(digests)))
            )

    def _stored(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        by_digest: dict[str, bytes] = {}
        with self._database.read() as session:
            for start in range(0, len(digests), PAGE):
                query = select(LearningVector.digest, LearningVector.vector).where(
                    col(LearningVector.model) == model,
                    col(LearningVector.digest).in_(digests[start : start + PAGE]),
                )
                by_digest |= dict(session.exec(query).all())
        return by_digest


def text_digest(text: str) -> str:
    """Names a text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
