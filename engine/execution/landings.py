"""Carries out the plans of landings and undos as one change of files and database (SPEC 3.9).

Each has an intent row while its files are changed. After a crash it is recorded when its files are complete, else it is
rolled back: at the next start, or before the next change of the same workspace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from engine.events import ChangeSetLanded, Event, LandingUndone
from engine.execution import diffs, landing, staging
from engine.execution.change_store import ChangeSetRow, finish_decision, load_checked_row
from engine.execution.diffs import write_tree_with
from engine.execution.snapshots import join_paths, printable_path
from engine.execution.staging import find_obstacles
from engine.execution.trees import TreeChange, diff_trees, find_unsupported, merge_three_way
from engine.execution.worktrees import Worktrees
from engine.frozen import frozen
from engine.git import Git
from engine.model import ChangeSet, ChangeState, FileChange, FilePart, LandPreview, Refusal
from engine.storage import intents
from engine.storage.beneath import Beneath
from engine.storage.database import Database

# Checks whether a change set can be landed on the present files, and makes the refusals (SPEC 3.9).


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


LANDING = "landing"

Files = list[dict[str, Any]]
"""The stored files of a change set."""


class Landings:
    """Changes the operator's files, and records it. `step` is called before each step."""

    def __init__(self, database: Database, worktrees: Worktrees, step: Callable[[str], None]) -> None:
        self._database = database
        self._worktrees = worktrees
        self._step = step

    def carry_out(
        self,
        git: Git,
        root: Beneath,
        row: ChangeSetRow,
        plan: landing.Plan,
        state: ChangeState,
        tree: str,
    ) -> ChangeSet:
        """Carry out `plan`; the change set is then landed up to `tree`."""
        files, landed = _files_after(git, row, tree)
        payload = {
            "change_set": row.id,
            "workspace": row.workspace,
            "state": state.value,
            "plan": plan.as_json(),
            "tree": tree,
            "files": files,
            "landed": landed,
        }
        intent = self._database.write(lambda tx: intents.begin(tx, LANDING, row.id, payload))
        self._step("intent")
        try:
            written = landing.carry_out(root, plan, staging.blobs_of(git, plan), self._step)
        except landing.NotRestored as error:
            raise Refusal(
                "not_restored",
                f"{row.workspace} could be neither changed nor restored: {error}",
                "fix the cause (a full disk?) and restart; the change is undone first",
            ) from error
        except (landing.FilesChanged, OSError, Refusal) as error:
            intents.drop(self._database, intent)
            if isinstance(error, landing.FilesChanged):
                raise edited_meanwhile(error.paths, undoing=state is ChangeState.UNDONE) from error
            if isinstance(error, OSError):
                raise cannot_write(error, row.workspace) from error
            raise
        self._step("files done")
        changed = self._record(payload, landing.settle_plan(root, plan), written, intent)
        if changed.state is not ChangeState.WAITING:
            self._worktrees.remove(row.session_id)
        return changed

    def _record(self, payload: dict[str, Any], plan: landing.Plan, written: dict[str, int], intent: int) -> ChangeSet:
        """Record that the files are as planned, in the transaction that removes the intent. `payload` is the intent's;
        `plan` is settled."""
        requested = ChangeState(payload["state"])

        def decide(row: ChangeSetRow) -> Event:
            row.written = {
                **{path: mtime for path, mtime in row.written.items() if path not in plan.removed_paths},
                **written,
            }
            row.files = payload["files"]
            if requested is ChangeState.LANDED:
                landed = {"tree": payload["tree"], "files": payload["landed"], "plan": plan.as_json()}
                row.landings = [*row.landings, landed]
                waits = payload["tree"] != row.result_tree
            else:
                row.landings = row.landings[:-1]
                waits = bool(row.landings)
            row.state = (ChangeState.WAITING if waits else requested).value
            if requested is ChangeState.LANDED:
                return ChangeSetLanded(**row.about, files=row.landed, left=len(row.files) if waits else 0)
            return LandingUndone(**row.about, left=len(row.landings))

        return finish_decision(self._database, intent, payload["change_set"], requested, decide)

    def finish_interrupted(self, workspace: str) -> None:
        """Roll back an earlier change of this workspace that was interrupted, before another one begins."""
        for intent in intents.unfinished(self._database, LANDING):
            if intent.payload["workspace"] == workspace:
                try:
                    self._finish(intent)
                except (Refusal, OSError, landing.FilesChanged) as error:
                    raise Refusal(
                        "not_restored",
                        f"an earlier change of {workspace} is still half done: {error}",
                        "see `clawpy doctor`; free disk space and make the folder writable, then try again",
                    ) from error

    def recover(self) -> list[str]:
        """At start-up: finish or roll back interrupted landings. Returns messages on what was done."""
        return [self._recover(intent) for intent in intents.unfinished(self._database, LANDING)]

    def _recover(self, intent: intents.Intent) -> str:
        with self._database.read() as session:
            row = load_checked_row(session, intent.payload["change_set"], None)
        is_landing = intent.payload["state"] == ChangeState.LANDED
        action = f"{'landing' if is_landing else 'undoing the landing of'} “{row.title}” ({row.id}) was interrupted"
        try:
            return f"{action} {self._finish(intent)}"
        except (Refusal, OSError, landing.FilesChanged) as error:
            return f"{action} and cannot be undone yet: {error}; it is tried again at the next start"

    def _finish(self, intent: intents.Intent) -> str:
        """Record an interrupted landing whose files are complete, or roll it back; returns what was done. Raises
        `Refusal`, OSError, `FilesChanged`: the intent stays then."""
        payload = intent.payload
        workspace, plan = payload["workspace"], landing.Plan.from_json(payload["plan"])
        with self._worktrees.locks.hold(workspace), open_workspace(workspace) as root:
            git = Git(Path(workspace)).pin()
            if landing.is_carried_out(root, plan):
                settled = landing.settle_plan(root, plan)
                self._record(payload, settled, landing.modification_times(root, plan), intent.id)
                return "after its last file; it is complete"
            rollback = landing.roll_back(root, plan, staging.blobs_of(git, plan), self._step)
        intents.drop(self._database, intent.id)
        message = f"and undone; files restored: {len(rollback.restored)}"
        others = rollback.changed_by_others
        if others:
            message += f"; changed by somebody else in the meantime and left alone: {join_paths(others)}"
        return message


def open_workspace(workspace: str) -> Beneath:
    """Open the operator's files. Raises `Refusal` `no_folder`."""
    try:
        return Beneath.open(Path(workspace))
    except OSError as error:
        raise Refusal(
            "no_folder", f"{printable_path(workspace)}: {error.strerror}", "name an existing folder"
        ) from error


def _files_after(git: Git, row: ChangeSetRow, tree: str) -> tuple[Files, Files]:
    """The files to show once it is landed up to `tree` (those of the rest, or all when there is none), and the landed
    files."""
    is_complete = tree == row.result_tree
    if is_complete and not row.landings:
        return row.files, row.files
    landed_files = _files_as_json(row, diffs.file_changes(git, row.base_tree, tree))
    if is_complete:
        return landed_files, landed_files
    return _files_as_json(row, diffs.file_changes(git, tree, row.result_tree)), landed_files


def _files_as_json(row: ChangeSetRow, files: Iterable[FileChange]) -> Files:
    return [*map(dataclasses.asdict, files), *(file for file in row.files if file["status"] == "left out")]
