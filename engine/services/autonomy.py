"""Builds what the engine does by itself: heartbeats, checks, and the jobs of the schedule.

The jobs besides checks and cycles are here, with their intervals. Those that make work begin only while nothing is
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from engine.autonomy.autonomous_runs import AutonomousRuns
from engine.autonomy.autonomy import CARD_JOB, Autonomy
from engine.autonomy.heartbeat import HEARTBEAT_JOB, Heartbeat
from engine.autonomy.schedule import ScheduledJob
from engine.execution.sessions import Sessions
from engine.hierarchy.teaching import run_round
from engine.model import Refusal
from engine.prediction.workspace_watch import WorkspaceWatch
from engine.services.prediction import find_last_workspace_activity, name_known_workspaces

if TYPE_CHECKING:
    from engine.services import Services

HEARTBEAT_INTERVAL = timedelta(minutes=5)
"""Time between two looks for due items of heartbeats (SPEC 4.1)."""

SHARE_EVERY = timedelta(minutes=5)
"""Time between two exchanges of summaries with other machines."""

NIGHT_CHECK_EVERY = timedelta(minutes=10)
"""Time between two checks whether the nightly work of memory is due (SPEC 4.8)."""

IMPORT_EVERY = timedelta(hours=1)
"""Time between two imports of the transcripts of other agents."""

TRAINING_CHECK_EVERY = timedelta(minutes=5)
"""Time between two steps of a training, or two checks whether the next one is due (SPEC 8.4)."""

EXPORT_CHECK_EVERY = timedelta(hours=1)
"""Time between two checks whether the daily batch of preference pairs is due (SPEC 8.3)."""

ADAPT_EVERY = timedelta(minutes=10)
"""Time between two rounds of adaptation (SPEC 5.3)."""

EXPIRY_CHECK_EVERY = timedelta(hours=1)
"""Time between two deletions of memories whose retention has ended (SPEC 4.3)."""

RETENTION_CHECK_EVERY = timedelta(hours=1)
"""Time between two deletions of rows that are older than the settings allow (SPEC 4.2)."""


def build_autonomy(services: Services, sessions: Sessions, *, follow_gateway: Callable[[], None]) -> None:
    """Build the heartbeat, the autonomy and its jobs, and the watch over the workspaces. `follow_gateway` opens or
    closes the gateway as the settings say."""
    clock = services.clock
    services.heartbeat = Heartbeat(
        services.database,
        clock,
        board=services.tasks,
        pages=services.agents.read_heartbeats,
        find_workspace=partial(_find_workspace_of_items, services),
    )
    services.autonomy = Autonomy(
        services.database,
        services.settings,
        clock,
        kill_switch=services.safety.kill_switch,
        runs=AutonomousRuns(
            services.database,
            services.cards,
            services.checks,
            services.embedded_twin,
            settings=services.settings,
            decisions=services.decisions,
            sessions=sessions,
            quiet=lambda: services.autonomy.find_quiet_reason(),
        ),
        housekeeping=_list_housekeeping_steps(services, follow_gateway),
        jobs=_make_jobs(services),
        last_operator_activity=partial(find_last_operator_activity, services),
    )
    services.workspace_watch = WorkspaceWatch(
        clock,
        list_workspaces=lambda: services.workspaces,
        check_workspaces=partial(_check_changed_workspaces, services),
        report=services.report,
    )


def _list_housekeeping_steps(
    services: Services, follow_gateway: Callable[[], None]
) -> tuple[Callable[[], object], ...]:
    """The functions that are called every half minute."""
    return (
        services.card_store.expire_due,
        services.approvals.refresh_runners,
        services.checks.follow_up,
        services.card_store.follow_landings,
        services.knowledge.housekeeping,
        services.learnings.housekeeping,
        follow_gateway,
        services.guided_sessions.catch_up,
        services.adaptation.catch_up,
        services.trials.catch_up,
        _make_cards_of_new_tasks(services),
        partial(_check_new_workspaces, services),
    )


def _make_jobs(services: Services) -> tuple[ScheduledJob, ...]:
    """The scheduled jobs besides the checks and cycles."""
    training = AutomaticTraining(services)
    may_begin = partial(_may_begin, services)
    return (
        ScheduledJob(HEARTBEAT_JOB, lambda: HEARTBEAT_INTERVAL, partial(_run_heartbeats, services), may_begin),
        ScheduledJob(
            "guidance",
            lambda: timedelta(seconds=services.agents.config.current.m2_interval_seconds),
            lambda: run_round(services.bubbles, services.guided_sessions, services.teaching),
            may_begin,
        ),
        ScheduledJob(
            "summaries",
            lambda: SHARE_EVERY,
            services.summary_sharing.exchange,
            services.summary_sharing.is_enabled,
            is_stored=False,
        ),
        ScheduledJob(
            "nightly",
            lambda: NIGHT_CHECK_EVERY,
            services.knowledge.run_night,
            services.knowledge.nightly.has_work,
            is_stored=False,
        ),
        ScheduledJob("expired_memories", lambda: EXPIRY_CHECK_EVERY, services.memory.housekeeping, is_stored=False),
        ScheduledJob("retention", lambda: RETENTION_CHECK_EVERY, services.retention.delete_old_rows, is_stored=False),
        ScheduledJob("adaptation", lambda: ADAPT_EVERY, services.adaptation.run_round, is_stored=False),
        ScheduledJob("training", lambda: TRAINING_CHECK_EVERY, training.step, training.is_due, is_stored=False),
        ScheduledJob(
            "export",
            lambda: EXPORT_CHECK_EVERY,
            services.exporter.export_batch,
            partial(_is_export_due, services),
            is_stored=False,
        ),
        ScheduledJob(
            "transcripts",
            lambda: IMPORT_EVERY,
            services.importer.run,
            lambda: bool(services.settings.current.memory.transcripts),
        ),
    )


def _may_begin(services: Services) -> bool:
    """Whether nothing is stopped."""
    return not services.safety.kill_switch.find_obstacle()


def _make_cards_of_new_tasks(services: Services) -> Callable[[], None]:
    """A function that makes cards when a task was added since its last call, instead of with the next check."""

    def newest() -> int:
        return next((entry.id for entry in services.ledger.read_newest(1, kinds=("TaskAdded",))), 0)

    last_seen = newest()

    def make_cards_if_added() -> None:
        nonlocal last_seen
        if (added := newest()) > last_seen and _may_begin(services):
            last_seen = added
            services.checks.run()

    return make_cards_if_added


def _check_new_workspaces(services: Services) -> None:
    """Make cards in workspaces that no check has read yet, unless the next check is due anyway."""
    if not _may_begin(services) or services.autonomy.schedule.find_next_run(CARD_JOB) <= services.clock.now():
        return
    checked = services.checks.read_last_checked()
    if new := [workspace for workspace in services.workspaces if workspace not in checked]:
        services.checks.run(workspaces=new)


def _check_changed_workspaces(services: Services, workspaces: Sequence[str]) -> None:
    """Make cards in workspaces whose files changed, unless everything is stopped."""
    if _may_begin(services):
        services.checks.run(workspaces=workspaces)


def _run_heartbeats(services: Services) -> None:
    """Make tasks of the heartbeats that are due, and cards of the tasks."""
    if services.heartbeat.make_due_tasks():
        services.checks.run()


def find_last_operator_activity(services: Services) -> datetime | None:
    """The time when the operator last wrote in a workspace, or talked with another agent whose transcripts are imported
    (SPEC 2.2)."""
    signs = (find_last_workspace_activity(services, services.workspaces), services.threads.find_last_growth())
    return max((sign for sign in signs if sign is not None), default=None)


def _find_workspace_of_items(services: Services, name: str) -> str | None:
    """The workspace that items of heartbeats name so, the first one if they name none. None if it is not known."""
    return (name_known_workspaces(services).get(name) or None) if name else next(iter(services.workspaces), "")


class AutomaticTraining:
    """Starts trainings that are due, and moves the current one on. A new training costs money, so it begins only while
    nothing at all is held; one in progress goes on during a pause."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reported_refusal = ""

    def is_due(self) -> bool:
        """Whether a training is in progress, or one may start by itself."""
        services = self._services
        if services.training.find_active_run() is not None:
            return True
        return (
            services.settings.current.training.automatic
            and not services.safety.kill_switch.find_autonomous_obstacle()
            and services.training.may_start(services.clock.now())
        )

    def step(self) -> None:
        """Start a training, or move the current one on. A refusal is reported once."""
        services = self._services
        if services.training.find_active_run() is None:
            try:
                services.training.begin()
            except Refusal as refusal:
                message = f"{refusal.message}; {refusal.fix}"
                if message != self._reported_refusal:
                    self._reported_refusal = message
                    services.report("training", message)
                return
        self._reported_refusal = ""
        services.training.step()


def _is_export_due(services: Services) -> bool:
    """Whether the daily batch is due: only with `dpoExportEnabled`."""
    return services.settings.current.dpo_export_enabled and services.exporter.is_due(services.clock.now())
