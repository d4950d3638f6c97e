"""Composition root: builds every service, hands each what it needs, starts and stops them. A table of contents.

Nothing is decided here. The order of `open_engine` is the order in which a home comes to life: the lock, settings,
the database, services from the bottom up, what a crash left, then the outside.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import engine
from engine import tokenizer, views
from engine.adapters import (
    Actor,
    Brakes,
    Diaries,
    Landings,
    Meanings,
    MemoryModel,
    Projects,
    TwinAccess,
    TwinSchool,
    WhenOver,
    Work,
    find_tool,
    lost_files,
    top_folder,
)
from engine.autonomy.autonomy import Autonomy
from engine.autonomy.heartbeat import Heartbeat, Page
from engine.autonomy.schedule import Job
from engine.clock import Clock, SystemClock
from engine.config import Autonomy as WorkspaceAutonomy
from engine.doors.control import ControlServer
from engine.doors.verbs import dispatch
from engine.events import (
    CloudMemoryRecalled,
    EngineStarted,
    EngineStopped,
    EventBus,
    FaultReported,
    TwinAnswered,
)
from engine.execution.calls import Caller, Calls
from engine.execution.changesets import ChangeSets
from engine.execution.channels import Channels
from engine.execution.ground import Grounds
from engine.execution.hiring import Hiring
from engine.execution.launcher import Launcher
from engine.execution.overlaps import Overlaps
from engine.execution.permissions import Permissions
from engine.execution.prompt.assembly import PromptAssembly
from engine.execution.prompt.parts import Identity, Project, Rules, Task
from engine.execution.routing import ModelRouter
from engine.execution.runners.acp.runner import AcpRunner
from engine.execution.runners.flow_runner import FlowRunner
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.model.client import ModelHost
from engine.execution.runners.model.completions import Completions
from engine.execution.runners.model.history import Histories
from engine.execution.runners.model.runner import ModelRunner
from engine.execution.salvage import Salvage
from engine.execution.sessions import Sessions
from engine.execution.tools.belt import Toolbelts
from engine.execution.validation import Validation
from engine.execution.worktrees import WorkspaceLocks, Worktrees
from engine.feedback.decisions import Decisions
from engine.feedback.exporting import Exporter
from engine.feedback.training.runs import Training
from engine.git import repository_root
from engine.hierarchy.agents import Agents
from engine.hierarchy.discoveries import Correction
from engine.hierarchy.postgres import PostgresStore
from engine.hierarchy.wisdom import Wisdom
from engine.home import Home
from engine.keys import Keys
from engine.lock import HomeLock
from engine.logs import keep_log
from engine.memory.embedding import Endpoint
from engine.memory.importing import talks
from engine.memory.knowledge import Knowledge
from engine.memory.ledger import Ledger, append
from engine.memory.markdown import Markdown
from engine.memory.memory import MemoryPort
from engine.memory.prompt_part import RecalledPart
from engine.memory.summaries import SummarySharing, from_others
from engine.memory.summaries_postgres import PostgresSummaries
from engine.memory.validation_runs import ValidationRuns
from engine.memory.watching import Watching
from engine.prediction.acting import Acting
from engine.prediction.cards import Cards
from engine.prediction.collectors.github import GitHub
from engine.prediction.collectors.silence import OurWrite
from engine.prediction.context import WorkspaceContext
from engine.prediction.context_reader import ContextReader
from engine.prediction.cycle import Predictions
from engine.prediction.hook import PredictorHook
from engine.prediction.model_twin import ModelTwin
from engine.prediction.twin import EmbeddedTwin
from engine.prediction.twin_states import TwinStates
from engine.safety.safety import Safety
from engine.settings_store import SettingsStore
from engine.stand_ins import Contexts, StandIns
from engine.storage.database import Database, Transaction
from engine.storage.files import sweep_temporaries
from engine.tasks.board import TaskBoard
from engine.values import (
    Card,
    CheckResult,
    DecisionSignal,
    Doing,
    LayerState,
    LeaderDecision,
    Randomness,
    Refusal,
    SessionState,
    Verdict,
    Waiting,
)

log = logging.getLogger(__name__)

STAMP_SLACK = timedelta(milliseconds=1)
"""Files carry nanoseconds, instants microseconds."""

SHARED_URL = "CLAWPY_SHARED_DATABASE_URL"
"""The variable that names a PostgreSQL in which machines share one leadership (SPEC 1.9); it may hold a password."""

FAR_BACK = 200
"""So many of the latest decisions, the operator's and captured ones, are looked through."""

