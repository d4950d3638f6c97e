"""The flow runner (SPEC 3.8, 3.9): finds the flow, checks its parameters, gives it a place, keeps what it found.

Flows that only check run in the operator's tree; the others in a worktree, which is thrown away, or whose diff becomes
a change set that waits for review.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

from engine.config import SettingsSource
from engine.execution import snapshots
from engine.execution.changesets import Captured, ChangeSets
from engine.execution.live import LiveSession
from engine.execution.runners.base import RunnerResult
from engine.execution.runners.flow import Flow, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.parameters import edited, validated
from engine.execution.snapshots import Snapshot
from engine.execution.worktrees import Worktree, Worktrees
from engine.git import Git
from engine.storage.database import Transaction
from engine.values import Assignment, CheckResult, Refusal, RunnerInfo, SessionView

log = logging.getLogger(__name__)

NO_PROSE = "it names no flow, and no runner that takes prose is configured"

UNDO_NOTES = {
    Place.OPERATOR_TREE: "only checks, in your tree; nothing to undo",
    Place.WORKTREE: "works in a throw-away copy of your tree; nothing to undo",
    Place.CHANGE_SET: "works in a copy; you land its diff or not, and landing can be undone",
}


KEPT_DURATIONS = 50
"""So many of the slowest tests are kept with a result; a suite may have tens of thousands."""


class RunBook(Protocol):
    """Where runs of a project's own checks are kept (SPEC 4.2)."""

    def record(
        self,
        transaction: Transaction,
        *,
        session_id: str,
        workspace: str,
        check: CheckResult,
        head: str,
        tree: str,
        clean: bool,
        full: bool,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Ground:
    """Where a flow works: the operator's tree, or a worktree of it."""

    folder: Path
    git: Git
    worktree: Worktree | None = None


class FlowRunner:
    """Runs flows. `flows` by name; `changes` and `worktrees` make, keep and clear away what sessions work in."""

    name = "flow"

    def __init__(
        self,
        flows: Mapping[str, Flow],
        *,
        settings: SettingsSource,
        worktrees: Worktrees,
        changes: ChangeSets,
        runs: RunBook,
    ) -> None:
        self._flows = flows
        self._settings = settings
        self._worktrees = worktrees
        self._changes = changes
        self._runs = runs

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether there is such a flow and it takes these parameters, and what it would leave behind."""
        try:
            flow, _ = self._resolve(assignment)
        except Refusal as refusal:
            return RunnerInfo(takes=False, reason=refusal.message)
        return RunnerInfo(takes=True, check_only=flow.place is not Place.CHANGE_SET, undo_note=UNDO_NOTES[flow.place])

    def reparameterise(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment with edited parameters, and the prompt that says them."""
        flow = self._flow(assignment)
        parameters = edited(flow.name, flow.parameters, assignment.parameters, edit)
        return replace(assignment, prompt=flow.describe(parameters), parameters=parameters.model_dump(mode="json"))

    def recover(self) -> list[str]:
        """Finish or take back landings, clear away worktrees; see `ChangeSets.recover`."""
        return self._changes.recover()

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Run the flow to its end, or raise why not."""
        flow, parameters = self._resolve(live.assignment)
        workspace = Path(live.assignment.workspace)
        live.say(f"{flow.title} · sandbox: {live.sandbox.describe(network=live.confinement.network)}")
        with self._ground(flow, live, workspace) as ground:
            before = _state(ground) if ground.worktree is None else None
            job = Job(
                workspace=workspace,
                folder=ground.folder,
                parameters=parameters,
                git=live.git(ground.git),
                bench=live,
            )
            result = _bounded(flow.run(job))
            live.check_running()
            # From here on nobody writes into the folder any more: what is captured is what there is.
            live.processes.end(grace=0)
            captured = None
            if flow.place is Place.CHANGE_SET and ground.worktree is not None:
                captured = self._changes.capture(ground.worktree)
            write = self._writer(view, result, captured, ground, before)
            live.check_running()
        if captured is None and ground.worktree is not None:
            self._discard(live)
        return RunnerResult(summary=result.summary, check=result.check, facts=result.facts, write=write)

    def _flow(self, assignment: Assignment) -> Flow:
        if assignment.flow is None:
            told = f"{NO_PROSE}; flows: {', '.join(self._flows)}"
            raise Refusal("no_runner", told, "approve a card that names a flow")
        flow = self._flows.get(assignment.flow)
        if flow is None:
            raise Refusal("no_runner", f"there is no flow {assignment.flow!r}", f"flows: {', '.join(self._flows)}")
        return flow

    def _resolve(self, assignment: Assignment) -> tuple[Flow, BaseModel]:
        flow = self._flow(assignment)
        return flow, validated(flow.name, flow.parameters, assignment.parameters)

    @contextmanager
    def _ground(self, flow: Flow, live: LiveSession, workspace: Path) -> Iterator[_Ground]:
        """The place a flow works in. A worktree outlives the block only when it ended well."""
        git = Git(workspace)
        common = Path(git.text("rev-parse", "--path-format=absolute", "--git-common-dir"))
        live.confine(replace(live.confinement, readable=(*live.confinement.readable, common)))
        if flow.place is Place.OPERATOR_TREE:
            yield _Ground(workspace, git)
            return
        try:
            worktree = self._worktrees.create(live.id, workspace)
            live.confine(replace(live.confinement, folder=worktree.folder))
            self._set_up(live, worktree)
            # Without the filters and drivers that the repository's configuration names: none of them runs unsandboxed.
            yield _Ground(worktree.folder, snapshots.plain_git(worktree.folder).git, worktree)
        except BaseException:
            live.processes.end(grace=0)
            self._discard(live)
            raise

    def _discard(self, live: LiveSession) -> None:
        self._worktrees.remove(live.id)
        self._worktrees.let_go(Path(live.assignment.workspace), live.id)

    def _set_up(self, live: LiveSession, worktree: Worktree) -> None:
        setup = self._settings.current.workspace(live.assignment.workspace).setup.strip()
        if not setup:
            return
        done = live.execute(["sh", "-c", setup], cwd=worktree.folder)
        if not done.ok:
            raise FlowUnable(
                f"the workspace's setup command ended with exit code {done.exit_code}",
                "mend `setup` of this workspace in config.toml; it has no network unless `network = true`",
            )

    def _writer(
        self,
        view: SessionView,
        result: FlowResult,
        captured: Captured | None,
        ground: _Ground,
        before: Snapshot | None,
    ) -> Callable[[Transaction], str]:
        """What goes into the session's last transaction: the run of the tests, the change set."""
        check = result.check
        after = _state(ground) if check is not None else None
        known = after
        if known is None or (ground.worktree is None and after != before):
            # Files changed while the tests ran: they were green or red on no tree that anyone can name.
            known = Snapshot(after.head if after else "", "", False)

        def write(tx: Transaction) -> str:
            if check is not None:
                self._runs.record(
                    tx,
                    session_id=view.id,
                    workspace=view.workspace,
                    check=check,
                    head=known.head,
                    tree=known.tree,
                    clean=known.clean,
                    full=result.full,
                )
            if captured is None:
                return ""
            return self._changes.store(
                tx, captured, prediction_id=view.prediction_id, title=view.prompt, check=check
            ).id

        return write


def _state(ground: _Ground) -> Snapshot | None:
    """The files as they are now, as a tree; None where git cannot tell, which is no reason not to run the tests."""
    try:
        now = snapshots.take(snapshots.plain_git(ground.folder))
    except Refusal as refusal:
        log.warning("the state of %s cannot be told: %s", ground.folder, refusal)
        return None
    worktree = ground.worktree
    if worktree is not None and now.head == worktree.start != worktree.head:
        return Snapshot(worktree.head, now.tree, False)  # its commit is our own, on top of the operator's
    return now


def _bounded(result: FlowResult) -> FlowResult:
    if result.check is None:
        return result
    return replace(result, check=replace(result.check, durations=result.check.durations[:KEPT_DURATIONS]))
