"""Gives the sessions of every runner a prepared folder to work in, and stores what they leave there (SPEC 3.8, 3.9).

A session that only checks works over the operator's tree. What it writes there lies elsewhere and is discarded. Every
other session works in a worktree made from a snapshot of the tree. There the project's packages are installed, and the
setup command of the workspace runs. The worktree is discarded, or its diff becomes a change set that waits for review.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from functools import partial
from pathlib import Path

from engine.config.settings import SettingsSource
from engine.execution.changesets import CapturedChanges, ChangeSets
from engine.execution.housekeeping import Caches
from engine.execution.live_session import LiveSession
from engine.execution.runners import CannotRun, Place, RetryLater
from engine.execution.runners.toolchains.installing import install_into_worktree
from engine.execution.session_store import CHANGES_WAIT, SessionRow, WriteChanges, attach_changes, get_continued_session
from engine.execution.trees import Snapshot, take_snapshot
from engine.execution.worktrees import Worktree
from engine.frozen import frozen
from engine.git import Git
from engine.model import UNDONE, ChangeState, CheckResult, Refusal, SessionState, SessionView
from engine.storage.database import Database, Transaction
from engine.storage.validation_runs import ValidationRuns
from engine.wording import count

log = logging.getLogger(__name__)

UNKNOWN_FILES = Snapshot("", "", False)
"""Stands for a snapshot that git could not take."""


class Ground(Enum):
    """What a session works on."""

    TREE = auto()
    """The operator's tree itself."""
    OVERLAY = auto()
    """The operator's tree, with an overlay that takes what commands write."""
    WORKTREE = auto()
    """A worktree of its own."""


GROUNDS = {
    Place.ENGINE: Ground.TREE,
    Place.OPERATOR_TREE: Ground.TREE,
    Place.BRANCH: Ground.TREE,
    Place.CHECK: Ground.OVERLAY,
    Place.INSTALL: Ground.OVERLAY,
    Place.WORKTREE: Ground.WORKTREE,
    Place.CHANGE_SET: Ground.WORKTREE,
}
"""What a session works on, by the place that its work asks for. A check has a worktree where no overlay is possible."""


@frozen
class RunScope:
    """The part of the tests that a run covered."""

    full: bool
    """Whether it was the whole suite of `project`."""
    project: str


@frozen
class SessionFolder:
    """The folder in which a session works."""

    path: Path
    git: Git
    """git in the folder. It has no sandbox, is bound to the repository that was there first, and runs no program of a
    configuration."""
    place: Place
    """The place that the session's work asked for."""
    worktree: Worktree | None = None
    before: Snapshot = UNKNOWN_FILES
    """The operator's files at the beginning, if the session works over these."""
    continues: str = ""
    """The session whose changes it continues, "" for none."""

    def take_snapshot(self) -> Snapshot:
        """A snapshot of the present files, or `UNKNOWN_FILES`."""
        present = _try_snapshot(self.git)
        if present == UNKNOWN_FILES or self.worktree is None:
            return present
        if present.head == self.worktree.start != self.worktree.head:
            return Snapshot(self.worktree.head, present.tree, False)  # its commit is our own, on top of the operator's
        return present

    def capture_tested_files(self) -> Snapshot:
        """The files that were tested, which are the present ones. Without a tree if the operator's files changed while
        the tests ran."""
        present = self.take_snapshot()
        if self.worktree is None and present != self.before:
            return Snapshot(present.head, "", False)
        return present


