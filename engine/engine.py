"""Composition root: builds every service, hands each what it needs, starts and stops them. A table of contents.

Nothing is decided here. The order of `open_engine` is the order in which a home comes to life: the lock, settings,
the database, services from the bottom up, what a crash left, then the outside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import engine
from engine import views
from engine.api.complication import Complication
from engine.api.control import Attach, ControlServer
from engine.api.gateway.gateway import Gateway
from engine.api.notify.notifications import Notifications
from engine.api.operations import dispatch
from engine.clock import Clock, SystemClock
from engine.config import Autonomy as WorkspaceAutonomy
from engine.events import EngineStarted, EngineStopped, FaultReported, WorkspaceAdded
from engine.git import repository_root
from engine.home import Home
from engine.lock import HomeLock
from engine.logs import keep_log
from engine.model import Card, ChangeState, LayerState, PromptPart, Randomness, Refusal, SessionState, Waiting
from engine.overrides import Contexts, Overrides
from engine.storage.files import sweep_temporaries
from engine.wiring import (
    acting,
    adaptation,
    effects,
    execution,
    knowledge,
    learnings,
    organisation,
    prediction,
    rails,
    retention,
    storage,
    twin,
)

if TYPE_CHECKING:
    from engine.autonomy.autonomy import Autonomy
    from engine.autonomy.heartbeat import Heartbeat
    from engine.events import EventBus
    from engine.execution.agent_setup import AgentSetup
    from engine.execution.changesets import ChangeSets
    from engine.execution.housekeeping import Housekeeping
    from engine.execution.model_calls import ModelCalls
    from engine.execution.overlaps import Overlaps
    from engine.execution.permissions import Permissions
    from engine.execution.prompt import PromptAssembly
    from engine.execution.routing import ModelRouter
    from engine.execution.runners.flows.learned import Registry
    from engine.execution.runners.model.client import ModelHost
    from engine.execution.runners.model.completions import Completions
    from engine.execution.sessions import Sessions
    from engine.execution.tools.belt import Toolbelts
    from engine.hierarchy.agents import Agents
    from engine.hierarchy.wisdom import Wisdom
    from engine.keys import Keys
    from engine.learning.candidates.adaptation import Adaptation
    from engine.learning.candidates.fragments import LearnedGuidance
    from engine.learning.candidates.trials import Overlays, Trials
    from engine.learning.decisions.decisions import Decisions
    from engine.learning.decisions.exporting import Exporter
    from engine.learning.decisions.insights import Figures
    from engine.learning.decisions.training_runs import Training
    from engine.learning.learnings.learnings import Learnings
    from engine.learning.learnings.prompt_part import LearntPart
    from engine.memory.importing import Importer
    from engine.memory.knowledge import Knowledge
    from engine.memory.markdown import Markdown
    from engine.memory.meanings import Meanings
    from engine.memory.memory import MemoryPort
    from engine.memory.prompt_part import RecalledPart
    from engine.memory.summaries import SummarySharing
    from engine.memory.threads import Threads
    from engine.memory.validation_runs import ValidationRuns
    from engine.memory.watching import Watching
    from engine.prediction.cards import Cards
    from engine.prediction.cycle import Predictions
    from engine.prediction.model_twin import ModelTwin
    from engine.prediction.tasks import TaskBoard
    from engine.prediction.twin import EmbeddedTwin
    from engine.safety.safety import Safety
    from engine.settings_store import SettingsStore
    from engine.storage.database import Database
    from engine.storage.ledger import Ledger
    from engine.storage.retention import RetentionRounds

log = logging.getLogger(__name__)


LEARN_SECONDS = 1.0
"""A verb's engine begins to take in what a session did for so long."""


