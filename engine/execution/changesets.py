"""Makes change sets from the worktrees of sessions, and carries out the decisions on them (SPEC 3.9).

A change set waits until it is landed, branched or discarded. A landing can be undone, and then there is the same choice
again. Every other decision is refused as `already_decided`.

A part of a change set can be landed. The rest waits, and is landed, branched or discarded later. Landings are a stack,
so that undo reverses the last one. A change set whose rest was discarded or branched has only its landed part.

A session's worktree stays until nothing of its change set waits; an undo does not restore it. Its trees stay while the
change set can be landed or its landing undone.

Several sessions may change the same files. For waiting change sets with common files, git says whether the second could
still land after the first. This is recorded, and adaptation learns from it.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path

from engine.clock import Clock
from engine.events import Event
from engine.events.work import ChangeSetBranched, ChangeSetDiscarded, ChangeSetNarrowed, ChangeSetReady, WorkOverlapped
from engine.execution.change_store import (
    NEXT_STATES,
    ChangeComments,
    ChangeReader,
    ChangeSetRow,
    load_row_of_session,
    store_decision,
)
from engine.execution.diffs import find_unsupported, list_file_changes, list_left_out
from engine.execution.landings import Landings, make_unsupported_refusal
from engine.execution.session_store import SessionRow
from engine.execution.trees import (
    OUR_EMAIL,
    OUR_NAME,
    create_branch,
    diff_trees,
    find_branch_commit,
    find_missing_objects,
    make_identity_variables,
    merge_three_way,
    store_empty_tree,
    validate_id,
)
from engine.execution.worktrees import StartingTreeBuilder, Worktree, Worktrees
from engine.frozen import frozen
from engine.git import Git, join_paths, printable_path
from engine.git.state import make_session_branch_name
from engine.home import Home
from engine.model import (
    UNDECIDED_STATES,
    ChangeSet,
    ChangeState,
    CheckResult,
    FileChange,
    FilePart,
    LandPreview,
    Refusal,
)
from engine.randomness import Randomness
from engine.storage import load, load_all
from engine.storage.database import Database, Transaction
from engine.storage.state import Intent, begin_intent, finish_intent_now, read_unfinished_intents
from engine.text import sanitise

log = logging.getLogger(__name__)

BRANCHING_INTENT = "branching"
"""The kind of the intent rows of branches."""

MAX_OVERLAPPING_FILES = 50
"""Maximum number of files that the event of an overlap names."""


@frozen
class BranchIntent:
    """A branch that is being made. Its fields are the payload of the intent row."""

    change_set: str
    workspace: str
    branch: str
    commit: str


@frozen
class CapturedChanges:
    """The changes of a session before they are stored."""

    worktree: Worktree
    result_tree: str
    """The tree of the worktree's files, which a ref of the session keeps."""
    files: tuple[FileChange, ...]
    overlaps: tuple[WorkOverlapped, ...]
    """The waiting change sets that touch the same files, oldest first."""


