"""Reads what the hierarchy screen shows of an agent, or of the whole organisation (SPEC 1)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from clawpy_console import formats
from clawpy_console.fields import Field, present_fields
from clawpy_console.fields.agent import agent_fields, problem_fields
from clawpy_console.screens.hierarchy.tree import OWNER
from engine import dispatch

if TYPE_CHECKING:
    from engine import Engine

MAX_ITEMS = 200
"""Maximum number of findings, and of sessions, of an agent that are listed."""


def read_agent(engine: Engine, id: str) -> dict[str, Any]:
    """The content of each tab of an agent or of the owner. Blocking. Raises `Refusal` `unknown_agent`."""
    if id == OWNER:
        queued = dispatch(engine, "bubbles", {"state": "queued", "limit": MAX_ITEMS})["bubbles"]
        return {"id": id, "who": organisation_fields(engine), "findings": queued}
    agent = dispatch(engine, "agents", {"action": "show", "id": id})
    detail: dict[str, Any] = {"id": id, "who": [*agent_fields(agent)]}
    if agent.get("retired"):
        return detail
    if not agent["agent"]["broken"]:
        guidance = dispatch(engine, "guidance", {"id": id})
        detail |= {"guidance": guidance, "teaching": guidance["teaching"], "block": engine.cascade.guidance(id)}
    findings = dispatch(engine, "bubbles", {"agent": id, "limit": MAX_ITEMS})["bubbles"]
    return detail | {"findings": findings, "work": engine.sessions.list(agent=id, limit=MAX_ITEMS)}


def organisation_fields(engine: Engine) -> list[Field]:
    """All agents together: their work, the settings of guidance, what is wrong. Blocking: call it in a thread."""
    agents, settings = engine.agents.list(), engine.agents.config.current
    on_off = {True: "on", False: "off"}
    used = sum(agent.sessions > 0 for agent in agents)
    busy = sum(agent.state in ("running", "waiting") for agent in agents)
    tokens = sum(agent.used for agent in agents)
    every = formats.age(timedelta(seconds=settings.m2_interval_seconds))
    budget = f"at most {settings.m1_token_budget:,} tokens (enable_m1, m1_token_budget)"
    details = {
        "agents": f"{len(agents):,}, {used:,} used so far, {busy:,} working",
        "tokens": f"{tokens:,}, {formats.money(sum(agent.spent for agent in agents))}" if tokens else "",
        "guidance": f"in prompts {on_off[settings.enable_m1]}, {budget}",
        "teaching": f"{on_off[settings.enable_m2]} (enable_m2), every {every} (m2_interval_seconds)",
        "findings": f"{on_off[settings.enable_upward_bubbling]} (enable_upward_bubbling)",
        "folder": str(engine.home.agents),
    }
    return [*present_fields(details.items()), *problem_fields(engine.agents.problems())]
