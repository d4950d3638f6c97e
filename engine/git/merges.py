"""Tries merges without touching the repository, and says which are due and which branches are worth trying.

git merges in its own memory, so that no file, branch or object of the repository changes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Final

from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.command import split_nul
from engine.git.state import Branch, GitState

ACTIVE_WITHIN: Final = timedelta(days=90)
"""A branch counts as being worked on when its last commit is at most so much older than the newest of any branch."""

MAX_COMPARED: Final = 5  # branches that are tried with each other: at most ten pairs
MAX_COLLIDING: Final = 4  # branches that one forecast is about
MAX_TRIALS: Final = 512  # outcomes that are remembered
TIMEOUT_S: Final = 5.0  # until one merge that takes longer is given up


@frozen
class Merge:
    """A merge that is due: `source` into the branch that is checked out. `lacking` commits are only in `source`, `own`
    only here. `files` would conflict; None when git could not tell."""

    source: str
    tip: str
    lacking: int
    own: int
    files: tuple[str, ...] | None = None


@frozen
class Collision:
    """Two branches that change the same lines of `files`."""

    first: Branch
    second: Branch
    files: tuple[str, ...]


def separate_objects(git: Git, folder: Path) -> dict[str, str]:
    """The environment in which what git writes goes to `folder`/objects, not into the repository."""
    own = folder / "objects"
    own.mkdir(exist_ok=True)
    # git reads a path in this variable as C-quoted when it begins with a quote; `:` would part it otherwise.
    quoted = str(git.repository.common / "objects").replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": str(own), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def merge_trees(git: Git, ours: str, theirs: str, objects: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The tree of merging `theirs` into `ours`, and the files in conflict, which it holds with git's marks; none when
    the merge is clean. Raises `GitError`, also when the two have no common history."""
    done = git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs,
        environment=objects, allowed=(0, 1),
    )  # fmt: skip
    tree, *names = map(os.fsdecode, split_nul(done.stdout))
    return tree, tuple(dict.fromkeys(names)) if done.returncode else ()


@frozen
class MergeTrial:
    """The outcome of a merge that was tried: the files that conflict, None when git could not tell, and whether it
    would change anything. It would not where the other side's work is there already, be it as other commits."""

    files: tuple[str, ...] | None
    adds: bool


@lru_cache(MAX_TRIALS)
def try_merge(workspace: Path, onto: str, other: str) -> MergeTrial:
    """Merge the commit `other` into `onto`, within `TIMEOUT_S`. It is the same whenever it is asked."""
    git = Git(workspace, timeout=TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="clawpy-merge-") as folder:
        try:
            tree, files = merge_trees(git, onto, other, separate_objects(git, Path(folder)))
            return MergeTrial(files, adds=bool(files) or tree != git.text("rev-parse", f"{onto}^{{tree}}"))
        except GitError:
            return MergeTrial(None, adds=True)


def due_merges(state: GitState) -> list[Merge]:
    """The merges of the base and of the upstream that the branch lacks while it has commits of its own."""
    if not state.branch or state.operation:
        return []
    due = []
    if state.behind_base and state.ahead_of_base and state.base_name != state.branch:
        due.append(Merge(state.base, state.base_tip, state.behind_base, state.ahead_of_base))
    if state.behind and state.ahead and state.upstream_tip not in (merge.tip for merge in due):
        due.append(Merge(state.upstream, state.upstream_tip, state.behind, state.ahead))
    return due


def branch_pairs(state: GitState) -> list[tuple[Branch, Branch]]:
    """The pairs of open branches worth trying: the newest that are worked on, one of the two a local one."""
    if state.operation or not state.base or not state.branches:
        return []
    newest = max(branch.at for branch in state.branches)
    active = [branch for branch in state.open_branches if newest - branch.at <= ACTIVE_WITHIN]
    active.sort(key=lambda branch: branch.remote)  # stable: the newest first among each
    return [
        (first, second)
        for first, second in combinations(active[:MAX_COMPARED], 2)
        if first.tip != second.tip and not (first.remote and second.remote)
    ]
