"""Runs one session in its thread, from the transaction in which it starts to its last process, and makes its result
(SPEC 3.8). `Sessions` starts the threads and stores the results."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

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
