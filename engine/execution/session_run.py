"""Runs one session in the present thread, from the transaction in which it starts to its last process (SPEC 3.8)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from engine.clock import Clock
from engine.events import EventBus, FaultReported, SessionOutput
from engine.execution.live_session import LiveSession, SessionRails, StopRequest
from engine.execution.runners.flow import CannotRun, CommandBlocked, FlowError, RetryLater, SessionStopped
from engine.execution.runners.runner import Runner, RunnerResult
from engine.execution.sandbox import UNCONFINED, Sandbox, best_sandbox, disk_shortage
from engine.execution.session_limits import AUTONOMOUS
from engine.execution.session_store import NOT_BEGUN, SessionResult, SessionStore
from engine.model import HAS_PROBLEM, UNDONE, Assignment, Refusal, SessionState, SessionView, sanitise
from engine.model.secrets import redact, redact_json

# Watches running sessions: writes their transcripts, publishes their output, enforces limits and the kill switch.
#
# One thread watches all of them. It exists only while a session runs, so an idle engine does not wake up.


log = logging.getLogger(__name__)

TICK_S = 0.1
"""Seconds between two rounds: at most ten flushes and ten events a second for each session."""

LIMIT_CHECK_TICKS = 2
"""Ticks between two checks of limits and kill switch."""

USAGE_CHECK_TICKS = 6
"""Ticks between two checks of memory and processes, which read all processes of the machine."""

StopSignal = Callable[[], str]
"""The kill switch (SPEC 3.7): why nothing may run now, "" when it may."""


def read_stop_reason(signal: StopSignal) -> str:
    """The answer of the kill switch. One that raises stops everything (fail closed)."""
    try:
        return signal()
    except Exception as error:
        log.exception("the kill switch cannot be asked")
        return f"the kill switch cannot be read: {error}"


class SessionSupervisor:
    """Watches the sessions that `live` returns, and calls `end` for each that has to end."""

    def __init__(
        self,
        *,
        live: Callable[[], list[LiveSession]],
        end: Callable[[LiveSession, StopRequest], None],
        stop_signal: StopSignal,
        bus: EventBus,
    ) -> None:
        self._live = live
        self._end = end
        self._stop_signal = stop_signal
        self._bus = bus
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._checks_usage = False

    def wake(self) -> None:
        """Start the thread if it does not run. Call it when `live` has the new session."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="clawpy-supervisor", daemon=True)
                self._thread.start()

    def publish_output(self, live: LiveSession) -> None:
        """Write and publish the session's output since the last time. Raises OSError on a full disk."""
        text = live.transcript.flush()
        if text:
            self._bus.publish(
                SessionOutput(
                    subject=live.id,
                    workspace=live.assignment.workspace,
                    last_line=live.transcript.lines,
                    text=text,
                )
            )

    def _run(self) -> None:
        tick = 0
        while True:
            with self._lock:
                sessions = self._live()
                if not sessions:
                    self._thread = None
                    return
            tick += 1
            self._checks_usage = tick % USAGE_CHECK_TICKS == 0
            try:
                for live in sessions:
                    self._write_transcript(live)
                if tick % LIMIT_CHECK_TICKS == 0:
                    self._enforce_limits(sessions)
            except Exception:
                # The thread goes on: without it no limit and no kill switch would work.
                log.exception("watching running sessions failed")
            time.sleep(TICK_S)

    def _write_transcript(self, live: LiveSession) -> None:
        try:
            self.publish_output(live)
        except OSError as error:
            if live.stop_requested is None:
                log.error("session %s ends, its transcript cannot be written: %s", live.id, error)
                self._end(live, StopRequest(SessionState.FAILED, f"its transcript cannot be written: {error.strerror}"))

    def _enforce_limits(self, sessions: list[LiveSession]) -> None:
        reason = read_stop_reason(self._stop_signal)
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason:
                self._end(live, StopRequest(SessionState.CANCELLED, reason))
            elif exceeded := self._exceeded_limit(live):
                self._end(live, StopRequest(SessionState.FAILED, exceeded))

    def _exceeded_limit(self, live: LiveSession) -> str:
        if exceeded := live.exceeded_limit() or disk_shortage(live.scratch, live.folder):
            return exceeded
        return live.processes.exceeded_limit() if self._checks_usage else ""


# Decides whether a session may start now, with which runner and in which sandbox (SPEC 3.7, 3.8, 7).


QUIET_PERIOD = timedelta(minutes=10)
"""The time without other writes in a workspace before a session that can write may start there by itself (SPEC 3.8)."""

NOTHING_BY_ITSELF = "nothing runs by itself without a sandbox, and no sandbox works here"
NOT_CONFIRMED = "it was approved to run in a sandbox, but no sandbox works on this machine any more"


