"""Reads the history of a repository as frozen values: commits, tags, the files that commits change, and the habits that
follow from them."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import inf
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Final

from engine.frozen import frozen
from engine.git.command import Git
from engine.model import Refusal, group_pairs
from engine.statistics import wilson_lower_bound

log = logging.getLogger(__name__)

MAX_CHANGES = 3_000
"""Maximum number of commits that are read with their files. Older ones say little about the habits of today."""

_COMMIT_MARK = "\x01"


@frozen
class Commit:
    """One commit."""

    id: str
    at: datetime
    author: str
    subject: str
    parents: tuple[str, ...] = ()
    """Full ids."""
    email: str = ""
    """The author's address."""
    committer_email: str = ""
    authored: str = ""
    """When its author wrote it, in seconds since 1970. git accepts any number, so it may be no valid date."""


@frozen
class Change:
    """One commit with its files."""

    id: str
    at: int
    """When it was committed, in seconds since 1970."""
    parents: int
    """The number of its parents."""
    subject: str
    files: tuple[str, ...] = ()
    """The files in which it differs from its only parent, sorted. A merge has none."""
    deleted: tuple[str, ...] = ()
    """Those of `files` that it deleted."""
    tags: tuple[str, ...] = ()
    """The names of the tags on it."""


def to_datetime(seconds: str | float) -> datetime:
    """Convert seconds since 1970 to a time. git accepts any number; a number that is no valid date becomes 1970."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def log_commits(git: Git, *arguments: str, stdin: bytes | None = None) -> list[Commit]:
    """The commits of `git log ARGUMENTS`, in its order. Raises `GitError`."""
    records = git.items(
        "log", "-z", "--no-show-signature", "--format=%H%n%ct%n%P%n%at%n%an%n%ae%n%ce%n%s", *arguments, stdin=stdin
    )
    commits = []
    for record in records:
        commit, seconds, parents, authored, author, email, committer, subject = record.split("\n", 7)
        commits.append(
            Commit(commit, to_datetime(seconds), author, subject, tuple(parents.split()), email, committer, authored)
        )
    return commits


def read_changes(git: Git, head: str = "HEAD") -> tuple[Change, ...]:
    """The newest `MAX_CHANGES` commits of `head` with their files, oldest first. A renamed file appears as a deleted
    file and a new one. Raises `GitError`, also if there is no commit yet."""
    tags = read_tags_by_commit(git)
    output = git.output(
        "log", "-z", f"-n{MAX_CHANGES}", "--no-renames", "--name-status", "--no-show-signature",
        f"--format={_COMMIT_MARK}%H%x00%ct%x00%P%x00%s", head, "--",
    )  # fmt: skip
    words = iter(output.decode(errors="surrogateescape").split("\0"))
    return tuple(reversed(list(_parse_changes(words, tags))))


def _parse_changes(words: Iterator[str], tags: dict[str, list[str]]) -> Iterator[Change]:
    """Parse git's output. A commit is four words, then two for each file: its status and its path."""
    word = next(words, "")
    while word.startswith(_COMMIT_MARK):
        commit = word.removeprefix(_COMMIT_MARK)
        at, parents, subject = next(words), next(words), next(words)
        files, deleted = [], []
        for word in words:
            if word.startswith(_COMMIT_MARK):
                break
            if status := word.strip():  # before the first one of a commit is a line break
                files.append(next(words))
                deleted += files[-1:] if status == "D" else []
        else:
            word = ""
        yield Change(
            commit, int(at), len(parents.split()), subject,
            tuple(sorted(files)), tuple(sorted(deleted)), tuple(tags.get(commit, ())),
        )  # fmt: skip


def read_tags_by_commit(git: Git) -> dict[str, list[str]]:
    """The names of the tags of each commit that has any. Raises `GitError`."""
    lines = git.lines("for-each-ref", "--format=%(objectname) %(*objectname) %(refname:lstrip=2)", "refs/tags")
    return group_pairs((peeled or tip, name) for tip, peeled, name in (line.split(" ", 2) for line in lines))


