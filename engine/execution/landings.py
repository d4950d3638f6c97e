"""Lands change sets in the operator's files and undoes landings, each as one change of files and database (SPEC 3.9).

While the files are changed, an intent row says what is being done. A crash leaves that row. The next start, or the next
change of the same workspace, reads it: if all files are as planned, the change is recorded, else it is rolled back.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from engine.beneath import Beneath
from engine.events import Event
from engine.events.work import ChangeSetLanded, LandingUndone
from engine.execution.change_store import ChangeReader, ChangeSetRow, load_checked_row, store_decision
from engine.execution.diffs import list_file_changes
from engine.execution.file_plan import (
    FilesChanged,
    NotRestored,
    Plan,
    carry_out,
    find_changed_paths,
    finish_plan,
    is_carried_out,
    read_modification_times,
    roll_back,
)
from engine.execution.landing_plans import (
    TrialLanding,
    find_replaced_folders,
    keep_blobs,
    make_plan,
    read_blobs,
    try_landing,
    write_tree_with,
)
from engine.execution.trees import diff_trees, keep_object, take_snapshot
from engine.execution.worktrees import Worktrees
from engine.frozen import frozen
from engine.git import Git, join_paths, printable_path
from engine.model import ChangeSet, ChangeState, FilePart, LandPreview, Refusal
from engine.randomness import Randomness
from engine.storage.database import Database
from engine.storage.state import Intent, begin_intent, finish_intent_now, read_unfinished_intents
from engine.wording import count

LANDING_INTENT = "landing"
"""The kind of the intent rows of landings and undos."""

MAX_PLANS = 5
"""Maximum number of plans for one landing, while its files keep changing."""

Files = list[dict[str, Any]]
"""The stored files of a change set."""


@frozen
class LandingIntent:
    """A landing or an undo that was begun. Its fields are the payload of the intent row."""

    change_set: str
    workspace: str
    state: str
    """The requested `ChangeState`: landed or undone."""
    plan: dict[str, Any]
    """The `Plan`, as JSON."""
    tree: str
    """The tree up to which the change set is landed afterwards."""
    files: Files
    """The files to show afterwards, and those that are landed then; see `_list_files_after`."""
    landed: Files


@frozen
class Landings:
    """Lands and undoes. The operator's files change as a whole or not at all, even when the process is killed.

    `scratch` is a folder of its own for temporary files. `step` is called with the name of each step before the
    step. Tests stop the process there.
    """

    database: Database
    reader: ChangeReader
    worktrees: Worktrees
    randomness: Randomness
    scratch: Path
    step: Callable[[str], None]

    def preview(self, change_set_id: str, only: Sequence[FilePart]) -> LandPreview:
        """See `ChangeSets.preview_land`."""
        row = self.reader.load_row(change_set_id)
        with self.worktrees.locks.hold(row.workspace), open_workspace(row.workspace) as root:
            git = row.open_git()
            target = _write_target_tree(git, row, only)
            present = take_snapshot(git).tree
            return try_landing(git, root, landed=row.landed_tree, target=target, present=present).preview

    def land(self, change_set_id: str, only: Sequence[FilePart]) -> ChangeSet:
        """See `ChangeSets.land`."""
        with self._lock_for_decision(change_set_id, ChangeState.LANDED) as (row, root):
            git = row.open_git()
            tree = _write_target_tree(git, row, only)
            if tree == row.landed_tree:
                reasons = {os.fsencode(file["path"]): "only in the session's folder" for file in row.left_out_files}
                raise self._refuse_unsupported(row, reasons)
            plan = self._plan_landing(git, root, row, tree)
            keep_blobs(git, plan, row.session_id, len(row.landings))
            if tree != row.result_tree:
                keep_object(git, row.session_id, f"landed-{tree}", tree)
            return self._apply(git, root, row, plan, ChangeState.LANDED, tree)

    def undo(self, change_set_id: str) -> ChangeSet:
        """See `ChangeSets.undo`."""
        with self._lock_for_decision(change_set_id, ChangeState.UNDONE) as (row, root):
            plan = Plan.from_json(row.landings[-1]["plan"]).reversed()
            if changed := find_changed_paths(root, plan):
                raise _make_later_edits_refusal(changed)
            old_folders = {*plan.old_folders, *find_replaced_folders(root, plan.entries).items()}
            plan = dataclasses.replace(
                plan, token=self.randomness.new_id("land"), old_folders=tuple(sorted(old_folders))
            )
            tree = row.landings[-2]["tree"] if len(row.landings) > 1 else row.base_tree
            return self._apply(row.open_git(), root, row, plan, ChangeState.UNDONE, tree)

    def recover(self) -> list[str]:
        """At start-up: finish or roll back the landings that a crash interrupted. Returns a message on each."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        return [self._recover_landing(intent) for intent in read_unfinished_intents(self.database, LANDING_INTENT)]

    @contextmanager
    def _lock_for_decision(self, change_set_id: str, becoming: ChangeState) -> Iterator[tuple[ChangeSetRow, Beneath]]:
        """Lock the row and the operator's files against other changes, and finish an interrupted change first."""
        workspace = self.reader.load_row(change_set_id).workspace
        with self.worktrees.locks.hold_exclusively(workspace), open_workspace(workspace) as root:
            intents = read_unfinished_intents(self.database, LANDING_INTENT)
            try:
                for intent in intents:
                    if LandingIntent(**intent.payload).workspace == workspace:
                        self._finish_interrupted(intent)
            except (Refusal, OSError, FilesChanged) as error:
                raise Refusal(
                    "not_restored",
                    f"an earlier change of {workspace} is still half done: {error}",
                    "see `clawpy doctor`; free disk space and make the folder writable, then try again",
                ) from error
            yield self.reader.load_row(change_set_id, becoming=becoming), root

    def _plan_landing(self, git: Git, root: Beneath, row: ChangeSetRow, target: str) -> Plan:
        """The plan that lands `row` up to the tree `target`. Raises `Refusal` when the present files prevent that."""
        for _ in range(MAX_PLANS):
            present = take_snapshot(git).tree
            trial = try_landing(git, root, landed=row.landed_tree, target=target, present=present)
            if trial.preview.unsupported:
                raise self._refuse_unsupported(row, trial.unsupported)
            if refusal := _find_conflict(git, root, row, trial):
                raise refusal
            token = self.randomness.new_id("land")
            plan = make_plan(git, root, trial.tree, trial.changes, token=token, scratch=self.scratch)
            self.step("planned")
            # A file may have been edited while its merged contents were computed: then the plan is made again.
            edited = {change.path for change in diff_trees(git, present, take_snapshot(git).tree)}
            if not edited & {change.path for change in trial.changes}:
                return dataclasses.replace(plan, tree=trial.tree, tree_before=present)
        raise Refusal(
            "busy_files",
            "the files to be changed are being written by another program",
            "wait until it is done, then land again",
        )

    def _refuse_unsupported(self, row: ChangeSetRow, reasons: Mapping[bytes, str]) -> Refusal:
        folder = self.worktrees.folder_of(row.session_id)
        return make_unsupported_refusal(row, reasons, folder, "nothing was landed")

    def _apply(
        self, git: Git, root: Beneath, row: ChangeSetRow, plan: Plan, state: ChangeState, tree: str
    ) -> ChangeSet:
        """Carry out `plan`, after which the change set is landed up to the tree `tree`."""
        files, landed = _list_files_after(git, row, tree)
        begun = LandingIntent(
            row.id, row.workspace, state=state.value, plan=plan.as_json(), tree=tree, files=files, landed=landed
        )
        intent = self.database.write(lambda tx: begin_intent(tx, LANDING_INTENT, row.id, dataclasses.asdict(begun)))
        self.step("intent")
        try:
            written = carry_out(root, plan, partial(read_blobs, git), self.step)
        except NotRestored as error:
            raise Refusal(
                "not_restored",
                f"{row.workspace} could be neither changed nor restored: {error}",
                "fix the cause (a full disk?) and restart; the change is undone first",
            ) from error
        except (FilesChanged, OSError, Refusal) as error:
            finish_intent_now(self.database, intent)
            raise _make_refusal(error, row.workspace, state) from error
        self.step("files done")
        changed = self._record(root, begun, plan, written, intent)
        if changed.state is ChangeState.LANDED:
            self.worktrees.remove(row.session_id)
        return changed

    def _record(
        self, root: Beneath, begun: LandingIntent, plan: Plan, written: dict[str, int], intent: int
    ) -> ChangeSet:
        """Record that the files are as planned, and remove the row of the intent, in one transaction.
        `written` has the `mtime_ns` of the written files by path."""
        requested = ChangeState(begun.state)
        recorded_plan = plan.with_removed_folders(root).as_json()

        def decide(row: ChangeSetRow) -> Event:
            earlier = {path: mtime for path, mtime in row.written.items() if path not in plan.removed_paths}
            row.written, row.files = earlier | written, begun.files
            if requested is ChangeState.UNDONE:
                row.landings = row.landings[:-1]
                row.state = ChangeState.WAITING if row.landings else requested
                return LandingUndone(**row.about, left=len(row.landings))
            landed = {"tree": begun.tree, "files": begun.landed, "plan": recorded_plan}
            row.landings = [*row.landings, landed]
            is_complete = begun.tree == row.result_tree and not row.left_out_files
            row.state = requested if is_complete else ChangeState.WAITING
            return ChangeSetLanded(**row.about, files=row.landed, left=0 if is_complete else len(row.files))

        return self.database.write(lambda tx: store_decision(tx, begun.change_set, requested, decide, intent))

    def _recover_landing(self, intent: Intent) -> str:
        """Finish or roll back a landing that a crash interrupted. Returns a message on what was done."""
        with self.database.read() as session:
            row = load_checked_row(session, intent.subject, None)
        is_landing = LandingIntent(**intent.payload).state == ChangeState.LANDED
        action = f"{'landing' if is_landing else 'undoing the landing of'} “{row.title}” ({row.id}) was interrupted"
        try:
            return f"{action} {self._finish_interrupted(intent)}"
        except (Refusal, OSError, FilesChanged) as error:
            return f"{action} and cannot be undone yet: {error}; it is tried again at the next start"

    def _finish_interrupted(self, intent: Intent) -> str:
        """Record an interrupted landing if its files are complete, else roll it back. Returns what was done, as the end
        of a sentence. The intent stays when this raises `Refusal`, OSError or `FilesChanged`."""
        begun = LandingIntent(**intent.payload)
        workspace, plan = begun.workspace, Plan.from_json(begun.plan)
        with self.worktrees.locks.hold(workspace), open_workspace(workspace) as root:
            git = Git(Path(workspace)).pin()
            if is_carried_out(root, plan):
                finish_plan(root, plan)
                # Other files may have changed in the meantime.
                plan = dataclasses.replace(plan, tree="", tree_before="")
                self._record(root, begun, plan, read_modification_times(root, plan), intent.id)
                return "after its last file; it is complete"
            rollback = roll_back(root, plan, partial(read_blobs, git), self.step)
        finish_intent_now(self.database, intent.id)
        message = f"and undone; files restored: {len(rollback.restored)}"
        if foreign_paths := rollback.changed_by_others:
            message += f"; changed by somebody else in the meantime and left alone: {join_paths(foreign_paths)}"
        return message


