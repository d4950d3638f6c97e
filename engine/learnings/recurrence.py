"""What recurs (SPEC 6.2): entries that say the same, over all sessions of a project. Pure.

Clusters are stars. Of all wordings the one whose likes came up in the most sessions is a centre (then the better
established one, then the first by its words), and every wording with a cosine of 0.8 or more to it is its member; of
what is left again. So every member is the same as the centre itself: none joins because it is like a member only, and
what is found depends on the entries alone, not on the order in which they come.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.learnings.sameness import AXES, DISTINCT_SESSIONS, THRESHOLD, Kin, folded, kin, ordered, sides
from engine.values import LearningEntry, LearningScope

ROWS = 1_024
"""So many wordings are compared with all others at once: 40 MB for 10,000."""

MOST_PAIRS = 10_000_000
"""So many likenesses are kept, 80 MB; where there are more they are found anew when they are wanted."""

SLACK = 1e-6
"""Float32 makes 0.8 of what is a hair less."""


class Meaning(Protocol):
    """Vectors of texts."""

    def vectors(self, texts: Sequence[str], /) -> Sequence[bytes | None]:
        """A unit vector (float32) for each, all of one length; None where there is none, which then is the same as its
        own words only."""


class NoMeaning:
    """Where there is no model."""

    def vectors(self, texts: Sequence[str], /) -> Sequence[bytes | None]:
        return [None] * len(texts)


@dataclass(frozen=True, slots=True)
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
    def standing(self) -> tuple[float, float]:
        """How well established it is, the best first when sorted."""
        return min((-one.confidence, -one.importance) for one in self.entries)

    @property
    def best(self) -> LearningEntry:
        """The best established one; of those the one that rose highest."""
        return min(
            self.entries, key=lambda one: (-one.confidence, -one.importance, one.scope is LearningScope.TEAM, one.id)
        )


def clusters(
    entries: Iterable[LearningEntry], meaning: Meaning, *, least: int = DISTINCT_SESSIONS, threshold: float = THRESHOLD
) -> list[Cluster]:
    """Clusters that came up in at least `least` distinct sessions, in an order that follows from what they say."""
    every = [
        wordings
        for wordings in _partitioned(entries).values()
        if len({one.work for wording in wordings for one in wording.entries}) >= least
    ]
    _give_vectors([one for wordings in every if len(wordings) > 1 for one in wordings], meaning)
    return [cluster for wordings in every for cluster in _stars(wordings, least, threshold)]


def matches(
    entries: Iterable[LearningEntry],
    known: Iterable[LearningEntry],
    meaning: Meaning,
    *,
    threshold: float = THRESHOLD,
) -> dict[str, LearningEntry]:
    """Which of the `known` each entry is the same as, the nearest one; by the entry's id, those without are left
    out."""
    at_home = _partitioned(known)
    pairs = [(some, at_home[relation]) for relation, some in _partitioned(entries).items() if relation in at_home]
    _give_vectors([one for some, candidates in pairs for one in (*some, *candidates)], meaning)
    found: dict[str, LearningEntry] = {}
    for wordings, candidates in pairs:
        for wording, best in zip(wordings, _nearest(wordings, candidates, threshold), strict=True):
            if best is not None:
                found |= {one.id: best for one in wording.entries}
    return found


def _partitioned(entries: Iterable[LearningEntry]) -> dict[Kin, list[_Wording]]:
    """Wordings by kin, in their order."""
    grouped: dict[Kin, dict[str, _Wording]] = defaultdict(dict)
    for one in ordered(entries):
        relation = kin(one)
        words = "" if relation.about else folded(one.text)
        grouped[relation].setdefault(words, _Wording([])).entries.append(one)
    return {relation: list(group.values()) for relation, group in grouped.items()}


def _give_vectors(wordings: Sequence[_Wording], meaning: Meaning) -> None:
    """The vectors of wordings that are compared by meaning: no others are asked for."""
    compared = [one for one in wordings if not one.entries[0].about]
    if compared:
        for wording, vector in zip(compared, meaning.vectors([one.text for one in compared]), strict=True):
            wording.vector = vector


def _stars(wordings: Sequence[_Wording], least: int, threshold: float) -> list[Cluster]:
    import numpy

    space = _Space(wordings, threshold)
    numbers = {name: at for at, name in enumerate(sorted({e.work for w in wordings for e in w.entries}))}
    said = numpy.zeros((len(wordings), len(numbers)), dtype=bool)
    for at, wording in enumerate(wordings):
        said[at, [numbers[one.work] for one in wording.entries]] = True
    left = numpy.ones(len(wordings), dtype=bool)
    # No wording has more sessions than its likes have entries: it is counted when it is its turn.
    entries = numpy.array([len(one.entries) for one in wordings])
    bounds = [int(entries[space.near(at)].sum()) if space.listed else len(numbers) for at in range(len(wordings))]
    queue = [(-bound, *wordings[at].standing, at) for at, bound in enumerate(bounds) if bound >= least]
    heapq.heapify(queue)
    found = []
    while queue:
        bound, confidence, importance, at = heapq.heappop(queue)
        if not left[at]:
            continue
        near = space.near(at)
        near = near[left[near]]
        count = int(said[near].any(axis=0).sum())
        if count < least:
            continue
        if count < -bound:  # perhaps there is a greater one
            heapq.heappush(queue, (-count, confidence, importance, at))
            continue
        left[near] = False
        found.append(_cluster(wordings[at], [wordings[i] for i in near.tolist() if i != at]))
    return found


def _cluster(centre: _Wording, others: Sequence[_Wording]) -> Cluster:
    first = centre.best
    members = [one for wording in (centre, *others) for one in ordered(wording.entries) if one is not first]
    return Cluster(first, (first, *members), tuple(sorted({one.work for one in (first, *members)})))


def _nearest(wordings: Sequence[_Wording], known: Sequence[_Wording], threshold: float) -> list[LearningEntry | None]:
    """For each wording the known one that it is the same as."""
    same = {folded(one.text): one.entries[0] for one in reversed(known)}
    if any(one.entries[0].about for one in known):
        return [known[0].entries[0]] * len(wordings)
    found = [same.get(folded(one.text)) for one in wordings]
    theirs = [one for one in known if one.vector is not None]
    ours = [at for at, one in enumerate(wordings) if one.vector is not None and found[at] is None]
    if theirs and ours:
        right, their_sides = _matrix(theirs), _sides(theirs)
        for start in range(0, len(ours), ROWS):
            some = ours[start : start + ROWS]
            left = [wordings[at] for at in some]
            products = _matrix(left) @ right.T
            products[_opposed(_sides(left), their_sides)] = -1.0
            best = products.argmax(axis=1)
            for row, at in enumerate(some):
                if products[row, best[row]] >= threshold - SLACK:
                    found[at] = theirs[int(best[row])].entries[0]
    return found


class _Space:
    """The vectors of some wordings, and which are near which: as lists where they are short enough to be kept."""

    def __init__(self, wordings: Sequence[_Wording], threshold: float) -> None:
        import numpy

        self._least = threshold - SLACK
        self._places = numpy.array([at for at, one in enumerate(wordings) if one.vector is not None], dtype=numpy.int64)
        self._rows: Mapping[int, int] = {int(at): row for row, at in enumerate(self._places)}
        self._matrix = _matrix([wordings[at] for at in self._places.tolist()]) if len(self._places) else None
        self._sides = _sides([wordings[at] for at in self._places.tolist()])
        self._starts, self._lists = self._all()

    @property
    def listed(self) -> bool:
        """Whether looking up what is near costs nothing."""
        return self._lists is not None

    def near(self, at: int) -> Any:
        """The places of the wordings that are the same as one, itself with them, in order."""
        import numpy

        row = self._rows.get(at)
        if row is None:
            return numpy.array([at], dtype=numpy.int64)
        if self._lists is not None:
            return self._lists[self._starts[row] : self._starts[row + 1]]
        assert self._matrix is not None
        mask = self._matrix @ self._matrix[row] >= self._least
        mask &= ~_opposed(self._sides[row : row + 1], self._sides)[0]
        mask[row] = True
        return self._places[mask]

    def _all(self) -> tuple[Any, Any]:
        """For each row where its list begins, and the lists; None when they are too long together. Each pair is
        compared once."""
        import numpy

        size = len(self._places)
        rows, columns, total = [numpy.arange(size)], [numpy.arange(size)], size
        for start in range(0, size, ROWS):
            assert self._matrix is not None
            products = self._matrix[start : start + ROWS] @ self._matrix[start:].T
            row, column = numpy.nonzero(numpy.triu(products >= self._least, 1))
            total += 2 * len(row)
            if total > MOST_PAIRS:
                return None, None
            row, column = row + start, column + start
            same = (self._sides[row] * self._sides[column] >= 0).all(axis=1)
            rows += [row[same], column[same]]
            columns += [column[same], row[same]]
        row, column = numpy.concatenate(rows), numpy.concatenate(columns)
        order = numpy.lexsort((column, row))
        starts = numpy.searchsorted(row[order], numpy.arange(size + 1))
        return starts, self._places[column[order]]


def _sides(wordings: Sequence[_Wording]) -> Any:
    """On which side of each pair of opposites the wordings are, a row for each."""
    import numpy

    return numpy.array([sides(one.text) for one in wordings], dtype=numpy.int8).reshape(len(wordings), AXES)


def _opposed(left: Any, right: Any) -> Any:
    """For each of the left and each of the right whether one says the opposite of the other."""
    first, second = (left > 0).astype("float32"), (left < 0).astype("float32")
    return (first @ (right < 0).astype("float32").T + second @ (right > 0).astype("float32").T) > 0


def _matrix(wordings: Sequence[_Wording]) -> Any:
    import numpy

    joined = b"".join(one.vector or b"" for one in wordings)
    return numpy.frombuffer(joined, dtype="<f4").reshape(len(wordings), -1)