class Admission:
    """Checks a session when it is created, and again before it starts."""

    def __init__(self, clock: Clock, rails: SessionRails, runners: Sequence[Runner]) -> None:
        self._clock = clock
        self._rails = rails
        self._runners = {runner.name: runner for runner in runners}
        self._sandbox = rails.sandbox

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of sessions; the best rung of this machine is tried when it is first needed."""
        if self._sandbox is None:
            self._sandbox = best_sandbox()
        return self._sandbox

    def admit(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> None:
        """Raises `Refusal` when the assignment may not start now: `no_runner`, `no_sandbox`, `unattended`,
        `workspace_busy`, `stopped`. `without_sandbox`: it was approved to run unconfined."""
        info = self.runner_of(assignment).check(assignment)
        if not info.available:
            raise Refusal("no_runner", info.reason)
        if mode == AUTONOMOUS and not self.sandbox.confines:
            raise Refusal("no_sandbox", NOTHING_BY_ITSELF, "install bubblewrap")
        if not (without_sandbox or self.sandbox.confines):
            raise Refusal("no_sandbox", NOT_CONFIRMED, "look at the card and approve it again")
        if mode == AUTONOMOUS and (reason := self._rails.unattended(assignment.workspace)):
            raise Refusal("unattended", reason, "approve it yourself, or wait")
        if mode == AUTONOMOUS and (busy := self.blocking_reason(assignment)):
            raise Refusal("workspace_busy", busy, "it may run once nobody has written there for 10 minutes")
        if stop_reason := read_stop_reason(self._rails.stop_signal):
            raise Refusal("stopped", stop_reason, "clawpy resume")

    def late_refusal(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> str:
        """Why an admitted assignment may not start after its time in the queue, "" when it may."""
        reason = read_stop_reason(self._rails.stop_signal)
        if reason:
            return reason
        if not (without_sandbox or self.sandbox.confines):
            return NOT_CONFIRMED
        if mode != AUTONOMOUS:
            return ""
        return self._rails.unattended(assignment.workspace) or self.blocking_reason(assignment)

    def runner_of(self, assignment: Assignment) -> Runner:
        """The runner of an assignment; `acp:*` serves `acp:claude` and all others of that family. Raises `Refusal`
        `no_runner`."""
        family, colon, _ = assignment.runner.partition(":")
        runner = self._runners.get(f"{family}:*" if colon else assignment.runner)
        if runner is None:
            names = ", ".join(self._runners) or "none"
            raise Refusal("no_runner", f"there is no runner {assignment.runner!r}", f"built in: {names}")
        return runner

    def blocking_reason(self, assignment: Assignment) -> str:
        """Why an assignment may not start by itself now, "" when it may (SPEC 3.8). Starts git when the assignment can
        write. Raises `Refusal` `no_runner`."""
        if not self.sandbox.confines:
            return NOTHING_BY_ITSELF
        if self.runner_of(assignment).check(assignment).check_only:
            return ""
        last_write = self._rails.last_write(assignment.workspace)
        if last_write is None or (age := self._clock.now() - last_write) >= QUIET_PERIOD:
            return ""
        return f"somebody wrote to {Path(assignment.workspace).name} {max(0, int(age.total_seconds() // 60))} min ago"

    def recover(self) -> list[str]:
        """At start-up: let each runner tidy up after a crash. Returns messages on what was done."""
        return [message for runner in self._runners.values() for message in runner.recover()]


# Makes the stored result of a session that ended: state, summary, cost and facts, without secrets (SPEC 3.8).


MAX_SUMMARY = 4_000
"""Maximum number of characters of a summary in a row; the transcript has all of it."""


def session_result(
    outcome: StopRequest | RunnerResult, live: LiveSession | None, *, secrets: Iterable[str], abandoned: bool
) -> SessionResult:
    """The result of a session, without secrets (SPEC 11.1). `live` is None when it never ran.

    `abandoned`: its thread did not return with the cost of its last call, so the whole reservation counts (SPEC
    3.4)."""
    known_secrets = tuple(secrets)

    def clean(text: str) -> str:
        return redact(sanitise(text), known_secrets).strip()[:MAX_SUMMARY]

    if isinstance(outcome, RunnerResult):
        result = SessionResult(
            state=SessionState.SUCCEEDED,
            summary=clean(outcome.summary),
            check=outcome.check,
            facts=redact_json({**outcome.facts, **({} if outcome.sound else {HAS_PROBLEM: True})}, known_secrets),
        )
    else:
        reason = clean(outcome.reason)
        facts = {NOT_BEGUN: True} if outcome.not_begun else {}
        result = SessionResult(outcome.state, reason, error=reason, facts=facts)
    if live is None:
        return result
    cost = live.max_cost if abandoned else live.cost
    return replace(result, cost=cost, tokens=live.tokens, seconds=live.seconds)


def with_worktree_fate(view: SessionView) -> SessionView:
    """The view, with a note if the worktree of a finished session is gone. Reads the disk."""
    if not view.state.over or view.cwd == view.workspace or Path(view.cwd).is_dir():
        return view
    if view.change_set_id:
        fate = "its changes are in its change set"
    elif view.error == UNDONE:
        fate = "its changes were discarded with its card"
    else:
        fate = "it made no changes"
    return replace(view, gone=f"its worktree is gone; {fate}")


def run_session(live: LiveSession, store: SessionStore, admission: Admission) -> StopRequest | RunnerResult:
    """Do the work in this thread, and end its processes. Its result, or the request that ended it."""
    try:
        return _begin_and_run(live, store, admission)
    except CommandBlocked as error:
        return StopRequest(SessionState.BLOCKED, str(error))
    except SessionStopped as error:
        failure = StopRequest(SessionState.CANCELLED, str(error))
    except (FlowError, Refusal) as error:
        state = SessionState.CANNOT_RUN if isinstance(error, CannotRun) else SessionState.FAILED
        failure = StopRequest(state, str(error), isinstance(error, RetryLater))
    except Exception as error:
        if live.stop_requested is None:
            log.exception("session %s failed", live.id)
        failure = StopRequest(SessionState.FAILED, f"unexpected error: {type(error).__name__}: {error}")
    finally:
        live.processes.end(grace=0)
    return live.stop_requested or failure


def _begin_and_run(live: LiveSession, store: SessionStore, admission: Admission) -> RunnerResult:
    """Store that the session runs, and run its runner."""
    runner = admission.runner_of(live.assignment)
    hosts = runner.check(live.assignment).hosts
    without_sandbox = store.row(live.id).sandbox == UNCONFINED
    view = store.begin(live.id, live.sandbox.describe(network=live.confinement.network, hosts=hosts))
    if view is None:
        raise SessionStopped("it was stopped before it started")
    if reason := admission.late_refusal(live.assignment, view.mode, without_sandbox=without_sandbox):
        live.stop(StopRequest(SessionState.CANCELLED, reason))
    live.check_running()
    result = runner.run(live, view)
    if live.stop_requested is not None and live.stop_requested.reason != UNDONE:
        live.unfinished_write = result.write  # the stop came a moment too late to save anything
    live.check_running()
    return result


# Retries to store the end of a session, for example after a full disk (SPEC 11.3).


FIRST_WAIT_S, MAX_WAIT_S, GIVE_UP_S = 0.2, 30.0, 24 * 3_600.0
"""Seconds until the first retry, the longest wait (each is twice the last), and the time after which it gives up."""

WAITER_TIMEOUT_S = 5.0
"""Seconds after which callers that wait for the session's end are released, although it is not stored."""

