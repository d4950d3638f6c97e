"""Finds files that usually change together. Pure.

Two things are asked about a set of files that changed, and both must say yes. *How did commits like this one end?*
Past commits are weighed by how alike they are to the set; the share of the weight whose commits had a further file is
how likely that file is missing. *How firm is the tie?* Of the last commits in which one of the files changed, in how
many did the further file change too; the lower Wilson bound, so that 3 of 3 is worth less than 12 of 12.

How high the score must be to speak is the project's own: its last commits are asked as they were, and the bar is set so
high that few of them would have been called incomplete. A project of habits has a low bar, one without a high one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import fsum, log, sqrt
from operator import itemgetter
from typing import Final

from engine.frozen import frozen
from engine.git.history import Change
from engine.statistics import wilson_lower_bound

MAX_FILES: Final = 30
"""A commit of more files is a sweep through the project (a rename, a formatter): it ties nothing together."""

MAX_CHANGED: Final = 12
"""With more changed files than this nothing is missing: such a change follows no habit."""

MAX_COMMITS_BACK: Final = 1_000
"""Maximum number of commits to look back. Half of `history.MAX_COMMITS` at most, so that the bar can be found, too."""

HALF_LIFE: Final = 600
"""A commit counts half after so many others."""

MAX_OCCURRENCES: Final = 60
"""Of the commits in which a file changed the last so many are compared: `README.md` changed in thousands."""

TIE: Final = 20
"""The firmness of a tie is that of the last so many commits of a file."""

MIN_TOGETHER: Final = 3
"""Two commits are no habit."""

ALIKE: Final = 3
"""The exponent of likeness: a commit half as alike counts an eighth."""

DOUBT: Final = 0.5
"""The weight of half a commit just like this one that ended otherwise, put beside what was seen."""

FOLDER_WEIGHT: Final = 0.5
"""Weight of a shared folder and ending, relative to a shared file."""

ONE_SIGMA: Final = 1.0
"""The Wilson bound holds with 84 %."""

LOWEST_BAR: Final = 0.5
"""No score below it speaks, however regular the project."""

UNPROVEN_BAR: Final = 0.55
"""The bar while there are too few commits to set it by."""

FALSE_ALARMS: Final = 0.02
"""The bar is where this share of the project's own commits would have been called incomplete."""

JUDGED, MIN_JUDGED = 200, 50
"""The bar is set by the last so many commits of several files; there must be so many at least."""


@frozen
class Partner:
    """A file that usually changes with what changed: in `together` of the last `of` commits in which `because`
    changed, one of the files asked about or, as `folder/*.ending`, all that lie beside it and end alike."""

    path: str
    because: str
    together: int
    of: int
    score: float


