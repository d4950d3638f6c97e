"""Sessions (SPEC 3.8): approved work, each in a thread of its own, never without a permit, never more than allowed.

Nothing runs twice: a permit is used up in the transaction that makes the session's row, and after a crash `recover`
reads the rows: what was queued runs, what ran is INTERRUPTED. `admission.py` says what may begin, `workplace.py` has
the work of one session done; here are the queue, the threads, and how each session ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engine.clock import Clock
from engine.config import SettingsSource
from engine.events import EventBus
from engine.execution import ending
from engine.execution.admission import Admission
from engine.execution.channels import APPROVED, AUTONOMOUS, Channels
from engine.execution.continuing import continued
from engine.execution.journal import nothing_done
from engine.execution.keeper import Brakes, Keeper
from engine.execution.late_ends import LateEnds
from engine.execution.live import CommandCheck, LiveSession, Purse, Stop, unmetered
from engine.execution.processes import end_processes
from engine.execution.runners.base import Runner, RunnerResult
from engine.execution.sandbox import UNCONFINED, Sandbox
from engine.execution.session_records import PermitBook, SessionObserver, SessionRecords
from engine.execution.session_results import result_of, with_fate
from engine.execution.sessions_store import SessionRow
from engine.execution.transcripts import TranscriptReader
from engine.execution.workplace import Workplace
from engine.home import Home
from engine.model import (
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
from engine.storage.database import Database

log = logging.getLogger(__name__)

CLOSE_WITHIN = 3.0
"""Seconds that closing waits for sessions to end and to tidy up."""

WAIT_SLICE = 0.5
"""Seconds after which a wait looks whether the operator interrupted it."""

END_WITHIN = 0.9
"""Seconds after a stop in which a session whose thread does not come back is ended without it (SPEC 3.7: 1 s)."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    id: str
    assignment: Assignment
    mode: str


def goes_on(session_id: str) -> str:
    """The command for a card that goes on with a session that is over."""
    return f"clawpy propose --continue {session_id} TEXT"