class ChangeSets(ChangeReader):
    """Reads change sets and carries out decisions on them. Each decision is atomic in files and database, even when the
    process is killed. Comments have a collaborator, and so have landings."""

    def __init__(
        self,
        *,
        home: Home,
        database: Database,
        clock: Clock,
        randomness: Randomness,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`step` is called with the name of each step of a decision before the step. Tests stop the process there."""
        super().__init__(database)
        self.comments = ChangeComments(database, self)
        self.worktrees = Worktrees(home, database)
        self._locks = self.worktrees.locks
        self._landings = Landings(
            database, self, self.worktrees, randomness=randomness, scratch=home.cache / "staging", step=step
        )
        self._clock = clock
        self._randomness = randomness
        self._step = step

    # -- from a session

    def capture(self, worktree: Worktree) -> CapturedChanges | None:
        """The changes in `worktree`, or None. Slow, because of git. Nothing is stored yet."""
        result = self.worktrees.capture(worktree)
        left_out = list_left_out(worktree.folder, result.nested, self.worktrees.find_changed_submodules(worktree))
        if result.tree == worktree.base and not left_out:
            return None
        git = Git(worktree.workspace).pin()
        files = (*list_file_changes(git, worktree.base, result.tree), *left_out)
        return CapturedChanges(
            worktree, result.tree, files, tuple(self._find_overlaps(git, worktree, result.tree, files))
        )

    def _find_overlaps(
        self, git: Git, worktree: Worktree, result: str, files: Collection[FileChange]
    ) -> list[WorkOverlapped]:
        """The undecided change sets with common files, and whether `result` could still land after each of them."""
        overlaps = []
        paths = {path for file in files for path in (file.path, file.old_path) if path}
        undecided = self.load_rows(state=UNDECIDED_STATES, workspace=os.fsdecode(worktree.workspace))
        for row in reversed(undecided):
            shared = paths & {path for file in row.files for path in (file["path"], file.get("old_path")) if path}
            if not shared or find_missing_objects(git, row.landed_tree, row.result_tree):
                continue
            # What the row adds, on the base of this one: an edit between the two sessions is no conflict of theirs.
            merge = merge_three_way(git, base=row.landed_tree, ours=worktree.base, theirs=row.result_tree)
            if not merge.conflicts:
                merge = merge_three_way(git, base=worktree.base, ours=merge.tree, theirs=result)
            overlaps.append(
                WorkOverlapped(
                    session_id=worktree.session_id,
                    agent="",
                    other=row.id,
                    other_session_id=row.session_id,
                    files=tuple(sorted(shared))[:MAX_OVERLAPPING_FILES],
                    conflicting=merge.conflicts[:MAX_OVERLAPPING_FILES],
                )
            )
        return overlaps

    def store(
        self,
        tx: Transaction,
        captured: CapturedChanges,
        *,
        prediction_id: str,
        title: str,
        agent: str = "",
        continues: str = "",
        check: CheckResult | None = None,
    ) -> ChangeSet:
        """Store a captured change set in the transaction that ends its session. Records `ChangeSetReady`, and
        `WorkOverlapped` for each overlap.

        If it `continues` another session, it contains the undecided changes of that session, which are discarded, and
        has their title.
        """
        worktree = captured.worktree
        row = ChangeSetRow(
            id=self._randomness.new_id("change"),
            session_id=worktree.session_id,
            prediction_id=prediction_id,
            workspace=os.fsdecode(worktree.workspace),
            base_tree=worktree.base,
            result_tree=captured.result_tree,
            files=[dataclasses.asdict(file) for file in captured.files],
            title=sanitise(title).strip(),
            check_result=None if check is None else dataclasses.asdict(check),
            created_at=tx.now,
        )
        tx.session.add(row)
        tx.session.flush()
        refused = sum(not file.can_land for file in captured.files)
        tx.record(ChangeSetReady(**row.about, files=len(captured.files), refused=refused))
        for overlap in captured.overlaps:
            tx.record(dataclasses.replace(overlap, agent=agent, subject=row.id, workspace=row.workspace))
        if continues:
            self._supersede(tx, continues, by=row)
        return row.view

    def make_starting_tree_builder(self, session_id: str) -> StartingTreeBuilder | None:
        """A builder of the tree for a session that continues `session_id`: the present files with the undecided changes
        of that session. None if the present files are enough. The builder raises `Refusal` `conflict` when you and the
        session changed the same lines, and `unsupported_files` when some of its files would be lost with its folder."""
        row = self.load_row_of_session(session_id)
        if row is None or not row.state.is_undecided:
            return None

        def build(git: Git, present: str) -> str:
            self._check_nothing_is_lost(row, "it cannot be continued")
            merge = merge_three_way(git, base=row.landed_tree, ours=present, theirs=row.result_tree)
            if merge.conflicts:
                message = f"what {session_id} changed no longer fits your files: {join_paths(merge.conflicts)}"
                raise Refusal("conflict", message, "land or discard its changes first, then continue it")
            return merge.tree

        return build

    def _supersede(self, tx: Transaction, session_id: str, by: ChangeSetRow) -> None:
        """Discard the undecided changes of a session, because `by` contains them; it gets their title."""
        row = load_row_of_session(tx.session, session_id)
        if row is None or ChangeState.DISCARDED not in NEXT_STATES.get(row.state, set()):
            return
        by.title = row.title
        changed = self._discard_rest(tx, row.id, continued_in=by.session_id)

        def clear_away() -> None:
            try:
                self._clear_away(changed)
            except Refusal as refusal:  # the engine closes, or git fails: the next start does it
                log.info("%s is cleared away later: %s", changed.id, refusal)

        # Not on the thread that commits, because this starts git and writes.
        thread = threading.Thread(target=clear_away, name=f"clawpy-tidy-{changed.id}", daemon=True)
        tx.after_commit(thread.start)

    # -- decisions

    def preview_land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> LandPreview:
        """Whether the change set, or `only` these parts of it, could be landed on the present files. Changes
        nothing. Raises `Refusal` `unknown_change_set`; for parts also `unknown_file`, `unknown_hunk`, `inseparable`."""
        return self._landings.preview(change_set_id, only)

    def land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> ChangeSet:
        """Merge the rest of the change set, or `only` these parts of it, into the operator's files, all or nothing.

        HEAD, index and branches stay as they are. After some parts were landed the rest waits.

        Raises `Refusal`: `conflict` (files changed on both sides, or are obstructed),
        `unsupported_files`, `busy_files`, `session_writes` (a session works in these files), `already_decided`,
        `unknown_change_set`, `cannot_write`; for parts also `unknown_file`, `unknown_hunk`, `inseparable`.
        """
        return self._landings.land(change_set_id, only)

    def undo(self, change_set_id: str) -> ChangeSet:
        """Undo the last landing, byte for byte and mode for mode.

        Raises `Refusal`: `later_edits` when a landed file was changed since; `session_writes`,
        `already_decided`, `unknown_change_set`, `cannot_write`.
        """
        return self._landings.undo(change_set_id)

    def undo_session(self, session_id: str) -> int | None:
        """Undo the last landing of a session's changes; None when there is none. Returns the number of landings that
        are left. Raises as `undo`."""
        change = self.find_of_session(session_id)
        if change is None or (change.state is ChangeState.WAITING and not change.landings):
            return None
        return self.undo(change.id).landings

    def branch(self, change_set_id: str) -> ChangeSet:
        """Commit its rest alone onto HEAD, on a new branch that is named after its prompt (`clawpy/fix-lint`). Files,
        index and HEAD stay as they are. The commit is not signed, and no hooks run.

        Raises `Refusal`: `conflict` (it builds on uncommitted work), `nothing_to_commit`, `unsupported_files`,
        `already_decided`, `unknown_change_set`.
        """
        workspace = self.load_row(change_set_id).workspace
        with self._locks.hold(workspace):
            row = self.load_row(change_set_id, becoming=ChangeState.BRANCHED)
            git = row.open_git()
            self._check_branchable(git, row)
            message = self._revert_message(git, row) or row.commit_message
            commit = _commit_diff(
                git, base=row.landed_tree, result=row.result_tree, message=message, at=self._clock.local()
            )
            name = find_free_branch_name(git, row.title, row.session_id)
            begun = BranchIntent(row.id, workspace, name, commit)
            payload = dataclasses.asdict(begun)
            intent = self._database.write(lambda tx: begin_intent(tx, BRANCHING_INTENT, row.id, payload))
            self._step("branch intent")
            try:
                create_branch(git, name, commit)
            except Refusal:
                finish_intent_now(self._database, intent)
                raise
            self._step("branch made")
            changed = self._record_branch(begun, intent)
        self._clear_away(changed)
        return changed

    def _check_branchable(self, git: Git, row: ChangeSetRow) -> None:
        """Raise `Refusal` `unsupported_files` if a file of the rest cannot be committed, or would be lost with the
        session's folder."""
        folder, consequence = self.worktrees.folder_of(row.session_id), "no branch was made"
        changes = diff_trees(git, row.landed_tree, row.result_tree)
        if reasons := find_unsupported(git, row.result_tree, changes):
            raise make_unsupported_refusal(row, reasons, folder, consequence)
        self._check_nothing_is_lost(row, consequence)

    def _check_nothing_is_lost(self, row: ChangeSetRow, consequence: str) -> None:
        """Raise `Refusal` `unsupported_files` if some of its files are only in the session's folder, which is about to
        be removed. `consequence` begins the sentence."""
        folder = self.worktrees.folder_of(row.session_id)
        if lost := [file["path"] for file in row.left_out_files if _holds_something(folder, file["path"])]:
            message = f"{consequence}, because these are only in the session's folder, which goes: {join_paths(lost)}"
            raise Refusal("unsupported_files", message, f"move them out of {folder}, then try again")

    def _revert_message(self, git: Git, row: ChangeSetRow) -> str:
        """The message that git gives a revert, if the session reverted a commit, else ""."""
        with self._database.read() as session:
            session_row = load(session, SessionRow, row.session_id)
        commit = session_row.facts.get("commit") if session_row and session_row.flow == "rehearse_revert" else None
        subject = sanitise(git.text("log", "-1", "--format=%s", commit, "--", allowed=(0, 128))) if commit else ""
        if not subject:
            return ""
        return f'Revert "{subject}"\n\nThis reverts commit {commit}.\n\nSession: {row.session_id}\n'

    def discard(self, change_set_id: str) -> ChangeSet:
        """Discard its rest and its worktree. Raises `Refusal` `already_decided`, `unknown_change_set`."""
        with self._locks.hold(self.load_row(change_set_id).workspace):
            changed = self._database.write(lambda tx: self._discard_rest(tx, change_set_id))
        self._step("discarded")
        self._clear_away(changed)
        return changed

    def recover(self, *, spare: Collection[str] = ()) -> list[str]:
        """At start-up, before any other use: finish or roll back interrupted decisions, and remove the worktrees of
        earlier sessions except for those in `spare`. Returns messages on what was done."""
        messages = self._landings.recover()
        messages += [
            self._recover_branch(intent) for intent in read_unfinished_intents(self._database, BRANCHING_INTENT)
        ]
        with self._database.read() as session:
            rows = load_all(session, ChangeSetRow, "WHERE kept")
        final_states = (ChangeState.BRANCHED, ChangeState.DISCARDED)
        for row in rows:
            if row.state in final_states:
                self._clear_away(row.view)
        messages += self.worktrees.recover(
            keep={*spare, *(row.session_id for row in rows if row.state.is_undecided)},
            keep_refs={row.session_id for row in rows if row.state not in final_states},
        )
        return messages

    def _record_branch(self, begun: BranchIntent, intent: int) -> ChangeSet:
        """Record that the branch was made, and remove the row of the intent."""

        def decide(row: ChangeSetRow) -> Event:
            row.branch = begun.branch
            row.keep_landed_part(f"the rest is on branch {begun.branch}")
            return ChangeSetBranched(**row.about, branch=begun.branch, landed=row.landed)

        return self._database.write(
            lambda tx: store_decision(tx, begun.change_set, ChangeState.BRANCHED, decide, intent)
        )

    def _discard_rest(self, tx: Transaction, change_set_id: str, *, continued_in: str = "") -> ChangeSet:
        """Record that the rest is discarded. `continued_in` is the session that contains it, "" for none."""

        def decide(row: ChangeSetRow) -> Event:
            note = f"continued in {continued_in}" if continued_in else ""
            if row.keep_landed_part(note or "the rest was discarded") and not continued_in:
                return ChangeSetNarrowed(**row.about, files=len(row.files))
            row.note = note
            return ChangeSetDiscarded(**row.about, continued_in=continued_in)

        changed = store_decision(tx, change_set_id, ChangeState.DISCARDED, decide)
        session = load(tx.session, SessionRow, changed.session_id)
        if session is not None and changed.state is ChangeState.DISCARDED and not continued_in:
            session.discarded_at = tx.now
        return changed

    def _recover_branch(self, intent: Intent) -> str:
        """Finish or drop a branch that a crash interrupted. Returns a message on what was done."""
        begun = BranchIntent(**intent.payload)
        action = f"branching {begun.change_set} was interrupted"
        try:
            if find_branch_commit(Git(Path(begun.workspace)).pin(), begun.branch) == begun.commit:
                self._record_branch(begun, intent.id)
                return f"{action}; the branch {begun.branch} exists"
        except Refusal as error:
            return f"{action}, and the repository cannot be read: {error}"
        finish_intent_now(self._database, intent.id)
        return f"{action} before it began; the changes are still waiting"

    def _clear_away(self, change_set: ChangeSet) -> None:
        """Remove its worktree and its refs. A landed change set keeps its refs for an undo."""
        self.worktrees.remove(change_set.session_id)
        if change_set.state is ChangeState.LANDED:
            return
        self.worktrees.release(Path(change_set.workspace), change_set.session_id)

        def forget(tx: Transaction) -> None:
            row = tx.session.get(ChangeSetRow, change_set.id)
            if row is not None:
                row.kept = False
                tx.session.add(row)

        self._database.write(forget)


def _commit_diff(git: Git, *, base: str, result: str, message: str, at: datetime) -> str:
    """Commit exactly the changes from tree `base` to tree `result` onto HEAD. The new commit has no ref yet.

    The author is git's user, else a fallback. Raises `Refusal`: `conflict` (the changes build on uncommitted work that
    HEAD does not have), `nothing_to_commit`.
    """
    head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    onto = git.text("rev-parse", f"{head}^{{tree}}") if head else store_empty_tree(git)
    merge = merge_three_way(git, base=base, ours=onto, theirs=result)
    if merge.conflicts:
        raise Refusal(
            "conflict",
            f"no branch was made: it builds on changes that HEAD does not have: {join_paths(merge.conflicts)}",
            "commit your own changes of these files and try again, or land it instead",
        )
    if merge.tree == onto:
        message = "no branch was made: with these changes, the files are as HEAD has them"
        raise Refusal("nothing_to_commit", message, "land them if your files differ from HEAD there, else discard them")
    name = git.text("config", "user.name", allowed=(0, 1)) or OUR_NAME
    email = git.text("config", "user.email", allowed=(0, 1)) or OUR_EMAIL
    parents = ("-p", head) if head else ()
    return git.text(
        "commit-tree",
        merge.tree,
        *parents,
        stdin=message.encode(),
        environment=make_identity_variables(name, email, at.isoformat()),
    )


def find_free_branch_name(git: Git, title: str, session_id: str) -> str:
    """A branch name from the words of `title`. If it is taken, the first free suffix (-2, -3, …) is added."""
    first = make_session_branch_name(title, validate_id(session_id), below=not find_branch_commit(git, "clawpy"))
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    # A name is taken by a branch, and by branches below it.
    return next(name for name in names if not git.text("for-each-ref", "--count=1", f"refs/heads/{name}"))


def _holds_something(folder: Path, printed_path: str) -> bool:
    """Whether a path in `folder` that is printed like this leads to a file, a link, or a folder that is not known to be
    empty. The folder of a submodule stays."""
    paths = [folder]
    try:
        for name in printed_path.rstrip("/").split("/"):
            entries = [entry for path in paths if path.is_dir() for entry in path.iterdir()]
            paths = [entry for entry in entries if printable_path(entry.name) == name]
        return any(path.is_symlink() or not path.is_dir() or any(path.iterdir()) for path in paths)
    except OSError:  # a folder cannot be read
        return True
