"""Inspects your own changes for leftovers and outdated documentation (SPEC 2.11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime

from engine.frozen import frozen
from engine.git import Git
from engine.git.own_leftovers import LocatedLeftover, find_own_leftovers
from engine.git.patch import own_patch
from engine.git.stale_mentions import Mention, find_stale_mentions
from engine.git.state import GitState


@frozen
class OwnChanges:
    """The findings in your own commits and uncommitted files."""

    mark: str = ""
    """See `Patch.mark`."""
    leftovers: tuple[LocatedLeftover, ...] = ()
    mentions: tuple[Mention, ...] = ()
    added_lines: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The numbers of the added lines of each changed file, by its path."""


def own_changes(git: Git, state: GitState, since: datetime) -> OwnChanges:
    """The findings in your own commits and uncommitted files. A TODO counts if it was added after `since`. Raises
    `GitError`."""
    patch = own_patch(git, state)
    leftovers = find_own_leftovers(git, state, patch, since)
    if state.operation:  # during a merge or the like, nothing else is of interest
        return OwnChanges(patch.mark, leftovers)
    added_lines = {path: [line.line for line in lines] for path, lines in patch.lines_of.items()}
    return OwnChanges(patch.mark, leftovers, find_stale_mentions(git, patch), added_lines)
