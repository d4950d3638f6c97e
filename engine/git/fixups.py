"""Finds `fixup!`, `squash!` and `amend!` commits that are not pushed, for the card that rehearses squashing them."""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.history import Commit, log_commits
from engine.git.state import GitState

FIXUP: Final = re.compile(r"(?:(?:fixup|squash|amend)! )+")
MAX_FIXUP_COMMITS: Final = 200
"""Maximum number of unpushed commits that are searched for fixup commits."""


@frozen
class Fixups:
    """The fixup commits of a branch."""

    subjects: tuple[str, ...]
    """Their subjects, newest first."""
    targets: tuple[str, ...]
    """The subjects of the commits that they change."""
    onto: str
    """The parent of the oldest commit that they change; "" if that commit has no parent."""
    at: datetime
    """When the oldest fixup was committed."""


def read_fixups(git: Git, state: GitState) -> Fixups | None:
    """The fixup commits in the history of HEAD that no remote branch has. Raises `GitError`.

    If another branch than the base is checked out, commits that the base has are left out. Commits before a merge are
    always left out. None if there are no fixup commits, if the commits that they change are pushed already, or while an
    operation is unfinished.
    """
    if state.operation or not any(FIXUP.match(commit.subject) for commit in state.recent):
        return None
    base = [state.base_tip] if state.base_tip and state.base_name != state.branch else []
    commits = log_commits(git, f"-n{MAX_FIXUP_COMMITS}", state.head, "--not", "--remotes", *base)
    own = list(itertools.takewhile(lambda commit: len(commit.parents) < 2, commits))
    pairs: list[tuple[Commit, Commit]] = []
    for index, commit in enumerate(own):
        if FIXUP.match(commit.subject):
            wanted = FIXUP.sub("", commit.subject, count=1)
            pairs += [(commit, older) for older in own[index + 1 :] if _is_target(wanted, older)][:1]
    if not pairs:
        return None
    oldest = max((target for _, target in pairs), key=own.index)
    return Fixups(
        tuple(fixup.subject for fixup, _ in pairs),
        tuple(dict.fromkeys(target.subject for _, target in pairs)),
        onto=oldest.parents[0] if oldest.parents else "",
        at=min(fixup.at for fixup, _ in pairs),
    )


def _is_target(wanted: str, commit: Commit) -> bool:
    """Whether a fixup with the subject `wanted` changes this commit. As in git, `wanted` is the beginning of the
    commit's subject or of its id."""
    if FIXUP.match(commit.subject):
        return False
    return commit.subject.startswith(wanted) or (len(wanted) >= 7 and commit.id.startswith(wanted))