def find_commit(git: Git, revision: str) -> str:
    """The full id of the commit that `revision` names; "" for none. A branch goes before a tag of the same name."""
    options = ("--verify", "--quiet", "--end-of-options")
    for name in (f"refs/heads/{revision}", f"refs/remotes/{revision}", revision):
        if commit := git.text("rev-parse", *options, f"{name}^{{commit}}", allowed=(0, 1, 128)):
            return commit
    return ""


def is_ancestor(git: Git, older: str, newer: str) -> bool:
    """Whether `older` is in the history of `newer`. False also if one of the two does not exist. Raises `GitError`."""
    return git.run("merge-base", "--is-ancestor", older, newer, allowed=(0, 1, 128)).returncode == 0


def read_file_at(git: Git, revision: str, path: str) -> bytes:
    """The content of a file in a commit, b"" if there is no such file. Raises `GitError`."""
    return git.output("cat-file", "blob", f"{revision}:{path}", allowed=(0, 128))


def count_apart(git: Git, head: str, other: str) -> tuple[int, int]:
    """The number of commits that only `head` has, and the number that only `other` has. Both are 0 if one of the two is
    "". Raises `GitError`."""
    if not head or not other or head == other:
        return 0, 0
    ahead, behind = git.text("rev-list", "--left-right", "--count", f"{head}...{other}").split()
    return int(ahead), int(behind)


class ProjectIds:
    """Finds the id of the project of which a workspace is a clone. It is the first commit, which all clones share."""

    def __init__(self) -> None:
        self._cache: dict[str, str] = {}

    def of(self, workspace: str) -> str:
        """The id of the project of a workspace; "" if git fails, or if the clone is shallow."""
        if not self._cache.get(workspace):
            try:
                git = Git(Path(workspace), timeout=10)
                is_complete = git.text("rev-parse", "--is-shallow-repository") == "false"
                roots = git.text("rev-list", "--max-parents=0", "HEAD", allowed=(0, 128)).split() if is_complete else []
            except Refusal as refusal:
                log.warning("%s is not a project that could be shared: %s", workspace, refusal)
                roots = []
            self._cache[workspace] = min(roots, default="")
        return self._cache[workspace]


# -- Files that usually change together.


MAX_FILES_OF_COMMIT: Final = 30
"""A commit of more files is called a sweep. It may come from a formatter, and shows no habit."""

MAX_CHANGED: Final = 12
"""If more files than this have changed, no missing file is named."""

TIE_COMMITS: Final = 20
"""Number of the last commits of a file from which its ties are computed."""

MIN_TIE: Final = 0.8
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
    """Number of the last commits in which `because` changed."""


class CoChanges:
    """Knows which files usually change together.

    A tie from one file to another is as strong as the share of the last commits of the first file in which the second
    one changed, too. The lower Wilson bound of that share is used, so that 3 of 3 is weaker than 12 of 12. Merges and
    sweeps are left out.
    """

    def __init__(self, history: Iterable[Change]) -> None:
        changes = [change for change in history if change.parents < 2]
        self.length = len(changes)
        self._files = [
            frozenset(change.files) if len(change.files) <= MAX_FILES_OF_COMMIT else frozenset() for change in changes
        ]
        self._changed: defaultdict[str, list[int]] = defaultdict(list)
        for index, files in enumerate(self._files):
            for tie in _list_possible_ties(files):
                self._changed[tie].append(index)
        self._gone = {path: path in change.deleted for change in changes for path in change.files}

    def find_missing_partner(self, files: Iterable[str], before: int | None = None) -> Partner | None:
        """The file that most likely should have changed with `files`; None if none is likely enough. Only the oldest
        `before` commits are used, by default all."""
        present = frozenset(files)
        known_commits = self.length if before is None else before
        partners: list[tuple[float, bool, Partner]] = []
        for tie in sorted(_list_possible_ties(present)) if len(present) <= MAX_CHANGED else ():
            last = [index for index in self._changed[tie] if index < known_commits][-TIE_COMMITS:]
            counts = Counter(path for index in last for path in self._files[index] - present if not self._gone[path])
            for path, together in sorted(counts.items()):
                bound = wilson_lower_bound(together, len(last), 1.0)
                partners.append((bound, not is_group(tie), Partner(path, tie, together, len(last))))
        bound, _, partner = max(partners, key=lambda rated: rated[:2], default=(0.0, False, None))
        return partner if bound >= MIN_TIE else None


