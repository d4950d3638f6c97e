"""Operations on the organisation (SPEC 1): agents and the tasks of their channels (SPEC 2), guidance, profile, and
bubbles, which are findings.

An agent here is a folder with `soul.md`; a coding agent is a program that may serve a channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from engine.api.documents import Document, document
from engine.api.operations import (
    Limit,
    NonEmptyText,
    Text,
    operation,
    quiet_operation,
    require_argument,
    require_channel,
)
from engine.autonomy.heartbeat import find_heartbeat_problems
from engine.config import ACP_PREFIX
from engine.hierarchy.profile_text import format_versioned_profile
from engine.model import AgentView, BubbleState, Refusal

if TYPE_CHECKING:
    from engine.services import Services


@operation
def agents(
    engine: Services,
    action: Literal["list", "show", "add", "move", "retire", "restore", "tier", "serve"] = "list",
    id: Text = "",
    reports_to: Text = "",
    title: Text = "",
    archetype: Text = "",
    domain: Text = "",
    channel: Text = "",
    tier: Any = None,
) -> Document:
    """List, show, add, move, retire or restore agents; set a tier; let a coding agent serve a channel."""
    if action == "list":
        return _make_agents_document(engine)
    require_argument("id", id)
    match action:
        case "serve":
            return _serve_channel(engine, require_argument("channel", channel), id)
        case "show":
            return _make_agent_document(engine, id)
        case "retire":
            return _make_agent_document(engine, engine.agents.retire(id))
        case "restore":
            id = engine.agents.restore(id).id
        case "add":
            leader = require_argument("reportsTo", reports_to)
            engine.agents.add(id, reports_to=leader, title=title, archetype=archetype, domain=domain)
        case "move":
            engine.agents.move(id, require_argument("reportsTo", reports_to))
        case "tier":
            engine.agents.assign_tier(id, _parse_tier(tier))
    reply = _make_agent_document(engine, id)
    reply.pop("soul", None)
    return reply


@quiet_operation
def guidance(engine: Services, id: NonEmptyText, reports_to: Text = "") -> Document:
    """The guidance in the next prompt of an agent; with `reportsTo` also the guidance it would have under that
    leader."""
    if reports_to:
        preview = engine.cascade.preview_move(id, reports_to)
        return {**document(preview.before), "moved": document(preview.after)}
    reply: Document = {
        **document(engine.cascade.guidance(id)),
        "teaching": document(engine.teaching.describe_state(id)),
    }
    return reply if reply["hops"] else {**reply, "profile": document(engine.profiles.read_all([id])[id])}


@operation
def profile(
    engine: Services, id: NonEmptyText, text: Text | None = None, yes: bool = False, undo: bool = False
) -> Document:
    """The profile of a leader as a text to edit; with `text` what that would change, which `yes` saves. `undo` reverses
    the last save."""
    if undo:
        return {"leader": id, "text": format_versioned_profile(engine.profiles.undo(id)), "undone": True}
    present_profile = engine.profiles.read(id)
    reply = {"leader": id, "text": format_versioned_profile(present_profile)}
    if text is None:
        return reply
    edits = engine.profiles.parse_edits(present_profile, text)
    preview = engine.cascade.preview_edits(id, edits)
    if yes and edits:
        engine.profiles.edit(id, edits)
    return reply | {
        "edits": document(edits),
        "fromSoul": list(preview.from_soul),
        "prompts": [{"agents": list(change.agents), "changes": list(change.lines)} for change in preview.changes],
        "saved": yes and bool(edits),
    }


@operation
def bubbles(
    engine: Services,
    action: Literal["list", "flush", "approve"] = "list",
    id: Text = "",
    state: Literal["queued", "refused", "flushed", ""] = "",
    agent: Text = "",
    limit: Limit = 50,
) -> Document:
    """List findings (of a state or agent), send queued ones up, or approve one that quotes others."""
    if action == "flush":
        engine.learnings.catch_up()  # so that learnings of the last seconds go up too
        report = engine.bubbles.flush()
        return {"flushed": document(report.flushed), "waiting": report.waiting, "cloudSyncFailure": report.failed}
    if action == "approve":
        return {"bubbles": [document(engine.bubbles.approve(require_argument("id", id)))]}
    findings = engine.bubbles.list_bubbles(state=BubbleState(state) if state else None, agent=agent, limit=limit)
    return {"bubbles": document(findings)}


@operation
def tasks(
    engine: Services,
    action: Literal["list", "add", "done"] = "list",
    id: Text = "",
    title: Text = "",
    channel: Text | None = None,
    workspace: Text | None = None,
    needs: Sequence[str] = (),
    state: Literal["open", "running", "done", "failed"] | None = None,
    limit: Limit = 100,
) -> Document:
    """List tasks, add one, or mark one done."""
    if action == "add":
        channel, title = require_channel(engine, channel), require_argument("title", title)
        task = engine.tasks.add(title, channel=channel or "", workspace=workspace or "", needs=list(needs))
        return {"task": document(task)}
    if action == "done":
        return {"task": document(engine.tasks.finish(require_argument("id", id)))}
    found_tasks = engine.tasks.list(workspace=workspace, state=state, limit=limit + 1)
    return {"tasks": document(found_tasks[:limit]), "more": len(found_tasks) > limit}


def _make_agents_document(engine: Services) -> Document:
    """All agents, the coding agents, and the problems of the organisation's files."""
    agents = engine.agents
    return {
        "agents": document(agents.list_agents()),
        "coding": _list_coding_agents(engine),
        "codingSupported": list(engine.channel_setup.supported_agents),
        "retired": [agent.id for agent in agents.list_retired()],
        "problems": [*agents.find_problems(), *find_heartbeat_problems(*agents.read_heartbeats())],
    }


