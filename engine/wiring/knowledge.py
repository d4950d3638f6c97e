"""What is known, remembered, shared, and who watches sessions for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.adaptation.forgetting import CandidateTexts
from engine.adapters import Diaries, MemoryModel, OurFolders, Projects, WhenOver, Work, top_folder
from engine.memory.knowledge import Knowledge
from engine.memory.summaries import SummarySharing
from engine.memory.summaries_postgres import PostgresSummaries
from engine.stand_ins import StandIns
from engine.wiring.organisation import shared_database

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine, stand_ins: StandIns) -> None:
    """Memory's knowledge, and the observers of sessions."""
    home, clock = core.home, core.clock
    core.knowledge = Knowledge(
        home,
        core.database,
        clock,
        memory=core.memory,
        ledger=core.ledger,
        work=Work(core.sessions, core.tasks),
        changes=core.changes,
        runs=core.runs,
        diaries=Diaries(core.files),
        report=core.report,
        secrets=core.keys.secrets,
        transcripts=lambda: core.settings.current.memory.transcripts,
        workspace_of=top_folder,
        ours=OurFolders(home.worktrees),
        model=MemoryModel(core.settings, core.completions),
        others=(
            core.wisdom.texts,
            core.learnings.texts,
            CandidateTexts(core.database),
        ),
        made=(core.learnings.texts,),
        named={"lrn": core.learnings.texts.text_of},
    )
    core.memory.know(core.knowledge)
    url = shared_database(stand_ins)
    shared_summaries = PostgresSummaries(url) if url else None
    projects = Projects()
    core.summaries = SummarySharing(
        core.database,
        core.memory.store,
        lambda: shared_summaries,
        origin=core.wisdom.origin,
        projects=lambda: {workspace: projects.of(workspace) for workspace in core.workspaces},
        remember=core.memory.add,
        gone=core.memory.gone,
    )
    watching = (core.cards, core.safety, core.tasks, core.calls, core.permissions, core.knowledge, core.learnings)
    for observer in (*watching, WhenOver(lambda: core.autonomy.poke())):
        core.sessions.observe(observer)
