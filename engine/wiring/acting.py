"""Acting without being asked: heartbeats, cycles, and the jobs of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from engine.autonomy.autonomous_runs import AutonomousRuns
from engine.autonomy.autonomy import CARDS, Autonomy
from engine.autonomy.heartbeat import PULSE, PULSE_EVERY, Heartbeat, HeartbeatPage
from engine.autonomy.schedule import Job
from engine.execution.sessions import Sessions
from engine.hierarchy.teaching import run_round
from engine.model import Refusal
from engine.wiring.prediction import last_sign

if TYPE_CHECKING:
    from engine.services import Services

SHARE_EVERY = timedelta(minutes=5)
"""Summaries are exchanged with other machines, if they share any."""

NIGHT_CHECK_EVERY = timedelta(minutes=10)
"""Checks whether the nightly work of memory is due (SPEC 4.8)."""

IMPORT_EVERY = timedelta(hours=1)
"""Transcripts of other agents are read, if the settings name some."""

TRAINING_CHECK_EVERY = timedelta(minutes=5)
"""Moves a training on, or checks whether the next one is due (SPEC 8.4)."""

EXPORT_CHECK_EVERY = timedelta(hours=1)
"""Checks whether the daily batch of preference pairs is due (SPEC 8.3)."""

DIGEST_EVERY = timedelta(minutes=10)
"""New records are searched for candidates (SPEC 5.3)."""

RETENTION_CHECK_EVERY = timedelta(hours=1)
"""Deletes memories whose retention has ended (SPEC 4.3)."""

ROW_CHECK_EVERY = timedelta(hours=1)
"""Deletes rows older than the settings keep (SPEC 4.2)."""


def build(core: Services, launcher: Sessions, *, follow_gateway: Callable[[], None]) -> None:
    """Build the heartbeat, the autonomy and its jobs."""
    clock = core.clock
    core.heartbeat = Heartbeat(core.database, clock, board=core.tasks, pages=partial(_heartbeat_pages, core))
    core.autonomy = Autonomy(
        core.database,
        core.settings,
        clock,
        kill_switch=core.safety.kill_switch,
        runs=AutonomousRuns(
            core.database,
            core.cards,
            core.predictions,
            settings=core.settings,
            history=core.decisions,
            launcher=launcher,
            quiet=lambda: core.autonomy.quiet(),
        ),
        housekeeping=_housekeeping(core, follow_gateway),
        jobs=_jobs(core),
        last_sign=partial(last_heard, core),
    )


def _housekeeping(core: Services, follow_gateway: Callable[[], None]) -> tuple[Callable[[], object], ...]:
    """The functions that are called every half minute."""
    return (
        core.cards.expire_due,
        core.cards.refresh_runners,
        core.predictions.follow_up,
        core.cards.follow_landings,
        core.knowledge.housekeeping,
        core.learnings.housekeeping,
        follow_gateway,
        core.guided_sessions.catch_up,
        core.adaptation.read_ledger,
        core.trials.catch_up,
        _cards_of_new_tasks(core),
        partial(_check_new_workspaces, core),
    )


def _jobs(core: Services) -> tuple[Job, ...]:
    """The scheduled jobs besides the cycles."""
    training = _AutomaticTraining(core)

    def goes_on() -> bool:
        return not core.safety.kill_switch.stop_reason()

    return (
        Job(PULSE, lambda: PULSE_EVERY, partial(_run_heartbeats, core), goes_on),
        Job(
            "guidance",
            lambda: timedelta(seconds=core.agents.config.current.m2_interval_seconds),
            lambda: run_round(core.bubbles, core.guided_sessions, core.teaching),
            goes_on,
        ),
        Job(
            "summaries",
            lambda: SHARE_EVERY,
            core.summary_sharing.exchange,
            core.summary_sharing.is_enabled,
            is_stored=False,
        ),
        Job(
            "nightly",
            lambda: NIGHT_CHECK_EVERY,
            core.knowledge.nightly.run_due,
            core.knowledge.nightly.has_work,
            is_stored=False,
        ),
        Job("retention", lambda: RETENTION_CHECK_EVERY, core.memory.housekeeping, is_stored=False),
        Job("days", lambda: ROW_CHECK_EVERY, core.retention.round, is_stored=False),
        Job("adaptation", lambda: DIGEST_EVERY, core.adaptation.run_round, is_stored=False),
        Job("training", lambda: TRAINING_CHECK_EVERY, training.step, training.due, is_stored=False),
        Job(
            "export",
            lambda: EXPORT_CHECK_EVERY,
            partial(_export, core),
            partial(_export_due, core),
            is_stored=False,
        ),
        Job("transcripts", lambda: IMPORT_EVERY, core.importer.run, partial(_imports_transcripts, core)),
    )


def _cards_of_new_tasks(core: Services) -> Callable[[], None]:
    """A function that makes cards when a task was added since its last call, instead of with the next cycle."""

    def newest() -> int:
        return next((fact.id for fact in core.ledger.latest(1, kinds=("TaskAdded",))), 0)

    last_seen = newest()

    def look() -> None:
        nonlocal last_seen
        if (added := newest()) > last_seen and not core.safety.kill_switch.stop_reason():
            last_seen = added
            core.predictions.run_cycle()

    return look


def _check_new_workspaces(core: Services) -> None:
    """Make cards in workspaces that no cycle has read yet, unless the next cycle is due anyway."""
    if core.safety.kill_switch.stop_reason() or core.autonomy.schedule.due(CARDS) <= core.clock.now():
        return
    looked = core.predictions.last_checked()
    if new := [workspace for workspace in core.workspaces if workspace not in looked]:
        core.predictions.run_cycle(workspaces=new)


def _run_heartbeats(core: Services) -> None:
    """Make tasks of the heartbeats that are due, and cards of the tasks."""
    if core.heartbeat.pulse():
        core.predictions.run_cycle()


def last_heard(core: Services) -> datetime | None:
    """The time when the operator last wrote in a workspace, or talked with another agent whose transcripts are imported
    (SPEC 2.2)."""
    signs = (last_sign(core, core.workspaces), core.threads.grew())
    return max((sign for sign in signs if sign is not None), default=None)


def _heartbeat_pages(core: Services) -> tuple[list[HeartbeatPage], list[str]]:
    pages, unread = core.agents.heartbeats()
    about = next(iter(core.workspaces), "")
    return [HeartbeatPage(page.agent, page.text, page.written, page.channel, about) for page in pages], [*unread]


def _imports_transcripts(core: Services) -> bool:
    """Whether transcripts of other agents are imported."""
    return bool(core.settings.current.memory.transcripts)


class _AutomaticTraining:
    """Starts trainings that are due, and moves the current one on."""

    def __init__(self, core: Services) -> None:
        self._core = core
        self._reported_refusal = ""

    def due(self) -> bool:
        """Whether a training is in progress, or one may start by itself."""
        core = self._core
        if core.training.active() is not None:
            return True
        return (
            core.settings.current.training.automatic
            and not core.safety.kill_switch.block_reason()
            and core.training.may_start(core.clock.now())
        )

    def step(self) -> None:
        """Start a training, or move the current one on. A refusal is reported once."""
        core = self._core
        if core.training.active() is None:
            try:
                core.training.begin()
            except Refusal as refusal:
                message = f"{refusal.message}; {refusal.fix}"
                if message != self._reported_refusal:
                    self._reported_refusal = message
                    core.report("training", message)
                return
        self._reported_refusal = ""
        core.training.step()


def _export_due(core: Services) -> bool:
    """Whether the daily batch is due: only with `dpoExportEnabled`."""
    return core.settings.current.dpo_export_enabled and core.exporter.is_due(core.clock.now())


def _export(core: Services) -> None:
    core.exporter.export_batch()
