"""Cards, the task board, and the cycle that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config.agents import AUTO
from engine.execution.launcher import Launcher
from engine.execution.runners.toolchains.projects import ProjectsFound, projects
from engine.git.github import GitHub
from engine.git.project_ids import top_folder
from engine.memory.meanings import Meanings
from engine.memory.threads import Threads
from engine.model import Assignment
from engine.overrides import Overrides
from engine.prediction import templates
from engine.prediction.approvals import Approvals
from engine.prediction.card_store import CardStore
from engine.prediction.cards import Cards
from engine.prediction.context import WorkspaceContext
from engine.prediction.context_reader import ContextReader, Sources
from engine.prediction.cycle import Predictions
from engine.prediction.hook import PredictorHook
from engine.prediction.kinds import HANDED_OVER, kind_of
from engine.prediction.routing import Placing, Router
from engine.prediction.signals import OurWrite
from engine.prediction.tasks import TaskBoard
from engine.prediction.templates.work import learned
from engine.prediction.twin import EmbeddedTwin
from engine.wiring.effects import learned_work

if TYPE_CHECKING:
    from engine.engine import Engine

WAITED = 10.0
"""Seconds that a prompt waits for its meaning; the embedder takes one or two to load."""

STAMP_SLACK = timedelta(milliseconds=1)
"""Files carry nanoseconds, instants microseconds."""


def build(core: Engine, launcher: Launcher, hook: PredictorHook, overrides: Overrides) -> None:
    """What is predicted and decided."""
    clock, randomness = core.clock, core.randomness
    core.meanings = Meanings(core.memory)
    core.embedded = EmbeddedTwin(core.feedback, meanings=core.meanings, calibrator=overrides.calibrator)
    placing = Placing(
        core.database, core.settings, embed=partial(core.memory.meanings, seconds=WAITED), agents=core.hierarchy.list
    )
    router = Router(core.settings, clock, randomness, placing.place)
    store = CardStore(core.database, clock, core.settings, safety=core.safety, history=core.feedback, facts=core.ledger)
    approvals = Approvals(store, launcher, core.embedded, flows=core.flows, secrets=core.keys.secrets)
    core.tasks = TaskBoard(core.database, randomness=randomness)
    core.talks = Threads(
        lambda: core.settings.current.memory.transcripts,
        clock,
        workspace_of=top_folder,
        ours=core.home.holds_worktree,
        secrets=core.keys.secrets,
    )
    sources = Sources(
        core.runs,
        core.tasks,
        core.sessions,
        ProjectsFound(clock, projects),
        github=GitHub(clock),
        talks=core.talks,
        learned=lambda workspace: [work.name for work in learned_work(core) if work.workspace in ("", workspace)],
        fixes=lambda workspace: core.adaptation.fixes(workspace),
        prose=partial(_takes_prose, launcher),
        landings=lambda workspace: core.changes.landed(workspace),
        # One disk, one card: in the first workspace.
        disk=lambda workspace: core.housekeeping.disk() if workspace in core.workspaces[:1] else None,
    )
    core.contexts = overrides.contexts or ContextReader(clock, core.settings, sources)
    others = core.twin.propose, hook.propose, lambda context: learned(context, learned_work(core))
    core.predictions = Predictions(
        store,
        approvals,
        router,
        core.embedded,
        randomness,
        contexts=partial(_read_contexts, core),
        workspaces=lambda: core.workspaces,
        propose=partial(templates.propose, others=others),
    )
    core.cards = Cards(store, approvals, core.predictions, router, randomness, reverse=core.changes.reverse)


def _takes_prose(launcher: Launcher, workspace: str) -> str:
    """The agent or model that what the repository asks for would go to, "" for none."""
    info = launcher.check(Assignment("?", kind_of(HANDED_OVER).channel, workspace, AUTO, None, {}))
    return info.by if info.takes else ""


def _follow_tasks(core: Engine) -> None:
    """Take in what the files of `tasksDir` say; what cannot be read is told, and the board stays as it is."""
    if not (folder := core.settings.current.tasks_dir):
        return
    try:
        for words in core.tasks.follow(Path(folder).expanduser(), core.workspaces):
            core.report("tasksDir", words)
    except (OSError, UnicodeDecodeError) as error:
        core.report("tasksDir", f"{folder} cannot be read: {error}; fix it, or: clawpy config set tasksDir ''")


def _read_contexts(core: Engine, workspaces: Sequence[str]) -> list[WorkspaceContext]:
    if not core.safety.kill_switch.stopped():
        core.heartbeat.pulse()  # what is due is a card of this very cycle, also of one that a verb asks for
    _follow_tasks(core)
    try:
        core.adaptation.catch_up()
    except Exception as error:  # cards that do not come of what was learnt come all the same
        core.report("adaptation", f"what happened was not weighed: {error}")
    last_input, _ = core.autonomy.presence.last()
    contexts = core.contexts.read_all(
        workspaces, last_input=last_input, ours={path: _ours(core, path) for path in workspaces}
    )
    for context in contexts:
        if context.silence is not None:
            core.autonomy.presence.seen(context.now - context.silence, f"your files changed in {context.workspace}")
    return [replace(context, first=context.workspace in core.workspaces[:1]) for context in contexts]


def last_sign(core: Engine, workspaces: Sequence[str]) -> datetime | None:
    """When anyone but us last wrote in these workspaces, None if nothing is known of it. Asks git."""
    return core.contexts.last_sign_of_life(
        workspaces, last_input=None, ours={path: _ours(core, path) for path in workspaces}
    )


def _ours(core: Engine, workspace: str) -> list[OurWrite]:
    """What our landings wrote there: no sign of the operator."""
    writes = []
    for path, mtime_ns in core.changes.written_by_us(workspace).items():
        at = datetime.fromtimestamp(mtime_ns / 1e9, UTC)
        writes.append(OurWrite(path, at - STAMP_SLACK, at + STAMP_SLACK))
    return writes
