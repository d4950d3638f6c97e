"""Runs one session in the present thread, from the transaction in which it starts to its last process (SPEC 3.8)."""

from __future__ import annotations

import logging

from engine.execution.admission import Admission
from engine.execution.live_session import LiveSession, StopRequest
from engine.execution.runners.flow import CannotRun, CommandBlocked, FlowError, RetryLater, SessionStopped
from engine.execution.runners.runner import RunnerResult
from engine.execution.sandbox import UNCONFINED
from engine.execution.session_store import SessionStore
from engine.model import UNDONE, Refusal, SessionState

log = logging.getLogger(__name__)


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
