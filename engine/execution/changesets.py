"""Change sets: what a session changed, waiting to be landed, branched or discarded (SPEC 3.9).

States: waiting -> landed | branched | discarded; landed -> undone; undone -> landed | branched | discarded, for who
takes a landing back may want its work after all. Everything else is refused as `already_decided`.

Part of a change set can be landed: the rest stays waiting, and is landed, branched or discarded later. Landings are a
stack: undo takes back the last one. Once the rest is discarded, or is on a branch, the change set is what was landed.

A session's worktree stays until nothing of its change set waits, so that you can look into it; an undo does not bring
it back. Its trees stay while the change set can be landed or its landing undone.
"""

from __future__ import annotations

import builtins
import dataclasses
import logging
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from engine.clock import Clock
from engine.events import (
    ChangeSetBranched,
    ChangeSetCommented,
    ChangeSetDiscarded,
    ChangeSetLanded,
    ChangeSetNarrowed,
    ChangeSetReady,
    Event,
    LandingUndone,
)
from engine.execution import change_store, diffs, landing, merging, selecting, snapshots, staging
from engine.execution.change_store import NEXT, ChangeReader, ChangeSetRow, checked
from engine.execution.sandbox import Sandbox
from engine.execution.session_store import SessionRow
from engine.execution.snapshots import PlainGit, named, shown
from engine.execution.workspace_locks import EVERYWHERE
from engine.execution.worktrees import Onto, Worktree, Worktrees
from engine.frozen import frozen
from engine.git import Git
from engine.home import Home
from engine.model import (
    ChangeSet,
    ChangeState,
    CheckResult,
    DiffComment,
    FileChange,
    FilePart,
    LandPreview,
    Randomness,
    Refusal,
    sanitise,
)
from engine.storage import intents
from engine.storage.beneath import Beneath
from engine.storage.database import Database, Transaction
from engine.storage.rows import load

Files = builtins.list[dict[str, Any]]
"""Files of a change set as they are stored."""

log = logging.getLogger(__name__)

LANDING = "landing"
BRANCHING = "branching"
TRIES = 5
"""So often a landing is planned anew when its files change while it is being planned."""


@frozen
class Captured:
    """What a session changed, before it is stored: trees kept under the session's refs, and the files."""

    worktree: Worktree
    result: str
    files: tuple[FileChange, ...]


