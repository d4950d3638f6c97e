"""Where one session works and how it does: its folders and its sandbox, its runner, and what came of it (SPEC 3.8).

Of queues, threads and other sessions nothing is known here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.clock import Clock
from engine.config import SettingsSource
from engine.execution import traces
from engine.execution.admission import Admission
from engine.execution.channels import Channels
from engine.execution.live import CommandCheck, LiveSession, Purse, Stop
from engine.execution.processes import Processes
from engine.execution.runners.base import RunnerResult
from engine.execution.runners.flow import CannotRun, CommandBlocked, FlowUnable, NotBegun, Stopped
from engine.execution.sandbox import UNCONFINED, Bubblewrap, Confinement, Sandbox, furnish, limits, secret_places
from engine.execution.session_records import SessionRecords
from engine.execution.transcripts import TranscriptWriter
from engine.home import Home
from engine.model import UNDONE, Assignment, Refusal, SessionState
from engine.plain_files import remove_folder

log = logging.getLogger(__name__)


class Workplace:
    """Makes the places of sessions and has the work done in them."""

    def __init__(
        self,
        *,
        home: Home,
        clock: Clock,
        settings: SettingsSource,
        channels: Channels,
        check: CommandCheck,
        purse: Purse,
        admission: Admission,
        records: SessionRecords,
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        self._home = home
        self._clock = clock
        self._settings = settings
        self._channels = channels
        self._check = check
        self._purse = purse
        self._admission = admission
        self._records = records
        self._secrets = secrets

    def transcript(self, session_id: str) -> Path:
        """The file of a session's transcript."""
        return self._home.transcripts / f"{session_id}.jsonl"

    def writer(self, session_id: str) -> TranscriptWriter:
        """Who writes it."""
        return TranscriptWriter(self.transcript(session_id), self._clock, self._secrets)

    @property
    def traces(self) -> Path:
        """Where it is kept how to find the processes of sessions."""
        return traces.folder(self._home)

    def prepare(self, session_id: str, assignment: Assignment, mode: str, sandbox: Sandbox) -> LiveSession:
        """The session, ready to begin, with its folders. Raises `OSError`, `Refusal` `unknown_channel`."""
        workspace = Path(assignment.workspace)
        settings = self._settings.current.workspace(assignment.workspace)
        scratch = self._scratch / session_id
        confinement = Confinement(
            folder=workspace,
            scratch=scratch,
            caches=scratch / "caches",
            tree=workspace,
            readable=tuple(Path(place).expanduser() for place in settings.readable),
            hidden=secret_places(self._home),
            network=settings.network,
            hosts=settings.hosts,
            variables=settings.environment,
        )
        confinement.make()
        furnish(confinement.home)
        memory = round(self._settings.current.sandbox.memory_gb * 1024**3) or limits.MEMORY_BYTES
        return LiveSession(
            session_id=session_id,
            assignment=assignment,
            limits=self._channels.limits(assignment.channel, mode),
            clock=self._clock,
            transcript=self.writer(session_id),
            sandbox=sandbox,
            confinement=confinement,
            check=self._check,
            purse=self._purse,
            secrets=self._secrets,
            processes=Processes(session_id, self.traces, memory, contained=isinstance(sandbox, Bubblewrap)),
        )

    def work(self, live: LiveSession) -> Stop | RunnerResult:
        """Do the work, in this thread, and say what came of it. The transaction in which the session begins is the
        first thing done; no process of it is left."""
        outcome: Stop | RunnerResult
        try:
            outcome = self._worked(live)
        except Stopped as error:
            outcome = live.stop_requested or Stop(SessionState.CANCELLED, str(error))
        except CommandBlocked as error:
            outcome = Stop(SessionState.BLOCKED, str(error))
        except (FlowUnable, Refusal) as error:
            state = SessionState.CANNOT_RUN if isinstance(error, CannotRun) else SessionState.FAILED
            outcome = live.stop_requested or Stop(state, str(error), isinstance(error, NotBegun))
        except Exception as error:
            if live.stop_requested is None:
                log.exception("session %s failed", live.id)
            kind = type(error).__name__
            outcome = live.stop_requested or Stop(SessionState.FAILED, f"unexpected error: {kind}: {error}")
        live.processes.end(grace=0)
        return outcome

    def _worked(self, live: LiveSession) -> RunnerResult:
        runner = self._admission.runner_of(live.assignment)
        hosts = runner.check(live.assignment).hosts
        without_sandbox = self._records.get(live.id).sandbox == UNCONFINED
        view = self._records.begin(live.id, live.sandbox.describe(network=live.confinement.network, hosts=hosts))
        if view is None:
            raise Stopped("it was stopped before it started")
        if reason := self._admission.withdrawn(live.assignment, view.mode, without_sandbox=without_sandbox):
            live.stop(Stop(SessionState.CANCELLED, reason))
        live.check_running()
        result = runner.run(live, view)
        if live.stop_requested is not None and live.stop_requested.reason != UNDONE:
            live.leftover = result.write  # the stop came a moment too late to save anything
        live.check_running()
        return result

    def sweep(self, live: LiveSession | None = None) -> None:
        """Remove the scratch of a session, or of all; what resists is left to the next start."""
        scratch = self._scratch if live is None else live.confinement.scratch
        try:
            remove_folder(scratch)
        except OSError:
            log.warning("%s cannot be removed", scratch, exc_info=True)

    @property
    def _scratch(self) -> Path:
        return self._home.cache / "scratch"
