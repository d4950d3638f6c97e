"""The habits of a project, from its history: which files change together, how often it is released. Only `read_history`
asks git."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from pathlib import PurePosixPath
from statistics import median
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.commits import tags_by_commit
from engine.statistics import wilson_lower_bound

log = logging.getLogger(__name__)

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


MAX_FILES: Final = 30
"""A commit of more files is a sweep through the project (a rename, a formatter): it ties nothing together."""

MAX_CHANGED: Final = 12
"""With more changed files than this nothing is missing: such a change follows no habit."""

TIE_COMMITS: Final = 20
"""Number of the last commits of a file that a tie is computed from."""

MIN_TIE: Final = 0.8
"""The share of commits from which a tie is a habit, by its lower bound (one standard deviation): 4 of 4, 12 of 13."""


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


class CoChanges:
    """Which files usually change together: in how many of the last commits in which one changed did the other change,
    too? The lower Wilson bound counts, so that 3 of 3 is worth less than 12 of 12. Merges and sweeps are left out."""

    def __init__(self, history: Iterable[Change]) -> None:
        changes = [change for change in history if change.parents < 2]
        self.length = len(changes)
        self._files = [frozenset(change.files) if len(change.files) <= MAX_FILES else frozenset() for change in changes]
        self._changed: defaultdict[str, list[int]] = defaultdict(list)
        for index, files in enumerate(self._files):
            for mark in _marks(files):
                self._changed[mark].append(index)
        self._gone = {path: path in change.deleted for change in changes for path in change.files}

    def missing(self, files: Iterable[str], before: int | None = None) -> Partner | None:
        """The file that most likely ought to have changed with `files`; None when nothing is likely enough. `before`: a
        position among the commits, oldest first, of which only those before it are known; by default all."""
        present = frozenset(files)
        known = self.length if before is None else before
        ties: list[tuple[float, bool, Partner]] = []
        for mark in sorted(_marks(present)) if len(present) <= MAX_CHANGED else ():
            last = [index for index in self._changed[mark] if index < known][-TIE_COMMITS:]
            counts = Counter(path for index in last for path in self._files[index] - present if not self._gone[path])
            for path in sorted(counts):
                bound = wilson_lower_bound(counts[path], len(last), 1.0)
                ties.append((bound, not is_group(mark), Partner(path, mark, counts[path], len(last))))
        bound, _, partner = max(ties, key=lambda tie: tie[:2], default=(0.0, False, None))
        return partner if bound >= MIN_TIE else None


def is_group(mark: str) -> bool:
    """Whether a mark stands for the files of one folder with one ending, as in `docs/*.md`."""
    return mark.rpartition("/")[2].startswith("*")


def _marks(paths: Iterable[str]) -> set[str]:
    """What a file may be tied to: files, and for each its folder and ending."""
    return {
        mark for path in paths for mark in (path, str(PurePosixPath(path).with_name(f"*{PurePosixPath(path).suffix}")))
    }


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
