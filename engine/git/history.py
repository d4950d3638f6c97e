"""What past commits changed: who asks for habits of a project (what changes together, how often it is released) reads
it here, once, and works on the values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from statistics import median
from typing import Final

from engine.frozen import frozen
from engine.git import Git

MOST_COMMITS = 3_000
"""So many of the newest commits are read. What is older says little about the habits of today."""

_HEADER = "\x01"


@frozen
class Change:
    """One commit: `at` in seconds since 1970 (committed), how many parents it has, and the files in which it differs
    from its only parent, sorted. A merge has no files of its own. `gone`: those of `files` that it deleted. `tags` are
    the names of the tags on it."""

    id: str
    at: int
    parents: int
    subject: str
    files: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def read_history(git: Git, head: str = "HEAD", most: int = MOST_COMMITS) -> tuple[Change, ...]:
    """The newest `most` commits of `head`, oldest first. A file that was renamed is one that is gone and a new one.
    Raises `GitError`, also where there is no commit yet."""
    tagged: dict[str, list[str]] = {}
    refs = git.text("for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", "refs/tags")
    for line in filter(None, refs.split("\n")):
        tip, peeled, name = line.split(" ", 2)
        tagged.setdefault(peeled or tip, []).append(name.removeprefix("refs/tags/"))
    out = git.output(
        "log", "-z", f"-n{most}", "--no-renames", "--name-status", "--no-show-signature",
        f"--format={_HEADER}%H%x00%ct%x00%P%x00%s", head, "--",
    )  # fmt: skip
    words = iter(out.decode(errors="surrogateescape").split("\0"))
    return tuple(reversed(list(_changes(words, tagged))))


def _changes(words: Iterator[str], tagged: dict[str, list[str]]) -> Iterator[Change]:
    """The commits in what git printed: four words a commit, then two a file: what was done to it, and its path."""
    word = next(words, "")
    while word.startswith(_HEADER):
        commit = word.removeprefix(_HEADER)
        at, parents, subject = next(words), next(words), next(words)
        files, gone = [], []
        for word in words:
            if word.startswith(_HEADER):
                break
            if status := word.strip():  # the first one of a commit stands on a line of its own
                files.append(next(words))
                gone += files[-1:] if status == "D" else []
        else:
            word = ""
        yield Change(
            commit, int(at), len(parents.split()), subject,
            tuple(sorted(files)), tuple(sorted(gone)), tuple(tagged.get(commit, ())),
        )  # fmt: skip


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


@frozen
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