def _write_target_tree(git: Git, row: ChangeSetRow, only: Sequence[FilePart]) -> str:
    """The tree after a landing of `only` these parts, or of the rest if none are named."""
    if not only:
        return row.result_tree
    return write_tree_with(git, row.base_tree, row.result_tree, row.landed_tree, only)


def _find_conflict(git: Git, root: Beneath, row: ChangeSetRow, trial: TrialLanding) -> Refusal | None:
    """The refusal of a landing that conflicts with the present files, or None."""
    preview = trial.preview
    way_out = f"`clawpy branch {row.id}` makes a branch of the work instead"
    if preview.conflicts:
        message = f"you and the session changed the same lines: {join_paths(preview.conflicts)}"
        return Refusal("conflict", message, f"set your version aside and land again, or {way_out}")
    if not preview.in_the_way:
        return None
    changed = [os.fsdecode(change.path) for change in trial.changes if not change.is_added]
    missing = [path for path in changed if root.lstat(path) is None]
    if missing and git.text("config", "--bool", "core.sparseCheckout", allowed=(0, 1)) == "true":
        message = f"outside of your sparse checkout: {join_paths(missing)}"
        return Refusal("conflict", message, f"`git sparse-checkout add` their folder and land again, or {way_out}")
    message = f"untracked or ignored files are in the way: {join_paths(preview.in_the_way)}"
    return Refusal("conflict", message, f"move them away and land again, or {way_out}")