def is_group(tie: str) -> bool:
    """Whether a tie is to all files of a folder with one ending, as in `docs/*.md`."""
    return tie.rpartition("/")[2].startswith("*")


def _list_possible_ties(paths: Iterable[str]) -> set[str]:
    """The starts of possible ties: each of these files, and the group of files with its folder and ending."""
    return {*paths, *(str(PurePosixPath(path).with_name(f"*{PurePosixPath(path).suffix}")) for path in paths)}


# -- Releases.


DAY_S: Final = 86_400

MIN_RELEASES: Final = 4
"""With fewer releases there is no rhythm. The next release is then due only when a commit prepares it."""

MAX_INTERVALS: Final = 12
"""Number of the last intervals between releases from which the rhythm is computed."""

OVERDUE_FACTOR: Final = 1.5
"""A release is overdue after this many times the usual days, and this many times the usual number of commits."""

_RELEASE_TAG: Final = re.compile(r"(?:[\w-]*?[-_@/])?v?\d+(?:\.\d+)+(?:\.?post\d+)?", re.IGNORECASE)
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


def measure_release_rhythm(history: Sequence[Change]) -> ReleaseRhythm | None:
    """The rhythm up to the newest commit; None without a release. `history` begins with the oldest commit."""
    releases: list[_Release] = []
    commits = 0
    preparing = ""
    files: set[str] = set()
    versions: set[str] = set()  # because of merges, the commit that prepares a release may come after the release
    for change in history:
        files.update(change.files)
        versions.update(map(_find_version, change.tags))
        if change.parents < 2:
            commits += 1
            if is_preparing_release(change.subject) and _find_version(change.subject) not in versions - {""}:
                preparing = change.subject
        tag = next(filter(is_release_tag, change.tags), "")
        if tag:
            releases.append(_Release(tag, change.at, commits, frozenset(files)))
            preparing, files = "", set()
    if not releases:
        return None
    newest, compared = releases[-1], releases[-MAX_INTERVALS:]
    usual_seconds, usual_commits = _measure_usual_interval(releases)
    released_with = Counter(path for release in compared for path in release.files)
    return ReleaseRhythm(
        tag=newest.tag,
        at=newest.at,
        commits=commits - newest.commits,
        usual_days=usual_seconds / DAY_S,
        usual_commits=usual_commits,
        preparing=preparing,
        files=frozenset(files),
        usual_files=frozenset(path for path, times in released_with.items() if 2 * times >= len(compared)),
    )


def _measure_usual_interval(releases: Sequence[_Release]) -> tuple[float, float]:
    """The usual seconds and commits between two of the newest releases; infinite if there are too few releases."""
    if len(releases) < MIN_RELEASES:
        return inf, inf
    pairs = list(pairwise(releases[-MAX_INTERVALS - 1 :]))
    seconds = median(max(0, later.at - earlier.at) for earlier, later in pairs)
    return seconds, median(later.commits - earlier.commits for earlier, later in pairs)


@frozen
class _Release:
    """One release."""

    tag: str
    at: int
    """Seconds since 1970."""
    commits: int
    """Number of commits up to it, without merges."""
    files: frozenset[str]
    """The files that changed since the release before."""
