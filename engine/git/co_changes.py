"""Finds files that usually change together. Pure.

Two things are asked about a set of files that changed, and both must say yes. *Which files did similar commits change?*
Past commits are weighed by their similarity to the set. The share of the weight whose commits had a further file is
how likely that file is missing. *How strong is the tie?* Of the last commits in which one of the files changed, in how
many did the further file change too? The lower Wilson bound counts, so that 3 of 3 is worth less than 12 of 12.

The threshold of the score is the project's own: its last commits are scored as they were, and the threshold is
set so high that few of them would have been called incomplete. It is low in a project of habits, and high elsewhere.
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
"""Maximum number of commits to look back. At most half of `history.MAX_COMMITS`: the threshold looks back as far."""

HALF_LIFE: Final = 600
"""A commit counts half after so many others."""

MAX_OCCURRENCES: Final = 60
"""Of the commits in which a file changed the last so many are compared: `README.md` changed in thousands."""

TIE_COMMITS: Final = 20
"""Number of the last commits of a file that a tie is computed from."""

MIN_TOGETHER: Final = 3
"""Minimum number of commits in which two files changed together: two are no habit."""

SIMILARITY_EXPONENT: Final = 3
"""A commit of half the similarity counts an eighth."""

PRIOR_WEIGHT: Final = 0.5
"""Weight against every partner, as of half a commit of the same files without it."""

FOLDER_WEIGHT: Final = 0.5
"""Weight of a shared folder and ending, relative to a shared file."""

ONE_SIGMA: Final = 1.0
"""Standard deviations of the Wilson bound, which then holds with 84 %."""

MIN_THRESHOLD: Final = 0.5
"""Minimum score of a partner that is named, however regular the project."""

DEFAULT_THRESHOLD: Final = 0.55
"""Threshold while there are too few commits to compute it from."""

FALSE_ALARM_RATE: Final = 0.02
"""Share of the project's own commits that the threshold would have called incomplete."""

CALIBRATION_COMMITS: Final = 200
"""Number of the last commits of several files that the threshold is computed from."""

MIN_CALIBRATION_COMMITS: Final = 50
"""Minimum number of them; with fewer the threshold is `DEFAULT_THRESHOLD`."""


@frozen
class Partner:
    """A file that usually changes with what changed."""

    path: str
    because: str
    """The file that it is tied to, or as `folder/*.ending` all files of that folder and ending."""
    together: int
    """Number of commits in which both changed."""
    of: int
    """Number of the last commits in which `because` changed."""
    score: float


@frozen
class _Tie:
    """How often a path changed together with a mark, see `Partner`."""

    bound: float
    """The lower Wilson bound."""
    mark: str
    together: int
    of: int

    @property
    def order(self) -> tuple[float, bool, str]:
        """Sorts the strongest last; at the same bound a single file is stronger than a group."""
        return self.bound, not is_group(self.mark), self.mark


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
            is_sweep = not 0 < len(change.files) <= MAX_FILES
            self._files.append(frozenset(change.files) if not is_sweep else frozenset())
            self._marks.append(_marks(change.files) if not is_sweep else frozenset())
            for mark in self._marks[-1]:
                self._changed[mark].append(index)

    def missing(self, files: Iterable[str], before: int | None = None) -> Partner | None:
        """The file that most likely ought to have changed with `files`; None when nothing is likely enough."""
        before = self.length if before is None else before
        partner = self.best_partner(files, before)
        return partner if partner is not None and partner.score >= self.threshold(before) else None

    def threshold(self, before: int | None = None) -> float:
        """The minimum score of a partner that is named, in [`MIN_THRESHOLD`, 1]."""
        before = self.length if before is None else before
        scores: list[float] = []
        for index in range(before - 1, max(-1, before - 1 - MAX_COMMITS_BACK), -1):
            if 2 <= len(self._files[index]) <= MAX_CHANGED:
                scores.append(self._score(index))
                if len(scores) == CALIBRATION_COMMITS:
                    break
        if len(scores) < MIN_CALIBRATION_COMMITS:
            return DEFAULT_THRESHOLD
        return max(MIN_THRESHOLD, sorted(scores)[-1 - int(FALSE_ALARM_RATE * len(scores))])

    def _score(self, index: int) -> float:
        """How incomplete that commit looked when it was made."""
        if index not in self._scores:
            partner = self.best_partner(self._files[index], index)
            self._scores[index] = partner.score if partner is not None else 0.0
        return self._scores[index]

    def best_partner(self, files: Iterable[str], before: int) -> Partner | None:
        """The partner with the highest score, however low."""
        present = frozenset(files)
        if not 0 < len(present) <= MAX_CHANGED:
            return None
        oldest = max(0, before - MAX_COMMITS_BACK)
        recent = {mark: self._recent(mark, oldest, before) for mark in _marks(present)}
        best: Partner | None = None
        shares = self._likelihoods(present, recent, oldest, before)
        for path, share in sorted(sorted(shares.items()), key=itemgetter(1), reverse=True)[:3]:
            tie = max(self._ties(path, recent), key=lambda tie: tie.order, default=None)
            if tie is None or self._is_gone(path, before):
                continue
            score = sqrt(share * tie.bound)
            if score > (best.score if best else 0.0):
                best = Partner(path, tie.mark, tie.together, tie.of, score)
        return best

    def _likelihoods(
        self, present: frozenset[str], recent: Mapping[str, Sequence[int]], oldest: int, before: int
    ) -> dict[str, float]:
        """Each file that similar commits changed too, with the share of their weight, in (0, 1)."""
        marks = frozenset(recent)
        rarity = _Rarity(self._changed, oldest, before)
        whole = rarity.of(marks)
        total = PRIOR_WEIGHT
        weights: defaultdict[str, float] = defaultdict(float)
        for index in sorted(set(chain.from_iterable(indexes[-MAX_OCCURRENCES:] for indexes in recent.values()))):
            others = self._files[index] - present
            shared, further = rarity.of(self._marks[index] & marks), rarity.of(self._marks[index] - marks)
            # One further file is what is asked for: it makes a commit no less similar. The rarest, the same for each.
            rarest = max((rarity.of(_marks((path,)) - marks) for path in others), default=0.0)
            similarity = shared / (whole + max(0.0, further - rarest))
            weight = similarity**SIMILARITY_EXPONENT * 0.5 ** ((before - index) / HALF_LIFE)
            total += weight
            for path in others:
                weights[path] += weight
        return {path: weight / total for path, weight in weights.items()}

    def _ties(self, path: str, recent: Mapping[str, Sequence[int]]) -> Iterator[_Tie]:
        """The ties of `path` to each of the marks."""
        for mark, indexes in recent.items():
            last = indexes[-TIE_COMMITS:]
            together = sum(path in self._files[index] for index in last)
            if together >= MIN_TOGETHER:
                yield _Tie(wilson_lower_bound(together, len(last), ONE_SIGMA), mark, together, len(last))

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
