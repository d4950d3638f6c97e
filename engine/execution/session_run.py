"""Runs one session in its thread, from the transaction in which it starts to its last process, makes its result, and
watches it meanwhile (SPEC 3.7, 3.8).

`Sessions` starts the threads, stores the results and owns the watch. The watch writes the transcripts of all running
sessions, publishes their output, and stops them at a limit or when the kill switch is on.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.events import EventBus, SessionOutput
from engine.execution.admission import Admission
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import CannotRun, CommandBlocked, FlowError, RetryLater, SessionStopped
from engine.execution.runners.runner import RunnerResult
from engine.execution.sandbox.ladder import UNCONFINED
from engine.execution.session_store import NOT_BEGUN, SessionResult
from engine.execution.session_terms import StopRequest
from engine.model import HAS_PROBLEM, UNDONE, Refusal, SessionState, SessionView, sanitise
from engine.model.secrets import redact, redact_json

log = logging.getLogger(__name__)

MAX_SUMMARY = 4_000
"""Maximum number of characters of a stored summary. The transcript has all of it."""


def run_session(live: LiveSession, sessions: Admission) -> StopRequest | RunnerResult:
    """Do the work in this thread, and end its processes. Returns its result, or the request that ended it."""
    try:
        return _begin_and_run(live, sessions)
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


def _begin_and_run(live: LiveSession, sessions: Admission) -> RunnerResult:
    """Store that the session runs, and have its runner do the work."""
    runner = sessions.runner_of(live.assignment)
    hosts = runner.check(live.assignment).hosts
    without_sandbox = sessions.row(live.id).sandbox == UNCONFINED
    confinement = live.confinement
    described = live.sandbox.describe(network=confinement.network, hosts=(*confinement.hosts, *hosts))
    view = sessions.begin(live.id, described)
    if view is None:
        raise SessionStopped("it was stopped before it started")
    if reason := sessions.late_refusal(live.assignment, view.mode, without_sandbox=without_sandbox):
        live.stop(StopRequest(SessionState.CANCELLED, reason))
    live.check_running()
    result = runner.run(live, view)
    if live.stop_requested is not None and live.stop_requested.reason != UNDONE:
        live.unfinished_write = result.write  # the stop came a moment too late to save anything
    live.check_running()
    return result


def make_result(
    outcome: StopRequest | RunnerResult, live: LiveSession | None, *, secrets: Iterable[str], abandoned: bool
) -> SessionResult:
    """The result of a session, without secrets (SPEC 11.1). `live` is None when the session never ran.

    `abandoned` says that its thread did not return with the cost of its last call. Then the whole reservation counts
    (SPEC 3.4).
    """
    known_secrets = tuple(secrets)
    text = outcome.summary if isinstance(outcome, RunnerResult) else outcome.reason
    summary = redact(sanitise(text), known_secrets).strip()[:MAX_SUMMARY]
    if isinstance(outcome, RunnerResult):
        facts = redact_json({**outcome.facts, **({} if outcome.sound else {HAS_PROBLEM: True})}, known_secrets)
        result = SessionResult(SessionState.SUCCEEDED, summary, check=outcome.check, facts=facts)
    else:
        facts = {NOT_BEGUN: True} if outcome.not_begun else {}
        result = SessionResult(outcome.state, summary, error=summary, facts=facts)
    if live is None:
        return result
    cost = live.max_cost if abandoned else live.cost
    return replace(result, cost=cost, tokens=live.tokens, seconds=live.seconds)


def with_worktree_fate(view: SessionView) -> SessionView:
    """The view of a session. If the session is over and its worktree is gone, the view has a note on that. Reads the
    disk."""
    if not view.state.over or view.cwd == view.workspace or Path(view.cwd).is_dir():
        return view
    if view.change_set_id:
        fate = "its changes are in its change set"
    elif view.error == UNDONE:
        fate = "its changes were discarded with its card"
    else:
        fate = "it made no changes"
    return replace(view, gone=f"its worktree is gone; {fate}")


TICK_S = 0.1
"""Seconds between two rounds. So a session has at most ten flushes and ten events a second."""

LIMIT_CHECK_TICKS = 2
"""Rounds between two checks of limits and kill switch."""

USAGE_CHECK_TICKS = 6
"""Rounds between two checks of memory and processes, for which all processes of the machine are read."""

MIN_FREE_BYTES = 256 * 1024**2
"""A session ends when less than this is left on its disk, because the engine's own records need room."""

MIN_FREE_FILES = 10_000
"""A session ends when fewer files than this can be made on its disk."""


class SessionWatch:
    """Watches in one thread. The thread exists only while a session runs, so that an idle engine does not wake up."""

    def __init__(
        self, bus: EventBus, *, stop_reason: Callable[[], str], stop: Callable[[LiveSession, StopRequest], None]
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
                thread = threading.Thread(target=self._run, name="clawpy-supervisor", daemon=True)
                thread.start()
                self._thread = thread

    def remove(self, session_id: str) -> None:
        """Watch a session no longer."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def publish_output(self, live: LiveSession) -> None:
        """Write and publish the session's output since the last time. Raises OSError on a full disk."""
        if text := live.transcript.flush():
            workspace, last_line = live.assignment.workspace, live.transcript.lines
            self._bus.publish(SessionOutput(subject=live.id, workspace=workspace, last_line=last_line, text=text))

    def _run(self) -> None:
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
        try:
            self.publish_output(live)
        except OSError as error:
            if live.stop_requested is None:
                reason = f"its transcript cannot be written: {error.strerror}"
                log.error("session %s ends: %s", live.id, reason)
                self._stop(live, StopRequest(SessionState.FAILED, reason))

    def _enforce_limits(self, sessions: Sequence[LiveSession], *, usage: bool) -> None:
        reason = self._stop_reason()
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason:
                self._stop(live, StopRequest(SessionState.CANCELLED, reason))
                continue
            exceeded = live.exceeded_limit() or find_disk_shortage(live.scratch, live.folder)
            if usage and not exceeded:
                exceeded = live.processes.exceeded_limit()
            if exceeded:
                self._stop(live, StopRequest(SessionState.FAILED, exceeded))


def find_disk_shortage(*folders: Path) -> str:
    """Why the disk of one of `folders` has too little room for a session. "" when there is room."""
    for folder in folders:
        try:
            stats = os.statvfs(folder)
        except OSError:
            continue  # gone with the session
        if stats.f_bavail * stats.f_frsize < MIN_FREE_BYTES:
            return f"less than {MIN_FREE_BYTES // 1024**2} MB are free on the disk of {folder}"
        if stats.f_files and stats.f_favail < MIN_FREE_FILES:
            return f"the disk of {folder} has room for fewer than {MIN_FREE_FILES:,} more files"
    return ""