class Engine:
    """The engine of one home. Its attributes are the services, callable from any thread.

    Made by `open_engine`; `close` ends it.
    """

    # the ground (`engine.wiring.storage`)
    bus: EventBus
    settings: SettingsStore
    database: Database
    ledger: Ledger
    runs: ValidationRuns
    memory: MemoryPort

    # who and what (`engine.wiring.organisation`)
    hierarchy: Agents
    files: Markdown
    watching: Watching
    feedback: Decisions
    exporter: Exporter
    wisdom: Wisdom

    # rails (`engine.wiring.rails`)
    safety: Safety

    # what was learnt and is in force (`engine.wiring.effects`)
    overlays: Overlays
    trials: Trials
    fragments: LearnedGuidance
    flows: Registry

    # what sessions learnt (`engine.wiring.learnings`)
    learnings: Learnings
    learnt_part: LearntPart

    # execution (`engine.wiring.execution`)
    keys: Keys
    models: ModelRouter
    agent_setup: AgentSetup
    calls: ModelCalls
    recalling: RecalledPart
    prompts: PromptAssembly
    changes: ChangeSets
    overlaps: Overlaps
    housekeeping: Housekeeping
    permissions: Permissions
    belts: Toolbelts
    host: ModelHost
    host_lent: bool
    completions: Completions
    sessions: Sessions

    # the Twin model (`engine.wiring.twin`)
    twin: ModelTwin
    training: Training
    insights: Figures

    # prediction (`engine.wiring.prediction`)
    meanings: Meanings
    embedded: EmbeddedTwin
    cards: Cards
    tasks: TaskBoard
    talks: Threads
    contexts: Contexts
    predictions: Predictions

    # what is known (`engine.wiring.knowledge`)
    knowledge: Knowledge
    importer: Importer
    summaries: SummarySharing

    # learning to act otherwise (`engine.wiring.adaptation`)
    adaptation: Adaptation

    # how long rows are kept (`engine.wiring.retention`)
    retention: RetentionRounds

    # acting by itself (`engine.wiring.acting`)
    heartbeat: Heartbeat
    autonomy: Autonomy

    def __init__(
        self,
        home: Home,
        lock: HomeLock,
        clock: Clock,
        randomness: Randomness,
        named: Sequence[str],
        overrides: Overrides,
        attach: Attach | None = None,
    ) -> None:
        self.home = home
        self.clock = clock
        self.randomness = randomness
        self.version = engine.__version__
        self._lock = lock
        self._deaf = overrides.deaf
        self._named = [str(repository_root(Path(path))) for path in named]
        self._control: ControlServer | None = None
        self._attach = attach

        storage.build(self, overrides)
        organisation.build(self, overrides)
        rails.build(self)
        effects.build(self)
        learnings.build(self)
        launcher = execution.build(self, overrides)
        hook = twin.build(self)
        prediction.build(self, launcher, hook, overrides)
        knowledge.build(self, overrides)
        adaptation.build(self)
        retention.build(self)
        acting.build(self, launcher)
        self.gateway = Gateway(self, announce=lock.announce_gateway)
        self.notify = Notifications(self)
        self.complication = Complication(self)

    @property
    def workspaces(self) -> list[str]:
        """Top folders of the repositories that are looked after: those named at the start, then the settings' that
        are not off. One that is no repository any more is left out and named by `doctor`."""
        roots = dict.fromkeys(self._named)
        for path, section in self.settings.current.workspaces.items():
            if section.autonomy is WorkspaceAutonomy.OFF:
                roots.pop(path, None)
                continue
            if path in roots:
                continue
            try:
                roots.setdefault(str(repository_root(Path(path).expanduser())))
            except Refusal as refusal:
                log.warning("workspace %s is left out: %s", path, refusal)
        return list(roots)

    def look_after(self, folder: str) -> None:
        """Look after the repository of `folder` too, as if it had been named at the start. Nothing happens when it is
        looked after already.

        Raises `Refusal`: `workspace_off` where the settings switch it off, and what `repository_root` says.
        """
        root = str(repository_root(Path(folder)))
        if root in self.workspaces:
            return
        if self.settings.current.workspace(root).autonomy is WorkspaceAutonomy.OFF:
            on = f"clawpy config set 'workspaces.\"{root}\".autonomy' cards"
            raise Refusal("workspace_off", f"{root} is switched off in the settings, so it gets no cards", on)
        self._named = [*self._named, root]
        self.database.write(lambda tx: tx.record(WorkspaceAdded(subject=root)))
        self.autonomy.poke()  # what was never checked is checked at once

    def queue(self) -> list[Waiting]:
        """What waits for the operator (SPEC 9.3): what blocks an agent, then the longest first."""
        acknowledged = views.acknowledged(self.database)
        changes, sessions = self.changes.list(state=ChangeState.WAITING, limit=100), self.sessions.list(limit=20)
        queue = views.waiting(changes, sessions, self.permissions.waiting(), self.clock.now(), acknowledged)
        services = (self.knowledge, self.wisdom, self.adaptation, self.learnings, self.notify)
        queue += [views.checked(entry, self.safety.check_prompt) for service in services for entry in service.waiting()]
        return views.in_order(queue)

    def objections(self, parts: Sequence[PromptPart]) -> list[list[str]]:
        """For each line of a prompt what the content filter has against it, "" for nothing. Our own words and what a
        model answered are not looked at. Takes up to a second for a long prompt."""
        return [views.objections(part, self.safety.check_prompt) for part in parts]

    def acknowledge(self, session_id: str) -> None:
        """The operator knows that this session was interrupted: it leaves the queue."""
        views.acknowledge(self.database, session_id)

    def layers(self) -> list[LayerState]:
        """How the seven layers of memory stand (SPEC 9.5)."""
        return [self.files.layer(), self.ledger.layer(), *self.memory.layers()]

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
            decided=self.ledger.latest(views.MOST, kinds=views.DECIDED),
            spent=self.safety.costs.settled_since(instant),
            waits=self.queue(),
            learnings=self.ledger.latest(views.MOST, kinds=views.LEARNT),
        )

    def place(self, workspace: str) -> str:
        """Name and branch of a workspace for the status line."""
        return views.place(workspace)

    def recover(self, *, resume: bool = True) -> list[str]:
        """Bring to a good end what the last engine of this home left. Says what was interrupted, in words.

        Without `resume` approved work that never began goes on waiting.
        """
        self.calls.recover()
        swept = sum(sweep_temporaries(folder) for folder in (self.home.config, self.home.data))
        if swept:
            log.info("swept %d temporary files of an earlier engine", swept)
        self.hierarchy.ensure_organisation()
        words = self.permissions.recover()  # before the sessions, which would withdraw them without a word
        words += self.sessions.recover(resume=resume)
        self.safety.recover(self.sessions.of_prediction, self.training.reserved())
        words += self.cards.recover(self.safety.permits.unconsumed(), resume=resume)
        words += self.learnings.recover()  # before what was being forgotten is, of which some may be in it
        words += self.knowledge.recover()
        self.exporter.recover()
        return words

    def learn(self) -> None:
        """Take in what sessions did, for an engine without a schedule: captures, the graph, summaries, learnings, what
        became of cards and guidance, records. Nothing is begun after `LEARN_SECONDS`; what is left then comes with the
        next verb. Only the model that the operator named for summaries may take longer. Raises nothing: the verb itself
        is done."""
        until = time.monotonic() + LEARN_SECONDS
        rounds: tuple[Callable[[], object], ...] = (
            lambda: self.knowledge.catch_up(until),
            lambda: self.learnings.catch_up(until),
            self.cards.follow_landings,
            self.wisdom.follow,
            self.trials.catch_up,
            self.adaptation.reflect,
        )
        for take_in in rounds:
            if time.monotonic() >= until:
                return
            try:
                take_in()
            except Refusal as refusal:  # such as a full disk: it comes again with the next verb
                log.warning("what happened is not taken in yet: %s", refusal)
            except Exception as error:
                log.exception("what happened is not taken in")
                self.report("learning", f"recent events will be processed with the next verb: {error}")

    def start(self, *, schedule: bool) -> None:
        """Listen for verbs and a stop from outside; with `schedule`, make cards by itself."""
        if not self._deaf:
            self._listen()
            self.complication.start()
        if schedule:
            if not self._deaf:
                self.watching.start()
            self.autonomy.start()
            self.memory.start()
            self.gateway.start()
            self.learnings.start()
            if not self._deaf:
                self.notify.start()
        self.knowledge.start(follow=schedule)

    def _listen(self) -> None:
        self.safety.start()
        self._control = ControlServer(self.home, lambda verb, arguments: dispatch(self, verb, arguments), self._attach)
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
                returned.append(
                    self.cards.give_back(view.prediction_id, "handed back: it was running and was interrupted")
                )
        return returned

    def close(self) -> None:
        """End what runs, write what is left to write, give the home back. Safe to call twice."""
        self.gateway.end()
        if self._control is not None:
            self._lock.announce("")
            self._control.close()
            self._control = None
        self.autonomy.close()
        self.watching.close()
        self.notify.close()
        self.sessions.close()
        self.complication.close()
        if not self.host_lent:
            self.host.close()
        self.safety.close()
        self.learnings.close()
        self.knowledge.close()
        self.meanings.close()
        self.memory.close()
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
    """Take `home`, recover what an earlier engine left, and start. `workspaces` are folders in git repositories;
    `kind` says what the engine is for (`Holder`), and `attach` takes what connects to its control socket for a console.

    Who closes the engine again at once says so by `resume=False`: approved work that never began then goes on waiting.

    Raises `Refusal`: `home_held` (another engine has it), `unwritable_home`, `newer_home`, `damaged_home`,
    `disk_full`, `bad_config`, and what `repository_root` says of a folder.
    """
    clock = clock or SystemClock()
    lock = HomeLock(home, clock=clock, version=engine.__version__, kind=kind)
    lock.acquire()
    try:
        keep_log(home)
        opened = Engine(home, lock, clock, randomness or Randomness(), workspaces, overrides or Overrides(), attach)
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