class ChangeSets(ChangeReader):
    """Decides about change sets. Every decision is atomic, in the files as in the database, whenever it is killed."""

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
        self._scratch = home.cache / "staging"
        self._clock = clock
        self._randomness = randomness
        self.worktrees = Worktrees(home, database)
        self._locks = self.worktrees.locks
        self._step = step

    def writing(self, session_id: str, workspace: Path, sandbox: Sandbox) -> AbstractContextManager[None]:
        """While commands of a session may write to the operator's files, those of `workspace` or, where no sandbox
        holds them, any: no landing begins. Waits for one that is under way."""
        return self._locks.writing(os.fsdecode(workspace) if sandbox.confines else EVERYWHERE, session_id)

    # What a session hands in

    def capture(self, worktree: Worktree) -> Captured | None:
        """What was changed in `worktree`, or None when nothing was. Slow (git); nothing is stored yet."""
        result = self.worktrees.capture(worktree)
        if result.tree == worktree.base:
            return None
        git = snapshots.plain_git(worktree.workspace).git
        files = diffs.file_changes(git, worktree.base, result.tree, result.nested)
        return Captured(worktree, result.tree, files)

    def store(
        self, tx: Transaction, captured: Captured, *, prediction_id: str, title: str, check: CheckResult | None = None
    ) -> ChangeSet:
        """Store a captured change set inside the transaction that ends its session; records `ChangeSetReady`."""
        worktree = captured.worktree
        row = ChangeSetRow(
            id=self._randomness.new_id("change"),
            session_id=worktree.session_id,
            prediction_id=prediction_id,
            workspace=os.fsdecode(worktree.workspace),
            base_tree=worktree.base,
            result_tree=captured.result,
            files=[dataclasses.asdict(file) for file in captured.files],
            title=sanitise(title).strip(),
            check_result=None if check is None else dataclasses.asdict(check),
            created_at=tx.now,
        )
        tx.session.add(row)
        tx.session.flush()
        tx.record(ChangeSetReady(**row.about, files=len(captured.files)))
        return row.view()

    # What goes on where another left off

    def onto(self, session_id: str) -> Onto | None:
        """What a session begins with that continues `session_id`: the present files with that one's changes, as long
        as these can still be decided. None: the present files, among which is what was landed."""
        row = self._of_session(session_id)
        undecided = row is not None and row.state in (ChangeState.WAITING, ChangeState.UNDONE)
        return _with_changes_of(row) if row is not None and undecided else None

    def supersede(self, tx: Transaction, session_id: str, by: str) -> None:
        """In the transaction that stores the changes of session `by`, which contain those of `session_id`: these are
        discarded, unless they were decided meanwhile."""
        row = tx.session.exec(select(ChangeSetRow).where(col(ChangeSetRow.session_id) == session_id)).first()
        if row is None or ChangeState.DISCARDED not in NEXT.get(ChangeState(row.state), set()):
            return
        changed = self._throw_away(tx, row.id, continued_in=by)
        # Tidying up asks git and writes, which nobody may do on the thread that commits.
        tidy = threading.Thread(target=self._tidy, args=(changed,), name=f"clawpy-tidy-{changed.id}", daemon=True)
        tx.after_commit(tidy.start)

    def _tidy(self, change_set: ChangeSet) -> None:
        try:
            self._clear_away(change_set)
        except Refusal as refusal:  # the engine closes, or git does not answer: the next start clears it away
            log.info("%s is cleared away later: %s", change_set.id, refusal)

    def preview_land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> LandPreview:
        """Whether it, or `only` these parts, would land on the files as they are now; changes nothing."""
        row = self._row(change_set_id)
        with self._locks.holding(row.workspace), _open_workspace(row.workspace) as root:
            plain = snapshots.plain_git(Path(row.workspace))
            return self._look(plain, root, row, snapshots.take(plain).tree, _target_tree(plain, row, only))[0]

    # What can be decided

    def land(self, change_set_id: str, only: Sequence[FilePart] = ()) -> ChangeSet:
        """Merge what is left of it, or `only` these parts, into the working-tree files, all of that or nothing; HEAD,
        index and branches stay. After a part the rest waits.

        Raises `Refusal`: `conflict` (files changed on both sides, or something stands in the way),
        `unsupported_files`, `busy_files`, `session_writes` (a session works in these files), `already_decided`,
        `unknown_change_set`, `cannot_write`; for parts also `unknown_file`, `unknown_hunk`, `inseparable`.
        """
        with self._deciding(change_set_id, ChangeState.LANDED) as (row, root):
            plain = snapshots.plain_git(Path(row.workspace))
            tree = _target_tree(plain, row, only)
            plan = self._plan(plain, root, row, tree)
            staging.keep_blobs(plain.git, plan, row.session_id, len(row.landings))
            if tree != row.result_tree:
                snapshots.keep(plain.git, row.session_id, f"landed-{tree}", tree)
            return self._apply(plain, root, row, plan, ChangeState.LANDED, tree)

    def undo(self, change_set_id: str) -> ChangeSet:
        """Take the last landing back, byte for byte and mode for mode.

        Raises `Refusal`: `later_edits` when a landed file was changed since, and only then; `session_writes`,
        `already_decided`, `unknown_change_set`, `cannot_write`.
        """
        with self._deciding(change_set_id, ChangeState.UNDONE) as (row, root):
            plan = dataclasses.replace(landing.Plan.from_json(row.landings[-1]["plan"]).reversed(), token=self._token())
            plain = snapshots.plain_git(Path(row.workspace))
            if changed := landing.changed_since(root, plan):
                raise change_store.later_edits(changed)
            empty = staging.giving_way(root, plan.entries)
            plan = dataclasses.replace(plan, old_folders=tuple(sorted({*plan.old_folders, *empty})))
            tree = row.landings[-2]["tree"] if len(row.landings) > 1 else row.base_tree
            return self._apply(plain, root, row, plan, ChangeState.UNDONE, tree)

    def reverse(self, session_id: str) -> bool:
        """Take back whatever landed of what a session changed; False when nothing did. Raises as `undo_all`."""
        change = self.for_session(session_id)
        if change is None or (change.state is ChangeState.WAITING and not change.landings):
            return False
        self.undo_all(change.id)
        return True

    def undo_all(self, change_set_id: str) -> ChangeSet:
        """Take all its landings back, the last one first. Raises as `undo` does; `later_edits` before the first one."""
        with self._deciding(change_set_id, ChangeState.UNDONE) as (row, root):
            plans = [landing.Plan.from_json(landed["plan"]).reversed() for landed in reversed(row.landings)]
            if changed := landing.changed_since(root, *plans):
                raise change_store.later_edits(changed)
            for _ in plans[1:]:
                self.undo(change_set_id)
            return self.undo(change_set_id)

    @contextmanager
    def _deciding(self, change_set_id: str, becoming: ChangeState) -> Iterator[tuple[ChangeSetRow, Beneath]]:
        """The row and the operator's files, for as long as nobody else changes these; an earlier change is settled."""
        workspace = self._row(change_set_id).workspace
        with self._locks.exclusive(workspace), _open_workspace(workspace) as root:
            self._settle(workspace)
            yield self._row(change_set_id, becoming=becoming), root

    def branch(self, change_set_id: str) -> ChangeSet:
        """Commit what is left of its diff alone onto HEAD as a new branch, named after its prompt (`clawpy/fix-lint`);
        files, index and HEAD stay.

        Raises `Refusal`: `conflict` (it builds on uncommitted work), `nothing_to_commit`, `unsupported_files`,
        `already_decided`, `unknown_change_set`.
        """
        workspace = self._row(change_set_id).workspace
        with self._locks.holding(workspace):
            row = self._row(change_set_id, becoming=ChangeState.BRANCHED)
            plain = snapshots.plain_git(Path(workspace))
            commit = merging.commit_diff(
                plain,
                base=row.landed_tree,
                result=row.result_tree,
                message=_commit_message(row),
                at=self._clock.local(),
            )
            name = merging.free_name(plain.git, row.title, row.session_id)
            payload = {"change_set": row.id, "workspace": workspace, "branch": name, "commit": commit}
            intent = self._database.write(lambda tx: intents.begin(tx, BRANCHING, row.id, payload))
            self._step("branch intent")
            try:
                merging.create(plain.git, name, commit)
            except Refusal:
                self._database.write(lambda tx: intents.finish(tx, intent))
                raise
            self._step("branch made")
            changed = self._branched(payload, intent)
        self._clear_away(changed)
        return changed

    def discard(self, change_set_id: str) -> ChangeSet:
        """Throw away what is left of it, its worktree too. Raises `already_decided`, `unknown_change_set`."""
        with self._locks.holding(self._row(change_set_id).workspace):
            changed = self._database.write(lambda tx: self._throw_away(tx, change_set_id))
        self._step("discarded")
        self._clear_away(changed)
        return changed

    def recover(self, *, spare: Collection[str] = ()) -> builtins.list[str]:
        """At start-up, before anything else uses it: finish or take back what was interrupted, clear away
        what dead sessions left, but for the sessions in `spare`. Says what it did, in words."""
        messages = []
        shutil.rmtree(self._scratch, ignore_errors=True)
        for intent in intents.unfinished(self._database, LANDING):
            messages.append(self._recover_landing(intent))
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

    # Comments

    def comment(self, change_set_id: str, path: str, line: int, text: str, *, old: bool = False) -> ChangeSet:
        """Comment on line `line`, from 1, of a file that it changes: as it is after the change, or before it where
        `old`. Raises `Refusal`: `unknown_change_set`, `unknown_file`, `unknown_line`, `bad_comment`, `diff_gone`."""
        text = sanitise(text).strip()[: diffs.LONGEST]
        if not text:
            raise Refusal("bad_comment", "the comment is empty", "write what to change")
        row = self._row(change_set_id)
        git = snapshots.plain_git(Path(row.workspace)).git
        self._ask_for(git, row)
        quote = diffs.quoted(git, row.base_tree, row.result_tree, path, line, old=old)

        def add(row: ChangeSetRow, now: str) -> None:
            number = max((comment["number"] for comment in row.comments), default=0) + 1
            comment = DiffComment(number, path, line, quote, text, now, old)
            row.comments = [*row.comments, dataclasses.asdict(comment)]

        return self._comment(change_set_id, add)

    def remove_comment(self, change_set_id: str, number: int) -> ChangeSet:
        """Raises `Refusal`: `unknown_change_set`, `unknown_comment`."""

        def remove(row: ChangeSetRow, now: str) -> None:
            if all(comment["number"] != number for comment in row.comments):
                raise Refusal("unknown_comment", f"{row.id} has no comment {number}", f"`clawpy comment {row.id}`")
            row.comments = [comment for comment in row.comments if comment["number"] != number]

        return self._comment(change_set_id, remove)

    def unsent_comments(self, change_set_id: str) -> tuple[str, tuple[int, ...]]:
        """Its comments that went to no agent yet, as a message, and their numbers. Raises `Refusal`:
        `unknown_change_set`, `no_comments`."""
        unsent = [comment for comment in self.get(change_set_id).comments if not comment.sent]
        if not unsent:
            raise Refusal("no_comments", "it has no unsent comments", "`clawpy comment ID FILE:LINE TEXT`")
        return diffs.message(unsent), tuple(comment.number for comment in unsent)

    def sent_comments(self, change_set_id: str, numbers: Collection[int]) -> ChangeSet:
        """Its comments of these numbers went to an agent now. Raises `Refusal` `unknown_change_set`."""

        def send(row: ChangeSetRow, now: str) -> None:
            row.comments = [
                comment | {"sent": now} if comment["number"] in numbers else comment for comment in row.comments
            ]

        return self._comment(change_set_id, send)

    def _comment(self, change_set_id: str, change: Callable[[ChangeSetRow, str], None]) -> ChangeSet:
        def work(tx: Transaction) -> ChangeSet:
            row = checked(tx.session, change_set_id, None)
            change(row, tx.now.isoformat())
            tx.session.add(row)
            tx.record(ChangeSetCommented(**row.about, comments=len(row.comments)))
            tx.session.flush()
            return row.view()

        return self._database.write(work)

    # How it is done

    def _look(
        self, plain: snapshots.PlainGit, root: Beneath, row: ChangeSetRow, present: str, target: str
    ) -> tuple[LandPreview, str, builtins.list[merging.TreeChange]]:
        """(what would happen when it is landed up to the tree `target`, the merged tree, the changes that lead to it
        from the present tree)."""
        merge = merging.three_way(plain.git, base=row.landed_tree, ours=present, theirs=target)
        if merge.conflicts:
            return LandPreview(False, tuple(shown(path) for path in merge.conflicts)), "", []
        changes = merging.differences(plain.git, present, merge.tree)
        reasons = merging.unsupported(plain, merge.tree, changes)
        in_the_way = staging.obstacles(root, [change for change in changes if change.path not in reasons])
        preview = LandPreview(
            clean=not reasons and not in_the_way,
            in_the_way=tuple(shown(path) for path in in_the_way),
            unsupported=tuple(f"{shown(path)}: {reason}" for path, reason in reasons.items()),
            files=len(changes),
        )
        return preview, merge.tree, changes

    def _plan(self, plain: snapshots.PlainGit, root: Beneath, row: ChangeSetRow, target: str) -> landing.Plan:
        """The plan that lands `row` up to `target` on the present files. Raises `Refusal` when it would not land."""
        for _ in range(TRIES):
            present = snapshots.take(plain).tree
            preview, tree, changes = self._look(plain, root, row, present, target)
            change_store.refuse_unless_clean(preview, row.id)
            plan = staging.plan_for(plain, root, tree, changes, token=self._token(), scratch=self._scratch)
            self._step("planned")
            # Contents were read between two snapshots that agree on them: they are what was merged.
            moved = {change.path for change in merging.differences(plain.git, present, snapshots.take(plain).tree)}
            if not moved & {change.path for change in changes}:
                return plan
        raise Refusal(
            "busy_files",
            "the files to be changed are being written by another program",
            "wait until it is done, then land again",
        )

    def _apply(
        self,
        plain: snapshots.PlainGit,
        root: Beneath,
        row: ChangeSetRow,
        plan: landing.Plan,
        state: ChangeState,
        tree: str,
    ) -> ChangeSet:
        """Carry `plan` out; the change set is then landed up to `tree`."""
        files, landed = _files_after(plain.git, row, tree)
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
            written = landing.carry_out(root, plan, staging.blobs_of(plain.git, plan), self._step)
        except landing.NotRestored as error:
            raise Refusal(
                "not_restored",
                f"{row.workspace} could be neither changed nor restored: {error}",
                "fix the cause (a full disk?) and restart; the change is undone first",
            ) from error
        except (landing.FilesChanged, OSError, Refusal) as error:
            self._database.write(lambda tx: intents.finish(tx, intent))
            if isinstance(error, landing.FilesChanged):
                raise change_store.edited_meanwhile(error.paths, undoing=state is ChangeState.UNDONE) from error
            if isinstance(error, OSError):
                raise change_store.cannot_write(error, row.workspace) from error
            raise
        self._step("files done")
        changed = self._arrived(payload, landing.settled(root, plan), written, intent)
        if changed.state is not ChangeState.WAITING:
            self.worktrees.remove(row.session_id)
        return changed

    def _arrived(self, payload: dict[str, Any], plan: landing.Plan, written: dict[str, int], intent: int) -> ChangeSet:
        """The files are as planned: record it, in the transaction that takes the intent away. `payload` is that of the
        intent; `plan` is as it came out."""
        requested = ChangeState(payload["state"])

        def fact(row: ChangeSetRow) -> Event:
            row.written = {**{path: mtime for path, mtime in row.written.items() if path not in plan.going}, **written}
            row.files = payload.get("files", row.files)
            if requested is ChangeState.LANDED:
                tree, landed = payload.get("tree", row.result_tree), payload.get("landed", row.files)
                row.landings = [*row.landings, {"tree": tree, "files": landed, "plan": plan.as_json()}]
                waits = tree != row.result_tree
            else:
                row.landings = row.landings[:-1]
                waits = bool(row.landings)
            row.state = (ChangeState.WAITING if waits else requested).value
            if requested is ChangeState.LANDED:
                return ChangeSetLanded(**row.about, files=row.landed, left=len(row.files) if waits else 0)
            return LandingUndone(**row.about, left=len(row.landings))

        def work(tx: Transaction) -> ChangeSet:
            intents.finish(tx, intent)
            return self._move(tx, payload["change_set"], requested, fact)

        return self._database.write(work)

    def _branched(self, payload: dict[str, Any], intent: int) -> ChangeSet:
        name = payload["branch"]

        def fact(row: ChangeSetRow) -> Event:
            row.branch = name
            _narrow(row, f"the rest is on branch {name}")
            return ChangeSetBranched(**row.about, branch=name, landed=row.landed)

        def work(tx: Transaction) -> ChangeSet:
            intents.finish(tx, intent)
            return self._move(tx, payload["change_set"], ChangeState.BRANCHED, fact)

        return self._database.write(work)

    def _move(
        self, tx: Transaction, change_set_id: str, state: ChangeState, fact: Callable[[ChangeSetRow], Event]
    ) -> ChangeSet:
        """Store a decision: `fact` says it, and may leave `row` in another state than the one asked for."""
        row = checked(tx.session, change_set_id, state)
        row.state, row.note = state.value, ""
        row.decided_at = tx.now
        tx.record(fact(row))
        tx.session.add(row)
        tx.session.flush()
        return row.view()

    def _throw_away(self, tx: Transaction, change_set_id: str, *, continued_in: str = "") -> ChangeSet:
        def fact(row: ChangeSetRow) -> Event:
            note = f"continued in {continued_in}" if continued_in else ""
            if _narrow(row, note or "the rest was discarded") and not continued_in:
                return ChangeSetNarrowed(**row.about, files=len(row.files))
            row.note = note
            return ChangeSetDiscarded(**row.about, continued_in=continued_in)

        changed = self._move(tx, change_set_id, ChangeState.DISCARDED, fact)
        session = load(tx.session, SessionRow, changed.session_id)
        if session is not None and changed.state is ChangeState.DISCARDED and not continued_in:
            session.discarded_at = tx.now
        return changed

    def _settle(self, workspace: str) -> None:
        """Take back what an earlier change of this workspace could not, before beginning another."""
        for intent in intents.unfinished(self._database, LANDING):
            if intent.payload["workspace"] == workspace:
                self._recover_landing(intent)
                if any(remaining.id == intent.id for remaining in intents.unfinished(self._database, LANDING)):
                    raise Refusal(
                        "not_restored",
                        f"an earlier change of {workspace} is still half done",
                        "see `clawpy doctor`; free disk space and make the folder writable, then try again",
                    )

    def _recover_landing(self, intent: intents.Intent) -> str:
        payload, intent_id = intent.payload, intent.id
        assert intent_id is not None
        row = self._row(payload["change_set"])
        state, plan = ChangeState(payload["state"]), landing.Plan.from_json(payload["plan"])
        action = f"{'landing' if state is ChangeState.LANDED else 'undoing the landing of'} “{row.title}” ({row.id})"
        try:
            with self._locks.holding(row.workspace), _open_workspace(row.workspace) as root:
                plain = snapshots.plain_git(Path(row.workspace))
                if landing.arrived(root, plan):
                    settled = landing.settled(root, plan)
                    self._arrived(payload, settled, _modification_times(root, plan), intent_id)
                    return f"{action} was interrupted after its last file; it is complete"
                rollback = landing.take_back(root, plan, staging.blobs_of(plain.git, plan), self._step)
        except (Refusal, OSError, landing.FilesChanged) as error:
            return f"{action} was interrupted and cannot be undone yet: {error}; it is tried again at the next start"
        self._database.write(lambda tx: intents.finish(tx, intent_id))
        message = f"{action} was interrupted and undone; files restored: {len(rollback.restored)}"
        if rollback.foreign:
            message += f"; changed by somebody else in the meantime and left alone: {named(rollback.foreign)}"
        return message

    def _recover_branch(self, intent: intents.Intent) -> str:
        payload, intent_id = intent.payload, intent.id
        assert intent_id is not None
        try:
            git = snapshots.plain_git(Path(payload["workspace"])).git
            if merging.points_to(git, payload["branch"], payload["commit"]):
                self._branched(payload, intent_id)
                return f"branching {payload['change_set']} was interrupted; the branch {payload['branch']} exists"
        except Refusal as error:
            return f"branching {payload['change_set']} was interrupted, and the repository cannot be read: {error}"
        self._database.write(lambda tx: intents.finish(tx, intent_id))
        return f"branching {payload['change_set']} was interrupted before it began; the changes are still waiting"

    def _clear_away(self, change_set: ChangeSet) -> None:
        """Nothing of it is needed any more: worktree, refs. What of it is landed keeps its refs, for an undo."""
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

    def _token(self) -> str:
        return self._randomness.new_id("land")


