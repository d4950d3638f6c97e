"""Computes how often a project is released, and whether the next release is due. Pure."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from math import fsum, inf, log, sqrt
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.commits import tags_by_commit
from engine.model import Refusal
from engine.statistics import wilson_lower_bound

# Reads the files that past commits changed and deleted. `co_changes` and `releases` compute the habits of a project
# from these values.


logger = logging.getLogger(__name__)

MAX_COMMITS = 3_000
"""Maximum number of commits that are read, the newest. What is older says little about the habits of today."""

_HEADER = "\x01"


@frozen
class Change:
    """One commit: `at` in seconds since 1970 (committed), how many parents it has, and the files in which it differs
    from its only parent, sorted. A merge has no files of its own. `deleted`: those of `files` that it deleted. `tags`
    are the names of the tags on it."""

    id: str
    at: int
    parents: int
    subject: str
    files: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def read_history(git: Git, head: str = "HEAD", limit: int = MAX_COMMITS) -> tuple[Change, ...]:
    """The newest `limit` commits of `head`, oldest first. A renamed file is a deleted one and a new one.
    Raises `GitError`, also where there is no commit yet."""
    tags = tags_by_commit(git)
    output = git.output(
        "log", "-z", f"-n{limit}", "--no-renames", "--name-status", "--no-show-signature",
        f"--format={_HEADER}%H%x00%ct%x00%P%x00%s", head, "--",
    )  # fmt: skip
    words = iter(output.decode(errors="surrogateescape").split("\0"))
    return tuple(reversed(list(_changes(words, tags))))


def _changes(words: Iterator[str], tags: dict[str, list[str]]) -> Iterator[Change]:
    """The commits in what git printed: four words a commit, then two a file: what was done to it, and its path."""
    word = next(words, "")
    while word.startswith(_HEADER):
        commit = word.removeprefix(_HEADER)
        at, parents, subject = next(words), next(words), next(words)
        files, deleted = [], []
        for word in words:
            if word.startswith(_HEADER):
                break
            if status := word.strip():  # the first one of a commit stands on a line of its own
                files.append(next(words))
                deleted += files[-1:] if status == "D" else []
        else:
            word = ""
        yield Change(
            commit, int(at), len(parents.split()), subject,
            tuple(sorted(files)), tuple(sorted(deleted)), tuple(tags.get(commit, ())),
        )  # fmt: skip


def deleted_files(workspace: str, paths: Sequence[str]) -> list[str]:
    """The paths that the repository had once and the folder has no longer; [] where git cannot say."""
    folder = Path(workspace)
    try:
        git = Git(folder, timeout=5)
        missing = [path for path in paths if not (folder / path).exists()]
        return [path for path in missing if git.text("log", "-1", "--format=%H", "HEAD", "--", f":(literal){path}")]
    except Refusal as refusal:
        logger.warning("%s was not searched for missing files: %s", workspace, refusal)
        return []


# Finds files that usually change together. Pure.
#
# Two things are asked about a set of files that changed, and both must say yes. *Which files did similar commits
# change?* Past commits are weighed by their similarity to the set. The share of the weight whose commits had a further
# file is how likely that file is missing. *How strong is the tie?* Of the last commits in which one of the files
# changed, in how many did the further file change too? The lower Wilson bound counts, so that 3 of 3 is worth less than
# 12 of 12.
#
# The threshold of the score is the project's own: its last commits are scored as they were, and the threshold is
# set so high that few of them would have been called incomplete. It is low in a project of habits, and high elsewhere.


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


DAY: Final = 86_400

MIN_RELEASES: Final = 4
"""Fewer releases have no rhythm: the next is due when it is prepared."""

INTERVALS: Final = 12
"""The rhythm is that of the last so many intervals."""

OVERDUE_FACTOR: Final = 1.5
"""So many times the usual wait, and the usual number of commits, are well beyond the usual."""

_VERSION: Final = re.compile(r"(?:[\w-]*?[-_@/])?v?\d+(?:\.\d+)+(?:\.?post\d+)?", re.IGNORECASE)
_PREPARES_RELEASE: Final = re.compile(
    r"""(?ix) \s* (?: (?:chore|build|ci|feat|misc) (?:\([^)]*\))? !? :\s* )?
    (?: (?:prepare|cut|tag|make|start|begin)\b .* (?:\brelease\b|\bversion\b|\bv?\d+\.\d+)
      | (?:pre-?)?release\b (?: \s+ (?:version\s+)? v?\d+ | \s*$ | \s* :)
      | (?:bump|raise|set|update|increase|change)s?(?:ing|ped|d)? \b .* \bversion\b
      | bump\w* \s+ (?:to\s+)? v?\d+\.\d+ | version\b \s* v?\d | v?\d+(?:\.\d+)+ \S* \s* $ )"""
)
_BEGINS_DEVELOPMENT: Final = re.compile(r"(?i)\bdev(?:elop(?:ment)?)?\d*\b|-snapshot\b|^\s*(?:start|begin)\b|\bnext\b")


@frozen
class ReleaseRhythm:
    """How a project is released.

    `tag`: the newest release, `at` its second since 1970. `commits`: non-merge commits since. `usual_days`,
    `usual_commits`: the medians of its last intervals, infinite while there are fewer than `MIN_RELEASES` releases.
    `preparing`: the subject of a commit since that prepares a release, "" when there is none. `files` are all that
    changed since. `usual_files`: those that changed before at least half of its last releases; a change log that nobody
    keeps is not among them.
    """

    tag: str
    at: int
    commits: int
    usual_days: float
    usual_commits: float
    preparing: str
    files: frozenset[str]
    usual_files: frozenset[str]

    def days(self, now: float) -> float:
        """Days since the newest release at a second since 1970."""
        return max(0.0, now - self.at) / DAY

    def is_due(self, now: float) -> bool:
        """Whether a release is being prepared, or overdue at a second since 1970."""
        waited_long = self.days(now) >= OVERDUE_FACTOR * self.usual_days
        changed_much = self.commits >= max(1, OVERDUE_FACTOR * self.usual_commits)
        return bool(self.preparing) or (waited_long and changed_much)


def is_release_tag(tag: str) -> bool:
    """Whether a tag names a version and no pre-release: `v1.2.0`, `cart-2.0`, not `1.0rc1` or `nightly`."""
    return _VERSION.fullmatch(tag) is not None


def prepares_release(subject: str) -> bool:
    """Whether a commit of that subject prepares a release: `Bump version to 1.4.0`, `release: v2.0`. What begins the
    work on the next version does not: `Bump version to 1.5.dev`."""
    return _PREPARES_RELEASE.match(subject) is not None and _BEGINS_DEVELOPMENT.search(subject) is None


def _version_in(subject: str) -> str:
    """The version that a subject names, without the `v`; "" when it names none."""
    match = re.search(r"\d+(?:\.\d+)+", subject)
    return match[0] if match else ""


def release_rhythm(history: Sequence[Change]) -> ReleaseRhythm | None:
    """The rhythm up to the newest commit; None without a release."""
    releases: list[tuple[int, int, str, frozenset[str]]] = []  # non-merge commits up to it, second, tag, its files
    number = 0
    preparing = ""
    files: set[str] = set()
    versions: set[str] = set()  # a merge brings the commit that prepared a release after the release itself
    for change in history:
        number += change.parents < 2
        files.update(change.files)
        versions.update(map(_version_in, change.tags))
        if (
            change.parents < 2
            and prepares_release(change.subject)
            and _version_in(change.subject) not in versions - {""}
        ):
            preparing = change.subject
        tag = next(filter(is_release_tag, change.tags), "")
        if tag:
            releases.append((number, change.at, tag, frozenset(files)))
            preparing = ""
            files = set()
    if not releases:
        return None
    recent = releases[-INTERVALS - 1 :]
    pairs = list(pairwise(recent))
    is_regular = len(releases) >= MIN_RELEASES
    count, at, tag, _ = releases[-1]
    released_with = Counter(path for release in recent[-INTERVALS:] for path in release[3])
    return ReleaseRhythm(
        tag=tag,
        at=at,
        commits=number - count,
        usual_days=median(max(0, later[1] - earlier[1]) for earlier, later in pairs) / DAY if is_regular else inf,
        usual_commits=median(later[0] - earlier[0] for earlier, later in pairs) if is_regular else inf,
        preparing=preparing,
        files=frozenset(files),
        usual_files=frozenset(path for path, times in released_with.items() if 2 * times >= len(recent[-INTERVALS:])),
    )
