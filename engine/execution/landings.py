"""Plans landings, lands change sets and undoes landings, as one change of files and database (SPEC 3.9).

Each change has an intent row while the operator's files are changed. After a crash it is recorded when its files are
complete, else it is rolled back: at the next start, or before the next change of the same workspace.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from engine.events import ChangeSetLanded, Event, LandingUndone
from engine.execution.change_store import ChangeReader, ChangeSetRow, load_checked_row, store_decision
from engine.execution.diffs import file_changes, write_tree_with
from engine.execution.file_plan import (
    ABSENT,
    Entry,
    FilesChanged,
    Image,
    Kind,
    NotRestored,
    Plan,
    carry_out,
    find_changed,
    find_obstacle,
    image_of,
    is_carried_out,
    is_spelled_exactly,
    modification_times,
    roll_back,
)
from engine.execution.trees import (
    DURABLE,
    EXECUTABLE,
    LINK,
    REF_ROOT,
    TreeChange,
    diff_trees,
    find_unsupported,
    join_paths,
    keep_object,
    merge_three_way,
    printable_path,
    scratch_index,
    take_snapshot,
)
from engine.execution.worktrees import Worktrees
from engine.git import Git
from engine.git.command import join_nul
from engine.home import Home
from engine.model import ChangeSet, ChangeState, FilePart, LandPreview, Randomness, Refusal
from engine.storage import state
from engine.storage.beneath import Beneath, parents
from engine.storage.database import Database, Transaction
from engine.storage.state import begin_intent, drop_intent, unfinished_intents

# The plan of a landing, from the difference of two trees, and the files that obstruct it
#
# git checks new contents out into a scratch folder, so that line endings and encodings are exactly git's; then they and
# the present files are stored byte for byte as blobs of the operator's repository.


def read_blobs(git: Git, oids: Iterable[str]) -> dict[str, bytes]:
    """The bytes of these blobs. Raises `GitError` when the repository no longer has one."""
    wanted = list(dict.fromkeys(oids))
    output = BytesIO(git.output("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in wanted).encode()))
    blobs = {}
    for oid in wanted:
        header = output.readline().split()
        if len(header) != 3:
            git.output("cat-file", "-e", oid)  # says what is wrong
        blobs[oid] = output.read(int(header[2]) + 1)[:-1]
    return blobs


def find_obstacles(root: Beneath, changes: Sequence[TreeChange]) -> list[str]:
    """The paths that obstruct `changes`: a file that the snapshot does not have (an ignored one) at a new path, a file
    of the snapshot that does not exist (sparse checkout), or a folder with such files."""
    paths = []
    removed = {os.fsdecode(change.path) for change in changes if change.is_removed}
    folded = {path.casefold() for path in removed}
    for change in changes:
        path = os.fsdecode(change.path)
        status = root.lstat(path)
        is_present = status is not None and not stat.S_ISDIR(status.st_mode)
        renamed_case = (
            is_present and change.is_added and path.casefold() in folded and not is_spelled_exactly(root, path)
        )
        if is_present == change.is_added and not renamed_case:
            paths.append(path)
        elif not change.is_removed and (obstacle := find_obstacle(root, path, removed)):
            paths.append(obstacle)
    return list(dict.fromkeys(paths))


def plan_for(git: Git, root: Beneath, tree: str, changes: Sequence[TreeChange], *, token: str, scratch: Path) -> Plan:
    """The plan that applies `changes`, which lead to `tree`, to the files of `git` beneath `root`. All contents,
    present and new, are then blobs of the repository. `scratch` is a folder for large temporary files."""
    folds_case = git.text("config", "--type=bool", "core.ignorecase", allowed=(0, 1)) == "true"
    empty = Plan(token, (), algorithm="sha256" if len(tree) == 64 else "sha1", folds_case=folds_case)
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stage-", dir=scratch) as folder:
        stage, store = Path(folder, "files"), Path(folder, "store")
        stage.mkdir()
        store.mkdir()
        _check_out(git, stage, tree, [change.path for change in changes if not change.is_removed])
        entries = []
        with Beneath.open(stage) as staged:
            for number, change in enumerate(changes):
                path = os.fsdecode(change.path)
                before = empty.observe_image(root, path, store / f"b{number}")
                after = ABSENT
                if not change.is_removed:
                    after = image_of(staged, path, empty.algorithm, store / f"a{number}")
                entries.append(Entry(path, before, _fit_image(change, before, after)))
        if names := "".join(f"{file}\n" for file in sorted(store.iterdir())):
            git.output(*DURABLE, "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names.encode())
    modes = dict(replaced_folders(root, entries))
    for entry in entries:
        if not entry.after.exists:
            _note_modes(root, parents(entry.path), modes)
    needed = {parent for entry in entries if entry.after.exists for parent in parents(entry.path)}
    new_folders = sorted((folder, 0o777 & ~_read_umask()) for folder in needed if not root.is_folder(folder))
    old_folders = tuple(sorted(modes.items()))
    return replace(empty, entries=tuple(entries), old_folders=old_folders, new_folders=tuple(new_folders))


def keep_blobs(git: Git, plan: Plan, session_id: str, earlier: int) -> None:
    """Keep all contents of `plan` under the session's refs, as long as it may be undone. `earlier` is the number of the
    session's earlier landings."""
    blobs = sorted({image.blob for entry in plan.entries for image in (entry.before, entry.after) if image.blob})
    lines = "".join(f"100644 blob {oid}\t{oid}\n" for oid in blobs).encode()
    tree = git.text(*DURABLE, "mktree", stdin=lines)
    git.output(*DURABLE, "update-ref", f"{REF_ROOT}/{session_id}/landing{earlier or ''}", tree)


