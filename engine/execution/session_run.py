"""Decides whether a session may start, does its work, and watches it meanwhile (SPEC 3.7, 3.8).

`Admission` chooses the runner, and decides whether the session may start, in which sandbox and at what estimated cost
(SPEC 3.4). `run_session` does the work in the thread of the session, and `make_result` makes its result. `SessionWatch`
writes the transcripts of all running sessions, publishes their output, and stops them at a limit or when the kill
switch is on. `sessions` has the queue and the threads, and uses all three.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from engine.clock import Clock
from engine.config import AUTO, FLOW, MODEL
from engine.config.settings import SettingsSource
from engine.events import EventBus
from engine.events.work import SessionOutput
from engine.execution.live_session import LiveSession
from engine.execution.runners import CannotRun, CommandBlocked, RetryLater, SessionStopped, WorkFailed
from engine.execution.runners.flows import PROSE
from engine.execution.runners.runner import Runner, RunnerResult
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import UNCONFINED, find_best_sandbox
from engine.execution.session_limits import SessionRails, SessionStop, explain_disk_shortage
from engine.execution.session_processes import read_children
from engine.execution.session_store import AUTONOMOUS, NOT_BEGUN, SessionResult, SessionStore
from engine.frozen import frozen
from engine.installed import SANDBOX_FIX
from engine.model import HAS_PROBLEM, UNDONE, Assignment, Refusal, RunnerInfo, SessionState
from engine.redaction import redact, redact_json
from engine.text import sanitise
from engine.wording import to_microusd

log = logging.getLogger(__name__)

# -- whether a session may start

QUIET_PERIOD = timedelta(minutes=10)
"""The time without other writes in a workspace before a session that can write may start there by itself (SPEC 3.8)."""

NOTHING_BY_ITSELF = "nothing runs by itself without a sandbox, and no sandbox works here"
"""Why a session does not start by itself."""

NOT_CONFIRMED = "it was approved to run in a sandbox, but no sandbox works on this machine any more"
"""Why a session that was approved does not start."""


@frozen
class Admission:
    """Checks a session when it is created, and again before it starts."""

    clock: Clock
    settings: SettingsSource
    rails: SessionRails
    runners: Mapping[str, Runner]
    """The runners by name."""
    compute_usual_cost: Callable[[str, str], int | None]
    """That of the store of sessions."""

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of sessions. The best one of this machine is found when it is first needed."""
        return self.rails.sandbox or find_best_sandbox()

    # -- runners

    def find_runner(self, assignment: Assignment) -> Runner:
        """The runner of an assignment. `acp:*` serves `acp:claude` and all others of that family. Raises `Refusal`
        `no_runner`."""
        family, colon, _ = assignment.runner.partition(":")
        runner = self.runners.get(f"{family}:*" if colon else assignment.runner)
        if runner is None:
            names = ", ".join(self.runners) or "none"
            raise Refusal("no_runner", f"there is no runner {assignment.runner!r}", f"built in: {names}")
        return runner

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        """The assignment with the runner that would do it now, and a sentence if that replaces another one, else "".

        The runner `auto` becomes a flow if the assignment has one, else the runner of the channel, else a model. A
        runner that is not available is replaced by the first available one of the channel's `fallback`. A flow is not
        replaced, because no agent understands its parameters. If none is available, the assignment stays as it is, and
        `check` says what is missing.
        """
        definite_assignment = self._fill_in_runner(assignment)
        info = self._check_runner(definite_assignment)
        if info.available:
            return definite_assignment, ""
        channel = self.settings.current.channels.get(definite_assignment.channel)
        names = channel.fallback if channel is not None and definite_assignment.flow is None else ()
        for name in names:
            fallback = replace(definite_assignment, runner=name)
            instead = self._check_runner(fallback)
            if instead.available:
                return (
                    fallback,
                    f"served by {instead.executor or name}: {definite_assignment.runner} cannot ({info.reason})",
                )
        return assignment, ""

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether a runner is available, its effects and sandbox, and the estimated cost (SPEC 3.4).

        A free runner costs 0. For others the estimate is the usual cost of the runner's sessions on the channel; before
        the first of them it is `costPerTrigger`.
        """
        if assignment.runner == AUTO:
            assignment, _ = self.choose(assignment)
        definite_assignment = self._fill_in_runner(assignment)
        info = self._check_runner(definite_assignment)
        if not info.available:
            return replace(info, reason=f"{info.reason}{self._name_able_channel(definite_assignment)}")
        if definite_assignment.runner == FLOW and (problem := self.sandbox.find_hosts_problem(info.hosts)):
            way_out = self.sandbox.describe_way_out("run the command in a terminal")
            return RunnerInfo(available=False, reason=f"{problem} ({way_out})")
        settings = self.settings.current
        runner, channel = definite_assignment.runner, definite_assignment.channel
        usual = 0 if info.is_free else self.compute_usual_cost(runner, channel)
        if usual is None:
            usual = to_microusd(settings.cost_per_trigger)
        note = info.undo_note
        if info.runs_commands and not self.sandbox.confines:
            warning = "no sandbox on this machine: what its commands do outside the workspace cannot be undone"
            note = f"{note}; but {warning}" if note else warning
        workspace = settings.get_workspace(definite_assignment.workspace)
        described = self.sandbox.describe(network=workspace.network, hosts=(*workspace.hosts, *info.hosts))
        return replace(info, undo_note=note, sandbox=described, estimate=usual)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment after the operator's edit. A sentence turns a flow into work for an agent or
        a model, if one is available. Raises `Refusal` `no_runner` or `bad_parameters`."""
        try:
            return self.find_runner(assignment).apply_edit(assignment, edit)
        except Refusal as refusal:
            if refusal.code != PROSE:
                raise
            prose, _ = self.choose(replace(assignment, prompt=edit, runner=AUTO, flow=None, parameters={}))
            if self._check_runner(prose).available:
                return prose
            raise Refusal("bad_parameters", refusal.message, refusal.fix) from None

    def _fill_in_runner(self, assignment: Assignment) -> Assignment:
        """The assignment with a definite runner in place of `auto`; see `choose`."""
        if assignment.runner != AUTO:
            return assignment
        if assignment.flow is not None:
            return replace(assignment, runner=FLOW)
        channel = self.settings.current.channels.get(assignment.channel)
        return replace(assignment, runner=MODEL if channel is None or channel.runner == AUTO else channel.runner)

    def _check_runner(self, assignment: Assignment) -> RunnerInfo:
        """What its runner says of an assignment. If that refuses, the runner is not available for this reason."""
        try:
            return self.find_runner(assignment).check(assignment)
        except Refusal as refusal:
            if assignment.runner == MODEL and assignment.flow is None and refusal.code == "no_runner":
                options = "`clawpy key set openai`, or a coding agent (`clawpy doctor` names yours)"
                return RunnerInfo(available=False, reason=f"No model or agent is set up for text prompts: {options}")
            return RunnerInfo(available=False, reason=refusal.message)

    def _name_able_channel(self, assignment: Assignment) -> str:
        """Another channel that can do a text prompt which its own cannot, as the end of a sentence; "" for none."""
        if assignment.flow is not None:
            return ""
        for name, channel in self.settings.current.channels.items():
            other = replace(assignment, channel=name, agent=channel.agent, runner=AUTO)
            info = self._check_runner(self._fill_in_runner(other))
            if info.available:
                return f"; {info.executor} serves {name}: `clawpy propose --channel {name} TEXT`"
        return ""

    # -- whether it may start

    def stop_reason(self) -> str:
        """Why nothing may run now, by the kill switch; "" when it may. A kill switch that raises stops everything."""
        try:
            return self.rails.stop_signal()
        except Exception as error:
            log.exception("the kill switch cannot be asked")
            return f"the kill switch cannot be read: {error}"

    def admit(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> None:
        """Raise `Refusal` when the assignment may not start now: `no_runner`, `no_sandbox`, `unattended`,
        `workspace_busy`, `stopped`. `without_sandbox` says that it was approved to run unconfined."""
        info = self.find_runner(assignment).check(assignment)
        if not info.available:
            raise Refusal("no_runner", info.reason, "`clawpy doctor` shows what is set up; then approve the card again")
        if mode == AUTONOMOUS and not self.sandbox.confines:
            raise Refusal("no_sandbox", NOTHING_BY_ITSELF, SANDBOX_FIX)
        if not (without_sandbox or self.sandbox.confines):
            raise Refusal("no_sandbox", NOT_CONFIRMED, "look at the card and approve it again")
        if mode == AUTONOMOUS and (reason := self.rails.unattended(assignment.workspace)):
            raise Refusal("unattended", reason, "approve it yourself, or wait")
        if mode == AUTONOMOUS and (busy := self._find_recent_write_reason(assignment, info)):
            raise Refusal("workspace_busy", busy, "it may run once nobody has written there for 10 minutes")
        if reason := self.stop_reason():
            raise Refusal("stopped", reason, "clawpy resume")

    def find_blocking_reason(
        self, assignment: Assignment, mode: str = AUTONOMOUS, *, without_sandbox: bool = False
    ) -> str:
        """Why an assignment may not start now, also after its time in the queue; "" when it may (SPEC 3.8).

        By itself it may not start without a runner or a sandbox, nor when it can write in a workspace where somebody
        wrote less than `QUIET_PERIOD` ago.
        """
        if reason := self.stop_reason():
            return reason
        if mode != AUTONOMOUS:
            return "" if without_sandbox or self.sandbox.confines else NOT_CONFIRMED
        info = self._check_runner(self.choose(assignment)[0])
        if not info.available:
            return info.reason
        if not self.sandbox.confines:
            return NOTHING_BY_ITSELF
        return self.rails.unattended(assignment.workspace) or self._find_recent_write_reason(assignment, info)

    def _find_recent_write_reason(self, assignment: Assignment, info: RunnerInfo) -> str:
        """Why an assignment with this `info` of its runner has to wait until nobody writes in its workspace; "" when it
        need not. It starts git."""
        last_write = None if info.check_only else self.rails.last_write(assignment.workspace)
        if last_write is None or (age := self.clock.now() - last_write) >= QUIET_PERIOD:
            return ""
        return f"somebody wrote to {Path(assignment.workspace).name} {max(0, int(age.total_seconds() // 60))} min ago"


# -- its work

MAX_SUMMARY_CHARS = 4_000
"""Maximum number of characters of a stored summary. The transcript has all of it."""


def run_session(live: LiveSession, admission: Admission, store: SessionStore) -> SessionStop | RunnerResult:
    """Do the work in this thread, and end its processes. Returns its result, or the request that ended it."""
    try:
        return _begin_and_run(live, admission, store)
    except CommandBlocked as error:
        return SessionStop(SessionState.BLOCKED, str(error))
    except SessionStopped as error:
        failure = SessionStop(SessionState.CANCELLED, str(error))
    except (WorkFailed, Refusal) as error:
        state = SessionState.CANNOT_RUN if isinstance(error, CannotRun) else SessionState.FAILED
        failure = SessionStop(state, str(error), isinstance(error, RetryLater))
    except Exception as error:
        if live.stop_requested is None:
            log.exception("session %s failed", live.id)
        failure = SessionStop(SessionState.FAILED, f"unexpected error: {type(error).__name__}: {error}")
    finally:
        live.processes.end(grace=0)
    return live.stop_requested or failure


def _begin_and_run(live: LiveSession, admission: Admission, store: SessionStore) -> RunnerResult:
    """Store that the session runs, and have its runner do the work."""
    runner = admission.find_runner(live.assignment)
    hosts = runner.check(live.assignment).hosts
    row = store.load_row(live.id)
    without_sandbox = row.sandbox == UNCONFINED
    live.work_allowed_once = admission.rails.is_allowed_once(row.permit_id)
    confinement = live.confinement
    described = live.sandbox.describe(network=confinement.network, hosts=(*confinement.hosts, *hosts))
    view = store.begin(live.id, described)
    if view is None:
        raise SessionStopped("it was stopped before it started")
    if reason := admission.find_blocking_reason(live.assignment, view.mode, without_sandbox=without_sandbox):
        live.stop(SessionStop(SessionState.CANCELLED, reason))
    live.check_running()
    result = runner.run(live, view)
    if live.stop_requested is not None and live.stop_requested.reason != UNDONE:
        live.unfinished_write = result.write  # the stop came a moment too late to save anything
    live.check_running()
    return result


def make_result(
    outcome: SessionStop | RunnerResult, live: LiveSession | None, *, secrets: Iterable[str], abandoned: bool
) -> SessionResult:
    """The result of a session, without secrets (SPEC 11.1). `live` is None when the session never ran.

    `abandoned` says that its thread did not return with the cost of its last call. Then the whole reservation counts
    (SPEC 3.4).
    """
    known_secrets = tuple(secrets)
    clean = partial(redact, secrets=known_secrets)
    text = outcome.summary if isinstance(outcome, RunnerResult) else outcome.reason
    summary = clean(sanitise(text)).strip()[:MAX_SUMMARY_CHARS]
    if isinstance(outcome, RunnerResult):
        facts = {**outcome.facts, HAS_PROBLEM: True} if outcome.has_problem else outcome.facts
        cleaned_facts = redact_json(facts, known_secrets)
        check = outcome.check and outcome.check.for_storage(clean)
        result = SessionResult(SessionState.SUCCEEDED, summary, check=check, facts=cleaned_facts)
    else:
        facts = {NOT_BEGUN: True} if outcome.not_begun else {}
        result = SessionResult(outcome.state, summary, error=summary, facts=facts)
    if live is None:
        return result
    cost = live.budget.max_cost if abandoned else live.budget.cost
    return replace(result, cost=cost, tokens=live.budget.tokens, seconds=live.seconds)


# -- the watch over running sessions

TICK_S = 0.1
"""Seconds between two rounds. So a session has at most ten flushes and ten events a second."""

LIMIT_CHECK_TICKS = 2
"""Rounds between two checks of limits and kill switch."""

USAGE_CHECK_TICKS = 6
"""Rounds between two checks of memory and processes, for which all processes of the machine are read."""


class SessionWatch:
    """Watches in one thread. The thread exists only while a session runs, so that an idle engine does not wake up."""

    def __init__(
        self, bus: EventBus, *, stop_reason: Callable[[], str], stop: Callable[[LiveSession, SessionStop], None]
    ) -> None:
        """`stop_reason` says why nothing may run now, "" when it may. `stop` stops a session. Both are quick."""
        self._bus = bus
        self._stop_reason = stop_reason
        self._stop = stop
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}
        self._thread: threading.Thread | None = None

    def add(self, live: LiveSession) -> None:
        """Watch a session from now on. Raises `RuntimeError` when the machine has no thread left."""
        with self._lock:
            self._sessions[live.id] = live
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="clawpy-session-watch", daemon=True)
                thread.start()
                self._thread = thread

    def remove(self, session_id: str) -> None:
        """Watch a session no longer."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def publish_output(self, live: LiveSession) -> None:
        """Write and publish the session's output since the last time, also if only its unfinished line grew. Raises
        OSError on a full disk."""
        unfinished = live.transcript.unfinished
        text = live.transcript.flush()
        if text or live.transcript.unfinished != unfinished:
            workspace, last_line = live.assignment.workspace, live.transcript.lines
            self._bus.publish(SessionOutput(subject=live.id, workspace=workspace, last_line=last_line, text=text))

    def _run(self) -> None:
        """Watch until no session is left."""
        for tick in itertools.count(1):
            with self._lock:
                sessions = [*self._sessions.values()]
                if not sessions:
                    self._thread = None
                    return
            try:
                for live in sessions:
                    self._write_transcript(live)
                if tick % LIMIT_CHECK_TICKS == 0:
                    self._enforce_limits(sessions, usage=tick % USAGE_CHECK_TICKS == 0)
            except Exception:
                # The thread goes on: without it no limit and no kill switch would work.
                log.exception("watching running sessions failed")
            time.sleep(TICK_S)

    def _write_transcript(self, live: LiveSession) -> None:
        """Write the session's output. A session whose output cannot be written is stopped."""
        try:
            self.publish_output(live)
        except OSError as error:
            if live.stop_requested is None:
                reason = f"its transcript cannot be written: {error.strerror}"
                log.error("session %s ends: %s", live.id, reason)
                self._stop(live, SessionStop(SessionState.FAILED, reason))

    def _enforce_limits(self, sessions: Sequence[LiveSession], *, usage: bool) -> None:
        """Stop all sessions if the kill switch says so, else those that exceed a limit. Without `usage`, memory and
        processes are not checked."""
        reason = self._stop_reason()
        children_of = read_children() if usage else {}
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason:
                self._stop(live, SessionStop(SessionState.CANCELLED, reason))
                continue
            exceeded = live.explain_exceeded_limit() or explain_disk_shortage(live.scratch, live.folder)
            if usage and not exceeded:
                exceeded = live.processes.explain_exceeded_limit(children_of)
            if exceeded:
                self._stop(live, SessionStop(SessionState.FAILED, exceeded))
