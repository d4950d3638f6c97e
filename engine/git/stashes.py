"""Reads the stashes, with the files that each changes."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.reflog import read_reflog

MAX_STASHES: Final = 50
MAX_FILES: Final = 300


@frozen
class Stash:
    """One stash: `stash@{number}`. `words`: what its message says after the branch, `branch` "" when it was made on a
    detached HEAD. `files`: at most 300 that it changes, untracked ones included."""

    number: int
    commit: str
    at: datetime
    branch: str
    words: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"stash@{{{self.number}}}"


def read_stashes(git: Git) -> tuple[Stash, ...]:
    """The newest 50. Raises `GitError`."""
    steps = read_reflog(git, "refs/stash")[: -MAX_STASHES - 1 : -1]
    return tuple(_make_stash(git, number, step.commit, step.at, step.action) for number, step in enumerate(steps))


def _make_stash(git: Git, number: int, commit: str, at: datetime, action: str) -> Stash:
    """`WIP on main: 1a2b3c4 subject` and `On main: words` are what git writes."""
    where, _, words = action.partition(": ")
    branch = where.removeprefix("WIP on ").removeprefix("On ")
    named = "" if branch == "(no branch)" else branch
    return Stash(number, commit, at, named, words, stash_files(git, commit))


def stash_files(git: Git, commit: str) -> tuple[str, ...]:
    """The files that a stash changes; none when it is gone."""
    names = git.items("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^", commit, allowed=(0, 128))
    names += git.items("ls-tree", "-r", "-z", "--name-only", f"{commit}^3", allowed=(0, 128))
    return tuple(names[:MAX_FILES])
