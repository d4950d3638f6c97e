"""What the command palette offers: every action by name, holds, themes, the mouse."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.screen import Screen

from clawpy_console import mutes

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


def commands(app: ConsoleApp, screen: Screen[Any]) -> Iterable[SystemCommand]:
    """The commands that make sense on `screen`."""
    yield SystemCommand("Stop everything", "stop every session now, start nothing (F12)", app.action_stop_everything)
    for hold in app.holds:
        yield SystemCommand(f"Resume after the {hold.word}", hold.reason, partial(app.ask_to_resume, hold))
    yield SystemCommand("Mission control", "the card stack (1)", partial(_go, app, "mission"))
    yield SystemCommand("Work", "sessions, transcripts, changes (2)", partial(_go, app, "work"))
    yield SystemCommand("Hierarchy", "agents, guidance, findings (3)", partial(_go, app, "hierarchy"))
    yield SystemCommand("Memory", "seven layers, what would be recalled (4)", partial(_go, app, "memory"))
    yield SystemCommand("Learning", "proposed changes, and what sessions taught (5)", partial(_go, app, "learning"))
    yield SystemCommand("Safety", "rails, caps, holds, blocked (6)", partial(_go, app, "safety"))
    yield SystemCommand("Insights", "how good predictions are, training, drift (7)", partial(_go, app, "insights"))
    yield SystemCommand(
        "Check for work now", "look for new cards (p)", partial(app.cards.predict, lambda text, _: app.say(text))
    )
    yield SystemCommand("New prompt", "make a card of it", partial(app.cards.write_own_prompt, ""))
    yield SystemCommand("Muted", "cards you muted by dismissing them; unmute", partial(mutes.show, app))
    yield SystemCommand(
        "Connect a coding agent or a local model",
        "let an agent or model on this machine serve koji-core (H)",
        app.action_hire,
    )
    for active in list(screen.active_bindings.values()):
        binding = active.binding
        if binding.id and not binding.id.startswith(("app.", "rows.", "panes.")) and active.enabled:
            act = partial(_act, app, binding.action, active.node)
            yield SystemCommand(f"{binding.id.partition('.')[0].capitalize()}: {binding.tooltip}", binding.key, act)
    for name in sorted(app.available_themes):
        if name != app.theme:
            yield SystemCommand(f"Theme: {name}", "colours of the console", partial(choose_theme, app, name))
    mouse = "off" if app.looks.mouse else "on"
    yield SystemCommand(f"Mouse {mouse}", "at the next start of the console", partial(app.want_mouse, mouse == "on"))
    api = "off" if app.known.gateway else "on"
    yield SystemCommand(
        f"Gateway {api}", "an API for a phone, a script, another agent", partial(switch_gateway, app, api == "on")
    )
    if app.known.gateway:
        yield SystemCommand("Gateway: where it listens", app.known.gateway, partial(show_gateway, app))
    yield SystemCommand("Keys", "every key and what it does (?)", app.action_help)
    yield SystemCommand("Save a screenshot", "as SVG, in the current folder", app.action_screenshot)
    if app.engine is not None and not app.demo:
        yield SystemCommand(
            "Quit, keep the engine running", "`clawpy` attaches to it again", partial(app.leave, keep=True)
        )
    yield SystemCommand("Quit", "quit (q)", app.action_leave)


def _go(app: ConsoleApp, mode: str) -> None:
    app.in_background(partial(app.action_go, mode), "go")


def _act(app: ConsoleApp, action: str, node: Any) -> None:
    async def act() -> None:
        await app.run_action(action, node)

    app.in_background(act, "palette")


def switch_gateway(app: ConsoleApp, on: bool) -> None:
    """Open or close the gateway."""
    from clawpy_console.gateway_switch import switch

    switch(app, on)


def show_gateway(app: ConsoleApp) -> None:
    """Where the gateway listens, and how one gets in."""
    from clawpy_console.gateway_switch import show

    show(app)


def choose_theme(app: ConsoleApp, name: str) -> None:
    """Take theme `name` and keep it in the settings."""
    app.theme = name
    app.keep_setting("console.theme", name)