class CoChanges:
    """The commits of a project, ready for questions. `before` in its methods is a position among its non-merge commits,
    oldest first: only those before it are known; by default all."""

    def __init__(self, history: Iterable[Change]) -> None:
        changes = [change for change in history if change.parents < 2]
        self.length = len(changes)
        self._files: list[frozenset[str]] = []
        self._marks: list[frozenset[str]] = []
        self._changed: defaultdict[str, list[int]] = defaultdict(list)  # where a mark changed, sweeps left out
        self._deleted: defaultdict[str, list[int]] = defaultdict(list)
        self._touched: defaultdict[str, list[int]] = defaultdict(list)
        self._scores: dict[int, float] = {}
        for index, change in enumerate(changes):
            for path in change.files:
                self._touched[path].append(index)
            for path in change.deleted:
                self._deleted[path].append(index)
            usual = 0 < len(change.files) <= MAX_FILES
            self._files.append(frozenset(change.files) if usual else frozenset())
            self._marks.append(_marks(change.files) if usual else frozenset())
            for mark in self._marks[-1]:
                self._changed[mark].append(index)

    def missing(self, files: Iterable[str], before: int | None = None) -> Partner | None:
        """The file that most likely ought to have changed with `files`; None when nothing is likely enough."""
        before = self.length if before is None else before
        partner = self.likeliest(files, before)
        return partner if partner is not None and partner.score >= self.bar(before) else None

    def bar(self, before: int | None = None) -> float:
        """The score from which a partner is named, in [`LOWEST_BAR`, 1]."""
        before = self.length if before is None else before
        scores: list[float] = []
        for index in range(before - 1, max(-1, before - 1 - MAX_COMMITS_BACK), -1):
            if 2 <= len(self._files[index]) <= MAX_CHANGED:
                scores.append(self._score(index))
                if len(scores) == JUDGED:
                    break
        if len(scores) < MIN_JUDGED:
            return UNPROVEN_BAR
        return max(LOWEST_BAR, sorted(scores)[-1 - int(FALSE_ALARMS * len(scores))])

    def _score(self, index: int) -> float:
        """How incomplete that commit looked when it was made."""
        if index not in self._scores:
            partner = self.likeliest(self._files[index], index)
            self._scores[index] = partner.score if partner is not None else 0.0
        return self._scores[index]

    def likeliest(self, files: Iterable[str], before: int) -> Partner | None:
        """The partner with the highest score, however low."""
        present = frozenset(files)
        if not 0 < len(present) <= MAX_CHANGED:
            return None
        marks = _marks(present)
        oldest = max(0, before - MAX_COMMITS_BACK)
        recent = {mark: self._recent(mark, oldest, before) for mark in marks}
        rarity = _Rarity(self._changed, oldest, before)
        whole = rarity.of(marks)
        total, ends = DOUBT, defaultdict[str, float](float)
        for index in sorted(set(chain.from_iterable(indexes[-MAX_OCCURRENCES:] for indexes in recent.values()))):
            others = self._files[index] - present
            shared, further = rarity.of(self._marks[index] & marks), rarity.of(self._marks[index] - marks)
            # One further file is what is asked for: it makes a commit no less alike. The weightiest, for each alike.
            least = max((rarity.of(_marks((path,)) - marks) for path in others), default=0.0)
            weight = (shared / (whole + max(0.0, further - least))) ** ALIKE * 0.5 ** ((before - index) / HALF_LIFE)
            total += weight
            for path in others:
                ends[path] += weight
        best: Partner | None = None
        for path, weight in sorted(sorted(ends.items()), key=itemgetter(1), reverse=True)[:3]:
            if self._is_gone(path, before):
                continue
            bound, _, because, together, of = max(self._ties(path, recent), default=(0.0, False, "", 0, 0))
            score = sqrt(weight / total * bound)
            if score > (best.score if best else 0.0):
                best = Partner(path, because, together, of, score)
        return best

    def _ties(self, path: str, recent: Mapping[str, Sequence[int]]) -> Iterator[tuple[float, bool, str, int, int]]:
        """The ties of `path` to each of the marks: the lower bound, whether the mark is one file, the mark, and in how
        many of how many commits they changed together."""
        for mark, indexes in recent.items():
            last = indexes[-TIE:]
            together = sum(path in self._files[index] for index in last)
            if together >= MIN_TOGETHER:
                bound = wilson_lower_bound(together, len(last), ONE_SIGMA)
                yield bound, not is_group(mark), mark, together, len(last)

    def _recent(self, mark: str, oldest: int, before: int) -> list[int]:
        indexes = self._changed.get(mark, [])
        return indexes[bisect_left(indexes, oldest) : bisect_left(indexes, before)]

    def _is_gone(self, path: str, before: int) -> bool:
        deletions, changes = self._deleted.get(path, []), self._touched[path]
        last = bisect_left(deletions, before)
        return last > 0 and deletions[last - 1] == changes[bisect_left(changes, before) - 1]


def is_group(mark: str) -> bool:
    """Whether a mark stands for the files of one folder with one ending, as in `docs/*.md`."""
    return mark.rpartition("/")[2].startswith("*")


def _marks(paths: Iterable[str]) -> frozenset[str]:
    """The marks by which a commit is compared: its files, and for each its folder and ending."""
    return frozenset(mark for path in paths for mark in (path, _group_of(path)))


@lru_cache(100_000)
def _group_of(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    return f"{folder}{slash}*{dot + ending if stem else ''}"


class _Rarity:
    """The weight of marks: what changes in every commit says little about one commit."""

    def __init__(self, changed: Mapping[str, Sequence[int]], oldest: int, before: int) -> None:
        self._changed, self._oldest, self._before = changed, oldest, before
        self._cache: dict[str, float] = {}

    def of(self, marks: Iterable[str]) -> float:
        """Of all the marks together, >= 0."""
        return fsum(self._cache.get(mark) or self._rarity(mark) for mark in marks)

    def _rarity(self, mark: str) -> float:
        indexes = self._changed.get(mark, ())
        count = bisect_left(indexes, self._before) - bisect_left(indexes, self._oldest)
        rarity = log(1 + (self._before - self._oldest) / (1 + count))
        self._cache[mark] = rarity * FOLDER_WEIGHT if is_group(mark) else rarity
        return self._cache[mark]
