"""Acting by itself: heartbeats, cycles, and the jobs of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from engine.autonomy.acting import Acting
from engine.autonomy.autonomy import CARDS, Autonomy
from engine.autonomy.heartbeat import PULSE, PULSE_EVERY, Heartbeat, Page
from engine.autonomy.schedule import Job
from engine.execution.launcher import Launcher
from engine.model import Refusal
from engine.storage.consumers import StalledConsumers
from engine.wiring.prediction import last_sign

if TYPE_CHECKING:
    from engine.services import Services

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

DIGEST_EVERY = timedelta(minutes=10)
"""So often records are digested, where there are new ones (SPEC 5.3)."""

KEPT_LOOK = timedelta(hours=1)
"""So often it is looked which memories were kept long enough (SPEC 4.3)."""

DAYS_LOOK = timedelta(hours=1)
"""So often rows go that were kept for the days of the settings (SPEC 4.2)."""


def build(core: Services, launcher: Launcher, *, follow_gateway: Callable[[], None]) -> None:
    """What happens without being asked."""
    clock = core.clock
    core.heartbeat = Heartbeat(core.database, clock, board=core.tasks, pages=partial(_heartbeat_pages, core))
    training = _ByItself(core)

    def goes_on() -> bool:
        return core.safety.kill_switch.stopped() is None

    core.autonomy = Autonomy(
        core.database,
        core.settings,
        clock,
        holds=core.safety.kill_switch,
        acting=Acting(
            core.database,
            core.cards,
            core.predictions,
            settings=core.settings,
            history=core.feedback,
            launcher=launcher,
            quiet=lambda: core.autonomy.quiet(),
            now=clock.now,
        ),
        housekeeping=(
            core.cards.expire_due,
            core.cards.refresh_runners,
            core.predictions.follow_up,
            core.cards.follow_landings,
            core.knowledge.housekeeping,
            core.learnings.housekeeping,
            follow_gateway,
            core.wisdom.follow,
            core.adaptation.reflect,
            core.trials.catch_up,
            _cards_of_new_tasks(core),
            partial(_look_at_new_workspaces, core),
        ),
        jobs=(
            Job(PULSE, lambda: PULSE_EVERY, partial(_pulse, core), goes_on),
            Job("wisdom", lambda: core.wisdom.interval, core.wisdom.round, goes_on),
            Job("summaries", lambda: SHARE_EVERY, core.summaries.exchange, core.summaries.wanted, kept=False),
            Job(
                "nightly",
                lambda: NIGHT_LOOK,
                core.knowledge.nightly.run_due,
                core.knowledge.nightly.has_work,
                kept=False,
            ),
            Job("retention", lambda: KEPT_LOOK, core.memory.housekeeping, kept=False),
            Job("days", lambda: DAYS_LOOK, core.retention.round, kept=False),
            Job("readers", lambda: DAYS_LOOK, StalledConsumers(core.ledger, clock).check, kept=False),
            Job("adaptation", lambda: DIGEST_EVERY, core.adaptation.digest, core.adaptation.wanted, kept=False),
            Job("training", lambda: TRAINING_LOOK, training.step, training.due, kept=False),
            Job("export", lambda: EXPORT_LOOK, partial(_export, core), partial(_export_due, core), kept=False),
            Job("transcripts", lambda: IMPORT_EVERY, core.importer.run, partial(_imports, core)),
        ),
        last_sign=partial(last_heard, core),
    )


def _cards_of_new_tasks(core: Services) -> Callable[[], None]:
    """Makes cards where a task was added since it was last called: within half a minute, not with the next cycle."""

    def newest() -> int:
        return next((fact.id for fact in core.ledger.latest(1, kinds=("TaskAdded",))), 0)

    last_seen = newest()

    def look() -> None:
        nonlocal last_seen
        if (added := newest()) > last_seen and core.safety.kill_switch.stopped() is None:
            last_seen = added
            core.predictions.run_cycle()

    return look


def _look_at_new_workspaces(core: Services) -> None:
    """Make cards where no cycle has looked yet: within half a minute, not with the next cycle, unless that is due."""
    if core.safety.kill_switch.stopped() is not None or core.autonomy.schedule.due(CARDS) <= core.clock.now():
        return
    looked = core.predictions.last_checked()
    if new := [workspace for workspace in core.workspaces if workspace not in looked]:
        core.predictions.run_cycle(workspaces=new)


def _pulse(core: Services) -> None:
    """Make tasks of what is due, and cards of them at once."""
    if core.heartbeat.pulse():
        core.predictions.run_cycle()


def last_heard(core: Services) -> datetime | None:
    """When the operator last wrote in a workspace, or talked with another agent where he opted in (SPEC 2.2)."""
    signs = (last_sign(core, core.workspaces), core.talks.grew())
    return max((sign for sign in signs if sign is not None), default=None)


def _heartbeat_pages(core: Services) -> tuple[list[Page], list[str]]:
    pages, unread = core.hierarchy.heartbeats()
    about = next(iter(core.workspaces), "")
    return [Page(page.agent, page.text, page.written, page.channel, about) for page in pages], unread


def _imports(core: Services) -> bool:
    """Whether transcripts of other agents are imported: only where the settings name some."""
    return bool(core.settings.current.memory.transcripts)


class _ByItself:
    """Trainings that begin by themselves, and runs that are brought on."""

    def __init__(self, core: Services) -> None:
        self._core = core
        self._said = ""

    def due(self) -> bool:
        """Whether a run is under way, or one is to begin by itself."""
        core = self._core
        if core.training.active() is not None:
            return True
        return (
            core.settings.current.training.automatic
            and not core.safety.kill_switch.held()
            and core.training.wanted(core.clock.now())
        )

    def step(self) -> None:
        """Begin one, or bring the one under way on. What stands in the way is told once, however often it is tried."""
        core = self._core
        if core.training.active() is None:
            try:
                core.training.begin()
            except Refusal as refusal:
                message = f"{refusal.message}; {refusal.fix}"
                if message != self._said:
                    self._said = message
                    core.report("training", message)
                return
        self._said = ""
        core.training.step()


def _export_due(core: Services) -> bool:
    """Whether the daily batch is to be brought out: only where `dpoExportEnabled` says so."""
    return core.settings.current.dpo_export_enabled and core.exporter.due(core.clock.now())


def _export(core: Services) -> None:
    core.exporter.batch()
