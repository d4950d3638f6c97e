"""Commits, tags and files of git's history as values: the questions that several readers ask."""

from __future__ import annotations

from datetime import UTC, datetime

from engine.frozen import frozen
from engine.git.command import Git


@frozen
class Commit:
    """One commit. `parents` are full ids."""

    id: str
    at: datetime
    author: str
    subject: str
    parents: tuple[str, ...] = ()
    email: str = ""
    """The author's address."""
    committer_email: str = ""
    authored: str = ""
    """When its author wrote it, in seconds since 1970, as git has it: any number."""


def to_datetime(seconds: str | float) -> datetime:
    """Seconds since 1970 as an instant; what no calendar holds (git stores any number) is 1970 itself."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def log_commits(git: Git, *arguments: str, stdin: bytes | None = None) -> list[Commit]:
    """The commits that `git log ARGUMENTS` prints, in its order. Raises `GitError`."""
    records = git.items(
        "log", "-z", "--no-show-signature", "--format=%H%n%ct%n%P%n%at%n%an%n%ae%n%ce%n%s", *arguments, stdin=stdin
    )
    commits = []
    for record in records:
        commit, seconds, parents, authored, author, email, committer, subject = record.split("\n", 7)
        commits.append(
            Commit(
                id=commit,
                at=to_datetime(seconds),
                author=author,
                subject=subject,
                parents=tuple(parents.split()),
                email=email,
                committer_email=committer,
                authored=authored,
            )
        )
    return commits


def tags_by_commit(git: Git) -> dict[str, list[str]]:
    """The names of the tags of each commit that has any. Raises `GitError`."""
    tags: dict[str, list[str]] = {}
    for line in git.text("for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", "refs/tags").splitlines():
        tip, peeled, name = line.split(" ", 2)
        tags.setdefault(peeled or tip, []).append(name.removeprefix("refs/tags/"))
    return tags


def is_ancestor(git: Git, older: str, newer: str) -> bool:
    """Whether `older` is in the history of `newer`; False also when either does not exist. Raises `GitError`."""
    return git.run("merge-base", "--is-ancestor", older, newer, allowed=(0, 1, 128)).returncode == 0


def read_file_at(git: Git, revision: str, path: str) -> bytes:
    """The content of a file in a commit, b"" where there is no such file. Raises `GitError`."""
    return git.output("cat-file", "blob", f"{revision}:{path}", allowed=(0, 128))


def count_apart(git: Git, head: str, other: str) -> tuple[int, int]:
    """The numbers of commits that only `head` has, and that only `other` has; 0 where one of the two is "". Raises
    `GitError`."""
    if not head or not other or head == other:
        return 0, 0
    ahead, behind = git.text("rev-list", "--left-right", "--count", f"{head}...{other}").split()
    return int(ahead), int(behind)
