"""What the operator is told when a change set does not land, or a landing is not undone."""

from __future__ import annotations

from collections.abc import Sequence

from engine.execution.snapshots import shown
from engine.model import LandPreview, Refusal


def refuse_unless_clean(preview: LandPreview, change_set_id: str) -> None:
    way_out = f"`clawpy branch {change_set_id}` makes a branch of the work instead"
    if preview.conflicts:
        raise Refusal(
            "conflict",
            f"you and the session changed the same lines: {named(preview.conflicts)}",
            f"set your version aside and land again, or {way_out}",
        )
    if preview.unsupported:
        raise Refusal("unsupported_files", f"these are not landed: {named(preview.unsupported)}", "copy them by hand")
    if preview.in_the_way:
        raise Refusal(
            "conflict",
            f"untracked or ignored files are in the way: {named(preview.in_the_way)}",
            f"move them away and land again, or {way_out}",
        )


def later_edits(paths: Sequence[str]) -> Refusal:
    return Refusal(
        "later_edits",
        f"changed since the landing: {named(paths)}",
        "undoing would lose these changes; stash them first, or undo the landing by hand",
    )


def edited_meanwhile(paths: Sequence[str], *, undoing: bool) -> Refusal:
    if undoing:
        return later_edits(paths)
    return Refusal("conflict", f"changed while landing: {named(paths)}; nothing was landed", "land again")


def cannot_write(error: OSError, workspace: str) -> Refusal:
    where = shown(str(error.filename)) if error.filename else workspace
    return Refusal(
        "cannot_write",
        f"{where}: {error.strerror or error}; nothing was changed",
        "free disk space or make it writable, then try again",
    )


def named(paths: Sequence[str]) -> str:
    """At most ten names in words."""
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(shown(path) for path in paths[:10]) + more
