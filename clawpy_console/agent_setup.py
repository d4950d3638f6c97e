"""Having a channel served by what is on this machine: which agents and models are found, what is to be done besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console.dialogs.ask import Ask, tell
from clawpy_console.formats import crop

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from engine import Engine
    from engine.model import FoundAgent, LocalModels

KEYS = "123456789"


def offer(app: Console, then: Callable[[], object] | None = None) -> None:
    """List the agents and models on this machine; the one that you choose serves koji-core. `then` is called once it
    does."""

    def look(engine: Engine) -> tuple[str, list[FoundAgent], LocalModels]:
        return engine.channel_setup.served_by(), engine.channel_setup.find_agents(), engine.channel_setup.local_models()

    app.look_up(look, lambda seen: _choose(app, then, *seen))


def _choose(
    app: Console, then: Callable[[], object] | None, served: str, agents: list[FoundAgent], local: LocalModels
) -> None:
    models = local.ids
    if not agents and not models:
        message = "No coding agent on the PATH and no local model. Run `clawpy key set openai` to use a model."
        app.say("; ".join((*local.faults, message)), "warning")
        return
    for fault in local.faults:
        app.say(fault, "warning")
    choices = [(item.name, _meaning(item)) for item in agents] + [
        (model, "a model on this machine") for model in models
    ]
    answers = [(key, name, meaning) for key, (name, meaning) in zip(KEYS, choices, strict=False)]

    def chosen(key: str | None) -> None:
        name = next((word for own, word, _ in answers if own == key), "")

        def hired(agent: FoundAgent | None) -> None:
            _hired(app, name, agent)
            if then is not None:
                then()

        if key:
            app.ask(lambda engine: _hire(engine, name, name in models), hired)

    app.push_screen(Ask("Which agent or model should serve koji-core?", "", answers, present=served), chosen)


def _hire(engine: Engine, name: str, is_model: bool) -> FoundAgent | None:
    agent = None
    if is_model:
        engine.channel_setup.assign_model(name)
    else:
        agent = engine.channel_setup.assign_agent(name)
    engine.cards.refresh_runners()  # the cards that lie there say at once who would do them
    return agent


def _meaning(agent: FoundAgent) -> str:
    if agent.missing:
        return f"{agent.title}, once its adapter is installed: {agent.missing}"
    reaches = f"; reaches {agent.hosts[0]}" + (f" and {len(agent.hosts) - 1} more" if len(agent.hosts) > 1 else "")
    return agent.title + (reaches if agent.hosts else "")


def _hired(app: Console, name: str, agent: FoundAgent | None) -> None:
    app.renew(["settings", "cards"])
    if agent is None:
        app.say(f"koji-core is served by {name}")
        return
    message = f"It gets its own folder and no access to the rest of your home, so log in once:\n\n{agent.login}"
    tell(app, f"koji-core is served by {agent.title}", message)


def line(served: str, agents: list[FoundAgent], models: list[str], key: str) -> Content:
    """What the first run says of it; `key` offers what is found."""
    if served:
        return Content.styled(f"text prompts go to {crop(served, 60)}", "$grey")
    names = [agent.title for agent in agents if not agent.missing] + models
    names = names or [f"{agent.title} (adapter missing)" for agent in agents]
    if not names:
        return Content.styled("no model configured: clawpy key set openai", "$grey")
    text = f" connects {crop(' or '.join(names), 60)}, found here; or clawpy key set openai"
    return Content.assemble(("no model configured: ", "$grey"), (key, "$accent"), (text, "$grey"))
