"""What the command palette offers: every action by its sentence, resuming, themes, the mouse, the gateway."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.screen import Screen

from clawpy_console import gateway_switch, mutes
from clawpy_console.keys import BY_ID, shown_key

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

LEFT_OUT = ("rows.", "panes.", "columns.", "app.resume", "app.commands", "app.palette", "app.jump_", "app.quit_")
"""Actions that only move about, and those that are there under another name."""


def commands(app: ConsoleApp, screen: Screen[Any]) -> Iterable[SystemCommand]:
    """The commands that make sense on `screen`: those of the focused pane first."""
    for hold in app.holds:
        yield SystemCommand(f"Resume after the {hold.word}", hold.reason, partial(app.ask_to_resume, hold))
    bound = {one.binding.id: one for one in screen.active_bindings.values() if one.enabled and one.binding.id in BY_ID}
    for active in sorted(bound.values(), key=lambda one: (one.binding.id or "").startswith("app.")):
        action = BY_ID[active.binding.id or ""]
        if not action.id.startswith(LEFT_OUT):
            title = action.tooltip[:1].upper() + action.tooltip[1:]
            act = partial(_act, app, action.action, active.node)
            yield SystemCommand(title, f"key {shown_key(action.id, app.keymap)}", act)
    if "mission.own" not in bound:
        yield SystemCommand("New prompt", "for an agent, or a flow", partial(app.cards.write_own_prompt, ""))
        check = partial(app.cards.predict, lambda text, _: app.say(text))
        yield SystemCommand("Check for new cards", "in all workspaces", check)
    yield SystemCommand("Muted cards", "list them; let one appear again", partial(mutes.show, app))
    for name in sorted(app.available_themes):
        if name != app.theme:
            yield SystemCommand(f"Theme: {name}", "colours of the console", partial(choose_theme, app, name))
    mouse = "off" if app.looks.mouse else "on"
    yield SystemCommand(f"Mouse {mouse}", "at the next start of the console", partial(app.want_mouse, mouse == "on"))
    api = "off" if app.known.gateway else "on"
    yield SystemCommand(
        f"Gateway {api}",
        "an API for a phone, a script, another agent",
        partial(gateway_switch.switch, app, api == "on"),
    )
    if app.known.gateway:
        yield SystemCommand("Gateway: where it listens", app.known.gateway, partial(gateway_switch.show, app))
    yield SystemCommand("Save a screenshot", "as SVG, in the current folder", app.action_screenshot)
    if app.engine is not None and not app.demo:
        yield SystemCommand(
            "Quit, keep the engine running", "`clawpy` attaches to it again", partial(app.leave, keep=True)
        )


def _act(app: ConsoleApp, action: str, node: Any) -> None:
    async def act() -> None:
        await app.run_action(action, node)

    app.in_background(act, "palette")


def choose_theme(app: ConsoleApp, name: str) -> None:
    """Take theme `name` and keep it in the settings."""
    app.theme = name
    app.keep_setting("console.theme", name)
