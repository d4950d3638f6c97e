"""Reads the history of a repository as frozen values: commits, tags, and the files that commits change. What follows
from it is in `habits`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from engine.frozen import frozen
from engine.git.command import Git
from engine.model import Refusal, group_pairs

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
