"""The verbs of the organisation, of tasks and of settings: agents, tasks, config (SPEC 9.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import find, guiding, wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.config_agents import ACP

if TYPE_CHECKING:
    from engine.config import Settings
    from engine.engine import Engine
    from engine.model import FoundAgent


def agents(engine: Engine, arguments: Arguments) -> Document:
    """list, show, add, move, retire, restore, tier; serve: let a coding agent of the operator's serve a channel."""
    action = arguments.choice("action", ("list", "show", "add", "move", "retire", "restore", "tier", "serve"), "list")
    people = engine.hierarchy
    if action == "list":
        left = [one.id for one in people.retired()]
        coding = {"coding": _coding(engine), "codingSupported": list(engine.hiring.supported)}
        return {
            "agents": [wire.agent(one) for one in people.list()],
            **coding,
            "retired": left,
            "problems": people.problems(),
        }
    if action == "serve":
        channel, name = arguments.needed("channel"), arguments.needed("id")
        engine.hiring.hire(name, channel)
        return {"channel": channel, "coding": [one for one in _coding(engine) if one["name"] == name]}
    agent_id = arguments.needed("id")
    if action == "show":
        return _shown(engine, agent_id)
    if action == "retire":
        return _shown(engine, people.retire(agent_id))
    if action == "restore":
        agent_id = people.restore(agent_id).id
    if action == "add":
        people.add(
            agent_id,
            reports_to=arguments.needed("reportsTo"),
            title=arguments.text("title"),
            archetype=arguments.text("archetype"),
            domain=arguments.text("domain"),
        )
    if action == "move":
        people.move(agent_id, arguments.needed("reportsTo"))
    if action == "tier":
        guiding.assign_tier(engine, agent_id, arguments)
    document = _shown(engine, agent_id)
    document.pop("soul", None)
    return document


def _shown(engine: Engine, agent_id: str) -> Document:
    """All about one agent; of one that is broken or retired what can be told."""
    people = engine.hierarchy
    retired = next((one for one in people.retired() if one.id == agent_id), None)
    one = retired or people.get(agent_id)
    folder = engine.home.agents / ".retired" / one.id if retired else engine.home.agents / one.id
    document: Document = {"agent": wire.agent(one), "archetype": one.archetype, "folder": str(folder)}
    if retired or one.broken:
        return document | {"chain": [], "chainEnd": "", "retired": retired is not None}
    lineage, channels = people.lineage(agent_id), engine.settings.current.channels
    return document | {
        "chain": [leader.id for leader in lineage.leaders],
        "chainTiers": [leader.tier for leader in lineage.leaders],
        "chainEnd": lineage.chain.words,
        "serves": [
            {"channel": name, "runner": line.runner, "fallback": list(line.fallback), "model": line.model}
            for name in one.channels
            if (line := channels.get(name))
        ],
        "tools": people.tools(agent_id).model_dump(mode="json"),
        "soul": people.soul(agent_id),
    }


def _coding(engine: Engine) -> list[Document]:
    """The coding agents that are installed or in the settings, and the channels they serve."""
    return [_coding_agent(one, engine.settings.current) for one in engine.hiring.known()]


def _coding_agent(one: FoundAgent, settings: Settings) -> Document:
    return {
        "name": one.name,
        "title": one.title,
        "command": list(one.command),
        "hosts": list(one.hosts),
        "login": one.login,
        "missing": one.missing,
        "configured": one.name in settings.acp,
        "serves": [channel for channel, line in settings.channels.items() if line.runner == f"{ACP}{one.name}"],
    }


def tasks(engine: Engine, arguments: Arguments) -> Document:
    """list, add, done."""
    action = arguments.choice("action", ("list", "add", "done"), "list")
    if action == "add":
        channel = find.channel(engine, arguments.text("channel")) or ""
        one = engine.tasks.add(
            arguments.needed("title"),
            channel=channel,
            workspace=arguments.text("workspace"),
            needs=arguments.texts("needs"),
        )
        return {"task": wire.task(one)}
    if action == "done":
        return {"task": wire.task(engine.tasks.done(arguments.needed("id")))}
    found = engine.tasks.list(
        workspace=arguments.maybe("workspace"),
        state=arguments.maybe("state"),
        limit=int(arguments.number("limit", 100, least=1, most=1000)),
    )
    return {"tasks": [wire.task(one) for one in found]}


def config(engine: Engine, arguments: Arguments) -> Document:
    """get (one key or all), set, unset."""
    action = arguments.choice("action", ("get", "set", "unset"), "get")
    key = arguments.text("key")
    settings = engine.settings
    if action == "get" and not key:
        return {"settings": settings.document(), "file": str(settings.file)}
    if action == "set":
        settings.set(key, arguments.anything("value"))
    value = settings.unset(key) if action == "unset" else settings.get(key)
    return {
        "key": key,
        "value": value,
        "origin": settings.origin(key),
        "accepted": settings.accepted(key),
    }