def _with_changes_of(former: ChangeSetRow) -> Onto:
    """The present files with what `former` changed. Raises `Refusal` `conflict` when both changed the same."""

    def merge_onto(plain: PlainGit, present: str) -> str:
        merge = merging.three_way(plain.git, base=former.landed_tree, ours=present, theirs=former.result_tree)
        if merge.conflicts:
            names = named([shown(path) for path in merge.conflicts])
            raise Refusal(
                "conflict",
                f"what {former.session_id} changed no longer fits your files: {names}",
                "land or discard its changes first, then continue it",
            )
        return merge.tree

    return merge_onto


def _open_workspace(workspace: str) -> Beneath:
    """The operator's files. Raises `Refusal` `no_folder`."""
    try:
        return Beneath.open(Path(workspace))
    except OSError as error:
        raise Refusal("no_folder", f"{shown(workspace)}: {error.strerror}", "name an existing folder") from error


def _target_tree(plain: snapshots.PlainGit, row: ChangeSetRow, only: Sequence[FilePart]) -> str:
    """The tree that landing `only` these parts, or all that is left, leads to."""
    if not only:
        return row.result_tree
    return selecting.tree_with(plain, row.base_tree, row.result_tree, row.landed_tree, only)


def _files_after(git: Git, row: ChangeSetRow, tree: str) -> tuple[Files, Files]:
    """Once it is landed up to `tree`: the files that it shows, which are those that are left, or all of them when none
    is; and the files of what is landed."""
    is_complete = tree == row.result_tree
    if is_complete and not row.landings:
        return row.files, row.files
    landed_files = _files_as_json(row, diffs.file_changes(git, row.base_tree, tree))
    return landed_files if is_complete else _files_as_json(
        row, diffs.file_changes(git, tree, row.result_tree)
    ), landed_files


def _files_as_json(row: ChangeSetRow, files: Iterable[FileChange]) -> Files:
    return [*map(dataclasses.asdict, files), *(file for file in row.files if file["status"] == "left out")]


def _narrow(row: ChangeSetRow, note: str) -> bool:
    """Where part of it is landed, it is that part from now on."""
    if row.landings:
        last = row.landings[-1]
        row.result_tree, row.files, row.note, row.state = last["tree"], last["files"], note, ChangeState.LANDED.value
    return bool(row.landings)


def _modification_times(root: Beneath, plan: landing.Plan) -> dict[str, int]:
    removed = plan.going
    statuses = {entry.path: root.lstat(entry.path) for entry in plan.entries if entry.path not in removed}
    return {path: status.st_mtime_ns for path, status in statuses.items() if status is not None}


def _commit_message(row: ChangeSetRow) -> str:
    first, _, remainder = row.title.partition("\n")
    body = f"{remainder.strip()}\n\n" if remainder.strip() else ""
    return f"{first.strip() or 'Work of a session'}\n\n{body}Session: {row.session_id}\n"
