"""Checks whether a change set can be landed on the present files, and makes the refusals (SPEC 3.9)."""

from __future__ import annotations

from collections.abc import Sequence

from engine.execution.change_store import ChangeSetRow
from engine.execution.hunks import write_tree_with
from engine.execution.merging import find_unsupported, merge_three_way
from engine.execution.snapshots import join_paths, printable_path
from engine.execution.staging import find_obstacles
from engine.execution.tree_diff import TreeChange, diff_trees
from engine.frozen import frozen
from engine.git import Git
from engine.model import FilePart, LandPreview, Refusal
from engine.storage.beneath import Beneath


@frozen
class LandingCheck:
    """The expected result of a landing."""

    preview: LandPreview
    tree: str = ""
    """The merged tree."""
    changes: tuple[TreeChange, ...] = ()
    """The difference from the present files to the merged tree."""


def check_landing(git: Git, root: Beneath, row: ChangeSetRow, *, present: str, target: str) -> LandingCheck:
    """Whether `row` can be landed up to the tree `target` on the files beneath `root`, whose tree is `present`."""
    merge = merge_three_way(git, base=row.landed_tree, ours=present, theirs=target)
    if merge.conflicts:
        return LandingCheck(LandPreview(False, tuple(printable_path(path) for path in merge.conflicts)))
    changes = diff_trees(git, present, merge.tree)
    reasons = find_unsupported(git, merge.tree, changes)
    in_the_way = find_obstacles(root, [change for change in changes if change.path not in reasons])
    preview = LandPreview(
        clean=not reasons and not in_the_way,
        in_the_way=tuple(printable_path(path) for path in in_the_way),
        unsupported=tuple(f"{printable_path(path)}: {reason}" for path, reason in reasons.items()),
        files=len(changes),
    )
    return LandingCheck(preview, merge.tree, tuple(changes))


def target_tree(git: Git, row: ChangeSetRow, only: Sequence[FilePart]) -> str:
    """The tree after landing `only` these parts, or the rest if there are none."""
    if not only:
        return row.result_tree
    return write_tree_with(git, row.base_tree, row.result_tree, row.landed_tree, only)


def refuse_unless_clean(preview: LandPreview, change_set_id: str) -> None:
    way_out = f"`clawpy branch {change_set_id}` makes a branch of the work instead"
    if preview.conflicts:
        raise Refusal(
            "conflict",
            f"you and the session changed the same lines: {join_paths(preview.conflicts)}",
            f"set your version aside and land again, or {way_out}",
        )
    if preview.unsupported:
        raise Refusal(
            "unsupported_files", f"these are not landed: {join_paths(preview.unsupported)}", "copy them by hand"
        )
    if preview.in_the_way:
        raise Refusal(
            "conflict",
            f"untracked or ignored files are in the way: {join_paths(preview.in_the_way)}",
            f"move them away and land again, or {way_out}",
        )


def later_edits(paths: Sequence[str]) -> Refusal:
    return Refusal(
        "later_edits",
        f"changed since the landing: {join_paths(paths)}",
        "undoing would lose these changes; stash them first, or undo the landing by hand",
    )


def edited_meanwhile(paths: Sequence[str], *, undoing: bool) -> Refusal:
    if undoing:
        return later_edits(paths)
    return Refusal("conflict", f"changed while landing: {join_paths(paths)}; nothing was landed", "land again")


def cannot_write(error: OSError, workspace: str) -> Refusal:
    where = printable_path(str(error.filename)) if error.filename else workspace
    return Refusal(
        "cannot_write",
        f"{where}: {error.strerror or error}; nothing was changed",
        "free disk space or make it writable, then try again",
    )
