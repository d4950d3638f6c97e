"""The composition root: opens a home, builds its services, starts and stops them. Nothing is decided here.

A home opens in this order: the lock, settings, the database, services from the bottom up, recovery after a crash, then
listening.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine
import engine.api.operations.cards
import engine.api.operations.learning
import engine.api.operations.memory
import engine.api.operations.organisation
import engine.api.operations.sessions
import engine.api.operations.system
from engine.api.control import Attach, ControlServer
from engine.api.gateway import Gateway
from engine.api.notify import Notifications
from engine.api.operations import ApiServices, dispatch
from engine.api.status_bar_file import StatusBarFile
from engine.api_keys import find_key_variables
from engine.clock import Clock, SystemClock
from engine.events.engine import EngineStarted, EngineStopped
from engine.files import remove_temporaries
from engine.git import find_repository_root
from engine.home import Home
from engine.lock import HomeLock
from engine.model import Card, Refusal, SessionState
from engine.randomness import Randomness
from engine.retention import RowRetention
from engine.services import Overrides, autonomy, execution, foundation, learning, prediction

if TYPE_CHECKING:
    from engine.api.gateway.server import Server


log = logging.getLogger(__name__)

MAX_LOG_BYTES = 2_000_000
KEPT_LOG_FILES = 3
"""The size at which the log rotates, and how many old files are kept."""

LEARN_TIMEOUT_S = 1.0
"""Seconds in which the engine of a verb may begin to learn from what a session did."""


class _LogHandler(RotatingFileHandler):
    """A log handler for a disk that may be full: what it cannot write is lost, and never reaches the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is logging's)
        pass