@frozen
class SessionFolders:
    """Opens the folders of sessions, and stores their test runs and changes."""

    database: Database
    settings: SettingsSource
    changes: ChangeSets
    caches: Caches

    @contextmanager
    def open(
        self, live: LiveSession, view: SessionView, place: Place, *, for_agent: bool = False
    ) -> Iterator[SessionFolder]:
        """Open the folder for a session whose work asks for `place`. A worktree is prepared by the workspace's `setup`,
        and stays after a success until `capture`.

        The worktree `for_agent` gets the project's packages, if the workspace's settings allow it. Its changes are
        stored even when the session fails, for example at a limit, by a lost provider, a stop or a crash. They are not
        when the operator undid the card.

        Raises `CannotRun` when `setup` fails or the place is not available, `Refusal` when git cannot make a worktree.
        """
        project = Path(live.assignment.workspace)
        git = Git(project).pin()
        if place is Place.ENGINE:  # no command runs, so no landing has to wait for this session
            yield SessionFolder(project, git, place)
            return
        live.commands.confine(readable=(*live.confinement.readable, git.repository.common))
        ground = _choose_ground(live, place)
        is_confined = live.sandbox.confines
        with ExitStack() as stack:
            if ground is Ground.TREE or place is Place.INSTALL or not is_confined:
                # No change set lands in files that the commands of this session may write.
                locks = self.changes.worktrees.locks
                stack.enter_context(locks.register_writer(live.id, project, is_confined=is_confined))
            if ground is Ground.WORKTREE:
                folder = stack.enter_context(self._open_worktree(live, view, place, for_agent=for_agent))
            else:
                folder = SessionFolder(project, git, place, before=_try_snapshot(git))
                stack.callback(live.processes.end, grace=0)
                if ground is Ground.OVERLAY:
                    stack.enter_context(self._share_caches(live, folder))
            yield folder

    def capture(
        self,
        live: LiveSession,
        view: SessionView,
        folder: SessionFolder,
        *,
        check: CheckResult | None = None,
        scope: RunScope | None = None,
    ) -> WriteChanges:
        """Inside `open`, when the work is done: end the session's processes, and capture its diff if the place has one.

        Returns the function that stores the test run and the change set in the session's last transaction. `scope` is
        that of the test run `check`, None if that is stored already. A worktree without changes is removed.

        Raises `SessionStopped` when the session is ending.
        """
        live.check_running()
        # Once no process runs, nothing changes the folder while it is captured.
        live.processes.end(grace=0)
        captured = None
        if folder.worktree is not None and folder.place is Place.CHANGE_SET:
            captured = self.changes.capture(folder.worktree)
        stored_check = None if check is None else check.for_storage(live.remove_secrets)
        record_run: Callable[[Transaction], object] | None = None
        if stored_check is not None and scope is not None:
            files = folder.capture_tested_files()
            record_run = partial(
                ValidationRuns(self.database).record,
                check=stored_check,
                session_id=view.id,
                workspace=view.workspace,
                project=scope.project,
                full=scope.full,
                changed=captured is not None,
                head=files.head,
                tree=files.tree,
                clean=files.clean,
            )

        def write(tx: Transaction) -> str:
            if record_run is not None:
                record_run(tx)
            return self._store_changes(tx, captured, view, folder.continues, stored_check)

        live.check_running()
        if captured is None and folder.worktree is not None:
            self._discard_worktree(live)
        return write

    def describe_carried(self, continues: str) -> str:
        """A sentence for a model that continues a session: whether the changes of that session are in the files."""
        change = self.changes.find_of_session(continues)
        if change is None:
            return "The files are the operator's present ones: nothing that you changed in them before was kept."
        if change.state in (ChangeState.WAITING, ChangeState.UNDONE, ChangeState.LANDED):
            return "The files hold what you changed in them before."
        return f"What you changed before was {change.state} and may not be in the files: look before you rely on it."

    def recover(self) -> list[str]:
        """At start-up, when no session runs: store the changes of interrupted sessions, finish or undo landings, and
        remove worktrees; see `ChangeSets.recover`. Returns messages on what was done.

        A change set is stored and its session's row names it in one transaction. So if this start is killed too, either
        the worktree or the change set is there.
        """
        self.caches.sweep()
        messages: list[str] = []
        unsaved: set[str] = set()
        for worktree in self.changes.worktrees.list_unsaved():
            with self.database.read() as session:
                row = session.get(SessionRow, worktree.session_id)
            if row is None or not _may_have_unsaved_changes(row) or self.changes.find_of_session(row.id) is not None:
                continue
            try:
                captured = self.changes.capture(worktree)
            except (Refusal, OSError) as error:
                log.warning("the changes of %s cannot be saved", row.id, exc_info=True)
                messages.append(
                    f"the changes of {row.id} cannot be saved yet: {error}; "
                    f"look into {worktree.folder}, and delete it if you do not need what is there"
                )
                unsaved.add(row.id)
                continue
            if captured is not None and self._attach(row, captured):
                messages.append(f"{CHANGES_WAIT}: {count(len(captured.files), 'file')} ({row.id})")
        return messages + self.changes.recover(spare=unsaved)

    @contextmanager
    def _open_worktree(
        self, live: LiveSession, view: SessionView, place: Place, *, for_agent: bool
    ) -> Iterator[SessionFolder]:
        """Make a worktree and prepare it. If the block raises, its changes are stored or it is discarded."""
        folder = None
        project = Path(live.assignment.workspace)
        settings = self.settings.current.get_workspace(live.assignment.workspace)
        try:
            continues = get_continued_session(live.assignment)
            onto = self.changes.make_starting_tree_builder(continues) if continues else None
            worktree = self.changes.worktrees.create(live.id, project, onto=onto)
            live.commands.confine(folder=worktree.folder)
            if worktree.included.summary:
                live.write("note", worktree.included.summary)
            if for_agent and settings.prepare:
                install_into_worktree(live, worktree.folder)
            if command := settings.setup.strip():
                _run_setup_command(live, command)
            if for_agent:
                self.changes.worktrees.mark_worth_keeping(worktree)  # from here on a crash loses nothing either
            git = Git(worktree.folder).pin()
            folder = SessionFolder(worktree.folder, git, place, worktree, continues=continues)
            yield folder
        except BaseException as error:
            live.processes.end(grace=0)
            is_saved = for_agent and folder is not None and self._save_unfinished(live, view, folder, error)
            if not is_saved:
                self._discard_worktree(live)
            raise

    @contextmanager
    def _share_caches(self, live: LiveSession, folder: SessionFolder) -> Iterator[None]:
        """Give the session the caches that earlier checks of this line of commits left."""
        head = folder.before.head

        def descends(earlier_commit: str) -> bool:
            answer = folder.git.run("merge-base", "--is-ancestor", earlier_commit, head, allowed=(0, 1, 128))
            return answer.returncode == 0

        if not head:  # no commit yet, or git cannot tell: a cache of its own
            yield
            return
        with self.caches.use_cache(live.assignment.workspace, head, descends) as caches:
            live.commands.confine(caches=caches)
            yield

    def _save_unfinished(
        self, live: LiveSession, view: SessionView, folder: SessionFolder, error: BaseException
    ) -> bool:
        """Store the changes of a session that was stopped before its end. False when its folder may be removed."""
        stop = live.stop_requested
        if (stop is not None and stop.reason == UNDONE) or isinstance(error, RetryLater):
            return False
        assert folder.worktree is not None
        try:
            captured = self.changes.capture(folder.worktree)
        except (Refusal, OSError) as problem:
            live.write("error", f"the changes cannot be saved yet; the next start tries again: {problem}")
            return True
        if captured is None:
            return False
        live.unfinished_write = lambda tx: self._store_changes(tx, captured, view, folder.continues)
        live.write("note", "the changes made until then wait on the work screen")
        return True

    def _attach(self, row: SessionRow, captured: CapturedChanges) -> bool:
        """Store the changes of a session that was interrupted, as `attach_changes` does."""

        def write(tx: Transaction) -> str:
            return self._store_changes(tx, captured, row, get_continued_session(row.assignment))

        cwd = str(captured.worktree.folder)
        return self.database.write(lambda tx: attach_changes(tx, row.id, write, cwd=cwd))

    def _store_changes(
        self,
        tx: Transaction,
        captured: CapturedChanges | None,
        session: SessionRow | SessionView,
        continues: str,
        check: CheckResult | None = None,
    ) -> str:
        """Store a change set. Returns its id, "" when nothing was captured."""
        if captured is None:
            return ""
        return self.changes.store(
            tx,
            captured,
            prediction_id=session.prediction_id,
            title=session.prompt,
            agent=session.agent,
            continues=continues,
            check=check,
        ).id

    def _discard_worktree(self, live: LiveSession) -> None:
        self.changes.worktrees.remove(live.id)
        self.changes.worktrees.release(Path(live.assignment.workspace), live.id)