class Sessions:
    """The port. All methods are quick and may be called from any thread, but `wait`, `stop_all` and `close`."""

    def __init__(
        self,
        database: Database,
        *,
        home: Home,
        clock: Clock,
        bus: EventBus,
        randomness: Randomness,
        settings: SettingsSource,
        channels: Channels,
        permits: PermitBook,
        brakes: Brakes,
        check: CommandCheck,
        runners: Sequence[Runner],
        observers: Sequence[SessionObserver] = (),
        sandbox: Sandbox | None = None,
        last_write: Callable[[str], datetime | None] = lambda workspace: None,
        unattended: Callable[[str], str] = lambda workspace: "",
        purse: Purse = unmetered,
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`last_write`: when someone else's process last wrote in a workspace, None if nothing is known of any.
        `unattended`: why nothing may begin by itself in a workspace now, "" when it may (SPEC 7). `secrets`: values
        that no row and no transcript keeps, besides what looks like one (SPEC 11.1)."""
        self._records = SessionRecords(database, permits)
        for observer in observers:
            self.observe(observer)
        self._secrets = secrets
        self._randomness = randomness
        self._settings = settings
        self._channels = channels
        self.admission = Admission(
            clock=clock,
            brakes=brakes,
            runners=runners,
            sandbox=sandbox,
            last_write=last_write,
            unattended=unattended,
        )
        """What may begin."""
        self._workplace = Workplace(
            home=home,
            clock=clock,
            settings=settings,
            channels=channels,
            check=check,
            purse=purse,
            admission=self.admission,
            records=self._records,
            secrets=secrets,
        )
        self._reader = TranscriptReader()
        self._keeper = Keeper(live=self._all_live, end=self._end, brakes=brakes, bus=bus)
        self._late = LateEnds(bus)
        self._lock = threading.RLock()
        self._queue: deque[_Waiting] = deque()
        self._live: dict[str, LiveSession] = {}
        self._over: dict[str, threading.Event] = {}
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._held_back = False

    @property
    def sandbox(self) -> Sandbox:
        """Where sessions work: the best rung of this machine, tried when it is first needed."""
        return self.admission.sandbox

    def observe(self, observer: SessionObserver) -> None:
        """Add an observer; for those that are built after the sessions they observe. Before anything starts."""
        self._records.observe(observer)

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
        `unattended` (nothing begins by itself now), `workspace_busy`, `engine_closed`, and what the permit book raises
        (`permit_used`, `permit_expired`, …). Nothing is stored then.
        """
        if mode not in (APPROVED, AUTONOMOUS):
            raise ValueError(f"mode {mode!r}")
        self._channels.get(assignment.channel)
        self.admission.admit(assignment, mode, without_sandbox=without_sandbox)
        waiting = _Waiting(self._randomness.new_id("auto" if mode == AUTONOMOUS else "sess"), assignment, mode)

        with self._lock:
            if self._closed:
                raise Refusal("engine_closed", "the engine is closing; no session can start")
        self._records.enqueue(
            waiting.id,
            permit,
            assignment,
            agent=agent,
            mode=mode,
            estimate=estimate,
            sandbox=UNCONFINED if without_sandbox else "",
        )
        self._line_up([waiting])
        return self.get(waiting.id)

    # Looking

    def get(self, session_id: str) -> SessionView:
        """One session. Raises `Refusal` `unknown_session`."""
        return self._seen(self._records.get(session_id))

    def beginning(self, wanted: str) -> list[str]:
        """Ids of sessions, of any age, that begin so; see `engine.storage.ids`."""
        return self._records.beginning(wanted)

    def running(self) -> list[SessionView]:
        """What runs now or is just beginning, oldest first; what is queued is not among it, nor what is over and cannot
        be stored yet."""
        with self._lock:
            taken = set(self._live)
        rows = [one for one in self._records.latest(state=SessionState.QUEUED) if one.id in taken] if taken else []
        rows += self._records.latest(state=SessionState.RUNNING)
        return [self._seen(row) for row in reversed(rows) if row.id not in self._late]

    def totals(self) -> dict[str, tuple[int, int, int]]:
        """By agent: how many sessions it ever had, their tokens, and their cost in micro-dollars."""
        return self._records.totals()

    def of_prediction(self, prediction_id: str) -> SessionView | None:
        """The newest session of a card, or None."""
        row = self._records.of_prediction(prediction_id)
        return None if row is None else self._seen(row)

    def usual_cost(self, runner: str, channel: str) -> int | None:
        """Mean cost of this runner's sessions on this channel that were not free, in micro-dollars; None before one."""
        return self._records.usual_cost(runner, channel)

    def continues(self, session_id: str) -> str:
        """The session that this one goes on with, "" for none. Raises `Refusal` `unknown_session`."""
        return continued(self._records.get(session_id).assignment)

    def transcript(self, session_id: str, *, after: int = 0, limit: int = 2_000) -> list[TranscriptLine]:
        """At most `limit` lines after line `after`; a running session's newest tenth of a second may be missing."""
        return self._reader.page(self._workplace.transcript(session_id), after=after, limit=limit)

    def wait(self, session_id: str, timeout: float | None = None) -> SessionView:
        """Wait until the session is over, at most `timeout` seconds; the view says whether it is."""
        with self._lock:
            over = self._over.get(session_id)
        if over is not None:
            deadline = None if timeout is None else time.monotonic() + timeout
            # In slices: an interrupt that comes just before a wait without end would be noticed only after it.
            while not over.wait(WAIT_SLICE if deadline is None else min(WAIT_SLICE, deadline - time.monotonic())):
                if deadline is not None and time.monotonic() >= deadline:
                    break
        return self.get(session_id)

    def reply(self, session_id: str, text: str) -> None:
        """Tell a running session something (SPEC 9.4); it reads it at its next turn.

        Raises `Refusal` `unknown_session`, `not_running`, `no_conversation` (a flow), `empty_prompt`,
        `secret_in_text`.
        """
        said = refuse_secret(sanitise(text).strip(), self._secrets())
        if not said:
            raise Refusal("empty_prompt", "the reply is empty", "write what it should know")
        with self._lock:
            live = self._live.get(session_id)
        if live is None:
            view = self.get(session_id)
            if not view.state.over:
                raise Refusal(
                    "not_running", f"{session_id} has not started", "send it when the session runs; see `clawpy work`"
                )
            told = f"{session_id} has ended ({view.state}) and no longer reads replies"
            raise Refusal("not_running", told, f"continue it: {goes_on(session_id)}")
        if not live.tell(said):
            told = f"{session_id} reads no replies: no agent works in it, or it is finishing"
            raise Refusal("no_conversation", told, f"when it has ended, continue it: {goes_on(session_id)}")
        live.write("reply", said)

    # Stopping

    def stop(self, session_id: str, reason: str) -> None:
        """End a session and all its processes, within a second; harmless when it is over. Returns at once.

        Raises `Refusal` `unknown_session`.
        """
        with self._lock:
            live = self._live.get(session_id)
            queued = next((one for one in self._queue if one.id == session_id), None)
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
            ending = [*(one.id for one in self._queue), *self._live]
            over = [self._over[session_id] for session_id in ending]
        for session_id in ending:
            self.stop(session_id, reason)
        until = time.monotonic() + 1
        for event in over:
            event.wait(max(0, until - time.monotonic()))
        left = [row.id for row in self._records.latest(state=SessionState.QUEUED) if row.id not in ending]
        for session_id in left:
            self.stop(session_id, reason)
        return len(ending) + len(left)

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
        for one in live:
            self._end(one, Stop(SessionState.CANCELLED, "the engine was closed"))
        until = time.monotonic() + CLOSE_WITHIN
        for thread in threads:
            thread.join(max(0, until - time.monotonic()))
        for one in live:
            one.ended.wait(max(0, until - time.monotonic()))
        self._late.close()

    def recover(self, *, resume: bool = True) -> list[str]:
        """At start-up, before anything else starts: what a crash left. Says what was interrupted.

        Without `resume` what waits goes on waiting: an engine that closes in a moment would only cut it short.
        """
        left = self._records.latest(state=SessionState.RUNNING)
        queued = self._records.latest(state=SessionState.QUEUED)
        words = []
        ending.end_all(self._workplace.traces)
        for row in reversed(left):
            end_processes(row.id)
            self._finish(row.id, Stop(SessionState.INTERRUPTED, "the engine stopped while it ran"))
            words.append(f"“{row.prompt}” was running when the engine stopped; it was interrupted ({row.id})")
        self._workplace.sweep()
        words += self.admission.recover()
        if not resume:
            return words + [f"“{row.prompt}” waits for the console ({row.id})" for row in reversed(queued)]
        waiting = [_Waiting(row.id, row.assignment, row.mode) for row in reversed(queued)]
        words += [
            f"“{one.assignment.prompt}” was waiting when the engine stopped; it runs now ({one.id})" for one in waiting
        ]
        self._line_up(waiting)
        return words

    # Running

    def _line_up(self, waiting: list[_Waiting]) -> None:
        with self._lock:
            if self._closed:
                return  # they stay queued for the next start
            for one in waiting:
                self._over[one.id] = threading.Event()
                self._queue.append(one)
        self._dispatch()

    def _dispatch(self) -> None:
        """Start what waits, as far as the limit on running sessions lets."""
        sandbox = self.sandbox  # trying it out takes a moment: not under the lock, which a stop needs too
        while True:
            problem = ""
            with self._lock:
                seated = sum(not live.asking for live in self._live.values())
                free = self._settings.current.max_running_sessions - seated
                if self._closed or self._held_back or free <= 0 or not self._queue:
                    return
                waiting = self._queue.popleft()
                try:
                    live = self._live[waiting.id] = self._workplace.prepare(
                        waiting.id, waiting.assignment, waiting.mode, sandbox
                    )
                    live.gives_way = self._dispatch
                except (OSError, Refusal) as error:
                    problem = str(error) or repr(error)
            if problem:
                self._finish(waiting.id, Stop(SessionState.FAILED, f"it could not be started: {problem}"))
                continue
            thread = threading.Thread(target=self._work, args=(live,), name=f"clawpy-{waiting.id}", daemon=True)
            with self._lock:
                try:
                    thread.start()
                    self._threads.add(thread)
                except RuntimeError as error:  # the machine has no thread left
                    problem = str(error)
            if problem:
                self._finish(waiting.id, Stop(SessionState.FAILED, f"it could not be started: {problem}"), live)
                continue
            self._keeper.wake()  # never under our lock: the keeper holds its own while it asks for ours

    def _work(self, live: LiveSession) -> None:
        """The session's thread, from its first transaction to its last."""
        self._finish(live.id, self._workplace.work(live), live)
        self._workplace.sweep(live)
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _end(self, live: LiveSession, stop: Stop) -> None:
        """Have a running session end: its processes at once, its thread as soon as it sees it."""
        if live.stop(stop):
            threading.Thread(target=self._end_now, args=(live, stop), name=f"clawpy-end-{live.id}", daemon=True).start()

    def _end_now(self, live: LiveSession, stop: Stop) -> None:
        began = time.monotonic()
        live.processes.end()
        if not live.ended.wait(max(0, END_WITHIN - (time.monotonic() - began))):
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
        result = result_of(outcome, live, abandoned=abandoned, secrets=tuple(self._secrets()))
        lines = self._close_transcript(session_id, outcome, live)
        write = outcome.write if isinstance(outcome, RunnerResult) else live.leftover if live else None
        cwd = str(live.folder) if live else ""
        facts = live.journal.facts if live else nothing_done

        def store() -> None:
            ended = self._records.end(session_id, result, lines=lines, cwd=cwd, write=write, facts=facts)
            if not ended and write is not None:  # it was ended without its thread, which has this to hand in
                self._records.attach(session_id, write, cwd=cwd)

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
            self._is_over(session_id)
        else:
            self._late.keep_trying(session_id, store, failed, over=lambda: self._is_over(session_id))
        self._dispatch()

    def _is_over(self, session_id: str) -> None:
        with self._lock:
            over = self._over.pop(session_id, None)
        if over is not None:
            over.set()

    def _close_transcript(self, session_id: str, outcome: Stop | RunnerResult, live: LiveSession | None) -> int:
        """The last words into the transcript, and the transcript onto the disk; returns its number of lines."""
        try:
            transcript = live.transcript if live else self._workplace.writer(session_id)
            if isinstance(outcome, RunnerResult):
                if closing := sanitise(outcome.summary if outcome.closing is None else outcome.closing):
                    transcript.append("note", closing.split("\n"))
            elif live is None or live.stop_requested is None:
                transcript.append("error", sanitise(outcome.reason).split("\n"))
            if live:
                self._keeper.report(live)
            transcript.close()
        except OSError as error:
            log.error("the transcript of session %s is not complete: %s", session_id, error)
            return live.transcript.lines if live else 0
        return transcript.lines

    def _seen(self, row: SessionRow) -> SessionView:
        """The row, with what is known of it only while it runs."""
        live = self._live.get(row.id)
        if live is None or row.state != SessionState.RUNNING:
            return with_fate(row.view)
        return replace(row.view, cwd=str(live.folder), tokens=live.tokens, cost=live.cost, lines=live.transcript.lines)

    def _all_live(self) -> list[LiveSession]:
        with self._lock:
            return list(self._live.values())

    # Last in the class, for it takes the name of the type away from what follows.
    def list(self, *, workspace: str | None = None, agent: str | None = None, limit: int = 50) -> list[SessionView]:
        """Sessions, newest first."""
        return [self._seen(row) for row in self._records.latest(workspace=workspace, agent=agent, limit=limit)]
