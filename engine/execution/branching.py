"""Commits a session's diff on a new branch, without index, HEAD or hooks (SPEC 3.9)."""

from __future__ import annotations

from datetime import datetime

from engine.execution import snapshots
from engine.execution.merging import find_unsupported, merge_three_way
from engine.execution.snapshots import printable_path
from engine.execution.tree_diff import diff_trees
from engine.git import Git, GitError, session_branch
from engine.model import Refusal


def commit_diff(git: Git, *, base: str, result: str, message: str, at: datetime) -> str:
    """Commit exactly the changes from tree `base` to tree `result` onto HEAD; no ref points to the commit yet.

    The author is git's user, else a fallback. Raises `Refusal`: `conflict` when the changes need uncommitted work that
    HEAD does not have, `nothing_to_commit`, `unsupported_files`.
    """
    unsupported = find_unsupported(git, result, diff_trees(git, base, result))
    if unsupported:
        names = ", ".join(f"{printable_path(path)}: {reason}" for path, reason in unsupported.items())
        raise Refusal("unsupported_files", f"these are not committed: {names}", "copy them by hand")
    head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    onto = git.text("rev-parse", f"{head}^{{tree}}") if head else snapshots.empty_tree(git)
    merge = merge_three_way(git, base=base, ours=onto, theirs=result)
    if merge.conflicts:
        names = ", ".join(printable_path(path) for path in merge.conflicts)
        raise Refusal(
            "conflict",
            f"it builds on changes that HEAD does not have: {names}",
            "commit your own work first, or land it instead",
        )
    if merge.tree == onto:
        raise Refusal("nothing_to_commit", "HEAD has all of it already", "discard it")
    parents = ("-p", head) if head else ()
    return git.text("commit-tree", merge.tree, *parents, stdin=message.encode(), environment=_commit_identity(git, at))


def _commit_identity(git: Git, at: datetime) -> dict[str, str]:
    identity = {"GIT_AUTHOR_DATE": at.isoformat(), "GIT_COMMITTER_DATE": at.isoformat()}
    for key, fallback in (("name", "Clawpy Console"), ("email", "clawpy@localhost")):
        value = git.text("config", f"user.{key}", allowed=(0, 1)) or fallback
        identity |= {f"GIT_{role}_{key.upper()}": value for role in ("AUTHOR", "COMMITTER")}
    return identity


def free_branch_name(git: Git, title: str, session_id: str) -> str:
    """A free branch name from the words of `title`, with the first free suffix -2, -3, …"""
    name = first = session_branch(title, snapshots.validate_id(session_id), below=not _ref_exists(git, "clawpy"))
    number = 1
    while git.text("for-each-ref", "--count=1", f"refs/heads/{name}"):  # it, or branches below it
        number += 1
        name = f"{first}-{number}"
    return name


def create_branch(git: Git, name: str, commit: str) -> None:
    """Make the branch. Raises `GitError`, also when it exists by now."""
    git.output("update-ref", "-m", "clawpy: branch", f"refs/heads/{name}", commit, "0" * len(commit))


def branch_is_at(git: Git, name: str, commit: str) -> bool:
    """Whether the branch exists and is at `commit`."""
    try:
        return git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", allowed=(0, 1)) == commit
    except GitError as error:
        raise Refusal("git_failed", f"cannot read the branches of {git.folder}: {error.stderr}") from error


def _ref_exists(git: Git, name: str) -> bool:
    return bool(git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", allowed=(0, 1)))
