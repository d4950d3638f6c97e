"""Computes two habits of a project from its history: which files usually change together, and how it is released.

Cards are offered about a file that should have changed, too, and about a release that is due.

`GitReader` keeps both for a workspace. For example `cart.py` and `docs/cart.md` changed together in 9 of 10 commits,
and there was a release about every 14 days.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import PurePosixPath
from statistics import median

from engine.frozen import frozen
from engine.git.history import CommitChange
from engine.inference import compute_wilson_lower_bound

# -- files that usually change together


MAX_FILES_OF_COMMIT = 30
"""A commit of more files is called a sweep. It may come from a formatter, and shows no habit."""

MAX_CHANGED = 12
"""If more files than this have changed, no missing file is named."""

TIE_COMMITS = 20
"""Number of the last commits of a file from which its ties are computed."""

MIN_TIE = 0.8
"""A tie of at least this strength is a habit. The strength is the lower bound of the share of commits, at one standard
deviation, so that 4 of 4 or 12 of 13 are enough."""


@frozen
class Partner:
    """A file that usually changes together with the changed files."""

    path: str
    because: str
    """The file to which it is tied, or `folder/*.ending` for all files of that folder and ending."""
    together: int
    """Number of commits in which both changed."""
    of: int
    """Number of the last commits in which `because` changed, of which `together` are a part."""


class CoChanges:
    """Knows which files usually change together.

    A tie from one file to another is as strong as the share of the last commits of the first file in which the second
    one changed, too. The lower Wilson bound of that share is used, so that 3 of 3 is weaker than 12 of 12. Merges and
    sweeps are left out.
    """

    def __init__(self, history: Iterable[CommitChange]) -> None:
        changes = [change for change in history if change.parent_count < 2]
        self.length = len(changes)
        self._files = [
            frozenset(change.files) if len(change.files) <= MAX_FILES_OF_COMMIT else frozenset() for change in changes
        ]
        self._changed: defaultdict[str, list[int]] = defaultdict(list)
        for index, files in enumerate(self._files):
            for tie in _list_possible_ties(files):
                self._changed[tie].append(index)
        self._deleted = {path: path in change.deleted for change in changes for path in change.files}

    def find_missing_partner(self, files: Iterable[str], before: int | None = None) -> Partner | None:
        """The file that most likely should have changed with `files`; None if none is likely enough. Only the oldest
        `before` commits are used, by default all."""
        changed = frozenset(files)
        if len(changed) > MAX_CHANGED:
            return None
        known_commits = self.length if before is None else before
        likely: dict[tuple[float, bool], Partner] = {}
        for tie in sorted(_list_possible_ties(changed)):
            last = [index for index in self._changed[tie] if index < known_commits][-TIE_COMMITS:]
            counts = Counter(path for index in last for path in self._files[index] - changed if not self._deleted[path])
            for path, together in sorted(counts.items()):
                strength = compute_wilson_lower_bound(together, len(last), 1.0)
                if strength >= MIN_TIE:
                    likely.setdefault((strength, not is_group(tie)), Partner(path, tie, together, len(last)))
        return likely[max(likely)] if likely else None


def is_group(tie: str) -> bool:
    """Whether a tie is to all files of a folder with one ending, as in `docs/*.md`."""
    return tie.rpartition("/")[2].startswith("*")


def _list_possible_ties(paths: Iterable[str]) -> set[str]:
    """The starts of possible ties: each of these files, and the group of files with its folder and ending."""
    return {*paths, *(str(PurePosixPath(path).with_name(f"*{PurePosixPath(path).suffix}")) for path in paths)}


# -- releases


DAY_S = 86_400

MIN_RELEASES = 4
"""With fewer releases there is no rhythm. The next release is then due only when a commit prepares it."""

MAX_INTERVALS = 12
"""Number of the last intervals between releases from which the rhythm is computed."""

OVERDUE_FACTOR = 1.5
"""A release is overdue after this many times the usual days, and this many times the usual number of commits."""

_RELEASE_TAG = re.compile(r"(?:[\w-]*?[-_@/])?v?\d+(?:\.\d+)+(?:\.?post\d+)?", re.IGNORECASE)
"""A version with at least two numbers, perhaps after the name of a package."""
_PREPARES_RELEASE = re.compile(
    r"""(?ix) \s* (?: (?:chore|build|ci|feat|misc) (?:\([^)]*\))? !? :\s* )?
    (?: (?:prepare|cut|tag|make|start|begin)\b .* (?:\brelease\b|\bversion\b|\bv?\d+\.\d+)
      | (?:pre-?)?release\b (?: \s+ (?:version\s+)? v?\d+ | \s*$ | \s* :)
      | (?:bump|raise|set|update|increase|change)s?(?:ing|ped|d)? \b .* \bversion\b
      | bump\w* \s+ (?:to\s+)? v?\d+\.\d+ | version\b \s* v?\d | v?\d+(?:\.\d+)+ \S* \s* $ )"""
)
"""A subject that speaks of a release or of a new version."""
_BEGINS_DEVELOPMENT = re.compile(r"(?i)\bdev(?:elop(?:ment)?)?\d*\b|-snapshot\b|^\s*(?:start|begin)\b|\bnext\b")
"""A subject that speaks of the version after a release."""


@frozen
class ReleaseRhythm:
    """How a project is released."""

    tag: str
    """The newest release."""
    at: int
    """When it was made, in seconds since 1970."""
    commits: int
    """Number of commits since then, without merges."""
    usual_days: float
    """The median of the last intervals. Infinite with fewer than `MIN_RELEASES` releases."""
    usual_commits: float
    """The median of the commits in the last intervals. Infinite with fewer than `MIN_RELEASES` releases."""
    subjects: tuple[str, ...]
    """The subjects of these commits."""
    preparing: str
    """The subject of a commit since then that prepares a release, "" for none."""
    files: frozenset[str]
    """All files that have changed since then."""
    usual_files: frozenset[str]
    """The files that changed before at least half of the last releases. If the change log is not among them, nobody
    keeps it up to date."""

    def days(self, now: float) -> float:
        """Days since the newest release. `now` is in seconds since 1970."""
        return max(0.0, now - self.at) / DAY_S

    def is_due(self, now: float) -> bool:
        """Whether a release is being prepared, or is overdue. `now` is in seconds since 1970."""
        waited_long = self.days(now) >= OVERDUE_FACTOR * self.usual_days
        changed_much = self.commits >= max(1, OVERDUE_FACTOR * self.usual_commits)
        return bool(self.preparing) or (waited_long and changed_much)


def is_release_tag(tag: str) -> bool:
    """Whether a tag names a release: `v1.2.0` or `cart-2.0`, but not `1.0rc1` or `nightly`."""
    return _RELEASE_TAG.fullmatch(tag) is not None


def is_preparing_release(subject: str) -> bool:
    """Whether a commit with this subject prepares a release, as `Bump version to 1.4.0` or `release: v2.0` do. A commit
    that begins the next version does not, as `Bump version to 1.5.dev`."""
    return _PREPARES_RELEASE.match(subject) is not None and _BEGINS_DEVELOPMENT.search(subject) is None


def _find_version(subject: str) -> str:
    """The version that a subject names, without the `v`; "" when it names none."""
    match = re.search(r"\d+(?:\.\d+)+", subject)
    return match[0] if match else ""


@dataclass
class _Release:
    """A release, or what has been done towards the next one."""

    tag: str = ""
    """"" for one that was not made yet."""
    at: int = 0
    """Seconds since 1970."""
    commits: int = 0
    """Number of commits up to it, without merges."""
    subjects: list[str] = field(default_factory=list)
    """The subjects of the commits since the release before, without merges."""
    preparing: str = ""
    """The last of `subjects` that prepares a release, "" for none."""
    files: set[str] = field(default_factory=set)
    """The files that changed since the release before."""


def _divide_by_releases(history: Sequence[CommitChange]) -> list[_Release]:
    """The releases, and last what was done since the newest one. `history` begins with the oldest commit."""
    releases = [_Release()]
    versions: set[str] = set()  # because of merges, the commit that prepares a release may come after the release
    for change in history:
        release = releases[-1]
        release.files.update(change.files)
        versions.update(map(_find_version, change.tags))
        if change.parent_count < 2:
            release.commits += 1
            release.subjects.append(change.subject)
            if is_preparing_release(change.subject) and _find_version(change.subject) not in versions - {""}:
                release.preparing = change.subject
        release.tag = next(filter(is_release_tag, change.tags), "")
        if release.tag:
            release.at = change.committed
            releases.append(_Release(commits=release.commits))
    return releases


def measure_release_rhythm(history: Sequence[CommitChange]) -> ReleaseRhythm | None:
    """The rhythm up to the newest commit; None without a release. `history` begins with the oldest commit."""
    *releases, present = _divide_by_releases(history)
    if not releases:
        return None
    newest, compared = releases[-1], releases[-MAX_INTERVALS:]
    usual_seconds, usual_commits = _measure_usual_interval(releases)
    released_with = Counter(path for release in compared for path in release.files)
    return ReleaseRhythm(
        tag=newest.tag,
        at=newest.at,
        commits=present.commits - newest.commits,
        usual_days=usual_seconds / DAY_S,
        usual_commits=usual_commits,
        subjects=tuple(present.subjects),
        preparing=present.preparing,
        files=frozenset(present.files),
        usual_files=frozenset(path for path, times in released_with.items() if 2 * times >= len(compared)),
    )


def _measure_usual_interval(releases: Sequence[_Release]) -> tuple[float, float]:
    """The usual seconds and commits between two of the newest releases; infinite if there are too few releases."""
    if len(releases) < MIN_RELEASES:
        return inf, inf
    pairs = list(pairwise(releases[-MAX_INTERVALS - 1 :]))
    seconds = median(max(0, later.at - earlier.at) for earlier, later in pairs)
    return seconds, median(later.commits - earlier.commits for earlier, later in pairs)
