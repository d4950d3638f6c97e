"""Sessions that go on where a finished one left off (SPEC 9.4): which one, and the files they begin with."""

from __future__ import annotations

from engine.execution import change_words, merging
from engine.execution.change_rows import ChangeSetRow
from engine.execution.snapshots import PlainGit, shown
from engine.execution.worktrees import Onto
from engine.model import Assignment, Refusal

CONTINUES = "continues"
"""The parameter of an assignment of prose that names the session which it continues."""


def continued(assignment: Assignment) -> str:
    """The session that an assignment continues, "" for one that begins anew."""
    return "" if assignment.flow else str(assignment.parameters.get(CONTINUES) or "")


def with_changes_of(former: ChangeSetRow) -> Onto:
    """The present files with what `former` changed. Raises `Refusal` `conflict` when both changed the same."""

    def made(plain: PlainGit, present: str) -> str:
        merge = merging.three_way(plain.git, base=former.landed_tree, ours=present, theirs=former.result_tree)
        if merge.conflicts:
            told = change_words.named([shown(path) for path in merge.conflicts])
            raise Refusal(
                "conflict",
                f"what {former.session_id} changed no longer fits your files: {told}",
                "land or discard its changes first, then continue it",
            )
        return merge.tree

    return made
