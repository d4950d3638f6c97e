"""What can be done now: every key, and every command by name.

`Help` lists the keys, and `Palette` the commands. A command of another screen leads there and says its key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_downloads_path
from rich.cells import cell_len
from textual import events, getters, on
from textual.app import ComposeResult, SystemCommand
from textual.binding import ActiveBinding
from textual.command import CommandList, CommandPalette, Hit, Hits
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.system_commands import SystemCommandsProvider
from textual.widgets import Input, OptionList

from clawpy_console.fields.cards import HOLD_NAMES
from clawpy_console.formats import crop, fit_to_width, has_words, one_line, workspace_name
from clawpy_console.keys import (
    ACTION_BY_ID,
    ACTIONS,
    GROUP_TITLES,
    Action,
    format_key,
    format_key_with_letters,
    is_on_screen,
)
from clawpy_console.screens import GuardedScreen
from clawpy_console.screens.dialog import Answer, Dialog, Question, show_text
from clawpy_console.screens.own_prompt import open_prompt_box
from clawpy_console.screens.safety import ask_to_resume
from clawpy_console.widgets.frame import SCREENS
from clawpy_console.widgets.texts import Filter, ReflowingText
from engine.model import Mute

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from clawpy_console.console import Console


KEY_CELLS = 9
"""Cells of the key."""

ID_CELLS = 24
"""Cells of the id, which is left out where there is no room for it."""


class Help(Dialog[None]):
    """The keys of the focused pane first, then all others by group, with the id that `[keys]` in the configuration
    uses. What you type shows only those with these words."""

    DEFAULT_CSS = """
    Help .dialog { height: 96%; padding: 0 2; }
    Help #all { height: 1fr; }
    Help Filter { margin: 0; }
    """

    _filter = getters.query_one(Filter)
    _pane = getters.query_one("#all", VerticalScroll)

    def __init__(self, active_ids: Iterable[str]) -> None:
        """`active_ids`: ids of the actions that work in the focused pane."""
        super().__init__()
        self._active_ids = frozenset(active_ids)

    def compose(self) -> ComposeResult:
        with self.make_frame("Keys", "change a key: clawpy help keys", classes="-keys"):
            yield Filter("Type a word or a key. ↑ ↓ scroll, esc closes.")
            with VerticalScroll(id="all", can_focus=False):
                yield ReflowingText(id="keys")

    def on_mount(self) -> None:
        self._filter.open()
        self._draw()

    def _draw(self) -> None:
        words = self._filter.words
        self.query_one("#keys", ReflowingText).show(lambda width: list(self._make_lines(width, words)))

    def _make_lines(self, width: int, words: list[str]) -> Iterable[Content]:
        active = [action for action in ACTIONS if action.id in self._active_ids and action.group != "app"]
        groups = [("In this pane, now", active)]
        groups += [
            (title, [action for action in ACTIONS if action.group == group]) for group, title in GROUP_TITLES.items()
        ]
        shown: list[Action] = []
        for title, actions in groups:
            matches = [action for action in actions if action not in shown and self._has_words(action, words)]
            if matches:
                yield from [Content("")] if shown else []
                yield Content.styled(title, "bold $accent")
                yield from (self._make_row(item, width) for item in matches)
                shown += matches
        if not shown:
            yield Content.styled("No match.", "$grey")

    def _has_words(self, action: Action, words: list[str]) -> bool:
        keys = f"{format_key_with_letters(action.id, self.app.keymap)} {action.keys}"
        text = f"{keys} {action.label} {action.tooltip} {action.id} {GROUP_TITLES[action.group]}"
        return has_words(text, words)

    def _make_row(self, action: Action, width: int) -> Content:
        key = format_key_with_letters(action.id, self.app.keymap)
        id_cells = ID_CELLS if width >= 80 else 0
        room = width - 2 - max(KEY_CELLS, cell_len(key) + 1) - id_cells
        return Content.assemble(
            (f"  {key}{' ' * max(1, KEY_CELLS - cell_len(key))}", "bold $ink"),
            (fit_to_width(action.tooltip, room), "$grey"),
            (f" {action.id}" if id_cells else "", "$faint"),
        )

    @on(Input.Changed)
    def _on_typed(self, event: Input.Changed) -> None:
        if event.value.endswith("?"):  # the key that opened it
            self.dismiss()
            return
        self._draw()
        self._pane.scroll_home(animate=False)

    def on_key(self, event: events.Key) -> None:
        pane = self._pane
        line = self._filter
        match event.key:
            case "escape" if line.value:
                line.value = ""
            case "escape" | "enter":
                self.dismiss()
            case "up" | "down" | "pageup" | "pagedown":
                by = max(1, pane.size.height - 1) if event.key.startswith("page") else 1
                pane.scroll_relative(y=by if event.key.endswith("down") else -by, animate=False, immediate=True)


OMITTED_ID_PREFIXES = (
    "rows.",
    "panes.",
    "columns.",
    "app.resume",
    "app.commands",
    "app.palette",
    "app.jump_",
    "app.quit_",
)
"""How the ids of actions begin that only move about, or that are there under another name."""

OMITTED_ELSEWHERE = frozenset({"mission.own", "work.own", "mission.predict", "mission.back"})
"""Actions that the palette carries out on every screen, and the one that only moves the focus."""


def make_commands(app: CardConsole, screen: Screen[Any]) -> Iterable[SystemCommand]:
    """The commands that make sense on `screen`: those of the focused pane first."""
    for hold in app.holds:
        yield SystemCommand(f"Resume after the {HOLD_NAMES[hold.word]}", hold.reason, partial(ask_to_resume, app, hold))
    bound = _find_bound_actions(screen)
    for action, active in bound.items():
        if not action.id.startswith(OMITTED_ID_PREFIXES):
            title = action.tooltip[:1].upper() + action.tooltip[1:]
            run = partial(app.run_action, action.method, active.node)
            act = partial(app.run_in_background, run, "palette")
            yield SystemCommand(title, f"key {format_key(action.id, app.keymap)}", act)
    yield from _make_card_commands(app, bound)
    yield from _make_console_commands(app)
    if screen is app.screen_stack[0]:  # a dialog cannot be left from here
        yield from _make_commands_elsewhere(app, bound)


def _make_card_commands(app: CardConsole, bound: Collection[Action]) -> Iterable[SystemCommand]:
    """The commands for cards that no key of the screen in sight does."""
    if {ACTION_BY_ID["mission.own"], ACTION_BY_ID["work.own"]}.isdisjoint(bound):
        write = partial(open_prompt_box, app, app.workspace_filter)
        yield SystemCommand("New prompt", "for an agent, or a flow", write)
    if ACTION_BY_ID["mission.predict"] not in bound:
        check = partial(app.cards.predict, lambda text, _: app.show_toast(text))
        yield SystemCommand("Check for new cards", "in all workspaces", check)
    yield SystemCommand("Muted cards", "list them; let one appear again", partial(show_muted, app))


def _make_console_commands(app: CardConsole) -> Iterable[SystemCommand]:
    """The commands for the console itself and for the gateway."""
    for name in sorted(app.available_themes):
        if name != app.theme:
            yield SystemCommand(f"Theme: {name}", "colours of the console", partial(_choose_theme, app, name))
    mouse = "off" if app.uses_mouse else "on"
    yield SystemCommand(
        f"Mouse {mouse}", "at the next start of the console", partial(app.set_mouse, enabled=mouse == "on")
    )
    gateway = "off" if app.state.gateway_url else "on"
    switch = partial(_switch_gateway, app, enabled=gateway == "on")
    yield SystemCommand(f"Gateway {gateway}", "an API for a phone, a script, another agent", switch)
    if app.state.gateway_url:
        yield SystemCommand("Gateway: where it listens", app.state.gateway_url, partial(_show_gateway, app))
    yield SystemCommand("Save a screenshot", "as SVG, in your downloads or home folder", partial(_save_screenshot, app))
    if app.engine is not None and not app.demo:
        keep = partial(app.quit, keep_engine=True)
        yield SystemCommand("Quit, keep the engine running", "`clawpy` attaches to it again", keep)


class Palette(CommandPalette, GuardedScreen[None]):
    """The list of commands by name."""

    @on(Input.Changed)
    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _ignore_late_input(self, event: Input.Changed | Input.Submitted | OptionList.OptionSelected) -> None:
        if not self.is_active:  # a key before has closed it: a search would write into widgets that are gone
            event.prevent_default().stop()

    def _action_command_list(self, action: str) -> None:
        """Move in the list of commands, once it has a size: Textual fails at Page Up and Page Down before."""
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)


class CommandProvider(SystemCommandsProvider):
    """Finds the commands of the palette that have all words of a search, in their names or explanations."""

    async def search(self, query: str) -> Hits:
        """The commands for a search, those with the words in their names first."""
        matcher = self.matcher(query)
        words = query.lower().split()
        for name, explanation, callback, *_ in self.app.get_system_commands(self.screen):
            if has_words(f"{name} {explanation}", words):
                yield Hit(matcher.match(name), matcher.highlight(name), callback, help=explanation)


def _save_screenshot(app: Console) -> None:
    """Save the screen in the folder for downloads, or in the home folder if there is none. A toast says where."""
    downloads = user_downloads_path()
    app.deliver_screenshot(path=str(downloads if downloads.is_dir() else Path.home()))


def _find_bound_actions(screen: Screen[Any]) -> dict[Action, ActiveBinding]:
    """The actions whose keys work on `screen` now: those of the focused pane first, those of all screens last."""
    bound = {
        ACTION_BY_ID[active.binding.id]: active
        for active in screen.active_bindings.values()
        if active.enabled and active.binding.id in ACTION_BY_ID
    }
    return dict(sorted(bound.items(), key=lambda item: item[0].group == "app"))


def _make_commands_elsewhere(app: CardConsole, bound: Collection[Action]) -> Iterable[SystemCommand]:
    """The commands of other screens and panes: each leads to its screen, and says its key and where that works. A key
    of the whole screen in sight that is not bound can do nothing now."""
    for action in ACTIONS:
        modes = [mode for mode in SCREENS if is_on_screen(action, mode)]
        is_offered = action in bound or action.id in OMITTED_ELSEWHERE or action.group == app.current_mode
        if action.label and len(modes) == 1 and not is_offered:
            place = GROUP_TITLES[action.group]
            key = format_key(action.id, app.keymap)
            title = f"{modes[0].capitalize()}: {action.tooltip}"
            lead = partial(_lead_to, app, modes[0], f"{key}: {action.tooltip} ({place})")
            yield SystemCommand(title, f"key {key} · {place}", lead)


def _lead_to(app: CardConsole, mode: str, message: str) -> None:
    async def run() -> None:
        await app.action_go(mode)
        app.show_toast(message)

    app.run_in_background(run, "palette")


def _choose_theme(app: Console, name: str) -> None:
    """Take theme `name` and keep it in the settings."""
    app.theme = name
    app.write_setting("console.theme", name)


def _switch_gateway(app: Console, *, enabled: bool) -> None:
    """Open or close the gateway, and show the result."""

    def on_switched(result: tuple[str, Any]) -> None:
        new_token, state = result
        app.reload(["place", "settings"])
        if state.url:
            _show_address(app, new_token, state)
        else:
            app.show_toast("the gateway is off")

    app.call_engine(lambda engine: (engine.gateway.set_enabled(enabled), engine.gateway.state()), on_switched)


def _show_gateway(app: Console) -> None:
    """Show where the gateway listens, and its token if nobody has read that yet: so it is shown whatever is open."""
    app.call_engine(
        lambda engine: (engine.gateway.take_new_token(), engine.gateway.state()),
        lambda answer: _show_address(app, *answer),
    )


def _show_address(app: Console, new_token: str, state: Any) -> None:
    token = f"the token, shown once:\n{new_token}\n" if new_token else ""
    hint = "clawpy token      shows the token"
    if state.token_source == "this run":
        hint = "clawpy token new --store file      makes a token that lasts"
    show_text(app, "The gateway listens", f"{state.url}\n{state.description}\n\n{token}{hint}")


MUTE_KEYS = "abcdefghilmnopqrstuvwxyz"
"""A key for each mute that is listed, the newest first. j and k move the cursor."""


def show_muted(app: Console) -> None:
    """List what is muted; the key of one ends it."""

    def on_list(muted: Sequence[Mute]) -> None:
        if not muted:
            app.show_toast("Nothing is muted.")
            return
        by_key = dict(zip(MUTE_KEYS, muted, strict=False))

        def unmute(answer: Answer) -> None:
            mute = by_key[answer.key]
            app.carry_out(lambda engine: engine.cards.unmute(mute.id), f"Unmuted: {_describe_mute(mute)}")

        answers = [Answer(key, _describe_mute(item), _describe_end(item)) for key, item in by_key.items()]
        question = "Muted: which should appear again?"
        if len(muted) > len(by_key):
            question += f" ({len(muted) - len(by_key):,} more: clawpy muted)"
        app.ask(Question(question, answers), unmute)

    app.load_for_dialog(lambda engine: engine.cards.list_mutes(), on_list)


def _describe_mute(mute: Mute) -> str:
    """The muted subject, and its place."""
    from engine import kind_title  # not before the first frame

    where = workspace_name(mute.workspace) if mute.workspace else "everywhere"
    about = crop(one_line(mute.prompt), 34) if mute.subject else f"all cards “{kind_title(mute.kind)}”"
    return f"{about}, {where}"


def _describe_end(mute: Mute) -> str:
    """Until when, and why."""
    until = f"until {mute.until.astimezone():%-d %b %H:%M}" if mute.until else "switched off"
    return f"{until}, {mute.why}"