def set_up_logging(home: Home) -> None:
    """Write the log of the engine and its libraries to `logs/clawpy.log`, and never to the terminal."""
    file = home.logs / "clawpy.log"
    for name in ("engine", "apscheduler", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        if any(getattr(handler, "baseFilename", "") == str(file) for handler in logger.handlers):
            continue
        for handler in [former for former in logger.handlers if isinstance(former, RotatingFileHandler)]:
            logger.removeHandler(handler)
            handler.close()
        handler = _LogHandler(file, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOG_FILES, delay=True, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING if name == "apscheduler" else logging.INFO)  # or two lines for each check
        logger.propagate = False


class Engine(ApiServices):
    """The engine of one home. Made by `open_engine`; `close` ends it."""

    def __init__(
        self,
        home: Home,
        lock: HomeLock,
        clock: Clock,
        randomness: Randomness,
        workspaces: Sequence[str],
        overrides: Overrides,
        attach: Attach | None = None,
    ) -> None:
        self.home = home
        self.clock = clock
        self.randomness = randomness
        self.version = engine.__version__
        self._lock = lock
        self._is_unreachable = overrides.unreachable
        self.named_workspaces = [str(find_repository_root(Path(path))) for path in workspaces]
        self._control: ControlServer | None = None
        self._attach = attach

        try:
            foundation.build_storage(self, overrides)
            self._build_services(overrides)
        except BaseException:
            if hasattr(self, "database"):
                self.database.close()
            raise

    def _build_services(self, overrides: Overrides) -> None:
        foundation.build_organisation(self, overrides)
        execution.build_rails(self)
        learning.build_effects(self)
        learning.build_learnings(self)
        sessions = execution.build_execution(self, overrides)
        prediction.build_twin(self)
        prediction.build_prediction(self, sessions, overrides)
        foundation.build_knowledge(self, overrides)
        learning.build_adaptation(self)
        self.retention = RowRetention(self.database, self.clock, self.settings, self.ledger.cursor_keys)
        autonomy.build_autonomy(self, sessions, follow_gateway=lambda: self.gateway.apply_settings())
        self.gateway = Gateway(self, _build_gateway, announce=self._lock.announce_gateway)
        self.notify = Notifications(self, issue_pass=self.gateway.issue_pass)
        services_that_wait = (self.knowledge, self.bubbles, self.adaptation, self.learnings, self.notify)
        self.waiting_sources = [service.waiting for service in services_that_wait]
        self.status_bar_file = StatusBarFile(self)

    def recover(self, *, resume: bool = True) -> list[str]:
        """Recover what the last engine left unfinished; returns what was interrupted, as sentences.

        Without `resume` approved work that never started goes on waiting.
        """
        self.calls.recover()
        removed = sum(remove_temporaries(folder) for folder in (self.home.config, self.home.data))
        if removed:
            log.info("removed %d temporary files of an earlier engine", removed)
        self.agents.ensure_organisation()
        interrupted = self.permissions.recover()  # before the sessions, which would withdraw them without a word
        interrupted += self.sessions.recover(resume=resume)
        self.safety.recover(self.sessions.find_of_card, self.training.find_reserved_entries())
        interrupted += self.approvals.recover(self.safety.permits.read_unconsumed(), resume=resume)
        interrupted += self.learnings.recover()  # before memories are forgotten, which learnings may contain
        interrupted += self.knowledge.recover()
        self.exporter.recover()
        return interrupted

    def learn(self) -> None:
        """Learn from what sessions did, for an engine without a schedule: captures, the graph, summaries, learnings,
        outcomes of cards and guidance, records.

        Starts nothing after `LEARN_TIMEOUT_S`; the rest is done with the next verb. Only a model for summaries may take
        longer. Raises nothing, because the verb itself is done.
        """
        until = time.monotonic() + LEARN_TIMEOUT_S
        rounds: tuple[Callable[[], object], ...] = (
            lambda: self.knowledge.catch_up(until),
            lambda: self.learnings.catch_up(until),
            self.card_store.follow_landings,
            self.guided_sessions.catch_up,
            self.trials.catch_up,
            self.adaptation.catch_up,
        )
        for learn_round in rounds:
            if time.monotonic() >= until:
                return
            try:
                learn_round()
            except Refusal as refusal:  # such as a full disk: it comes again with the next verb
                log.warning("recent events are not processed yet: %s", refusal)
            except Exception as error:
                log.exception("recent events are not processed")
                self.report("learning", f"recent events will be processed with the next verb: {error}")

    def start(self, *, schedule: bool) -> None:
        """Listen for verbs and stops; with `schedule` also make cards by itself."""
        if not self._is_unreachable:
            self._listen()
            self.status_bar_file.start()
        if schedule:
            if not self._is_unreachable:
                self.agent_files.start()
                self.workspace_watch.start()
            self.autonomy.start()
            self.memory.start()
            self.gateway.start()
            self.learnings.start()
            self.knowledge.start()
            if not self._is_unreachable:
                self.notify.start()

    def _listen(self) -> None:
        self.safety.kill_switch.start()
        self._control = ControlServer(self.home, self._answer_verb, self._attach)
        self._control.start()
        self._lock.announce(self._control.address)

    def _answer_verb(self, verb: str, arguments: Any) -> dict[str, Any]:
        """Carry out a verb that came by the control socket. A status bar tells of it as soon as the verb returns."""
        try:
            return dispatch(self, verb, arguments)
        finally:
            self.status_bar_file.write()

    def wind_down(self, *, finish: bool, hurry: Callable[[], bool] = lambda: False) -> list[Card]:
        """Before closing: start nothing more, and finish what runs unless `hurry()`, which hands it back. Returns the
        cards that are pending again (SPEC 7.5)."""
        self.workspace_watch.close()
        self.autonomy.close()
        self.sessions.hold_queue()
        while finish and not hurry() and (running := self.sessions.list_running()):
            self.sessions.wait(running[0].id, 0.2)
        returned = []
        for view in self.sessions.list_running():
            self.sessions.stop(view.id, "handed back")
            if self.sessions.wait(view.id, 2.0).state is SessionState.CANCELLED:
                returned.append(
                    self.card_store.propose_again(view.prediction_id, "handed back: it was running and was interrupted")
                )
        return returned

    def close(self) -> None:
        """Stop everything, write what is pending, release the home. Safe to call twice.

        What starts work ends before the work, and the database after all that writes to it. If one of them raises, the
        others are closed all the same, and the home is released.
        """
        steps: list[Callable[[], object]] = [
            self.gateway.end,
            self._stop_listening,
            self.workspace_watch.close,
            self.autonomy.close,
            self.agent_files.close,
            self.notify.close,
            self.sessions.close,
            self.status_bar_file.close,
            *(() if self.is_model_host_lent else (self.model_host.close,)),
            self.safety.kill_switch.close,
            self.learnings.close,
            self.knowledge.close,
            self.embedding_cache.close,
            self.memory.close,
            self._record_end,
            self.database.close,
            self._lock.release,
        ]
        with ExitStack() as closing:  # calls them in reverse order
            for step in reversed(steps):
                closing.callback(step)

    def _stop_listening(self) -> None:
        if self._control is not None:
            self._lock.announce("")
            self._control.close()
            self._control = None

    def _record_end(self) -> None:
        try:
            self.database.record(EngineStopped())
        except Refusal as refusal:
            if refusal.code != "engine_closed":
                log.warning("the end could not be recorded: %s", refusal)


def _build_gateway(*parts: Any) -> Server:
    from engine.api.gateway.routes import build_server  # a console without a gateway never pays for FastAPI and uvicorn

    return build_server(*parts)


def open_engine(
    home: Home,
    *,
    workspaces: Sequence[str] = (),
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    start_schedule: bool = True,
    resume: bool = True,
    kind: str = "",
    attach: Attach | None = None,
    overrides: Overrides | None = None,
) -> Engine:
    """Take `home`, recover what an earlier engine left, and start. `workspaces` are folders in git repositories; `kind`
    says what the engine is for (`Holder`); `attach` admits clients to its consoles. With `resume=False` approved work
    that never started goes on waiting, for an engine that is closed again soon.

    Raises `Refusal`: `home_held` (another engine has it), `unwritable_home`, `newer_home`, `damaged_home`, `disk_full`,
    `bad_config`, and what `find_repository_root` says of a folder.
    """
    clock = clock or SystemClock()
    key_variables = find_key_variables(os.environ)
    lock = HomeLock(home, clock=clock, version=engine.__version__, kind=kind, key_variables=key_variables)
    lock.acquire()
    try:
        set_up_logging(home)
        opened = Engine(home, lock, clock, randomness or Randomness(), workspaces, overrides or Overrides(), attach)
    except BaseException:
        lock.release()
        raise
    try:
        recovered = opened.recover(resume=resume)
        opened.database.record(EngineStarted(version=engine.__version__, recovered=tuple(recovered)))
        opened.start(schedule=start_schedule)
    except BaseException:
        try:
            opened.close()
        except Exception:  # the first error says more
            log.exception("the engine could not be closed")
        raise
    return opened
