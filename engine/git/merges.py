"""Tries merges without changing the repository, and finds the merges and pairs of branches that are worth a trial.

git writes the objects of a merge to a temporary folder, so that no file, branch or object of the repository changes.
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
"""A branch is active if its last commit is at most this much older than the newest commit of any branch."""

MAX_COMPARED: Final = 5  # branches that are tried with each other: at most ten pairs
MAX_COLLIDING: Final = 4  # branches that one forecast is about
MAX_TRIALS: Final = 512  # outcomes that are remembered
TIMEOUT_S: Final = 5.0  # seconds for one merge


@frozen
class Merge:
    """A merge that is due: `source` into the branch that is checked out."""

    source: str
    tip: str
    lacking: int
    """Number of commits that only `source` has."""
    own: int
    """Number of commits that only the branch has."""
    files: tuple[str, ...] | None = None
    """The files that would conflict; None if git could not merge."""


@frozen
class Collision:
    """Two branches that change the same lines of `files`."""

    first: Branch
    second: Branch
    files: tuple[str, ...]


def separate_objects(git: Git, folder: Path) -> dict[str, str]:
    """The environment in which git writes new objects to `folder`/objects, and not into the repository."""
    own = folder / "objects"
    own.mkdir(exist_ok=True)
    # Without quotes, a `:` in the path would separate two paths. Within quotes, git reads escapes as in C.
    quoted = str(git.repository.common / "objects").replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": str(own), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def merge_trees(git: Git, ours: str, theirs: str, objects: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Merge `theirs` into `ours`. Returns the tree, and the files in conflict, which have git's markers in the tree.
    Raises `GitError`, also if the two have no common history."""
    done = git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs,
        environment=objects, allowed=(0, 1),
    )  # fmt: skip
    tree, *names = map(os.fsdecode, split_nul(done.stdout))
    return tree, tuple(dict.fromkeys(names)) if done.returncode else ()


@frozen
class MergeTrial:
    """The outcome of a merge that was tried."""

    files: tuple[str, ...] | None
    """The files that conflict; None if git could not merge."""
    adds: bool
    """Whether the merge would change anything. It changes nothing if the work of the other side is there already,
    perhaps in other commits."""


@lru_cache(MAX_TRIALS)
def try_merge(workspace: Path, onto: str, other: str) -> MergeTrial:
    """Merge the commit `other` into `onto`, within `TIMEOUT_S`. The outcome is remembered, because it never changes."""
    git = Git(workspace, timeout=TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="clawpy-merge-") as folder:
        try:
            tree, files = merge_trees(git, onto, other, separate_objects(git, Path(folder)))
            return MergeTrial(files, adds=bool(files) or tree != git.text("rev-parse", f"{onto}^{{tree}}"))
        except GitError:
            return MergeTrial(None, adds=True)


def due_merges(state: GitState) -> list[Merge]:
    """The merges of the base and of the upstream whose commits the branch lacks, if it also has commits of its own."""
    if not state.branch or state.operation:
        return []
    due = []
    if state.behind_base and state.ahead_of_base and state.base_name != state.branch:
        due.append(Merge(state.base, state.base_tip, state.behind_base, state.ahead_of_base))
    if state.behind and state.ahead and state.upstream_tip not in (merge.tip for merge in due):
        due.append(Merge(state.upstream, state.upstream_tip, state.behind, state.ahead))
    return due


def branch_pairs(state: GitState) -> list[tuple[Branch, Branch]]:
    """The pairs of open branches whose merge should be tried. These are the newest active branches, and at least one of
    each pair is local."""
    if state.operation or not state.base or not state.branches:
        return []
    newest = max(branch.at for branch in state.branches)
    active = [branch for branch in state.open_branches if newest - branch.at <= ACTIVE_WITHIN]
    active.sort(key=lambda branch: branch.remote)  # local ones first; within both groups the newest stay first
    return [
        (first, second)
        for first, second in combinations(active[:MAX_COMPARED], 2)
        if first.tip != second.tip and not (first.remote and second.remote)
    ]
