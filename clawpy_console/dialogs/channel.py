"""Lets the operator choose which coding agent or model of this machine serves koji-core."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from textual.content import Content

from clawpy_console.dialogs.base import Answer, Question, show_text
from clawpy_console.formats import crop

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from engine import Engine
    from engine.model import FoundAgent, LocalModels, SetupStep

KEYS = "123456789"
"""The keys of the answers."""


class ChannelOptions(NamedTuple):
    """Who serves koji-core, and the agents and models of this machine that could."""

    served_by: str
    """The agent or model that serves it now, "" for none."""
    agents: list[FoundAgent]
    local: LocalModels
    next_step: SetupStep
    """The next step towards a model, if nothing serves it."""


def read_options(engine: Engine) -> ChannelOptions:
    """Find the agents and models of this machine. Blocking: call it in a thread."""
    setup = engine.channel_setup
    return ChannelOptions(setup.served_by(), setup.find_agents(), setup.local_models(), setup.next_step())


def choose_agent(app: Console, on_assigned: Callable[[], object] = lambda: None) -> None:
    """List the agents and models on this machine, and let the operator choose one for koji-core. `on_assigned` is
    called once it serves the channel."""
    app.load_for_dialog(read_options, lambda options: _ask(app, options, on_assigned))


def _ask(app: Console, options: ChannelOptions, on_assigned: Callable[[], object]) -> None:
    agents, models, faults = options.agents, options.local.ids, options.local.faults
    if not agents and not models:
        step = f"Run `{options.next_step.shown_command}` to use a model."
        app.show_toast("; ".join((*faults, f"No coding agent on the PATH and no local model. {step}")), "warning")
        return
    for fault in faults:
        app.show_toast(fault, "warning")
    details = {agent.name: _describe(agent) for agent in agents} | dict.fromkeys(models, "a model on this machine")

    def on_choice(answer: Answer) -> None:
        name = answer.label
        app.call_engine(
            lambda engine: _assign(engine, name, is_model=name in models), lambda agent: on_result(name, agent)
        )

    def on_result(name: str, agent: FoundAgent | None) -> None:
        _show_result(app, name, agent)
        on_assigned()

    answers = [Answer(key, *choice) for key, choice in zip(KEYS, details.items(), strict=False)]
    title = "Which agent or model should serve koji-core?"
    app.ask(Question(title, answers, present=options.served_by), on_choice)


def _assign(engine: Engine, name: str, *, is_model: bool) -> FoundAgent | None:
    """Have a model or an agent serve koji-core. Returns the agent."""
    agent = None
    if is_model:
        engine.channel_setup.assign_model(name)
    else:
        agent = engine.channel_setup.assign_agent(name)
    engine.cards.refresh_runners()  # pending cards say at once who would do them
    return agent


def _show_result(app: Console, name: str, agent: FoundAgent | None) -> None:
    app.reload(["settings", "cards"])
    if agent is None:
        app.show_toast(f"koji-core is served by {name}")
        return
    message = f"It gets its own folder and no access to the rest of your home, so log in once:\n\n{agent.login}"
    show_text(app, f"koji-core is served by {agent.title}", message)


def _describe(agent: FoundAgent) -> str:
    if agent.missing:
        return f"{agent.title}, once its adapter is installed: {agent.missing}"
    if not agent.hosts:
        return agent.title
    more = f" and {len(agent.hosts) - 1} more" if len(agent.hosts) > 1 else ""
    return f"{agent.title}; reaches {agent.hosts[0]}{more}"


def hint(options: ChannelOptions, key: str) -> Content:
    """The agent or model that answers text prompts. If there is none: those that `key` or a verb can connect."""
    if options.served_by:
        return Content.styled(f"text prompts go to {crop(options.served_by, 60)}", "$grey")
    names = [agent.title for agent in options.agents if not agent.missing] + list(options.local.ids)
    names = names or [f"{agent.title} (adapter missing)" for agent in options.agents]
    if not names:
        return Content.styled(f"{options.next_step.problem}: {options.next_step.shown_command}", "$grey")
    text = f" connects {crop(' or '.join(names), 60)}, found here; or {options.next_step.shown_command}"
    return Content.assemble(("no model configured: ", "$grey"), (key, "$accent"), (text, "$grey"))
