"""Lands, branches, discards and undoes change sets, the changes of sessions (SPEC 3.9).

States: waiting -> landed | branched | discarded; landed -> undone; undone -> landed | branched | discarded. Every other
decision is refused as `already_decided`.

Part of a change set can be landed: the rest waits, and is landed, branched or discarded later. Landings are a stack:
undo reverses the last one. Once the rest is discarded or branched, the change set is reduced to its landed part.

A session's worktree stays until nothing of its change set waits; an undo does not restore it. Its trees stay while the
change set can be landed or its landing undone.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from engine.clock import Clock
from engine.events import (
    ChangeSetBranched,
    ChangeSetDiscarded,
    ChangeSetNarrowed,
    Event,
)
from engine.execution import landing, snapshots, staging
from engine.execution.change_capture import ChangeCapture
from engine.execution.change_store import (
    NEXT_STATES,
    ChangeComments,
    ChangeReader,
    ChangeSetRow,
    finish_decision,
    store_decision,
)
from engine.execution.landings import (
    Landings,
    check_landing,
    later_edits,
    open_workspace,
    refuse_unless_clean,
    target_tree,
)
from engine.execution.session_store import SessionRow
from engine.execution.trees import branch_is_at, commit_diff, create_branch, diff_trees, free_branch_name
from engine.execution.worktrees import Worktrees
from engine.git import Git
from engine.home import Home
from engine.model import (
    ChangeSet,
    ChangeState,
    FilePart,
    LandPreview,
    Randomness,
    Refusal,
)
from engine.storage import intents
from engine.storage.beneath import Beneath
from engine.storage.database import Database, Transaction
from engine.storage.rows import load

log = logging.getLogger(__name__)

BRANCHING = "branching"
MAX_PLANS = 5
"""Maximum number of plans for one landing, while its files keep changing."""


class ChangeSets(ChangeReader):
    """Reads change sets and carries out decisions on them, each atomic in files and database, even when the process is
    killed."""

    def __init__(
        self,
        *,
        home: Home,
        database: Database,
        clock: Clock,
        randomness: Randomness,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        super().__init__(database)
        self.worktrees = Worktrees(home, database)
        self.captures = ChangeCapture(self, self.worktrees, randomness)
        self.comments = ChangeComments(database, self)
        self._locks = self.worktrees.locks
        self._landings = Landings(database, self.worktrees, step)
        self._randomness = randomness
        self._scratch = home.cache / "staging"
        self._clock = clock
        self._step = step

    def supersede(self, tx: Transaction, session_id: str, by: str) -> None:
        """Discard the undecided changes of `session_id`, in the transaction that stores those of session `by`, which
        contain them."""
        row = tx.session.exec(select(ChangeSetRow).where(col(ChangeSetRow.session_id) == session_id)).first()
        if row is None or ChangeState.DISCARDED not in NEXT_STATES.get(ChangeState(row.state), set()):
            return
        changed = self._discard_rest(tx, row.id, continued_in=by)
        # Not on the thread that commits: tidying up starts git and writes.
        tidy = threading.Thread(
            target=self._clear_away_later, args=(changed,), name=f"clawpy-tidy-{changed.id}", daemon=True
        )
        tx.after_commit(tidy.start)

    def _clear_away_later(self, change_set: ChangeSet) -> None:
        try:
            self._clear_away(change_set)
        except Refusal as refusal:  # the engine closes, or git fails: the next start does it
            log.info("%s is cleared away later: %s", change_set.id, refusal)

    def preview_land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> LandPreview:
        """Whether it, or `only` these parts, could be landed on the present files; changes nothing."""
        row = self.row(change_set_id)
        with self._locks.hold(row.workspace), open_workspace(row.workspace) as root:
            git = row.open_git()
            present, target = snapshots.take_snapshot(git).tree, target_tree(git, row, only)
            return check_landing(git, root, row, present=present, target=target).preview

    # Decisions

    def land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> ChangeSet:
        """Merge its rest, or `only` these parts, into the working-tree files, all or nothing; HEAD, index and branches
        stay. After a part the rest waits.

        Raises `Refusal`: `conflict` (files changed on both sides, or are obstructed),
        `unsupported_files`, `busy_files`, `session_writes` (a session works in these files), `already_decided`,
        `unknown_change_set`, `cannot_write`; for parts also `unknown_file`, `unknown_hunk`, `inseparable`.
        """
        with self._lock_for_decision(change_set_id, ChangeState.LANDED) as (row, root):
            git = row.open_git()
            tree = target_tree(git, row, only)
            plan = self._plan_landing(git, root, row, tree)
            staging.keep_blobs(git, plan, row.session_id, len(row.landings))
            if tree != row.result_tree:
                snapshots.keep_object(git, row.session_id, f"landed-{tree}", tree)
            return self._landings.carry_out(git, root, row, plan, ChangeState.LANDED, tree)

    def undo(self, change_set_id: str) -> ChangeSet:
        """Undo the last landing, byte for byte and mode for mode.

        Raises `Refusal`: `later_edits` when a landed file was changed since; `session_writes`,
        `already_decided`, `unknown_change_set`, `cannot_write`.
        """
        with self._lock_for_decision(change_set_id, ChangeState.UNDONE) as (row, root):
            plan = dataclasses.replace(
                landing.Plan.from_json(row.landings[-1]["plan"]).reversed(), token=self._randomness.new_id("land")
            )
            git = row.open_git()
            changed = landing.find_changed(root, plan)
            if changed:
                raise later_edits(changed)
            empty = staging.replaced_folders(root, plan.entries)
            plan = dataclasses.replace(plan, old_folders=tuple(sorted({*plan.old_folders, *empty})))
            tree = row.landings[-2]["tree"] if len(row.landings) > 1 else row.base_tree
            return self._landings.carry_out(git, root, row, plan, ChangeState.UNDONE, tree)

    def reverse(self, session_id: str) -> bool:
        """Undo all landings of a session's changes, the last one first; False when there are none. Raises as `undo`,
        with `later_edits` before the first one."""
        change = self.for_session(session_id)
        if change is None or (change.state is ChangeState.WAITING and not change.landings):
            return False
        with self._lock_for_decision(change.id, ChangeState.UNDONE) as (row, root):
            plans = [landing.Plan.from_json(landed["plan"]).reversed() for landed in reversed(row.landings)]
            if changed := landing.find_changed(root, *plans):
                raise later_edits(changed)
            for _ in plans:
                self.undo(change.id)
        return True

    @contextmanager
    def _lock_for_decision(self, change_set_id: str, becoming: ChangeState) -> Iterator[tuple[ChangeSetRow, Beneath]]:
        """The row and the operator's files, locked against other changes. Rolls back an interrupted landing first."""
        workspace = self.row(change_set_id).workspace
        with self._locks.hold_exclusively(workspace), open_workspace(workspace) as root:
            self._landings.finish_interrupted(workspace)
            yield self.row(change_set_id, becoming=becoming), root

    def branch(self, change_set_id: str) -> ChangeSet:
        """Commit its rest alone onto HEAD on a new branch, named after its prompt (`clawpy/fix-lint`); files, index and
        HEAD stay.

        Raises `Refusal`: `conflict` (it builds on uncommitted work), `nothing_to_commit`, `unsupported_files`,
        `already_decided`, `unknown_change_set`.
        """
        workspace = self.row(change_set_id).workspace
        with self._locks.hold(workspace):
            row = self.row(change_set_id, becoming=ChangeState.BRANCHED)
            git = row.open_git()
            commit = commit_diff(
                git,
                base=row.landed_tree,
                result=row.result_tree,
                message=row.commit_message,
                at=self._clock.local(),
            )
            name = free_branch_name(git, row.title, row.session_id)
            payload = {"change_set": row.id, "workspace": workspace, "branch": name, "commit": commit}
            intent = self._database.write(lambda tx: intents.begin(tx, BRANCHING, row.id, payload))
            self._step("branch intent")
            try:
                create_branch(git, name, commit)
            except Refusal:
                intents.drop(self._database, intent)
                raise
            self._step("branch made")
            changed = self._record_branch(payload, intent)
        self._clear_away(changed)
        return changed

    def discard(self, change_set_id: str) -> ChangeSet:
        """Discard its rest and its worktree. Raises `Refusal` `already_decided`, `unknown_change_set`."""
        with self._locks.hold(self.row(change_set_id).workspace):
            changed = self._database.write(lambda tx: self._discard_rest(tx, change_set_id))
        self._step("discarded")
        self._clear_away(changed)
        return changed

    def recover(self, *, spare: Collection[str] = ()) -> list[str]:
        """At start-up, before any other use: finish or roll back interrupted decisions, and remove worktrees of earlier
        sessions, except for those in `spare`. Returns messages on what was done."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        messages = self._landings.recover()
        for intent in intents.unfinished(self._database, BRANCHING):
            messages.append(self._recover_branch(intent))
        with self._database.read() as session:
            rows = list(session.exec(select(ChangeSetRow).where(col(ChangeSetRow.kept))))
        final_states = (ChangeState.BRANCHED, ChangeState.DISCARDED)
        for row in rows:
            if row.state in final_states:
                self._clear_away(row.view())
        undecided = [row for row in rows if row.state not in final_states]
        messages += self.worktrees.recover(
            keep={*spare, *(row.session_id for row in undecided if row.state == ChangeState.WAITING)},
            keep_refs={row.session_id for row in undecided},
        )
        return messages

    # Helpers

    def _plan_landing(self, git: Git, root: Beneath, row: ChangeSetRow, target: str) -> landing.Plan:
        """The plan that lands `row` up to `target` on the present files. Raises `Refusal` when it cannot be landed."""
        for _ in range(MAX_PLANS):
            present = snapshots.take_snapshot(git).tree
            check = check_landing(git, root, row, present=present, target=target)
            refuse_unless_clean(check.preview, row.id)
            plan = staging.plan_for(
                git, root, check.tree, check.changes, token=self._randomness.new_id("land"), scratch=self._scratch
            )
            self._step("planned")
            # Two snapshots with the same contents before and after the plan: it has the merged contents.
            edited = {change.path for change in diff_trees(git, present, snapshots.take_snapshot(git).tree)}
            if not edited & {change.path for change in check.changes}:
                return plan
        raise Refusal(
            "busy_files",
            "the files to be changed are being written by another program",
            "wait until it is done, then land again",
        )

    def _record_branch(self, payload: dict[str, Any], intent: int) -> ChangeSet:
        name = payload["branch"]

        def decide(row: ChangeSetRow) -> Event:
            row.branch = name
            row.keep_landed_part(f"the rest is on branch {name}")
            return ChangeSetBranched(**row.about, branch=name, landed=row.landed)

        return finish_decision(self._database, intent, payload["change_set"], ChangeState.BRANCHED, decide)

    def _discard_rest(self, tx: Transaction, change_set_id: str, *, continued_in: str = "") -> ChangeSet:
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

    def _recover_branch(self, intent: intents.Intent) -> str:
        payload = intent.payload
        try:
            git = Git(Path(payload["workspace"])).pin()
            if branch_is_at(git, payload["branch"], payload["commit"]):
                self._record_branch(payload, intent.id)
                return f"branching {payload['change_set']} was interrupted; the branch {payload['branch']} exists"
        except Refusal as error:
            return f"branching {payload['change_set']} was interrupted, and the repository cannot be read: {error}"
        intents.drop(self._database, intent.id)
        return f"branching {payload['change_set']} was interrupted before it began; the changes are still waiting"

    def _clear_away(self, change_set: ChangeSet) -> None:
        """Remove its worktree and its refs, which a landed change set keeps for an undo."""
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
