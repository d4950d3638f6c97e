"""The commands of the command palette."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.screen import Screen

from clawpy_console import formats
from clawpy_console.dialogs.question import confirm, show_gateway, show_muted, switch_gateway
from clawpy_console.fields.states import RESUME_QUESTIONS
from clawpy_console.formats import one_line
from clawpy_console.keys import BY_ID, shown_key
from engine.model import Hold

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from clawpy_console.console import Console


LEFT_OUT = ("rows.", "panes.", "columns.", "app.resume", "app.commands", "app.palette", "app.jump_", "app.quit_")
"""Actions that only move about, and those that are there under another name."""


def commands(app: CardConsole, screen: Screen[Any]) -> Iterable[SystemCommand]:
    """The commands that make sense on `screen`: those of the focused pane first."""
    for hold in app.holds:
        yield SystemCommand(f"Resume after the {hold.word}", hold.reason, partial(ask_to_resume, app, hold))
    bound = {
        active.binding.id: active
        for active in screen.active_bindings.values()
        if active.enabled and active.binding.id in BY_ID
    }
    for active in sorted(bound.values(), key=lambda item: (item.binding.id or "").startswith("app.")):
        action = BY_ID[active.binding.id or ""]
        if not action.id.startswith(LEFT_OUT):
            title = action.tooltip[:1].upper() + action.tooltip[1:]
            act = partial(_run_action, app, action.action, active.node)
            yield SystemCommand(title, f"key {shown_key(action.id, app.keymap)}", act)
    if "mission.own" not in bound:
        yield SystemCommand("New prompt", "for an agent, or a flow", partial(app.cards.write_own_prompt, ""))
        check = partial(app.cards.predict, lambda text, _: app.show_toast(text))
        yield SystemCommand("Check for new cards", "in all workspaces", check)
    yield SystemCommand("Muted cards", "list them; let one appear again", partial(show_muted, app))
    for name in sorted(app.available_themes):
        if name != app.theme:
            yield SystemCommand(f"Theme: {name}", "colours of the console", partial(choose_theme, app, name))
    mouse = "off" if app.mouse else "on"
    yield SystemCommand(f"Mouse {mouse}", "at the next start of the console", partial(app.set_mouse, mouse == "on"))
    gateway = "off" if app.state.gateway else "on"
    yield SystemCommand(
        f"Gateway {gateway}",
        "an API for a phone, a script, another agent",
        partial(switch_gateway, app, gateway == "on"),
    )
    if app.state.gateway:
        yield SystemCommand("Gateway: where it listens", app.state.gateway, partial(show_gateway, app))
    yield SystemCommand("Save a screenshot", "as SVG, in the current folder", app.action_screenshot)
    if app.engine is not None and not app.demo:
        yield SystemCommand(
            "Quit, keep the engine running",
            "`clawpy` attaches to it again",
            partial(_run_action, app, "app.keep_running", app),
        )


def ask_to_resume(app: Console, hold: Hold) -> None:
    """End `hold`; asks first where approved work may start again."""
    if hold.word not in RESUME_QUESTIONS:
        app.resume(hold.word)
        return
    title, meaning = RESUME_QUESTIONS[hold.word]
    question = f"Since {formats.moment(hold.since, app.now())}: {one_line(hold.reason)}\n\n{meaning}"
    confirm(app, title, question, "resume", partial(app.resume, hold.word))


def _run_action(app: Console, action: str, node: Any) -> None:
    async def run() -> None:
        await app.run_action(action, node)

    app.run_in_background(run, "palette")


def choose_theme(app: Console, name: str) -> None:
    """Take theme `name` and keep it in the settings."""
    app.theme = name
    app.write_setting("console.theme", name)