def _check_out(git: Git, stage: Path, tree: str, paths: Sequence[bytes]) -> None:
    """Have git write `paths` of `tree` into the empty folder `stage`, with the attributes of the tree itself."""
    with scratch_index() as index:
        staged = git.over(stage, index)
        no_sparse = ("-c", "core.sparseCheckout=false", "-c", "index.sparse=false")
        staged.output(*no_sparse, "read-tree", tree)
        if paths:
            staged.output(*no_sparse, "checkout-index", "-z", "--stdin", stdin=join_nul(paths), timeout=600)


def _fit_image(change: TreeChange, before: Image, after: Image) -> Image:
    """The new image with the old file's permissions and, if git sees the same content, with its bytes, whose line
    endings may differ from those of a checkout."""
    if before.kind != Kind.FILE or after.kind != Kind.FILE:
        return after
    blob = before.blob if change.old_oid == change.new_oid else after.blob
    mode = before.mode
    if change.old_mode != change.new_mode and change.old_mode != LINK:
        readable = (mode & 0o444) >> 2
        mode = mode | readable if change.new_mode == EXECUTABLE else mode & ~0o111
    return Image(Kind.FILE, blob, mode)


def replaced_folders(root: Beneath, entries: Sequence[Entry]) -> tuple[tuple[str, int], ...]:
    """Path and permission bits of folders that a file replaces if they are empty, as in git."""
    modes: dict[str, int] = {}
    for entry in entries:
        if entry.after.exists and root.is_folder(entry.path):
            inside = [path for path, is_folder in root.walk(entry.path) if is_folder]
            _note_modes(root, (entry.path, *inside), modes)
    return tuple(sorted(modes.items()))


def _note_modes(root: Beneath, folders: Iterable[str], modes: dict[str, int]) -> None:
    for folder in folders:
        status = root.lstat(folder)
        if status is not None and stat.S_ISDIR(status.st_mode):
            modes[folder] = stat.S_IMODE(status.st_mode)


