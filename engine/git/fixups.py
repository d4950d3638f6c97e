"""`fixup!`, `squash!` and `amend!` commits that still wait to be folded into the commits that they mend."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from engine.frozen import frozen
from engine.git import Git
from engine.git.state import GitState
from engine.git.status import split_nul, to_datetime

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
    """Those of HEAD that no remote branch has, nor the base when another branch is checked out; None when there are
    none, or when what they mend is pushed already. Commits before a merge are left alone. Raises `GitError`."""
    without = [state.base_tip] if state.base_tip and state.base_name != state.branch else []
    output = git.output(
        "log", f"-n{MAX_COMMITS}", "-z", "--no-show-signature", "--format=%H%n%P%n%ct%n%s", state.head,
        "--not", "--remotes", *without,
    )  # fmt: skip
    own = []
    for record in split_nul(output):
        sha, parents, seconds, subject = record.split("\n", 3)
        if len(parents.split()) > 1:
            break
        own.append(_Commit(sha, parents, to_datetime(seconds), subject))
    fixups: list[_Commit] = []
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
    return Fixups(subjects, tuple(targets), own[oldest].parents, min(fixup.at for fixup in fixups))


class _Commit(NamedTuple):
    id: str
    parents: str
    at: datetime
    subject: str


def _is_target(wanted: str, commit: _Commit) -> bool:
    """As git finds it: by the subject, its beginning, or the id."""
    if FIXUP.match(commit.subject):
        return False
    return commit.subject.startswith(wanted) or (len(wanted) >= 7 and commit.id.startswith(wanted))
