"""Agents, your decisions, leaders' guidance, memory's knowledge, and who observes sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.execution.runners.model.single_questions import MemoryModel
from engine.git.names import ProjectIds, top_folder
from engine.git.project_habits import deleted_files
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.guidance import Cascade
from engine.hierarchy.outcomes import GuidedSessions
from engine.hierarchy.profiles import Profiles, ProfileTexts
from engine.hierarchy.sharing import PostgresStore, Sharing
from engine.hierarchy.teaching import Teaching
from engine.learning.candidates.candidates import CandidateTexts
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.exporting import Exporter
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import Work
from engine.memory.knowledge import Knowledge
from engine.memory.summaries import PostgresSummaries, SummarySharing
from engine.memory.transcript_import import Importer, reply_pairs
from engine.model import Card, Doing, LeaderDecision, Refusal
from engine.model.base import may_guide
from engine.model.learnings import Correction
from engine.prediction.approvals import link_session
from engine.services import Overrides
from engine.storage.shared import SHARED_URL

if TYPE_CHECKING:
    from engine.services import Services


MAX_DECISIONS = 200
"""The latest decisions that are searched."""


def build_organisation(core: Services, overrides: Overrides) -> None:
    """Build agents, their files, decisions and guidance."""
    home, clock, randomness = core.home, core.clock, core.randomness
    core.agents = Agents(
        home.agents,
        cascade_config=home.data / "wisdom_cascade_config.json",
        settings=core.settings,
        database=core.database,
        activity=partial(_activity, core),
    )
    core.agent_files = AgentFiles(home.agents, core.database, core.agents.file_fault, core.report)
    core.decisions = Decisions(core.database, clock)
    core.exporter = Exporter(
        core.database,
        home.data,
        conversations=lambda: reply_pairs(core.memory.store),
        secrets=lambda: core.keys.secrets(),
    )
    url = shared_database(overrides)
    profiles = core.profiles = Profiles(
        core.database, core.agents, randomness=randomness, load_decisions=partial(_leader_decisions, core)
    )
    core.cascade = Cascade(core.agents, profiles, clock=clock)
    sharing = Sharing(core.database, profiles, core.agents, PostgresStore(url) if url else None)
    core.bubbles = Bubbles(core.database, core.agents, profiles, randomness=randomness, exchange=sharing.exchange)
    core.teaching = Teaching(core.database, core.agents, core.cascade, clock=clock)
    core.guided_sessions = GuidedSessions(
        core.database, profiles, clock=clock, ledger=core.ledger, find_deleted=deleted_files
    )


def _activity(core: Services) -> Mapping[str, Doing]:
    """The current work of each agent, and its totals."""
    states = {view.agent: (view.state.value, view.tokens) for view in core.sessions.running()}
    states |= {
        request.agent: ("waiting", states.get(request.agent, ("", 0))[1]) for request in core.permissions.waiting()
    }
    return {agent: Doing(*states.get(agent, ("idle", 0)), *totals) for agent, totals in core.sessions.totals().items()}


def _leader_decisions(core: Services, leaders: Sequence[str]) -> Mapping[str, Sequence[LeaderDecision]]:
    """Decisions that were made in sessions of leaders by the operator, or approved by the operator; newest first."""
    decisions: dict[str, list[LeaderDecision]] = {}
    for captured in core.knowledge.captures.entries(limit=MAX_DECISIONS):
        if captured.kind != "decision" or captured.agent not in leaders or captured.forgotten:
            continue
        if may_guide(captured.trust, approved=captured.approved_at is not None):
            decisions.setdefault(captured.agent, []).append(
                LeaderDecision(captured.id, captured.text, captured.at, captured.trust)
            )
    return decisions


def correction(core: Services, card_id: str) -> Correction | None:
    """The operator's edit of the prompt of a card before approving it; None when nothing was edited or there is no
    card."""
    about = card(core, card_id)
    correction_texts = None if about is None else core.cards.correction(card_id)
    if about is None or correction_texts is None:
        return None
    channel = about.assignment.channel
    return Correction(
        *correction_texts,
        about.agent,
        about.kind,
        channel,
        about.session_id or "",
        about.estimate,
        reach(core, channel),
    )


def reach(core: Services, channel: str) -> int:
    """The number of the latest decided cards on a channel, at least 1: how much work a rule of it concerns."""
    return max(1, sum(decision.channel == channel for decision in core.decisions.load_newest(MAX_DECISIONS)))


def card(core: Services, card_id: str) -> Card | None:
    """A card, None for work without one."""
    try:
        return core.cards.get(card_id)
    except Refusal:
        return None


def shared_database(overrides: Overrides) -> str:
    """The URL of the database that machines share, "" for none. A simulation shares nothing."""
    return "" if overrides.throw_away else os.environ.get(SHARED_URL, "")


def build_knowledge(core: Services, overrides: Overrides) -> None:
    """Build memory's knowledge and its sources, and register all observers of sessions."""
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
        files=core.agent_files,
        model=MemoryModel(core.settings, core.completions),
        report=core.report,
        secrets=core.keys.secrets,
    )
    learnt = core.learnings.texts
    texts = (ProfileTexts(core.database, core.profiles), learnt, CandidateTexts(core.database))
    core.knowledge.build_forgetting(texts, {"lrn": learnt.text_of})
    _build_memory_sources(core, overrides)
    _observe_sessions(core)


def _build_memory_sources(core: Services, overrides: Overrides) -> None:
    """Build the import of other agents' transcripts, and the exchange of summaries with other machines."""
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
    projects = ProjectIds()
    core.summary_sharing = SummarySharing(
        core.database,
        core.memory.store,
        PostgresSummaries(url) if url else None,
        origin=core.profiles.origin,
        projects=lambda: {workspace: projects.of(workspace) for workspace in core.workspaces},
        remember=core.memory.remember,
    )


def _observe_sessions(core: Services) -> None:
    core.sessions.observe_start(
        link_session,
        core.safety.session_started,
        core.tasks.session_started,
        core.knowledge.session_changed,
        core.learnings.session_changed,
    )
    core.sessions.observe_end(
        core.cards.session_ended,
        core.safety.session_ended,
        core.tasks.session_ended,
        core.calls.session_ended,
        core.permissions.session_ended,
        core.knowledge.session_changed,
        core.learnings.session_changed,
        lambda tx, view: tx.after_commit(core.autonomy.poke),  # its follow-up is made at once
    )