def _read_umask() -> int:
    """The process's umask, read without changing it, which would affect other threads."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022


LANDING = "landing"

MAX_PLANS = 5
"""Maximum number of plans for one landing, while its files keep changing."""

Files = list[dict[str, Any]]
"""The stored files of a change set."""


class Landings(ChangeReader):
    """Changes the operator's files, each time all or nothing, even when the process is killed."""

    def __init__(self, *, home: Home, database: Database, randomness: Randomness, step: Callable[[str], None]) -> None:
        """`step` is called before each step."""
        super().__init__(database)
        self.worktrees = Worktrees(home, database)
        self._locks = self.worktrees.locks
        self._randomness = randomness
        self._scratch = home.cache / "staging"
        self._step = step

    def preview_land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> LandPreview:
        """Whether it, or `only` these parts, could be landed on the present files; changes nothing."""
        row = self.row(change_set_id)
        with self._locks.hold(row.workspace), open_workspace(row.workspace) as root:
            git = row.open_git()
            return _check_landing(git, root, row, take_snapshot(git).tree, _target_tree(git, row, only))[0]

    def land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> ChangeSet:
        """Merge its rest, or `only` these parts, into the working-tree files, all or nothing; HEAD, index and branches
        stay. After a part the rest waits.

        Raises `Refusal`: `conflict` (files changed on both sides, or are obstructed),
        `unsupported_files`, `busy_files`, `session_writes` (a session works in these files), `already_decided`,
        `unknown_change_set`, `cannot_write`; for parts also `unknown_file`, `unknown_hunk`, `inseparable`.
        """
        with self._lock_for_decision(change_set_id, ChangeState.LANDED) as (row, root):
            git = row.open_git()
            tree = _target_tree(git, row, only)
            plan = self._plan_landing(git, root, row, tree)
            keep_blobs(git, plan, row.session_id, len(row.landings))
            if tree != row.result_tree:
                keep_object(git, row.session_id, f"landed-{tree}", tree)
            return self._apply(git, root, row, plan, ChangeState.LANDED, tree)

    def undo(self, change_set_id: str) -> ChangeSet:
        """Undo the last landing, byte for byte and mode for mode.

        Raises `Refusal`: `later_edits` when a landed file was changed since; `session_writes`,
        `already_decided`, `unknown_change_set`, `cannot_write`.
        """
        with self._lock_for_decision(change_set_id, ChangeState.UNDONE) as (row, root):
            plan = Plan.from_json(row.landings[-1]["plan"]).reversed()
            if changed := find_changed(root, plan):
                raise _later_edits(changed)
            old_folders = {*plan.old_folders, *replaced_folders(root, plan.entries)}
            plan = dataclasses.replace(
                plan, token=self._randomness.new_id("land"), old_folders=tuple(sorted(old_folders))
            )
            tree = row.landings[-2]["tree"] if len(row.landings) > 1 else row.base_tree
            return self._apply(row.open_git(), root, row, plan, ChangeState.UNDONE, tree)

    def undo_session(self, session_id: str) -> bool:
        """Undo all landings of a session's changes, the last one first; False when there are none. Raises as `undo`,
        with `later_edits` before the first one."""
        change = self.for_session(session_id)
        if change is None or (change.state is ChangeState.WAITING and not change.landings):
            return False
        with self._lock_for_decision(change.id, ChangeState.UNDONE) as (row, root):
            plans = [Plan.from_json(landed["plan"]).reversed() for landed in reversed(row.landings)]
            if changed := find_changed(root, *plans):
                raise _later_edits(changed)
            for _ in plans:
                self.undo(change.id)
        return True

    @contextmanager
    def _lock_for_decision(self, change_set_id: str, becoming: ChangeState) -> Iterator[tuple[ChangeSetRow, Beneath]]:
        """The row and the operator's files, locked against other changes. Finishes an interrupted change first."""
        workspace = self.row(change_set_id).workspace
        with self._locks.hold_exclusively(workspace), open_workspace(workspace) as root:
            for intent in unfinished_intents(self._database, LANDING):
                if intent.payload["workspace"] == workspace:
                    try:
                        self._finish_interrupted(intent)
                    except (Refusal, OSError, FilesChanged) as error:
                        raise Refusal(
                            "not_restored",
                            f"an earlier change of {workspace} is still half done: {error}",
                            "see `clawpy doctor`; free disk space and make the folder writable, then try again",
                        ) from error
            yield self.row(change_set_id, becoming=becoming), root

    def _plan_landing(self, git: Git, root: Beneath, row: ChangeSetRow, target: str) -> Plan:
        """The plan that lands `row` up to `target` on the present files. Raises `Refusal` when it cannot be landed."""
        way_out = f"`clawpy branch {row.id}` makes a branch of the work instead"
        for _ in range(MAX_PLANS):
            present = take_snapshot(git).tree
            preview, tree, changes = _check_landing(git, root, row, present, target)
            if preview.conflicts:
                message = f"you and the session changed the same lines: {join_paths(preview.conflicts)}"
                raise Refusal("conflict", message, f"set your version aside and land again, or {way_out}")
            if preview.unsupported:
                message = f"these are not landed: {join_paths(preview.unsupported)}"
                raise Refusal("unsupported_files", message, "copy them by hand")
            if preview.in_the_way:
                message = f"untracked or ignored files are in the way: {join_paths(preview.in_the_way)}"
                raise Refusal("conflict", message, f"move them away and land again, or {way_out}")
            token = self._randomness.new_id("land")
            plan = plan_for(git, root, tree, changes, token=token, scratch=self._scratch)
            self._step("planned")
            # Two snapshots with the same contents before and after the plan: it has the merged contents.
            edited = {change.path for change in diff_trees(git, present, take_snapshot(git).tree)}
            if not edited & {change.path for change in changes}:
                return plan
        raise Refusal(
            "busy_files",
            "the files to be changed are being written by another program",
            "wait until it is done, then land again",
        )

    def _apply(
        self, git: Git, root: Beneath, row: ChangeSetRow, plan: Plan, state: ChangeState, tree: str
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
        intent = self._database.write(lambda tx: begin_intent(tx, LANDING, row.id, payload))
        self._step("intent")
        try:
            written = carry_out(root, plan, partial(read_blobs, git), self._step)
        except NotRestored as error:
            raise Refusal(
                "not_restored",
                f"{row.workspace} could be neither changed nor restored: {error}",
                "fix the cause (a full disk?) and restart; the change is undone first",
            ) from error
        except (FilesChanged, OSError, Refusal) as error:
            drop_intent(self._database, intent)
            raise _refusal_of(error, row.workspace, state) from error
        self._step("files done")
        changed = self._record(root, payload, plan, written, intent)
        if changed.state is not ChangeState.WAITING:
            self.worktrees.remove(row.session_id)
        return changed

    def _record(
        self, root: Beneath, payload: dict[str, Any], plan: Plan, written: dict[str, int], intent: int
    ) -> ChangeSet:
        """Record that the files are as planned, in the transaction that removes the intent with this `payload`.
        `written` has the `mtime_ns` of the written files."""
        requested = ChangeState(payload["state"])
        recorded_plan = plan.with_removed_folders(root).as_json()

        def decide(row: ChangeSetRow) -> Event:
            earlier = {path: mtime for path, mtime in row.written.items() if path not in plan.removed_paths}
            row.written, row.files = earlier | written, payload["files"]
            if requested is ChangeState.LANDED:
                landed = {"tree": payload["tree"], "files": payload["landed"], "plan": recorded_plan}
                row.landings = [*row.landings, landed]
                waits = payload["tree"] != row.result_tree
            else:
                row.landings = row.landings[:-1]
                waits = bool(row.landings)
            row.state = (ChangeState.WAITING if waits else requested).value
            if requested is ChangeState.LANDED:
                return ChangeSetLanded(**row.about, files=row.landed, left=len(row.files) if waits else 0)
            return LandingUndone(**row.about, left=len(row.landings))

        def store(tx: Transaction) -> ChangeSet:
            return store_decision(tx, payload["change_set"], requested, decide, intent)

        return self._database.write(store)

    def _recover_landing(self, intent: state.Intent) -> str:
        """At start-up: finish or roll back an interrupted landing. Returns a message on what was done."""
        with self._database.read() as session:
            row = load_checked_row(session, intent.payload["change_set"], None)
        is_landing = intent.payload["state"] == ChangeState.LANDED
        action = f"{'landing' if is_landing else 'undoing the landing of'} “{row.title}” ({row.id}) was interrupted"
        try:
            return f"{action} {self._finish_interrupted(intent)}"
        except (Refusal, OSError, FilesChanged) as error:
            return f"{action} and cannot be undone yet: {error}; it is tried again at the next start"

    def _finish_interrupted(self, intent: state.Intent) -> str:
        """Record an interrupted landing whose files are complete, or roll it back; returns what was done. Raises
        `Refusal`, OSError, `FilesChanged`: the intent stays then."""
        workspace, plan = intent.payload["workspace"], Plan.from_json(intent.payload["plan"])
        with self._locks.hold(workspace), open_workspace(workspace) as root:
            git = Git(Path(workspace)).pin()
            if is_carried_out(root, plan):
                self._record(root, intent.payload, plan, modification_times(root, plan), intent.id)
                return "after its last file; it is complete"
            rollback = roll_back(root, plan, partial(read_blobs, git), self._step)
        drop_intent(self._database, intent.id)
        message = f"and undone; files restored: {len(rollback.restored)}"
        if others := rollback.changed_by_others:
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


def _target_tree(git: Git, row: ChangeSetRow, only: Sequence[FilePart]) -> str:
    """The tree after landing `only` these parts, or the rest if there are none."""
    if not only:
        return row.result_tree
    return write_tree_with(git, row.base_tree, row.result_tree, row.landed_tree, only)


def _check_landing(
    git: Git, root: Beneath, row: ChangeSetRow, present: str, target: str
) -> tuple[LandPreview, str, list[TreeChange]]:
    """Whether `row` can be landed up to the tree `target` on the files beneath `root`, whose tree is `present`; the
    merged tree, and its difference from the present files."""
    merge = merge_three_way(git, base=row.landed_tree, ours=present, theirs=target)
    if merge.conflicts:
        return LandPreview(False, merge.conflicts), "", []
    changes = diff_trees(git, present, merge.tree)
    reasons = find_unsupported(git, merge.tree, changes)
    in_the_way = find_obstacles(root, [change for change in changes if change.path not in reasons])
    preview = LandPreview(
        clean=not reasons and not in_the_way,
        in_the_way=tuple(map(printable_path, in_the_way)),
        unsupported=tuple(f"{printable_path(path)}: {reason}" for path, reason in reasons.items()),
        files=len(changes),
    )
    return preview, merge.tree, changes


def _later_edits(paths: Sequence[str]) -> Refusal:
    return Refusal(
        "later_edits",
        f"changed since the landing: {join_paths(paths)}",
        "undoing would lose these changes; take them out of the files first, or undo the landing by hand",
    )


def _refusal_of(error: FilesChanged | OSError | Refusal, workspace: str, state: ChangeState) -> Refusal:
    """Why a change to `state` was rolled back."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, FilesChanged):
        if state is ChangeState.UNDONE:
            return _later_edits(error.paths)
        return Refusal(
            "conflict", f"changed while landing: {join_paths(error.paths)}; nothing was landed", "land again"
        )
    where = printable_path(str(error.filename)) if error.filename else workspace
    message = f"{where}: {error.strerror or error}; nothing was changed"
    return Refusal("cannot_write", message, "free disk space or make it writable, then try again")


def _files_after(git: Git, row: ChangeSetRow, tree: str) -> tuple[Files, Files]:
    """The files to show once it is landed up to `tree` (those of the rest, or all when there is none), and the landed
    files."""
    is_complete = tree == row.result_tree
    if is_complete and not row.landings:
        return row.files, row.files

    def between(old: str, new: str) -> Files:
        left_out = (file for file in row.files if file["status"] == "left out")
        return [*map(dataclasses.asdict, file_changes(git, old, new)), *left_out]

    landed = between(row.base_tree, tree)
    return (landed if is_complete else between(tree, row.result_tree)), landed