def _serve_channel(engine: Services, channel: str, name: str) -> Document:
    """Let the coding agent `name` serve a channel."""
    engine.channel_setup.assign_agent(name, channel)
    return {"channel": channel, "coding": [agent for agent in _list_coding_agents(engine) if agent["name"] == name]}


def _parse_tier(value: object) -> int | None:
    """The tier, or None for `auto`: then the other rules decide (SPEC 1.2)."""
    if value == "auto":
        return None
    try:
        return int(str(value))
    except ValueError as error:
        raise Refusal("bad_tier", f"{value!r} is not a tier", "a whole number from 1 to 5, or auto") from error


def _make_agent_document(engine: Services, agent_id: str) -> Document:
    """An agent with its chain of leaders, and fewer fields if it is broken or retired. One that works comes before a
    retired one of the same id."""
    agents = engine.agents
    is_retired = agent_id not in [agent.id for agent in agents.list_agents()]
    retired = next((agent for agent in agents.list_retired() if is_retired and agent.id == agent_id), None)
    agent = retired or agents.get(agent_id)
    folder = engine.home.agents / ".retired" / agent.id if retired else engine.home.agents / agent.id
    reply: Document = {"agent": document(agent), "archetype": agent.archetype, "folder": str(folder)}
    if retired or agent.broken:
        return reply | {"chain": [], "chainEnd": "", "retired": retired is not None}
    lineage = agents.find_lineage(agent_id)
    lines = find_heartbeat_problems(*agents.read_heartbeats())
    problems = [line for line in lines if line.startswith(f"agents/{agent_id}/")]
    try:
        soul = agents.read_soul(agent_id)
    except Refusal as refusal:
        soul, problems = "", [refusal.message, *problems]
    return reply | {
        "chain": [leader.id for leader in lineage.leaders],
        "chainTiers": [leader.tier for leader in lineage.leaders],
        "chainEnd": lineage.end,
        "serves": _list_served_channels(engine, agent),
        "tools": agents.read_tools(agent_id).model_dump(mode="json"),
        "problems": problems,
        "soul": soul,
    }


def _list_served_channels(engine: Services, agent: AgentView) -> list[Document]:
    channels = engine.settings.current.channels
    return [
        {"channel": name, "runner": channel.runner, "fallback": list(channel.fallback), "model": channel.model}
        for name in agent.channels
        if (channel := channels.get(name))
    ]


def _list_coding_agents(engine: Services) -> list[Document]:
    """Coding agents that are installed or configured, and the channels they serve."""
    settings = engine.settings.current
    return [
        document(agent)
        | {
            "configured": agent.name in settings.acp,
            "serves": [
                name for name, channel in settings.channels.items() if channel.runner == f"{ACP_PREFIX}{agent.name}"
            ],
        }
        for agent in engine.channel_setup.list_agents()
    ]
