"""Merges git trees, and commits changes onto a new branch, for landings and `clawpy branch` (SPEC 3.9).

Merges are git's own text merge, by `git merge-tree`. The operator's files, index and HEAD stay as they are, and no
merge driver runs.
"""

from __future__ import annotations

import itertools
import re
from datetime import datetime

from engine.execution.tree_diffs import diff_trees, find_unsupported
from engine.execution.trees import (
    OUR_EMAIL,
    OUR_NAME,
    join_paths,
    make_identity_variables,
    make_synthetic_commit,
    printable_path,
    store_empty_tree,
    validate_id,
)
from engine.frozen import frozen
from engine.git import MIN_VERSION, Git
from engine.git import version as git_version
from engine.git.command import split_nul
from engine.git.state import session_branch
from engine.model import Refusal


def require_merge_tree() -> None:
    """Raise `Refusal` `old_git` when git cannot merge without a working tree."""
    version = git_version()
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < MIN_VERSION:
        raise Refusal("old_git", f"{version} cannot merge without a working tree", "install git 2.38 or newer")


@frozen
class MergeResult:
    """The result of a merge."""

    tree: str
    """Valid only without conflicts."""
    conflicts: tuple[str, ...]
    """Printable paths."""


def merge_three_way(git: Git, *, base: str, ours: str, theirs: str) -> MergeResult:
    """Merge the trees `ours` and `theirs`, which both come from the tree `base`."""
    base_commit = make_synthetic_commit(git, base, message="base")
    our_commit = make_synthetic_commit(git, ours, base_commit, message="ours")
    their_commit = make_synthetic_commit(git, theirs, base_commit, message="theirs")
    options = ("--write-tree", "--name-only", "--no-messages", "-z")
    merged = git.run("merge-tree", *options, our_commit, their_commit, allowed=(0, 1))
    tree, *names = split_nul(merged.stdout)
    if merged.returncode == 0:
        return MergeResult(tree.decode(), ())
    conflicts = dict.fromkeys(names) or [b"(git names no file)"]  # never take an unclean merge for a clean one
    return MergeResult(tree.decode(), tuple(map(printable_path, conflicts)))


def commit_diff(git: Git, *, base: str, result: str, message: str, at: datetime) -> str:
    """Commit exactly the changes from tree `base` to tree `result` onto HEAD. The new commit has no ref yet.

    The author is git's user, else a fallback. Raises `Refusal`: `conflict` (the changes build on uncommitted work that
    HEAD does not have), `nothing_to_commit`, `unsupported_files`.
    """
    if unsupported := find_unsupported(git, result, diff_trees(git, base, result)):
        names = ", ".join(f"{printable_path(path)}: {reason}" for path, reason in unsupported.items())
        raise Refusal("unsupported_files", f"these are not committed: {names}", "copy them by hand")
    head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    onto = git.text("rev-parse", f"{head}^{{tree}}") if head else store_empty_tree(git)
    merge = merge_three_way(git, base=base, ours=onto, theirs=result)
    if merge.conflicts:
        raise Refusal(
            "conflict",
            f"it builds on changes that HEAD does not have: {join_paths(merge.conflicts)}",
            "commit your own work first, or land it instead",
        )
    if merge.tree == onto:
        raise Refusal("nothing_to_commit", "HEAD has all of it already", "discard it")
    name = git.text("config", "user.name", allowed=(0, 1)) or OUR_NAME
    email = git.text("config", "user.email", allowed=(0, 1)) or OUR_EMAIL
    parents = ("-p", head) if head else ()
    return git.text(
        "commit-tree",
        merge.tree,
        *parents,
        stdin=message.encode(),
        environment=make_identity_variables(name, email, at.isoformat()),
    )


def find_free_branch_name(git: Git, title: str, session_id: str) -> str:
    """A branch name from the words of `title`. If it is taken, the first free suffix (-2, -3, …) is added."""
    first = session_branch(title, validate_id(session_id), below=not find_branch_commit(git, "clawpy"))
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    # A name is taken by a branch, and by branches below it.
    return next(name for name in names if not git.text("for-each-ref", "--count=1", f"refs/heads/{name}"))


def create_branch(git: Git, name: str, commit: str) -> None:
    """Make the branch. Raises `GitError`, also when the branch exists by now."""
    git.output("update-ref", "-m", "clawpy: branch", f"refs/heads/{name}", commit, "0" * len(commit))


def find_branch_commit(git: Git, name: str) -> str:
    """The commit of a branch; "" when there is no such branch."""
    return git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", allowed=(0, 1))
