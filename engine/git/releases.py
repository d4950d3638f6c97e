"""Computes how often a project is released, and whether the next release is due. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from statistics import median
from typing import Final

from engine.frozen import frozen
from engine.git.history import Change

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
