"""Builds the organisation of agents with their guidance, and the stores of the operator's decisions.

Lambdas stand for services that are built later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.guidance import Cascade
from engine.hierarchy.guided_sessions import GuidedSessions
from engine.hierarchy.profiles import Profiles
from engine.hierarchy.sharing import ProfileSharing
from engine.hierarchy.teaching import Teaching
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.exporting import Exporter
from engine.memory.agent_files import AgentFiles
from engine.memory.transcript_import import reply_pairs
from engine.model import AgentActivity, LeaderDecision
from engine.model.base import may_guide
from engine.services import Overrides
from engine.wiring.memory import shared_database

if TYPE_CHECKING:
    from engine.services import Services


MAX_DECISIONS = 200
"""Number of the newest decisions that are searched."""


def build_organisation(services: Services, overrides: Overrides) -> None:
    """Build the agents, their files and guidance, and the decisions with their export."""
    home, clock, randomness = services.home, services.clock, services.randomness
    services.agents = Agents(
        home.agents,
        cascade_config=home.data / "wisdom_cascade_config.json",
        settings=services.settings,
        database=services.database,
        read_activity=partial(_read_activity, services),
    )
    services.agent_files = AgentFiles(
        home.agents, services.database, services.agents.find_file_problem, services.report
    )
    services.decisions = Decisions(services.database, clock)
    services.exporter = Exporter(
        services.database,
        home.data,
        conversations=lambda: reply_pairs(services.memory.store),
        secrets=lambda: services.keys.secrets(),
    )
    profiles = services.profiles = Profiles(
        services.database, services.agents, randomness=randomness, load_decisions=partial(_leader_decisions, services)
    )
    services.cascade = Cascade(services.agents, profiles, clock=clock)
    sharing = ProfileSharing(services.database, profiles, services.agents, shared_database(overrides))
    services.bubbles = Bubbles(
        services.database, services.agents, profiles, randomness=randomness, exchange=sharing.exchange
    )
    services.teaching = Teaching(services.database, services.agents, services.cascade, clock=clock)
    services.guided_sessions = GuidedSessions(services.database, profiles, clock=clock, ledger=services.ledger)


def _read_activity(services: Services) -> Mapping[str, AgentActivity]:
    """The activity of each agent that worked at least once."""
    running = {view.agent: view for view in services.sessions.running()}
    waiting = {request.agent for request in services.permissions.waiting()}
    activity_by_agent = {}
    for agent, (sessions, tokens, cost) in services.sessions.totals().items():
        activity = AgentActivity(sessions=sessions, total_tokens=tokens, total_cost=cost)
        if agent in running:
            activity = replace(activity, state=running[agent].state.value, current_tokens=running[agent].tokens)
        activity_by_agent[agent] = replace(activity, state="waiting") if agent in waiting else activity
    return activity_by_agent


def _leader_decisions(services: Services, leaders: Sequence[str]) -> Mapping[str, Sequence[LeaderDecision]]:
    """Decisions that were made in sessions of leaders by the operator, or approved by the operator; newest first."""
    decisions: dict[str, list[LeaderDecision]] = {}
    for captured in services.knowledge.captures.entries(limit=MAX_DECISIONS):
        if captured.kind != "decision" or captured.agent not in leaders or captured.forgotten:
            continue
        if may_guide(captured.trust, approved=captured.approved_at is not None):
            decisions.setdefault(captured.agent, []).append(
                LeaderDecision(captured.id, captured.text, captured.at, captured.trust)
            )
    return decisions
