"""What a session changed, and what lands of it (SPEC 3.9).

`engine.execution.changesets` makes and lands change sets; screens draw them, and the last ones are kept for the first
frame.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.sessions import CheckResult


class ChangeState(StrEnum):
    """The state of a change set (SPEC 3.9)."""

    WAITING = "waiting"
    LANDED = "landed"
    BRANCHED = "branched"
    DISCARDED = "discarded"
    UNDONE = "undone"

    @property
    def is_undecided(self) -> bool:
        """Whether the changes wait for the operator; after an undo they can be landed again."""
        return self in UNDECIDED_STATES


UNDECIDED_STATES = (ChangeState.WAITING, ChangeState.UNDONE)

LEFT_OUT = "left out"
"""The status of what a session made in a submodule or another repository. It is only in the session's folder."""


@frozen
class FileChange:
    """One file of a change set. status: "added", "modified", "deleted", "renamed", "mode", `LEFT_OUT`; lines None for
    binary. `note` says in one line what a reviewer must know first: that it is a link or a deleted test file, a change
    of its mode, which tool runs it, where it is if it is left out. `refused`: why it cannot be landed."""

    path: str
    status: str
    added: int | None
    removed: int | None
    old_path: str = ""
    note: str = ""
    refused: str = ""

    @property
    def can_land(self) -> bool:
        """Whether it can be landed."""
        return not self.refused and self.status != LEFT_OUT


@frozen
class DiffComment:
    """A comment on one line of a change set. `line` counts from 1 in the new file, or in the old file if `old`; `quote`
    is the text of that line. `at` and `sent` are ISO instants; `sent` is "" until the comment was sent to an agent."""

    number: int
    path: str
    line: int
    quote: str
    text: str
    at: str
    old: bool = False
    sent: str = ""


@frozen
class FilePart:
    """A file of a change set to be landed: the rest of it, or only the hunks with these numbers. Hunks are numbered
    from 1 in the diff of the whole change set, including those that are landed."""

    path: str
    hunks: tuple[int, ...] = ()


@frozen
class ChangeSet:
    """The changes of a session, waiting to be landed."""

    id: str
    session_id: str
    prediction_id: str
    workspace: str
    state: ChangeState
    files: tuple[FileChange, ...]
    """While a part of it is landed: the rest."""
    title: str
    created_at: datetime
    decided_at: datetime | None = None
    branch: str = ""
    check: CheckResult | None = None
    note: str = ""
    landed: int = 0
    """Number of files changed by landings that can be undone."""
    comments: tuple[DiffComment, ...] = ()
    landings: int = 0
    """Number of landings that can be undone."""

    @property
    def landable_files(self) -> tuple[FileChange, ...]:
        """Those of its files that can be landed."""
        return tuple(file for file in self.files if file.can_land)


@frozen
class Landing:
    """The last landing of a change set."""

    change: ChangeSet
    tree_before: str = ""
    """The tree of all files of the operator just before it; "" for unknown."""
    tree_after: str = ""
    """The tree of all these files just after it; "" for unknown."""


@frozen
class FileDiff:
    """One file of a change set as a screen shows it: `hunks` is sanitised unified diff text, "" for binary files.

    status as in `FileChange`; `cut` says that `hunks` was too long and ends early; `all_or_nothing`: its hunks cannot
    be landed one by one. `landed`: hunks of these numbers, from 1, are landed; they are not in `hunks`, and the others
    keep their numbers.
    """

    path: str
    status: str
    old_path: str
    binary: bool
    hunks: str
    cut: bool = False
    all_or_nothing: bool = False
    landed: tuple[int, ...] = ()

    @property
    def hunk_numbers(self) -> Iterator[int]:
        """The numbers of the hunks in `hunks`, and then of those that would follow."""
        return (number for number in itertools.count(1) if number not in self.landed)


@frozen
class LandPreview:
    """Whether a change set would land now (SPEC 3.9). `conflicts` are files that both sides changed, `in_the_way` are
    paths that exist where a file must be written, and `unsupported` are files that cannot be landed, with the
    reason."""

    clean: bool
    conflicts: tuple[str, ...] = ()
    in_the_way: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    files: int = 0
