"""Runs sessions (SPEC 3.8): approved work, each in its own thread, with a permit and within limits.

Nothing runs twice. A permit is used up in the transaction that makes the session's row. After a crash `recover` reads
the rows: queued sessions run, and running ones become INTERRUPTED.

This module has the queue, the threads and the end of each session. `session_run` decides which may start, does the
work of one and watches those that run.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine.clock import Clock
from engine.config.settings import SettingsSource
from engine.events import EventBus
from engine.execution.live_session import LiveSession
from engine.execution.processes import Processes
from engine.execution.runners.runner import Runner, RunnerResult
from engine.execution.sandbox import MAX_MEMORY_BYTES, Sandbox
from engine.execution.sandbox.ladder import UNCONFINED
from engine.execution.session_commands import make_initial_confinement
from engine.execution.session_limits import Limits, SessionRails, SessionStop, Stopwatch
from engine.execution.session_processes import ProcessFamily, get_pid_folder, identify_home, terminate_sessions
from engine.execution.session_run import Admission, SessionWatch, make_result, run_session
from engine.execution.session_store import (
    APPROVED,
    AUTONOMOUS,
    LateEnds,
    MoreEvents,
    SessionRow,
    SessionStore,
    get_continued_session,
)
from engine.execution.transcripts import Transcripts
from engine.files import remove_folder
from engine.home import Home
from engine.model import (
    ENGINE_CLOSED,
    UNDONE,
    Assignment,
    Permit,
    Refusal,
    RunnerInfo,
    SessionState,
    SessionView,
    TranscriptLine,
    label_outcome,
)
from engine.randomness import Randomness
from engine.redaction import refuse_secret
from engine.storage.database import Database
from engine.text import sanitise

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 3.0
"""Seconds that `close` waits for sessions to end and to clean up."""

WAIT_INTERVAL_S = 0.5
"""Seconds after which `wait` checks for an interrupt."""

STOP_TIMEOUT_S = 0.9
"""Seconds after which a stopped session is ended without its thread. SPEC 3.7 allows 1 s."""


def make_continue_command(session_id: str) -> str:
    """The command that proposes a card to continue a finished session."""
    return f"clawpy propose --continue {session_id} TEXT"


class Sessions:
    """The sessions of one engine. Methods may be called from any thread and are quick, but for `wait`, `stop_all` and
    `close`. `store` has their rows."""

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
        self.store = SessionStore(database, rails.consume)
        self._admission = Admission(
            clock, settings, rails, {runner.name: runner for runner in runners}, self.store.compute_usual_cost
        )
        self._clock = clock
        self._settings = settings
        self._rails = rails
        self._runners = runners
        self._home = home
        self._randomness = randomness
        self._transcripts = Transcripts(home.transcripts, clock, rails.secrets)
        self._lock = threading.RLock()
        self._queue: deque[SessionRow] = deque()
        self._live: dict[str, LiveSession] = {}
        self._ended: dict[str, threading.Event] = {}
        self._threads: set[threading.Thread] = set()
        self._watch = SessionWatch(bus, stop_reason=self._admission.stop_reason, stop=self._request_stop)
        self._closing = threading.Event()
        self._late_ends = LateEnds(bus, self._closing, self._start_thread)
        self._held_back = False

    # -- before a start

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of sessions."""
        return self._admission.sandbox

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        """The assignment with the runner that would do it now, and a sentence if that replaces another one."""
        return self._admission.choose(assignment)

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether a runner is available, its effects and sandbox, and the estimated cost."""
        return self._admission.check(assignment)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment after the operator's edit. Raises `Refusal` `no_runner` or `bad_parameters`."""
        return self._admission.apply_edit(assignment, edit)

    def find_blocking_reason(self, assignment: Assignment) -> str:
        """Why an assignment may not start by itself now; "" when it may."""
        return self._admission.find_blocking_reason(assignment)

    # -- starting

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
        """Use up `permit` and run `assignment`, at once or when its turn comes. `estimate` is in micro-dollars.
        `without_sandbox` says that it was approved to run unconfined.

        Nothing is stored when this raises `Refusal`: `unknown_channel`, `no_runner`, `no_sandbox` (none works, and the
        session is autonomous or was not approved to run without), `stopped`, `unattended` (nothing starts by itself
        now), `workspace_busy`, `engine_closed`, or as the use of the permit (`permit_used`, `permit_expired`, …).
        """
        self._settings.current.get_channel(assignment.channel)
        self._admission.admit(assignment, mode, without_sandbox=without_sandbox)
        session_id = self._randomness.new_id("auto" if mode == AUTONOMOUS else "sess")
        if self._closing.is_set():
            raise Refusal("engine_closed", "the engine is closing; no session can start")
        sandbox = UNCONFINED if without_sandbox else ""
        row = self.store.enqueue(
            session_id, permit, assignment, agent=agent, mode=mode, estimate=estimate, sandbox=sandbox
        )
        self._enqueue_rows([row])
        return self.get(session_id)

    # -- reading

    def get(self, session_id: str) -> SessionView:
        """One session. Raises `Refusal` `unknown_session`."""
        return self._make_view(self.store.load_row(session_id))

    def list_running(self) -> list[SessionView]:
        """The sessions that run or are starting, oldest first."""
        with self._lock:
            live_ids = set(self._live)
        if not live_ids:  # the usual case, and this is asked twice a minute
            return []
        rows = self.store.load_rows(state=SessionState.QUEUED) + self.store.load_rows(state=SessionState.RUNNING)
        rows_by_id = {row.id: row for row in rows}  # one that began between the two reads is in both
        return [self._make_view(row) for row in reversed(rows_by_id.values()) if row.id in live_ids]

    def list_newest(
        self, *, workspace: str | None = None, agent: str | None = None, limit: int = 50
    ) -> list[SessionView]:
        """Sessions, newest first."""
        return [self._make_view(row) for row in self.store.load_rows(limit, workspace=workspace, agent=agent)]

    def find_ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of sessions, of any age, that begin with `prefix`; see `engine.storage`."""
        return self.store.find_ids_with_prefix(prefix)

    def find_of_card(self, prediction_id: str) -> SessionView | None:
        """The newest session of a card, or None."""
        return next((self._make_view(row) for row in self.store.load_rows(1, prediction_id=prediction_id)), None)

    def find_continued(self, session_id: str) -> str:
        """The session that this one continues, "" for none. Raises `Refusal` `unknown_session`."""
        return get_continued_session(self.store.load_row(session_id).assignment)

    def read_transcript(self, session_id: str, *, after: int = 0, limit: int = 2_000) -> list[TranscriptLine]:
        """At most `limit` lines after line `after`. The last tenth of a second of a running session may be missing."""
        return self._transcripts.read(session_id, after=after, limit=limit)

    def read_unfinished_line(self, session_id: str) -> TranscriptLine | None:
        """The last line of a running session that streams in and is not complete, None for none."""
        live = self._live.get(session_id)
        return live.transcript.unfinished_line if live else None

    def wait(self, session_id: str, timeout: float | None = None) -> SessionView:
        """Wait until the session is over, at most `timeout` seconds. Returns its view, which says whether it is over
        even when its end could not be stored."""
        self._wait_for_end(session_id, timeout)
        return self.get(session_id)

    def _wait_for_end(self, session_id: str, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds until a session is over. Returns whether it is."""
        with self._lock:
            ended = self._ended.get(session_id)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        # In intervals: a signal just before an endless wait (`clawpy approve --wait`) would be noticed only after it.
        while ended is not None and not ended.wait(min(WAIT_INTERVAL_S, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return False
        return True

    def reply(self, session_id: str, text: str) -> None:
        """Send a reply to a running session (SPEC 9.4), which reads it at its next turn.

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
            message = f"{session_id} is not running ({label_outcome(view.outcome or view.state)}), and reads no replies"
            fix = f"send it while the session runs; when it has ended, continue it: {make_continue_command(session_id)}"
            raise Refusal("not_running", message, fix)
        if not live.replies.send(reply):
            message = f"{session_id} reads no replies: no agent works in it, or it is finishing"
            fix = f"when it has ended, continue it: {make_continue_command(session_id)}"
            raise Refusal("no_conversation", message, fix)
        live.write("reply", reply)

    # -- stopping

    def stop(self, session_id: str, reason: str) -> None:
        """End a session and all its processes within a second. Returns at once, and does nothing when the session is
        over. Raises `Refusal` `unknown_session`."""
        with self._lock:
            live = self._live.get(session_id)
            queued = next((row for row in self._queue if row.id == session_id), None)
            if queued is not None:
                self._queue.remove(queued)
        if live is not None:
            self._request_stop(live, SessionStop(SessionState.CANCELLED, reason))
            return
        if queued is not None or self.get(session_id).state is SessionState.QUEUED:
            self._finish(session_id, SessionStop(SessionState.CANCELLED, reason))

    def stop_all(self, reason: str) -> int:
        """End all running and queued sessions, and wait up to a second for their end. Returns their number."""
        with self._lock:
            # Queued sessions first: the end of a running one starts the next.
            stopped = [*(row.id for row in self._queue), *self._live]
        for session_id in stopped:
            self.stop(session_id, reason)
        until = time.monotonic() + 1
        for session_id in stopped:
            self._wait_for_end(session_id, until - time.monotonic())
        remaining = [row.id for row in self.store.load_rows(state=SessionState.QUEUED) if row.id not in stopped]
        for session_id in remaining:
            self.stop(session_id, reason)
        return len(stopped) + len(remaining)

    def hold_queue(self) -> None:
        """Start no more sessions. Queued ones, and those approved later, wait for the next engine of this home."""
        with self._lock:
            self._held_back = True

    def close(self) -> None:
        """End running sessions. Queued ones stay for the next start. Safe to call twice."""
        with self._lock:
            self._closing.set()
            self._queue.clear()
            live = [*self._live.values()]
            threads = [*self._threads]
        for session in live:
            self._request_stop(session, SessionStop(SessionState.CANCELLED, ENGINE_CLOSED))
        until = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in threads:
            thread.join(max(0, until - time.monotonic()))
        for session in live:
            self._wait_for_end(session.id, until - time.monotonic())

    def recover(self, *, resume: bool = True) -> list[str]:
        """At start-up, before any session: clean up after a crash. Returns messages on interrupted sessions.

        Without `resume`, queued sessions go on waiting, because this engine closes in a moment.
        """
        interrupted = self.store.load_rows(state=SessionState.RUNNING)
        queued = self.store.load_rows(state=SessionState.QUEUED)[::-1]
        messages = []
        pid_folder = get_pid_folder(self._home)
        terminate_sessions(pid_folder)
        for row in reversed(interrupted):
            ProcessFamily(row.id, home=identify_home(pid_folder)).end()
            self._finish(row.id, SessionStop(SessionState.INTERRUPTED, "the engine stopped while it ran"))
            messages.append(f"“{row.prompt}” was running when the engine stopped; it was interrupted ({row.id})")
        self._remove_scratch(self._scratch_folder)
        messages += [message for runner in self._runners for message in runner.recover()]
        if not resume:
            return messages + [f"“{row.prompt}” waits for the console ({row.id})" for row in queued]
        messages += [f"“{row.prompt}” was waiting when the engine stopped; it runs now ({row.id})" for row in queued]
        self._enqueue_rows(queued)
        return messages

    # -- running

    def _enqueue_rows(self, waiting: Sequence[SessionRow]) -> None:
        """Put sessions that are stored as queued into the queue, and start those that may run."""
        with self._lock:
            if self._closing.is_set():
                return  # they stay queued for the next start
            for row in waiting:
                self._ended[row.id] = threading.Event()
                self._queue.append(row)
        self._dispatch()

    def _dispatch(self) -> None:
        """Start queued sessions, up to the limit on running ones."""
        sandbox = self.sandbox  # finding it takes a moment, so not under the lock, which a stop needs too
        while True:
            with self._lock:
                occupied = sum(not live.is_waiting for live in self._live.values())
                free = self._settings.current.max_running_sessions - occupied
                if self._closing.is_set() or self._held_back or free <= 0 or not self._queue:
                    return
                row = self._queue.popleft()
                live, problem = None, ""
                try:
                    live = self._live[row.id] = self._make_live_session(row, sandbox)
                    self._watch.add(live)  # before it starts: nothing runs unwatched
                    self._start_thread(f"clawpy-{row.id}", partial(self._run, live))
                except (OSError, Refusal, RuntimeError) as error:  # RuntimeError: the machine has no thread left
                    problem = str(error) or repr(error)
            if problem:
                self._end(row.id, SessionStop(SessionState.FAILED, f"it could not be started: {problem}"), live)

    def _start_thread(self, name: str, work: Callable[[], None]) -> None:
        """Start a thread for which `close` waits."""

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=name, daemon=True)
        with self._lock:
            thread.start()
            self._threads.add(thread)

    def _run(self, live: LiveSession) -> None:
        """Run a session in its own thread, from its first transaction to its last."""
        self._finish(live.id, run_session(live, self._admission, self.store), live)
        self._remove_scratch(live.confinement.scratch)

    def _make_live_session(self, row: SessionRow, sandbox: Sandbox) -> LiveSession:
        """The session, ready to start, with its folders. Raises `OSError`, `Refusal` `unknown_channel`."""
        settings = self._settings.current
        confinement = make_initial_confinement(self._scratch_folder / row.id, row.workspace, settings, self._home)
        memory = round(settings.sandbox.memory_gb * 1024**3) or MAX_MEMORY_BYTES
        return LiveSession(
            row.assignment,
            Processes(row.id, get_pid_folder(self._home), memory, is_contained=sandbox.has_process_namespaces),
            limits=Limits.of(settings.get_channel(row.channel), row.mode),
            stopwatch=Stopwatch(self._clock, on_pause=self._dispatch),
            transcript=self._transcripts.open(row.id),
            sandbox=sandbox,
            confinement=confinement,
            rails=self._rails,
        )

    def _remove_scratch(self, scratch: Path) -> None:
        """Remove the scratch folder of one session or of all. What cannot be removed is left to the next start."""
        try:
            remove_folder(scratch)
        except OSError:
            log.warning("%s cannot be removed", scratch, exc_info=True)

    @property
    def _scratch_folder(self) -> Path:
        """The folder with the scratch folders of all sessions."""
        return self._home.cache / "scratch"

    # -- ending

    def _request_stop(self, live: LiveSession, stop: SessionStop) -> None:
        """Stop a running session. Its processes end at once, its thread as soon as it notices."""
        if not live.stop(stop):
            return
        work = partial(self._stop_processes, live, stop)
        try:
            threading.Thread(target=work, name=f"clawpy-end-{live.id}", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            work()

    def _stop_processes(self, live: LiveSession, stop: SessionStop) -> None:
        """End the processes of a session, and the session itself if its thread does not return in time."""
        began = time.monotonic()
        live.processes.end()
        if not self._wait_for_end(live.id, STOP_TIMEOUT_S - (time.monotonic() - began)):
            # Its thread is busy in Python. Without processes and with a closed row it can do no harm.
            log.warning("the thread of session %s does not return; the session is ended without it", live.id)
            self._finish(live.id, stop, live, abandoned=True)

    def _finish(
        self,
        session_id: str,
        outcome: SessionStop | RunnerResult,
        live: LiveSession | None = None,
        *,
        abandoned: bool = False,
    ) -> None:
        """End a session, and start the next one."""
        self._end(session_id, outcome, live, abandoned=abandoned)
        self._dispatch()

    def _end(
        self,
        session_id: str,
        outcome: SessionStop | RunnerResult,
        live: LiveSession | None,
        *,
        abandoned: bool = False,
    ) -> None:
        """Store the end of a session. The thread of a session that was ended without it calls this a second time. Then
        only the changes of the session are stored."""
        result = make_result(outcome, live, secrets=self._rails.secrets(), abandoned=abandoned)
        lines = self._close_transcript(session_id, outcome, live)
        write = live.unfinished_write if live else None
        if isinstance(outcome, RunnerResult):
            write = outcome.write
        cwd = str(live.folder) if live else ""
        more_events: MoreEvents = live.journal.make_events if live else lambda view: ()

        self._late_ends.store_now_or_later(
            session_id,
            result,
            lambda: self.store.end(session_id, result, lines=lines, cwd=cwd, write=write, more_events=more_events),
        )
        self._release_slot(session_id)

    def _release_slot(self, session_id: str) -> None:
        """Forget a session that is over, and wake those who wait for its end."""
        self._watch.remove(session_id)
        with self._lock:
            self._live.pop(session_id, None)
            ended = self._ended.pop(session_id, None)
        if ended is not None:
            ended.set()

    def _close_transcript(self, session_id: str, outcome: SessionStop | RunnerResult, live: LiveSession | None) -> int:
        """Write the closing lines of a transcript, and close it. Returns its number of lines."""
        try:
            transcript = live.transcript if live else self._transcripts.open(session_id)
            if isinstance(outcome, RunnerResult):
                if last_line := sanitise(outcome.summary if outcome.last_line is None else outcome.last_line):
                    transcript.append("note", last_line.split("\n"))
            elif live is None or live.stop_requested is None:
                transcript.append("error", sanitise(outcome.reason).split("\n"))
            if live:
                self._watch.publish_output(live)
            transcript.close()
        except OSError as error:
            log.error("the transcript of session %s is not complete: %s", session_id, error)
            return live.transcript.lines if live else 0
        return transcript.lines

    def _make_view(self, row: SessionRow) -> SessionView:
        """The view of a session, with its live values while it runs, or with its result if that is not stored yet."""
        if row.state == SessionState.RUNNING and (result := self._late_ends.results.get(row.id)) is not None:
            row.set_result(result)
        live = self._live.get(row.id)
        if live is None or row.state != SessionState.RUNNING:
            return _note_missing_worktree(row.view)
        return replace(
            row.view,
            cwd=str(live.folder),
            tokens=live.budget.tokens,
            cost=live.budget.cost,
            lines=live.transcript.lines,
        )


def _note_missing_worktree(view: SessionView) -> SessionView:
    """The view of a session. If the session is over and its worktree is gone, the view has a note on that and on what
    became of its changes. Reads the disk."""
    if not view.state.is_over or view.cwd == view.workspace or Path(view.cwd).is_dir():
        return view
    if view.change_set_id:
        fate = "its changes are in its change set"
    elif view.error == UNDONE:
        fate = "its changes were discarded with its card"
    else:
        fate = "it made no changes"
    return replace(view, gone=f"its worktree is gone; {fate}")
