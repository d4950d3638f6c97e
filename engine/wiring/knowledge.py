"""What is known, remembered, shared, and who watches sessions for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.execution.runners.model.completions import MemoryModel
from engine.frozen import frozen
from engine.git.project_ids import ProjectIds, top_folder
from engine.learning.candidates.candidates import CandidateTexts
from engine.memory.importing import Importer
from engine.memory.knowledge import Knowledge
from engine.memory.summaries import PostgresSummaries, SummarySharing
from engine.memory.work import Work
from engine.model import SessionView
from engine.overrides import Overrides
from engine.storage.database import Transaction
from engine.wiring.organisation import shared_database

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine, overrides: Overrides) -> None:
    """Memory's knowledge, and the observers of sessions."""
    core.knowledge = Knowledge(
        core.home,
        core.memory,
        core.ledger,
        work=Work(
            get=core.sessions.get,
            transcript=core.sessions.transcript,
            continues=core.sessions.continues,
            running=core.sessions.running,
            task=core.tasks.get,
            needing=core.tasks.needing,
            change=core.changes.for_session,
        ),
        files=core.files,
        model=MemoryModel(core.settings, core.completions),
        report=core.report,
        secrets=core.keys.secrets,
    )
    learnt = core.learnings.texts
    others = (core.wisdom.texts, learnt, CandidateTexts(core.database))
    core.knowledge.forget_in(others, {"lrn": learnt.text_of})
    core.memory.know(
        captures=core.knowledge.captures,
        graph=core.knowledge.graph,
        para=core.knowledge.para,
        drafts=core.knowledge.drafts,
        forgetting=core.knowledge.forgetting,
        sources=core.knowledge.sources,
        layers=core.knowledge.layers,
    )
    core.importer = Importer(
        core.database,
        core.memory.remember,
        lambda: core.settings.current.memory.transcripts,
        workspace_of=top_folder,
        ours=core.home.holds_worktree,
        secrets=core.keys.secrets,
        report=core.report,
    )
    url = shared_database(overrides)
    shared_summaries = PostgresSummaries(url) if url else None
    projects = ProjectIds()
    core.summaries = SummarySharing(
        core.database,
        core.memory.store,
        lambda: shared_summaries,
        origin=core.wisdom.origin,
        projects=lambda: {workspace: projects.of(workspace) for workspace in core.workspaces},
        remember=core.memory.add,
    )
    watching = (core.cards, core.safety, core.tasks, core.calls, core.permissions, core.knowledge, core.learnings)
    for observer in (*watching, _WhenOver(lambda: core.autonomy.poke())):
        core.sessions.observe(observer)


@frozen
class _WhenOver:
    """Observer of sessions: has the housekeeping come round as soon as one is over, for its follow-up."""

    poke: Callable[[], None]

    def session_started(self, tx: Transaction, view: SessionView) -> None:
        pass

    def session_ended(self, tx: Transaction, view: SessionView, result: object) -> None:
        tx.after_commit(self.poke)
