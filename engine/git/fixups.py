"""Finds `fixup!`, `squash!` and `amend!` commits that still wait to be folded into the commits that they mend."""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.commits import Commit, log_commits
from engine.git.state import GitState

FIXUP: Final = re.compile(r"(?:(?:fixup|squash|amend)! )+")
MAX_COMMITS: Final = 200
"""Maximum number of unpushed commits that are looked through."""


@frozen
class Fixups:
    """`subjects` of the fixup commits, the newest first, and the subjects they name (`targets`). `onto`: the parent of
    the oldest commit that changes, "" when that is the very first. `at`: when the oldest fixup was committed."""

    subjects: tuple[str, ...]
    targets: tuple[str, ...]
    onto: str
    at: datetime


def read_fixups(git: Git, state: GitState) -> Fixups | None:
    """The fixup commits of HEAD that no remote branch has, nor the base when another branch is checked out; None when
    there are none, or when what they mend is pushed already. Commits before a merge are left alone. Raises
    `GitError`."""
    base = [state.base_tip] if state.base_tip and state.base_name != state.branch else []
    commits = log_commits(git, f"-n{MAX_COMMITS}", state.head, "--not", "--remotes", *base)
    own = list(itertools.takewhile(lambda commit: len(commit.parents) < 2, commits))
    fixups: list[Commit] = []
    targets: dict[str, None] = {}
    oldest = -1
    for number, commit in enumerate(own):
        if not FIXUP.match(commit.subject):
            continue
        wanted = FIXUP.sub("", commit.subject, count=1)
        match = next((older for older in range(number + 1, len(own)) if _is_target(wanted, own[older])), None)
        if match is not None:
            fixups.append(commit)
            targets[own[match].subject] = None
            oldest = max(oldest, match)
    if not fixups:
        return None
    subjects = tuple(fixup.subject for fixup in fixups)
    return Fixups(subjects, tuple(targets), "".join(own[oldest].parents), min(fixup.at for fixup in fixups))


def _is_target(wanted: str, commit: Commit) -> bool:
    """As git finds it: by the subject, its beginning, or the id."""
    if FIXUP.match(commit.subject):
        return False
    return commit.subject.startswith(wanted) or (len(wanted) >= 7 and commit.id.startswith(wanted))
