"""Sessions (SPEC 3.8): approved work, each in a thread of its own, never without a permit, never more than allowed.

Nothing runs twice: a permit is used up in the transaction that makes the session's row, and after a crash `recover`
reads the rows: what was queued runs, what ran is INTERRUPTED. `admission.py` says what may begin; here are the queue,
the threads, where each session works, and how it ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.clock import Clock
from engine.config import SettingsSource
from engine.events import EventBus
from engine.execution.admission import Admission
from engine.execution.channels import APPROVED, AUTONOMOUS, Channels
from engine.execution.end_retries import EndRetries
from engine.execution.live_session import LiveSession, SessionRails, Stop
from engine.execution.pid_files import pid_folder
from engine.execution.process_termination import end_processes, terminate_sessions
from engine.execution.processes import Processes
from engine.execution.runners.flow import CannotRun, CommandBlocked, FlowError, RetryLater, SessionStopped
from engine.execution.runners.runner import Runner, RunnerResult
from engine.execution.sandbox import UNCONFINED, Bubblewrap, Sandbox, limits
from engine.execution.session_results import session_result, with_worktree_fate
from engine.execution.session_store import SessionRow, SessionStore, continued
from engine.execution.session_supervisor import SessionSupervisor
from engine.execution.session_workspace import initial_confinement
from engine.execution.transcripts import TranscriptReader, TranscriptWriter
from engine.home import Home
from engine.model import (
    UNDONE,
    Assignment,
    Permit,
    Randomness,
    Refusal,
    SessionState,
    SessionView,
    TranscriptLine,
    sanitise,
)
from engine.model.secrets import refuse_secret
from engine.plain_files import remove_folder
from engine.storage.database import Database

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 3.0
"""Seconds that closing waits for sessions to end and to tidy up."""

WAIT_INTERVAL_S = 0.5
"""Seconds after which a wait looks whether the operator interrupted it."""

STOP_TIMEOUT_S = 0.9
"""Seconds after a stop in which a session whose thread does not come back is ended without it (SPEC 3.7: 1 s)."""


def continue_command(session_id: str) -> str:
    """The command for a card that goes on with a session that is over."""
    return f"clawpy propose --continue {session_id} TEXT"


class Sessions(SessionStore):
    """All methods are quick and may be called from any thread, but `wait`, `stop_all` and `close`."""

    def __init__(
        self,
        database: Database,
        *,
        home: Home,
        clock: Clock,
        bus: EventBus,
        randomness: Randomness,
        settings: SettingsSource,
        rails: SessionRails,
        runners: Sequence[Runner],
    ) -> None:
        super().__init__(database, rails.consume)
        self._home = home
        self._clock = clock
        self._randomness = randomness
        self._settings = settings
        self._rails = rails
        self._channels = Channels(settings)
        self.admission = Admission(clock, rails, runners)
        """What may begin."""
        self._reader = TranscriptReader()
        self._supervisor = SessionSupervisor(live=self._all_live, end=self._end, stop_signal=rails.stop_signal, bus=bus)
        self._end_retries = EndRetries(bus)
        self._lock = threading.RLock()
        self._queue: deque[SessionRow] = deque()
        self._live: dict[str, LiveSession] = {}
        self._ended: dict[str, threading.Event] = {}
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._held_back = False

    @property
    def sandbox(self) -> Sandbox:
        """Where sessions work: the best rung of this machine, tried when it is first needed."""
        return self.admission.sandbox

    # Starting

    def start(
        self,
        permit: Permit,
        assignment: Assignment,
        *,
        agent: str,
        mode: str = APPROVED,
        estimate: int = 0,
        without_sandbox: bool = False,
    ) -> SessionView:
        """Use `permit` up and run `assignment`, at once or when its turn comes. `estimate` in micro-dollars;
        `without_sandbox`: it was approved to run where nothing confines it.

        Raises `Refusal`: `unknown_channel`, `no_runner`, `no_sandbox` (none works, and it is autonomous or was not
        approved to run without), `stopped`,
        `unattended` (nothing begins by itself now), `workspace_busy`, `engine_closed`, and what using the permit up
        raises (`permit_used`, `permit_expired`, …). Nothing is stored then.
        """
        if mode not in (APPROVED, AUTONOMOUS):
            raise ValueError(f"mode {mode!r}")
        self._channels.get(assignment.channel)
        self.admission.admit(assignment, mode, without_sandbox=without_sandbox)
        session_id = self._randomness.new_id("auto" if mode == AUTONOMOUS else "sess")
        with self._lock:
            if self._closed:
                raise Refusal("engine_closed", "the engine is closing; no session can start")
        sandbox = UNCONFINED if without_sandbox else ""
        row = self.enqueue(session_id, permit, assignment, agent=agent, mode=mode, estimate=estimate, sandbox=sandbox)
        self._enqueue_rows([row])
        return self.get(session_id)

    # Looking

    def get(self, session_id: str) -> SessionView:
        """One session. Raises `Refusal` `unknown_session`."""
        return self._view(self.row(session_id))

    def running(self) -> list[SessionView]:
        """What runs now or is just beginning, oldest first; what is queued is not among it, nor what is over and cannot
        be stored yet."""
        with self._lock:
            live_ids = set(self._live)
        rows = [row for row in self.rows(state=SessionState.QUEUED) if row.id in live_ids] if live_ids else []
        rows += self.rows(state=SessionState.RUNNING)
        return [self._view(row) for row in reversed(rows) if row.id not in self._end_retries]

    def of_prediction(self, prediction_id: str) -> SessionView | None:
        """The newest session of a card, or None."""
        return next((self._view(row) for row in self.rows(1, prediction_id=prediction_id)), None)

    def continues(self, session_id: str) -> str:
        """The session that this one goes on with, "" for none. Raises `Refusal` `unknown_session`."""
        return continued(self.row(session_id).assignment)

    def transcript(self, session_id: str, *, after: int = 0, limit: int = 2_000) -> list[TranscriptLine]:
        """At most `limit` lines after line `after`; a running session's newest tenth of a second may be missing."""
        return self._reader.page(self._transcript(session_id), after=after, limit=limit)

    def wait(self, session_id: str, timeout: float | None = None) -> SessionView:
        """Wait until the session is over, at most `timeout` seconds; the view says whether it is."""
        with self._lock:
            ended = self._ended.get(session_id)
        if ended is not None:
            deadline = None if timeout is None else time.monotonic() + timeout
            # In slices: an interrupt that comes just before a wait without end would be noticed only after it.
            while not ended.wait(
                WAIT_INTERVAL_S if deadline is None else min(WAIT_INTERVAL_S, deadline - time.monotonic())
            ):
                if deadline is not None and time.monotonic() >= deadline:
                    break
        return self.get(session_id)

    def reply(self, session_id: str, text: str) -> None:
        """Tell a running session something (SPEC 9.4); it reads it at its next turn.

        Raises `Refusal` `unknown_session`, `not_running`, `no_conversation` (a flow), `empty_prompt`,
        `secret_in_text`.
        """
        reply = refuse_secret(sanitise(text).strip(), self._rails.secrets())
        if not reply:
            raise Refusal("empty_prompt", "the reply is empty", "write what it should know")
        with self._lock:
            live = self._live.get(session_id)
        if live is None:
            view = self.get(session_id)
            if not view.state.over:
                raise Refusal(
                    "not_running", f"{session_id} has not started", "send it when the session runs; see `clawpy work`"
                )
            message = f"{session_id} has ended ({view.state}) and no longer reads replies"
            raise Refusal("not_running", message, f"continue it: {continue_command(session_id)}")
        if not live.tell(reply):
            message = f"{session_id} reads no replies: no agent works in it, or it is finishing"
            raise Refusal("no_conversation", message, f"when it has ended, continue it: {continue_command(session_id)}")
        live.write("reply", reply)

    # Stopping

    def stop(self, session_id: str, reason: str) -> None:
        """End a session and all its processes, within a second; harmless when it is over. Returns at once.

        Raises `Refusal` `unknown_session`.
        """
        with self._lock:
            live = self._live.get(session_id)
            queued = next((row for row in self._queue if row.id == session_id), None)
            if queued is not None:
                self._queue.remove(queued)
        if live is not None:
            self._end(live, Stop(SessionState.CANCELLED, reason))
        elif queued is not None or self.get(session_id).state is SessionState.QUEUED:  # lined up, or left for later
            self._finish(session_id, Stop(SessionState.CANCELLED, reason))

    def stop_all(self, reason: str) -> int:
        """End everything that runs or waits, and see it gone: within a second. Returns how many there were."""
        with self._lock:
            # What waits first: the end of one that runs gives its place to the next.
            stopped = [*(row.id for row in self._queue), *self._live]
            ended = [self._ended[session_id] for session_id in stopped]
        for session_id in stopped:
            self.stop(session_id, reason)
        until = time.monotonic() + 1
        for event in ended:
            event.wait(max(0, until - time.monotonic()))
        remaining = [row.id for row in self.rows(state=SessionState.QUEUED) if row.id not in stopped]
        for session_id in remaining:
            self.stop(session_id, reason)
        return len(stopped) + len(remaining)

    def hold_back(self) -> None:
        """Begin nothing more: what waits, and what is approved from now on, waits for the next engine of this home."""
        with self._lock:
            self._held_back = True

    def close(self) -> None:
        """End what runs; what is queued stays queued for the next start. Safe to call twice."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            live = [*self._live.values()]
            threads = [*self._threads]
        for session in live:
            self._end(session, Stop(SessionState.CANCELLED, "the engine was closed"))
        until = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in threads:
            thread.join(max(0, until - time.monotonic()))
        for session in live:
            session.ended.wait(max(0, until - time.monotonic()))
        self._end_retries.close()

    def recover(self, *, resume: bool = True) -> list[str]:
        """At start-up, before anything else starts: what a crash left. Says what was interrupted.

        Without `resume` what waits goes on waiting: an engine that closes in a moment would only cut it short.
        """
        interrupted = self.rows(state=SessionState.RUNNING)
        queued = self.rows(state=SessionState.QUEUED)[::-1]
        messages = []
        terminate_sessions(pid_folder(self._home))
        for row in reversed(interrupted):
            end_processes(row.id)
            self._finish(row.id, Stop(SessionState.INTERRUPTED, "the engine stopped while it ran"))
            messages.append(f"“{row.prompt}” was running when the engine stopped; it was interrupted ({row.id})")
        self._sweep(self._scratch)
        messages += self.admission.recover()
        if not resume:
            return messages + [f"“{row.prompt}” waits for the console ({row.id})" for row in queued]
        messages += [f"“{row.prompt}” was waiting when the engine stopped; it runs now ({row.id})" for row in queued]
        self._enqueue_rows(queued)
        return messages

    # Running

    def _enqueue_rows(self, waiting: Sequence[SessionRow]) -> None:
        with self._lock:
            if self._closed:
                return  # they stay queued for the next start
            for row in waiting:
                self._ended[row.id] = threading.Event()
                self._queue.append(row)
        self._dispatch()

    def _dispatch(self) -> None:
        """Start what waits, as far as the limit on running sessions lets."""
        sandbox = self.sandbox  # trying it out takes a moment: not under the lock, which a stop needs too
        while True:
            problem = ""
            with self._lock:
                occupied = sum(not live.asking for live in self._live.values())
                free = self._settings.current.max_running_sessions - occupied
                if self._closed or self._held_back or free <= 0 or not self._queue:
                    return
                row = self._queue.popleft()
                try:
                    live = self._live[row.id] = self._prepare(row, sandbox)
                    live.on_waiting = self._dispatch
                except (OSError, Refusal) as error:
                    problem = str(error) or repr(error)
            if problem:
                self._finish(row.id, Stop(SessionState.FAILED, f"it could not be started: {problem}"))
                continue
            thread = threading.Thread(target=self._work, args=(live,), name=f"clawpy-{row.id}", daemon=True)
            with self._lock:
                try:
                    thread.start()
                    self._threads.add(thread)
                except RuntimeError as error:  # the machine has no thread left
                    problem = str(error)
            if problem:
                self._finish(row.id, Stop(SessionState.FAILED, f"it could not be started: {problem}"), live)
                continue
            self._supervisor.wake()  # never under our lock: it holds its own while it asks for ours

    def _work(self, live: LiveSession) -> None:
        """The session's thread, from its first transaction to its last."""
        self._finish(live.id, self._outcome(live), live)
        self._sweep(live.confinement.scratch)
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _prepare(self, row: SessionRow, sandbox: Sandbox) -> LiveSession:
        """The session, ready to begin, with its folders. Raises `OSError`, `Refusal` `unknown_channel`."""
        settings = self._settings.current
        confinement = initial_confinement(self._scratch / row.id, row.workspace, settings, self._home)
        memory = round(settings.sandbox.memory_gb * 1024**3) or limits.MAX_MEMORY_BYTES
        contained = isinstance(sandbox, Bubblewrap)
        return LiveSession(
            row.assignment,
            Processes(row.id, pid_folder(self._home), memory, contained=contained),
            limits=self._channels.limits(row.channel, row.mode),
            clock=self._clock,
            transcript=self._writer(row.id),
            sandbox=sandbox,
            confinement=confinement,
            rails=self._rails,
        )

    def _outcome(self, live: LiveSession) -> Stop | RunnerResult:
        """Do the work, in this thread, and say what came of it; no process of it is left."""
        outcome: Stop | RunnerResult
        try:
            outcome = self._run(live)
        except SessionStopped as error:
            outcome = live.stop_requested or Stop(SessionState.CANCELLED, str(error))
        except CommandBlocked as error:
            outcome = Stop(SessionState.BLOCKED, str(error))
        except (FlowError, Refusal) as error:
            state = SessionState.CANNOT_RUN if isinstance(error, CannotRun) else SessionState.FAILED
            outcome = live.stop_requested or Stop(state, str(error), isinstance(error, RetryLater))
        except Exception as error:
            if live.stop_requested is None:
                log.exception("session %s failed", live.id)
            kind = type(error).__name__
            outcome = live.stop_requested or Stop(SessionState.FAILED, f"unexpected error: {kind}: {error}")
        live.processes.end(grace=0)
        return outcome

    def _run(self, live: LiveSession) -> RunnerResult:
        """The transaction in which the session begins, and then its runner."""
        runner = self.admission.runner_of(live.assignment)
        hosts = runner.check(live.assignment).hosts
        without_sandbox = self.row(live.id).sandbox == UNCONFINED
        view = self.begin(live.id, live.sandbox.describe(network=live.confinement.network, hosts=hosts))
        if view is None:
            raise SessionStopped("it was stopped before it started")
        if reason := self.admission.withdrawn(live.assignment, view.mode, without_sandbox=without_sandbox):
            live.stop(Stop(SessionState.CANCELLED, reason))
        live.check_running()
        result = runner.run(live, view)
        if live.stop_requested is not None and live.stop_requested.reason != UNDONE:
            live.unfinished_write = result.write  # the stop came a moment too late to save anything
        live.check_running()
        return result

    def _sweep(self, scratch: Path) -> None:
        """Remove the scratch of a session, or of all; what resists is left to the next start."""
        try:
            remove_folder(scratch)
        except OSError:
            log.warning("%s cannot be removed", scratch, exc_info=True)

    @property
    def _scratch(self) -> Path:
        return self._home.cache / "scratch"

    def _transcript(self, session_id: str) -> Path:
        return self._home.transcripts / f"{session_id}.jsonl"

    def _writer(self, session_id: str) -> TranscriptWriter:
        return TranscriptWriter(self._transcript(session_id), self._clock, self._rails.secrets)

    def _end(self, live: LiveSession, stop: Stop) -> None:
        """Have a running session end: its processes at once, its thread as soon as it sees it."""
        if live.stop(stop):
            threading.Thread(target=self._end_now, args=(live, stop), name=f"clawpy-end-{live.id}", daemon=True).start()

    def _end_now(self, live: LiveSession, stop: Stop) -> None:
        began = time.monotonic()
        live.processes.end()
        if not live.ended.wait(max(0, STOP_TIMEOUT_S - (time.monotonic() - began))):
            # Its thread is deep in Python; with its processes dead and its row closed it can do no more harm.
            log.warning("session %s does not come back, it is ended without its thread", live.id)
            self._finish(live.id, stop, live, abandoned=True)

    def _finish(
        self,
        session_id: str,
        outcome: Stop | RunnerResult,
        live: LiveSession | None = None,
        *,
        abandoned: bool = False,
    ) -> None:
        """The last transaction of a session. Whoever comes second finds it done and changes nothing."""
        result = session_result(outcome, live, secrets=self._rails.secrets(), abandoned=abandoned)
        lines = self._close_transcript(session_id, outcome, live)
        write = outcome.write if isinstance(outcome, RunnerResult) else live.unfinished_write if live else None
        cwd = str(live.folder) if live else ""

        def store() -> None:
            facts = live.journal.facts if live else lambda view: ()
            ended = self.end(session_id, result, lines=lines, cwd=cwd, write=write, facts=facts)
            if not ended and write is not None:  # it was ended without its thread, which has this to hand in
                self.attach(session_id, write, cwd=cwd)

        failed: Exception | None = None
        try:
            store()
        except Exception as error:  # it is told, and tried again; until it is stored the row says RUNNING
            log.exception("the end of session %s could not be stored", session_id)
            failed = error
        with self._lock:
            self._live.pop(session_id, None)
        if live is not None:
            live.ended.set()
        if failed is None:
            self._signal_ended(session_id)
        else:
            self._end_retries.keep_trying(session_id, store, failed, on_end=lambda: self._signal_ended(session_id))
        self._dispatch()

    def _signal_ended(self, session_id: str) -> None:
        with self._lock:
            ended = self._ended.pop(session_id, None)
        if ended is not None:
            ended.set()

    def _close_transcript(self, session_id: str, outcome: Stop | RunnerResult, live: LiveSession | None) -> int:
        """The last words into the transcript, and the transcript onto the disk; returns its number of lines."""
        try:
            transcript = live.transcript if live else self._writer(session_id)
            if isinstance(outcome, RunnerResult):
                if closing := sanitise(outcome.summary if outcome.closing is None else outcome.closing):
                    transcript.append("note", closing.split("\n"))
            elif live is None or live.stop_requested is None:
                transcript.append("error", sanitise(outcome.reason).split("\n"))
            if live:
                self._supervisor.report(live)
            transcript.close()
        except OSError as error:
            log.error("the transcript of session %s is not complete: %s", session_id, error)
            return live.transcript.lines if live else 0
        return transcript.lines

    def _view(self, row: SessionRow) -> SessionView:
        """The row, with what is known of it only while it runs."""
        live = self._live.get(row.id)
        if live is None or row.state != SessionState.RUNNING:
            return with_worktree_fate(row.view)
        return replace(row.view, cwd=str(live.folder), tokens=live.tokens, cost=live.cost, lines=live.transcript.lines)

    def _all_live(self) -> list[LiveSession]:
        with self._lock:
            return list(self._live.values())

    # Last in the class, for it takes the name of the type away from what follows.
    def list(self, *, workspace: str | None = None, agent: str | None = None, limit: int = 50) -> list[SessionView]:
        """Sessions, newest first."""
        return [self._view(row) for row in self.rows(limit, workspace=workspace, agent=agent)]