def open_workspace(workspace: str) -> Beneath:
    """Open the folder of the operator's files. Raises `Refusal` `no_folder`."""
    try:
        return Beneath.open(Path(workspace))
    except OSError as error:
        raise Refusal(
            "no_folder", f"{printable_path(workspace)}: {error.strerror}", "bring it back, and try again"
        ) from error


def _make_later_edits_refusal(paths: Sequence[str]) -> Refusal:
    """The refusal of an undo that would lose later edits of these files."""
    return Refusal(
        "later_edits",
        f"changed since the landing: {join_paths(paths)}",
        "undoing would lose these changes; take them out of the files first, or undo the landing by hand",
    )


def _make_refusal(error: FilesChanged | OSError | Refusal, workspace: str, state: ChangeState) -> Refusal:
    """The refusal that explains why a change to `state` was rolled back."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, FilesChanged):
        if state is ChangeState.UNDONE:
            return _make_later_edits_refusal(error.paths)
        return Refusal(
            "conflict", f"changed while landing: {join_paths(error.paths)}; nothing was landed", "land again"
        )
    where = printable_path(str(error.filename)) if error.filename else workspace
    message = f"{where}: {error.strerror or error}; nothing was changed"
    return Refusal("cannot_write", message, "free disk space or make it writable, then try again")


def make_unsupported_refusal(
    row: ChangeSetRow, reasons: Mapping[bytes, str], folder: Path, consequence: str
) -> Refusal:
    """The refusal of a decision on `row` because of the files in `reasons`, each with why it cannot be landed.
    `consequence` begins the sentence; `folder` is that of the session."""
    refused = [printable_path(path) for path in reasons]
    named = [f"{path} ({reason})" for path, reason in zip(refused, reasons.values(), strict=True)]
    others = [file.path for file in row.view.landable_files if file.path not in refused]
    if others:
        option, paths = ("--only", others) if len(others) < len(refused) else ("--without", refused)
        options = " ".join(f"{option} {shlex.quote(path)}" for path in paths)
        fix = f"`clawpy land {row.id} {options}` lands the other {count(len(others), 'file')}"
        fix += f"; the rest is in {folder}" if folder.is_dir() else ""
    else:
        source = f" from {folder}" if folder.is_dir() else ""
        fix = f"copy what you need{source}, then `clawpy discard {row.id}`"
    return Refusal("unsupported_files", f"{consequence}, because these cannot be landed: {join_paths(named)}", fix)


def _list_files_after(git: Git, row: ChangeSetRow, tree: str) -> tuple[Files, Files]:
    """The files to show, and the landed files, once the change set is landed up to `tree`. The files to show are those
    of the rest; without a rest, all of them."""
    is_complete = tree == row.result_tree and not row.left_out_files
    if is_complete and not row.landings:
        return row.files, row.files
    landed = [dataclasses.asdict(file) for file in list_file_changes(git, row.base_tree, tree)]
    if is_complete:
        return landed, landed
    rest = [dataclasses.asdict(file) for file in list_file_changes(git, tree, row.result_tree)]
    return [*rest, *row.left_out_files], landed
