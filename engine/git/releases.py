"""When a project is released, by its own rhythm. Pure: values in, values out.

A release is a tag that names a version and no pre-release. The gaps between releases differ widely in most projects,
so that one is called due only when the wait and the work since the last are both well beyond the usual, or when a
commit has prepared it: that says most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import median
from typing import Final

from engine.git.history import Change

DAY: Final = 86_400

FEWEST: Final = 4
"""Fewer releases have no rhythm: the next is due when it is prepared."""

LAST: Final = 12
"""The rhythm is that of the last so many intervals."""

LATE: Final = 1.5
"""So many times the usual wait, and the usual number of commits, are well beyond the usual."""

_VERSION: Final = re.compile(r"(?:[\w-]*?[-_@/])?v?\d+(?:\.\d+)+(?:\.?post\d+)?", re.IGNORECASE)
_PREPARES: Final = re.compile(
    r"""(?ix) \s* (?: (?:chore|build|ci|feat|misc) (?:\([^)]*\))? !? :\s* )?
    (?: (?:prepare|cut|tag|make|start|begin)\b .* (?:\brelease\b|\bversion\b|\bv?\d+\.\d+)
      | (?:pre-?)?release\b (?: \s+ (?:version\s+)? v?\d+ | \s*$ | \s* :)
      | (?:bump|raise|set|update|increase|change)s?(?:ing|ped|d)? \b .* \bversion\b
      | bump\w* \s+ (?:to\s+)? v?\d+\.\d+ | version\b \s* v?\d | v?\d+(?:\.\d+)+ \S* \s* $ )"""
)
_DEVELOPS: Final = re.compile(r"(?i)\bdev(?:elop(?:ment)?)?\d*\b|-snapshot\b|^\s*(?:start|begin)\b|\bnext\b")


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a project is released. `tag`: the newest release, `at` its second since 1970. `commits`: how many non-merge
    commits there are since. `usual_days`, `usual_commits`: the medians of its last intervals, infinite while there are
    fewer than `FEWEST` releases. `preparing`: the subject of a commit since that prepares a release, "" when there is
    none. `files` are all that changed since. `usual_files`: those that changed before at least half of its last
    releases; a change log that nobody keeps is not among them."""

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

    def due(self, now: float) -> bool:
        """Whether a release is being prepared, or overdue at a second since 1970."""
        late = self.days(now) >= LATE * self.usual_days and self.commits >= max(1, LATE * self.usual_commits)
        return bool(self.preparing) or late


def is_release(tag: str) -> bool:
    """Whether a tag names a version and no pre-release: `v1.2.0`, `cart-2.0`, not `1.0rc1` or `nightly`."""
    return _VERSION.fullmatch(tag) is not None


def prepares_release(subject: str) -> bool:
    """Whether a commit of that subject prepares a release: `Bump version to 1.4.0`, `release: v2.0`. What begins the
    work on the next version does not: `Bump version to 1.5.dev`."""
    return _PREPARES.match(subject) is not None and _DEVELOPS.search(subject) is None


def _version(subject: str) -> str:
    """The version that a subject names, without the `v`; "" when it names none."""
    found = re.search(r"\d+(?:\.\d+)+", subject)
    return found[0] if found else ""


def rhythm_of(history: Sequence[Change]) -> Rhythm | None:
    """The rhythm up to the newest commit; None without a release."""
    releases: list[tuple[int, int, str, frozenset[str]]] = []  # non-merge commits up to it, second, tag, its files
    number = 0
    preparing = ""
    files: set[str] = set()
    versions: set[str] = set()  # a merge brings the commit that prepared a release after the release itself
    for change in history:
        number += change.parents < 2
        files.update(change.files)
        versions.update(map(_version, change.tags))
        if change.parents < 2 and prepares_release(change.subject) and _version(change.subject) not in versions - {""}:
            preparing = change.subject
        named = next(filter(is_release, change.tags), "")
        if named:
            releases.append((number, change.at, named, frozenset(files)))
            preparing = ""
            files = set()
    if not releases:
        return None
    last = releases[-LAST - 1 :]
    pairs = list(pairwise(last))
    rhythmic = len(releases) >= FEWEST
    place, at, tag, _ = releases[-1]
    before = Counter(path for one in last[-LAST:] for path in one[3])
    return Rhythm(
        tag=tag,
        at=at,
        commits=number - place,
        usual_days=median(max(0, after[1] - one[1]) for one, after in pairs) / DAY if rhythmic else inf,
        usual_commits=median(after[0] - one[0] for one, after in pairs) if rhythmic else inf,
        preparing=preparing,
        files=frozenset(files),
        usual_files=frozenset(path for path, times in before.items() if 2 * times >= len(last[-LAST:])),
    )