def _choose_ground(live: LiveSession, place: Place) -> Ground:
    """What a session works on in the sandbox of this machine. Raises `CannotRun` if `place` is not available."""
    ground = GROUNDS[place]
    if ground is not Ground.OVERLAY or live.sandbox.can_overlay(live.confinement):
        return ground
    if place is Place.INSTALL:
        message = f"only a sandbox with an overlay may install packages into your tree; {live.sandbox.name} has none"
        raise CannotRun(message, live.sandbox.describe_way_out("run the command in a terminal"))
    return Ground.WORKTREE


def _run_setup_command(live: LiveSession, command: str) -> None:
    """Run the `setup` command of the workspace in the worktree of a session. Raises `CannotRun` when it fails."""
    result = live.execute(["sh", "-c", command], cwd=live.folder)
    if not result.ok:
        raise CannotRun(
            f"the workspace's setup command ended with exit code {result.exit_code}",
            "fix `setup` of this workspace in config.toml; it has no network unless `network = true`",
        )


def _try_snapshot(git: Git) -> Snapshot:
    """A snapshot of the present files. It is `UNKNOWN_FILES` when git fails, so that tests can still run."""
    try:
        return take_snapshot(git)
    except Refusal as refusal:
        log.warning("the state of %s is unknown: %s", git.folder, refusal)
        return UNKNOWN_FILES


def _may_have_unsaved_changes(row: SessionRow) -> bool:
    """Whether this session may have changes that are neither stored nor discarded."""
    is_unfinished = row.state.is_over and row.state is not SessionState.SUCCEEDED
    return is_unfinished and row.error != UNDONE and not row.change_set_id