CLOSED = "engine_closed"
"""The code with which a closed database refuses a write."""


class EndRetries:
    """Retries to store ends of sessions, each in its own thread.

    Until then their rows are RUNNING, though nothing runs any more. An end that is not stored when the engine closes,
    or after `GIVE_UP_S` seconds, is left to the next start, which reports the session as interrupted.
    """

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._closing = threading.Event()

    def __contains__(self, session_id: object) -> bool:
        with self._lock:
            return session_id in self._threads

    def keep_trying(
        self, session_id: str, store: Callable[[], object], error: Exception, on_end: Callable[[], object]
    ) -> None:
        """Call `store` again until it does not raise; `error` is its first error. `on_end` is called then, and when
        nobody should wait any longer; it may be called twice. A second call for the same session does nothing."""
        thread = threading.Thread(
            target=self._retry, args=(session_id, store, on_end), name=f"clawpy-late-{session_id}", daemon=True
        )
        with self._lock:
            if session_id in self._threads:
                return
            self._threads[session_id] = thread
        self._report(session_id, f"the end of session {session_id} could not be stored; it is tried again: {error}")
        try:
            thread.start()
        except RuntimeError:  # the machine has no thread left
            log.exception("nothing tries to store the end of session %s", session_id)
            self._forget(session_id, on_end)

    def close(self) -> None:
        """Give up; wait for a retry that is under way."""
        self._closing.set()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            if thread.is_alive():
                thread.join()

    def _retry(self, session_id: str, store: Callable[[], object], on_end: Callable[[], object]) -> None:
        began, wait = time.monotonic(), FIRST_WAIT_S
        while not self._closing.wait(wait) and time.monotonic() - began < GIVE_UP_S:
            try:
                store()
            except Exception as error:
                log.warning("the end of session %s still cannot be stored: %s", session_id, error)
                if isinstance(error, Refusal) and error.code == CLOSED:
                    break
                wait = min(2 * wait, MAX_WAIT_S)
                if time.monotonic() - began >= WAITER_TIMEOUT_S:
                    on_end()
                continue
            delay = round(time.monotonic() - began)
            self._report(session_id, f"the end of session {session_id} is stored now, {delay} s late")
            self._forget(session_id, on_end)
            return
        self._report(
            session_id,
            f"the end of session {session_id} is not stored; the next start reports the session as interrupted",
        )
        self._forget(session_id, on_end)

    def _forget(self, session_id: str, on_end: Callable[[], object]) -> None:
        with self._lock:
            self._threads.pop(session_id, None)
        on_end()

    def _report(self, session_id: str, message: str) -> None:
        log.error("%s", message)
        self._bus.publish(FaultReported(subject=session_id, where="sessions", message=message))
