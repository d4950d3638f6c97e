"""Composition root: builds every service, hands each what it needs, starts and stops them. A table of contents.

Nothing is decided here. The order of `open_engine` is the order in which a home comes to life: the lock, settings,
the database, services from the bottom up, what a crash left, then the outside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from logging.handlers import RotatingFileHandler
from pathlib import Path

import engine
from engine import views
from engine.autonomy.autonomy import Autonomy
from engine.autonomy.heartbeat import Heartbeat, Page
from engine.clock import Clock, SystemClock
from engine.config import Autonomy as WorkspaceAutonomy
from engine.doors.control import ControlServer
from engine.doors.verbs import dispatch
from engine.events import EngineStarted, EngineStopped, EventBus, FaultReported
from engine.execution.changesets import ChangeSets
from engine.execution.channels import Channels
from engine.execution.launcher import Launcher
from engine.execution.runners.flow_runner import FlowRunner
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.toolchain import detect_all, linters
from engine.execution.sessions import Sessions
from engine.execution.worktrees import WorkspaceLocks, Worktrees
from engine.feedback.calibration import IdentityCalibrator
from engine.feedback.decisions import Decisions
from engine.git import repository_root
from engine.hierarchy.agents import Agents
from engine.home import Home
from engine.lock import HomeLock
from engine.memory.ledger import Ledger, append
from engine.memory.validation_runs import ValidationRuns
from engine.prediction.acting import Acting, Attempt
from engine.prediction.cards import Cards
from engine.prediction.collectors.github import GitHub
from engine.prediction.collectors.silence import OurWrite
from engine.prediction.context import ToolFound, WorkspaceContext
from engine.prediction.context_reader import ContextReader
from engine.prediction.cycle import Predictions
from engine.safety.kill_switch import KillSwitch
from engine.safety.safety import Safety
from engine.settings_store import SettingsStore
from engine.stand_ins import Contexts, StandIns
from engine.storage.database import Database, Transaction
from engine.storage.files import sweep_temporaries
from engine.tasks.board import TaskBoard
from engine.values import Card, ChangeState, Randomness, Refusal, SessionState, SessionView, Verdict, Waiting

log = logging.getLogger(__name__)

STAMP_SLACK = timedelta(milliseconds=1)
"""Files carry nanoseconds, instants microseconds."""

LOG_BYTES = 2_000_000
LOG_FILES = 3


class Engine:
    """The engine of one home. Its attributes are the ports (ARCHITECTURE rule 2), callable from any thread.

    Made by `open_engine`; `close` ends it.
    """

    def __init__(
        self,
        home: Home,
        lock: HomeLock,
        clock: Clock,
        randomness: Randomness,
        named: Sequence[str],
        stand_ins: StandIns,
    ) -> None:
        self.home = home
        self.clock = clock
        self._lock = lock
        self._deaf = stand_ins.deaf
        self._named = [str(repository_root(Path(path))) for path in named]
        self._control: ControlServer | None = None
        self.handover: Callable[[bool], None] | None = None
        """Set by who runs this engine headless: called when another wants the home, with whether to finish first."""

        # Storage
        self.bus = EventBus()
        self.settings = SettingsStore(home.config_file, clock=clock)
        self.database = Database(
            home.database, clock=clock, bus=self.bus, recorder=append, durable=not stand_ins.throw_away
        )
        self.settings.attach(self.database)
        self.ledger = Ledger(self.database)
        self.runs = ValidationRuns(self.database)

        # Who and what
        self.hierarchy = Agents(
            home.agents,
            cascade_config=home.data / "wisdom_cascade_config.json",
            settings=self.settings,
            database=self.database,
            activity=self._activity,
        )
        self.feedback = Decisions(self.database, clock)

        # Rails
        self.safety = Safety(
            self.database,
            self.settings,
            clock,
            randomness,
            data=home.data,
            decisions=self.feedback,
            stop_sessions=lambda reason: self.sessions.stop_all(reason),
            agent_budget=self.hierarchy.budget,
            quiet=lambda: self.autonomy.quiet(),
            on_change=lambda: self.autonomy.poke(),
        )

        brakes = _Brakes(self.safety.kill_switch)

        # Execution
        locks = WorkspaceLocks()
        worktrees = Worktrees(home=home, database=self.database, locks=locks)
        self.changes = ChangeSets(
            home=home, database=self.database, clock=clock, randomness=randomness, worktrees=worktrees, locks=locks
        )
        flows = FlowRunner(FLOWS, settings=self.settings, worktrees=worktrees, changes=self.changes, runs=self.runs)
        self.sessions = Sessions(
            self.database,
            home=home,
            clock=clock,
            bus=self.bus,
            randomness=randomness,
            settings=self.settings,
            channels=Channels(self.settings),
            permits=self.safety.permits,
            brakes=brakes,
            check=lambda command, folder: self.safety.check_command(command, Path(folder)),
            runners=[flows] if stand_ins.runners is None else stand_ins.runners,
            sandbox=stand_ins.sandbox,
            last_write=lambda workspace: self._last_sign([workspace]),
        )
        launcher = Launcher(self.sessions, self.settings)

        # Prediction
        calibrator = stand_ins.calibrator or IdentityCalibrator()
        self.cards = Cards(
            self.database,
            clock=clock,
            settings=self.settings,
            randomness=randomness,
            rails=self.safety.pipeline,
            launcher=launcher,
            landings=_Landings(self.changes),
            facts=self.ledger,
            flows=tuple(FLOWS),
            on_decision=self.safety.kill_switch.decided,
            history=self.feedback,
            calibrator=calibrator,
            active_time=lambda start, span: self.autonomy.active_until(start, span),
        )
        self.tasks = TaskBoard(self.database, randomness=randomness, cards=self.cards)
        self._contexts: Contexts = stand_ins.contexts or ContextReader(
            clock=clock,
            settings=self.settings,
            runs=self.runs,
            tasks=self.tasks,
            sessions=self.sessions,
            find_tool=find_tool,
            github=GitHub(clock),
        )
        self.predictions = Predictions(
            self.database,
            clock=clock,
            settings=self.settings,
            randomness=randomness,
            cards=self.cards,
            rails=self.safety.pipeline,
            launcher=launcher,
            history=self.feedback,
            calibrator=calibrator,
            contexts=self._read_contexts,
            workspaces=lambda: self.workspaces,
            stopped=lambda: brakes.stopped() or "",
            facts=self.ledger,
            session=self.sessions.get,
        )
        for observer in (self.cards, self.safety, self.tasks, _WhenOver(lambda: self.autonomy.poke())):
            self.sessions.observe(observer)

        # Acting by itself
        self.heartbeat = Heartbeat(self.database, clock, board=self.tasks, pages=self._heartbeat_pages)
        self.autonomy = Autonomy(
            self.database,
            self.settings,
            clock,
            holds=self.safety.kill_switch,
            card_cycle=self.predictions.run_cycle,
            actor=_Actor(
                self.predictions,
                Acting(
                    self.database,
                    self.cards,
                    settings=self.settings,
                    history=self.feedback,
                    calibrator=calibrator,
                    launcher=launcher,
                    quiet=lambda: self.autonomy.quiet(),
                    now=clock.now,
                ),
            ),
            pulse=self.heartbeat.pulse,
            housekeeping=(self.cards.expire_due, self.predictions.follow_up),
            last_sign=lambda: self._last_sign(self.workspaces),
        )

    @property
    def workspaces(self) -> list[str]:
        """Top folders of the repositories that are looked after: those named at the start, then the settings' that
        are not off. One that is no repository any more is left out and named by `doctor`."""
        found = dict.fromkeys(self._named)
        for path, section in self.settings.current.workspaces.items():
            if section.autonomy is WorkspaceAutonomy.OFF:
                found.pop(path, None)
                continue
            if path in found:
                continue
            try:
                found.setdefault(str(repository_root(Path(path).expanduser())))
            except Refusal as refusal:
                log.warning("workspace %s is left out: %s", path, refusal)
        return list(found)

    def queue(self) -> list[Waiting]:
        """What waits for the operator, longest first (SPEC 9.3)."""
        return views.waiting(self.changes, self.sessions, self.clock.now())

    def since(self, instant: datetime | None = None) -> views.Since:
        """What ran, was blocked, decided and spent since `instant`, else since the operator's present or last absence
        began, else since midnight; and what waits for him."""
        if instant is None:
            instant = self.autonomy.presence.away_since()
        if instant is None:
            instant = self.clock.local().replace(hour=0, minute=0, second=0, microsecond=0)
        return views.since(
            instant,
            sessions=self.sessions.list(limit=views.MOST),
            blocked=self.safety.log(limit=views.MOST, blocked_only=True),
            decided=self.ledger.latest(views.MOST, kinds=("PredictionConfirmed", "PredictionRejected")),
            spent=self.safety.costs.settled_since(instant),
            waits=self.queue(),
        )

    def place(self, workspace: str) -> str:
        """Name and branch of a workspace for the status line."""
        return views.place(workspace)

    def recover(self, *, resume: bool = True) -> list[str]:
        """Bring to a good end what the last engine of this home left. Says what was interrupted, in words.

        Without `resume` approved work that never began goes on waiting.
        """
        swept = sum(sweep_temporaries(folder) for folder in (self.home.config, self.home.data))
        if swept:
            log.info("swept %d temporary files of an earlier engine", swept)
        self.hierarchy.ensure_organisation()
        words = self.sessions.recover(resume=resume)
        self.safety.recover(self.sessions.of_prediction)
        words += self.cards.recover(self.safety.permits.unconsumed(), resume=resume)
        return words

    def start(self, *, schedule: bool) -> None:
        """Listen for verbs and a stop from outside; with `schedule`, make cards by itself."""
        if not self._deaf:
            self._listen()
        if schedule:
            self.autonomy.start()

    def _listen(self) -> None:
        self.safety.start()
        self._control = ControlServer(self.home, lambda verb, arguments: dispatch(self, verb, arguments))
        self._control.start()
        self._lock.announce(self._control.address)

    def wind_down(self, *, finish: bool, hurry: Callable[[], bool] = lambda: False) -> list[Card]:
        """Before closing: begin nothing more; what runs is finished, as long as `hurry()` is False, or handed back.
        Returns the cards that are pending again instead of what was cut short (SPEC 7.5)."""
        self.autonomy.close()
        self.sessions.hold_back()
        while finish and not hurry() and (running := self.sessions.running()):
            self.sessions.wait(running[0].id, 0.2)
        returned = []
        for view in self.sessions.running():
            self.sessions.stop(view.id, "handed back")
            if self.sessions.wait(view.id, 2.0).state is SessionState.CANCELLED:
                returned.append(self.cards.give_back(view.prediction_id, "handed back: it was running, and cut short"))
        return returned

    def close(self) -> None:
        """End what runs, write what is left to write, give the home back. Safe to call twice."""
        if self._control is not None:
            self._lock.announce("")
            self._control.close()
            self._control = None
        self.autonomy.close()
        self.sessions.close()
        self.safety.close()
        try:
            self.database.write(lambda tx: tx.record(EngineStopped()))
        except Refusal as refusal:
            if refusal.code != "engine_closed":
                log.warning("the end could not be recorded: %s", refusal)
        self.database.close()
        self._lock.release()

    def report(self, where: str, message: str) -> None:
        """Tell of a fault that work can go on without."""
        self.database.write(lambda tx: tx.record(FaultReported(where=where, message=message)))

    def _activity(self) -> Mapping[str, tuple[str, int]]:
        """What agents are doing now, for the hierarchy: state and tokens by agent."""
        return {view.agent: (view.state.value, view.tokens) for view in self.sessions.running()}

    def _heartbeat_pages(self) -> tuple[list[Page], list[str]]:
        found, unread = self.hierarchy.heartbeats()
        return [Page(one.agent, one.text, one.written, one.channel) for one in found], unread

    def _read_contexts(self, workspaces: Sequence[str]) -> list[WorkspaceContext]:
        last_input, _ = self.autonomy.presence.last()
        contexts = self._contexts.read_all(
            workspaces, last_input=last_input, ours={path: self._ours(path) for path in workspaces}
        )
        for context in contexts:
            if context.silence is not None:
                self.autonomy.presence.seen(context.now - context.silence, f"files in {context.workspace}")
        return contexts

    def _last_sign(self, workspaces: Sequence[str]) -> datetime | None:
        """When anyone but us last wrote in these workspaces, None if nothing is known of it. Asks git."""
        return self._contexts.last_sign_of_life(
            workspaces, last_input=None, ours={path: self._ours(path) for path in workspaces}
        )

    def _ours(self, workspace: str) -> list[OurWrite]:
        """What our landings wrote there: no sign of the operator."""
        writes = []
        for path, mtime_ns in self.changes.written_by_us(workspace).items():
            at = datetime.fromtimestamp(mtime_ns / 1e9, UTC)
            writes.append(OurWrite(path, at - STAMP_SLACK, at + STAMP_SLACK))
        return writes


@dataclass(frozen=True, slots=True)
class _Brakes:
    """The kill switch as sessions and cycles ask it. A pause holds only what runs by itself."""

    kill_switch: KillSwitch

    def stopped(self) -> str | None:
        verdict = self.kill_switch.ask(by_operator=True)
        return None if verdict.verdict is Verdict.ALLOW else verdict.reason


@dataclass(frozen=True, slots=True)
class _Actor:
    """Prediction as the autonomous cycle uses it."""

    predictions: Predictions
    acting: Acting

    def predict(self) -> Sequence[str]:
        return self.predictions.run_cycle().errors

    def attempt(self, still: Callable[[], bool]) -> Attempt:
        return self.acting.attempt(still)


@dataclass(frozen=True, slots=True)
class _WhenOver:
    """Observer of sessions: has the housekeeping come round as soon as one is over, for its follow-up."""

    poke: Callable[[], None]

    def session_started(self, tx: Transaction, view: SessionView) -> None:
        pass

    def session_ended(self, tx: Transaction, view: SessionView, result: object) -> None:
        tx.after_commit(self.poke)


@dataclass(frozen=True, slots=True)
class _Landings:
    """Landings as cards take them back."""

    changes: ChangeSets

    def reverse(self, session_id: str) -> bool:
        change = self.changes.for_session(session_id)
        if change is None or change.state is ChangeState.WAITING:
            return False
        self.changes.undo(change.id)
        return True


def open_engine(
    home: Home,
    *,
    workspaces: Sequence[str] = (),
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    start_schedule: bool = True,
    resume: bool = True,
    kind: str = "",
    stand_ins: StandIns | None = None,
) -> Engine:
    """Take `home`, recover what an earlier engine left, and start. `workspaces` are folders in git repositories;
    `kind` is "headless" for an engine that gives the home to a console that asks for it.

    Who closes the engine again at once says so by `resume=False`: approved work that never began then goes on waiting.

    Raises `Refusal`: `home_held` (another engine has it), `unwritable_home`, `newer_home`, `damaged_home`,
    `disk_full`, `bad_config`, and what `repository_root` says of a folder.
    """
    clock = clock or SystemClock()
    lock = HomeLock(home, clock=clock, version=engine.__version__, kind=kind)
    lock.acquire()
    try:
        keep_log(home)
        opened = Engine(home, lock, clock, randomness or Randomness(), workspaces, stand_ins or StandIns())
    except BaseException:
        lock.release()
        raise
    try:
        recovered = opened.recover(resume=resume)
        opened.database.write(
            lambda tx: tx.record(EngineStarted(version=engine.__version__, recovered=tuple(recovered)))
        )
        opened.start(schedule=start_schedule)
    except BaseException:
        opened.close()
        raise
    return opened


def find_tool(folder: Path) -> ToolFound:
    """What prediction needs to know of a project's tools."""
    tools, found = detect_all(folder), linters(folder)
    return ToolFound(
        name=tools[0].name if tools else "",
        suffixes=tuple(suffix for tool in tools for suffix in tool.suffixes),
        exact=all(tool.exact for tool in tools),
        linter=found[0].name if found else "",
        lint_suffixes=tuple(suffix for linter in found for suffix in linter.suffixes),
    )


class _Log(RotatingFileHandler):
    """The log on a disk that may be full: what it cannot take is lost, and never spoils the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is logging's)
        pass


def keep_log(home: Home) -> None:
    """Write the log of the engine and its libraries to `logs/clawpy.log`, never to the terminal."""
    file = home.logs / "clawpy.log"
    for name in ("engine", "apscheduler"):
        logger = logging.getLogger(name)
        if any(getattr(handler, "baseFilename", "") == str(file) for handler in logger.handlers):
            continue
        for handler in [one for one in logger.handlers if isinstance(one, RotatingFileHandler)]:
            logger.removeHandler(handler)
            handler.close()
        handler = _Log(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, delay=True, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