SHARE_EVERY = timedelta(minutes=5)
"""How often summaries are exchanged with other machines, where they share any."""

NIGHT_LOOK = timedelta(minutes=10)
"""So often it is looked whether a day is over that memory has not worked through (SPEC 4.8)."""

IMPORT_EVERY = timedelta(hours=1)
"""So often other agents' transcripts are read on, where that is wished."""

TRAINING_LOOK = timedelta(minutes=5)
"""So often a training run is brought on by a step, and it is looked whether the next is due (SPEC 8.4)."""

EXPORT_LOOK = timedelta(hours=1)
"""So often it is looked whether a daily batch of preference pairs is due (SPEC 8.3)."""

KEPT_LOOK = timedelta(hours=1)
"""So often it is looked which memories were kept long enough (SPEC 4.3)."""

RECALL_WITHIN = 2.0
"""Seconds that a prompt waits for its recall; the first of an engine loads a model."""


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
        self.memory = MemoryPort(
            self.database,
            settings=self.settings,
            clock=clock,
            folder=home.data / "chroma",
            endpoint=self._endpoint,
            running=lambda: frozenset(one.id for one in self.sessions.running()),
            meaning=not stand_ins.throw_away,  # in a simulated month nobody waits for a model
        )

        # Who and what
        self.hierarchy = Agents(
            home.agents,
            cascade_config=home.data / "wisdom_cascade_config.json",
            settings=self.settings,
            database=self.database,
            activity=self._activity,
        )
        self.files = Markdown(home.agents, database=self.database, fault=self.hierarchy.file_fault)
        self._watching = Watching(self.files, report=self.report)
        self.feedback = Decisions(self.database, clock)
        self.exporter = Exporter(
            self.database,
            home.data,
            conversations=lambda: talks(self.database),
            secrets=lambda: self.keys.secrets(),
        )
        url = "" if stand_ins.throw_away else os.environ.get(SHARED_URL, "")  # what is made up is shared with nobody
        shared = PostgresStore(url) if url else None
        self.wisdom = Wisdom(
            self.database,
            self.hierarchy,
            clock=clock,
            randomness=randomness,
            count=tokenizer.count,
            facts=self.ledger,
            seconds=self._session_seconds,
            correction=self._correction,
            decided=self._decided,
            store=lambda: shared,
            lost=lost_files,
        )

        # Rails
        self.safety = Safety(
            self.database,
            self.settings,
            clock,
            randomness,
            data=home.data,
            decisions=self.feedback,
            stop_sessions=self._stop_all,
            agent_budget=self.hierarchy.budget,
            quiet=lambda: self.autonomy.quiet(),
            on_change=lambda: self.autonomy.poke(),
        )

        brakes = Brakes(self.safety.kill_switch)

        # Execution
        locks = WorkspaceLocks()
        worktrees = Worktrees(home=home, database=self.database, locks=locks)
        self.keys = Keys(home, clock=clock)
        self.models = ModelRouter(self.settings, self.keys, models=lambda agent: self.hierarchy.tools(agent).models)
        self.hiring = Hiring(self.settings, data=home.data, model_for=self.models.choose)
        self.calls = Calls(self.database, randomness, secrets=self.keys.secrets, told=self._told)
        self.recalling = RecalledPart(self.memory, self.settings)
        self.prompts = PromptAssembly(
            [
                Identity(self.hierarchy, folder=home.agents),
                Rules(),
                self.wisdom.part,
                Project(),
                self.recalling,
                Task(self._card, self._last_check),
            ],
            deadlines={self.recalling.name: RECALL_WITHIN},
            secrets=self.keys.secrets,
        )
        self.changes = ChangeSets(
            home=home, database=self.database, clock=clock, randomness=randomness, worktrees=worktrees, locks=locks
        )
        self.overlaps = Overlaps(self.database)
        self.permissions = Permissions(self.database, randomness=randomness, secrets=self.keys.secrets)
        self.belts = Toolbelts(
            self.database,
            settings=self.settings,
            permissions=self.permissions,
            lists=self.hierarchy.tools,
            programs=self.safety.programs,
        )
        left = Salvage(self.database, worktrees=worktrees, changes=self.changes)
        grounds = Grounds(
            left=left,
            settings=self.settings,
            worktrees=worktrees,
            changes=self.changes,
            runs=self.runs,
            overlaps=self.overlaps,
        )
        flows = FlowRunner(FLOWS, grounds=grounds)
        channels = Channels(self.settings)
        self._host = ModelHost() if stand_ins.model_host is None else stand_ins.model_host
        self._host_lent = stand_ins.model_host is not None
        judging = Validation(self.database, settings=self.settings, runs=self.runs)
        models = ModelRunner(
            host=self._host,
            router=self.models,
            keys=self.keys,
            prompts=self.prompts,
            calls=self.calls,
            belts=self.belts,
            grounds=grounds,
            histories=Histories(home.transcripts),
            channels=channels,
            settings=self.settings,
            clock=clock,
            randomness=randomness,
            frame=judging,
        )
        self.completions = Completions(
            self.database,
            host=self._host,
            names=self.models,
            keys=self.keys,
            calls=self.calls,
            costs=self.safety.costs,
            clock=clock,
            held=self._held,
            secrets=self.keys.secrets,
        )
        twin = TwinAccess(self.settings, self.models, self.keys)
        self.twin = ModelTwin(
            self.settings,
            Completions(
                self.database,
                host=self._host,
                names=twin,
                keys=twin,
                calls=self.calls,
                costs=self.safety.costs,
                clock=clock,
                held=self._held,
                secrets=self.keys.secrets,
            ).ask,
            flows=tuple(FLOWS),
            phase=lambda: self.predictions.phase().number,
            told=self._twin_told,
        )
        school = TwinSchool(self.settings, self.keys, twin, self.twin)
        self.training = Training(
            self.database,
            home.data / "training",
            exporter=self.exporter,
            plan=school.plan,
            api=school.provider,
            purse=self.safety.costs,
            answer=school.answer,
            adopt=school.adopt,
            randomness=randomness,
            held=lambda: brakes.stopped() or "",
        )
        hook = PredictorHook(
            self.database,
            lambda: Path(self.settings.current.predictions_dir or home.data).expanduser() / "predictions.jsonl",
            flows=tuple(FLOWS),
            home_workspace=lambda: next(iter(self.workspaces), ""),
            report=self.report,
        )
        agents = AcpRunner(
            settings=self.settings,
            grounds=grounds,
            data=home.data,
            belts=self.belts,
            prompts=self.prompts,
            calls=self.calls,
            validation=judging,
            version=engine.__version__,
        )
        self.sessions = Sessions(
            self.database,
            home=home,
            clock=clock,
            bus=self.bus,
            randomness=randomness,
            settings=self.settings,
            channels=channels,
            permits=self.safety.permits,
            brakes=brakes,
            check=lambda command, folder: self.safety.check_command(command, Path(folder)),
            runners=[flows, models, agents] if stand_ins.runners is None else stand_ins.runners,
            sandbox=stand_ins.sandbox,
            last_write=lambda workspace: self._last_sign([workspace]),
            unattended=self._unattended,
            purse=self.safety.costs.hold,
        )
        launcher = Launcher(self.sessions, self.settings)

        # Prediction
        self._meanings = Meanings(self.memory)
        self.embedded = EmbeddedTwin(self.feedback, states=TwinStates(self.database), meanings=self._meanings)
        calibrator = stand_ins.calibrator or self.embedded
        self.cards = Cards(
            self.database,
            clock=clock,
            settings=self.settings,
            randomness=randomness,
            rails=self.safety.pipeline,
            launcher=launcher,
            landings=Landings(self.changes),
            facts=self.ledger,
            flows=tuple(FLOWS),
            on_decision=self.safety.kill_switch.decided,
            session=self.sessions.get,
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
            said=lambda context: [*self.twin.propose(context), *hook.propose(context)],
            workspaces=lambda: self.workspaces,
            stopped=lambda: brakes.stopped() or "",
            facts=self.ledger,
            session=self.sessions.get,
            embedded=self.embedded,
        )
        self.knowledge = Knowledge(
            home,
            self.database,
            clock,
            memory=self.memory,
            ledger=self.ledger,
            work=Work(self.sessions, self.tasks),
            changes=self.changes,
            runs=self.runs,
            diaries=Diaries(self.files),
            report=self.report,
            secrets=self.keys.secrets,
            transcripts=lambda: self.settings.current.memory.transcripts,
            workspace_of=top_folder,
            model=MemoryModel(self.settings, self.completions),
            others=(self.wisdom.texts,),
        )
        self.memory.know(self.knowledge)
        shared_summaries = PostgresSummaries(url) if url else None
        projects = Projects()
        self.summaries = SummarySharing(
            self.database,
            self.memory.store,
            lambda: shared_summaries,
            origin=self.wisdom.origin,
            projects=lambda: {workspace: projects.of(workspace) for workspace in self.workspaces},
            remember=self.memory.add,
            gone=self.memory.gone,
        )
        watching = (self.cards, self.safety, self.tasks, self.calls, self.permissions, self.knowledge)
        for observer in (*watching, WhenOver(lambda: self.autonomy.poke())):
            self.sessions.observe(observer)

        # Acting by itself
        self.heartbeat = Heartbeat(self.database, clock, board=self.tasks, pages=self._heartbeat_pages)
        self.autonomy = Autonomy(
            self.database,
            self.settings,
            clock,
            holds=self.safety.kill_switch,
            card_cycle=self.predictions.run_cycle,
            actor=Actor(
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
            housekeeping=(
                self.cards.expire_due,
                self.predictions.follow_up,
                self.knowledge.housekeeping,
                self.wisdom.discover,
            ),
            jobs=(
                Job("wisdom", lambda: self.wisdom.interval, self.wisdom.round, lambda: brakes.stopped() is None),
                Job("summaries", lambda: SHARE_EVERY, self.summaries.exchange, self.summaries.wanted, kept=False),
                Job("nightly", lambda: NIGHT_LOOK, self.knowledge.night, self.knowledge.nightly.wanted, kept=False),
                Job("retention", lambda: KEPT_LOOK, self.memory.housekeeping, kept=False),
                Job("training", lambda: TRAINING_LOOK, self._train, self._train_due, kept=False),
                Job("export", lambda: EXPORT_LOOK, self._export, self._export_due, kept=False),
                Job("transcripts", lambda: IMPORT_EVERY, self.memory.import_transcripts, self._imports),
            ),
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
        """What waits for the operator (SPEC 9.3): what blocks an agent, then the longest first."""
        known = views.acknowledged(self.database)
        queue = views.waiting(self.changes, self.sessions, self.permissions, self.clock.now(), known)
        return views.in_order([*queue, *self.knowledge.waiting(), *self.wisdom.waiting()])

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
        self.calls.recover()
        swept = sum(sweep_temporaries(folder) for folder in (self.home.config, self.home.data))
        if swept:
            log.info("swept %d temporary files of an earlier engine", swept)
        self.hierarchy.ensure_organisation()
        words = self.permissions.recover()  # before the sessions, which would withdraw them without a word
        words += self.sessions.recover(resume=resume)
        self.safety.recover(self.sessions.of_prediction, self.training.reserved())
        words += self.cards.recover(self.safety.permits.unconsumed(), resume=resume)
        words += self.knowledge.recover()
        self.exporter.recover()
        return words

    def start(self, *, schedule: bool) -> None:
        """Listen for verbs and a stop from outside; with `schedule`, make cards by itself."""
        if not self._deaf:
            self._listen()
        if schedule:
            if not self._deaf:
                self._watching.start()
            self.autonomy.start()
            self.memory.start()
        self.knowledge.start(follow=schedule)

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
        self._watching.close()
        self.sessions.close()
        if not self._host_lent:
            self._host.close()
        self.safety.close()
        self.knowledge.close()
        self._meanings.close()
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

    def _imports(self) -> bool:
        """Whether transcripts of other agents are imported: only where the settings name some."""
        return bool(self.settings.current.memory.transcripts)

    def _train_due(self) -> bool:
        """Whether a run is under way, or one is to begin by itself."""
        if self.training.active() is not None:
            return True
        wished = self.settings.current.training.automatic and not self._held()
        return wished and self.training.due(self.clock.now())

    def _train(self) -> None:
        if self.training.active() is None:
            try:
                self.training.begin()
            except Refusal as refusal:
                self.report("training", f"{refusal.message}; {refusal.fix}")
                return
        self.training.step()

    def _twin_told(self, model: str, usable: bool, words: str) -> None:
        self.database.write(lambda tx: tx.record(TwinAnswered(subject=model, usable=usable, reason=words)))

    def _export_due(self) -> bool:
        """Whether the daily batch is to be brought out: only where `dpoExportEnabled` says so."""
        return self.settings.current.dpo_export_enabled and self.exporter.due(self.clock.now())

    def _export(self) -> None:
        self.exporter.batch()

    def _stop_all(self, reason: str) -> None:
        """The kill switch: sessions and all their processes, and the one that speaks to models for them."""
        self.sessions.stop_all(reason)
        if not self._host_lent:
            self._host.end()

    def _activity(self) -> Mapping[str, Doing]:
        """What agents are doing now, and did so far, for the hierarchy."""
        states = {view.agent: (view.state.value, view.tokens) for view in self.sessions.running()}
        states |= {one.agent: ("waiting", states.get(one.agent, ("", 0))[1]) for one in self.permissions.waiting()}
        return {agent: Doing(*states.get(agent, ("idle", 0)), *done) for agent, done in self.sessions.totals().items()}

    def _told(self, tx: Transaction, session: Caller, call_id: str, told: Mapping[str, Any]) -> None:
        """A call of a model was made with a prompt of this provenance (SPEC 1.10)."""
        self.wisdom.applied(
            tx, told, agent=session.agent, call=call_id, session_id=session.id, workspace=session.workspace
        )
        memories, origins = from_others(told.get("memory_sources", ()))
        if memories:
            about = {"subject": session.agent, "workspace": session.workspace, "session_id": session.id}
            tx.record(CloudMemoryRecalled(**about, call=call_id, memories=memories, origins=origins))

    def _card(self, card_id: str) -> Card | None:
        """A card as prompts are made of it; None for work that has none."""
        try:
            return self.cards.get(card_id)
        except Refusal:
            return None

    def _endpoint(self, provider: str) -> Endpoint | None:
        """Where a provider makes embeddings, None when it cannot be used."""
        if self.settings.current.provider(provider) is None:
            return None
        state = self.models.provider(provider)
        key = self.keys.get(provider)
        return Endpoint(state.settings.base_url, key.value if key else "") if state.usable else None

    def _session_seconds(self, session_id: str) -> float:
        """How long a session took, 0 when that is not known."""
        try:
            view = self.sessions.get(session_id)
        except Refusal:
            return 0.0
        ended = view.ended_at or self.clock.now()
        return 0.0 if view.started_at is None else max(0.0, (ended - view.started_at).total_seconds())

    def _decided(self, leaders: Sequence[str]) -> Mapping[str, Sequence[LeaderDecision]]:
        """What leaders decided in their own words, the newest first."""
        found: dict[str, list[LeaderDecision]] = {}
        for one in self.knowledge.captures.entries(limit=FAR_BACK):
            if one.kind == "decision" and one.agent in leaders and not one.forgotten:
                found.setdefault(one.agent, []).append(LeaderDecision(one.id, one.text, one.at))
        return found

    def _correction(self, card_id: str) -> Correction | None:
        """What the operator made of a card's prompt before he approved it; None when nothing."""
        card, latest = self._card(card_id), self.feedback.recent(FAR_BACK)
        said = {one.signal: one for one in latest if one.prediction_id == card_id}
        original, approved = said.get(DecisionSignal.ORIGINAL), said.get(DecisionSignal.APPROVED)
        if card is None or original is None or approved is None:
            return None
        like = sum(one.edited and (one.kind, one.channel) == (approved.kind, approved.channel) for one in latest)
        return Correction(
            card.agent, original.prompt, approved.prompt, approved.kind, approved.channel, card.session_id or "",
            card.estimate, like,
        )  # fmt: skip

    def _last_check(self, workspace: str) -> CheckResult | None:
        """How the tests of a workspace stood last."""
        return next((run.check for run in self.runs.latest(workspace, 1)), None)

    def _heartbeat_pages(self) -> tuple[list[Page], list[str]]:
        found, unread = self.hierarchy.heartbeats()
        about = next(iter(self.workspaces), "")
        return [Page(one.agent, one.text, one.written, one.channel, about) for one in found], unread

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

    def _held(self) -> str:
        """Why nothing may run by itself now (SPEC 3.7); "" when it may."""
        verdict = self.safety.kill_switch.ask()
        return "" if verdict.verdict is Verdict.ALLOW else verdict.reason

    def _unattended(self, workspace: str) -> str:
        """Why nothing may begin by itself in a workspace now, in words (SPEC 7.1, 7.3, 7.4); "" when it may."""
        if held := self._held():
            return held
        settings = self.settings.current
        if not settings.autonomous_mode_enabled:
            return "autonomousModeEnabled is off"
        if settings.workspace(workspace).autonomy is not WorkspaceAutonomy.ACT:
            return "the workspace's autonomy is not `act`"
        return "quiet hours: nothing executes by itself" if self.autonomy.quiet() else ""

    def _ours(self, workspace: str) -> list[OurWrite]:
        """What our landings wrote there: no sign of the operator."""
        writes = []
        for path, mtime_ns in self.changes.written_by_us(workspace).items():
            at = datetime.fromtimestamp(mtime_ns / 1e9, UTC)
            writes.append(OurWrite(path, at - STAMP_SLACK, at + STAMP_SLACK))
        return writes


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
