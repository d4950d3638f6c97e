"""Ways to find what can be done: the list of keys, jump mode with labels to type, and the command palette."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult, SystemCommand
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Offset
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from clawpy_console import formats
from clawpy_console.dialogs.base import Dialog
from clawpy_console.dialogs.question import confirm, show_gateway, show_muted, switch_gateway
from clawpy_console.fields.states import RESUME_QUESTIONS
from clawpy_console.formats import fit_to_width, one_line
from clawpy_console.keys import ACTIONS, BY_ID, GROUPS, Action, shown_key, shown_keys
from clawpy_console.widgets.bars import Filter, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText
from engine.frozen import frozen
from engine.model import Hold

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from clawpy_console.console import Console

KEY_CELLS, ID_CELLS = 9, 24
"""Cells of the key and of the id, which is left out where there is no room for it."""


class Help(Dialog[None]):
    """The keys of the focused pane first, then all others by group, with the id that `[keys]` in the configuration
    uses. What you type shows only those with these words."""

    DEFAULT_CSS = """
    Help .dialog { height: 96%; padding: 0 2; }
    Help #all { height: 1fr; }
    Help Filter { margin: 0; }
    """

    def __init__(self, here: Iterable[str]) -> None:
        """`here`: ids of the actions that work in the focused pane."""
        super().__init__()
        self._here = frozenset(here)

    def compose(self) -> ComposeResult:
        with self.frame("Keys", self._subtitle("close"), classes="-keys"):
            yield Filter("Type a word or a key. ↑ ↓ scroll, esc closes.")
            with VerticalScroll(id="all", can_focus=False):
                yield ReflowingText(id="keys")

    def on_mount(self) -> None:
        self.query_one(Filter).open()
        self._draw()

    def _subtitle(self, escape_hint: str) -> str:
        return f"esc {escape_hint} · change a key: clawpy config set 'keys.\"ID\"' KEY"

    def _draw(self) -> None:
        terms = self.query_one(Filter).words
        self.query_one("#keys", ReflowingText).show(lambda width: list(self._lines(width, terms)))

    def _lines(self, width: int, terms: list[str]) -> Iterable[Content]:
        here = [action for action in ACTIONS if action.id in self._here and action.group != "app"]
        groups = [("In this pane, now", here)]
        groups += [(title, [action for action in ACTIONS if action.group == group]) for group, title in GROUPS.items()]
        shown: list[Action] = []
        for title, actions in groups:
            matches = [action for action in actions if action not in shown and self._matches(action, terms)]
            if matches:
                yield from [Content("")] if shown else []
                yield Content.styled(title, "bold $accent")
                yield from (self._row(item, width) for item in matches)
                shown += matches
        if not shown:
            yield Content.styled("No match.", "$grey")

    def _matches(self, action: Action, terms: list[str]) -> bool:
        keys = f"{shown_keys(action.id, self.app.keymap)} {action.keys}"
        text = f"{keys} {action.label} {action.tooltip} {action.id} {GROUPS[action.group]}"
        return has_words(text, terms)

    def _row(self, action: Action, width: int) -> Content:
        key, id_cells = shown_keys(action.id, self.app.keymap), ID_CELLS if width >= 80 else 0
        room = width - 2 - max(KEY_CELLS, cell_len(key) + 1) - id_cells
        return Content.assemble(
            (f"  {key}{' ' * max(1, KEY_CELLS - cell_len(key))}", "bold $ink"),
            (fit_to_width(action.tooltip, room), "$grey"),
            (f" {action.id}" if id_cells else "", "$faint"),
        )

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if event.value.endswith("?"):  # the key that opened it
            self.dismiss()
            return
        self._draw()
        self.query_one(".dialog").border_subtitle = Content(self._subtitle("clear" if event.value else "close"))
        self.query_one("#all").scroll_home(animate=False)

    def on_key(self, event: events.Key) -> None:
        pane, line = self.query_one("#all", VerticalScroll), self.query_one(Filter)
        match event.key:
            case "escape" if line.value:
                line.value = ""
            case "escape" | "enter":
                self.dismiss()
            case "up" | "down" | "pageup" | "pagedown":
                by = max(1, pane.size.height - 1) if event.key.startswith("page") else 1
                pane.scroll_relative(y=by if event.key.endswith("down") else -by, animate=False, immediate=True)


# Jump mode


LETTERS = "asdfghjklqwertyuiopzxcvbnm"


@frozen
class Spot:
    """A place on the screen, and what a click there does: None only focuses `widget`."""

    widget: Widget
    on_screen: Offset
    act: Callable[[], object] | None = None

    def go(self) -> None:
        """Focus the widget, and do what a click does."""
        if self.widget.focusable:
            self.widget.focus()
        if self.act is not None:
            self.widget.call_later(self.act)


def spots(screen: Screen[object]) -> list[Spot]:
    """All that can be reached on `screen`, in reading order: the `spots` of widgets that have such, each relative to
    the widget's own corner; text with a `@click` action; and what takes the focus."""
    spots_by_place: dict[object, Spot] = {}
    for y, strip in enumerate(screen._compositor.render_strips()):
        x = 0
        for text, style, _ in strip:
            if action := style and style.meta.get("@click"):
                widget, _ = screen.get_widget_at(x, y)
                spots_by_place.setdefault(
                    (widget, action), Spot(widget, Offset(x, y), partial(widget.run_action, action))
                )
            x += cell_len(text)
    reached = {spot.widget for spot in spots_by_place.values()}
    for widget, (region, clip) in screen._compositor.visible_widgets.items():
        own = getattr(widget, "spots", []) or ([(Offset(0, 0), None)] if widget.focusable else [])
        for at, act in own if widget not in reached else ():
            if clip.contains_point(region.offset + at) and region.contains_point(region.offset + at):
                spots_by_place[widget, at] = Spot(widget, region.offset + at, act)
    return sorted(spots_by_place.values(), key=lambda spot: (spot.on_screen.y, spot.on_screen.x))


def labels(count: int) -> list[str]:
    """`count` labels of one or two letters, none the beginning of another; at most 676."""
    letter_count = len(LETTERS)
    prefix_count = next(
        prefixes
        for prefixes in range(letter_count + 1)
        if letter_count - prefixes + prefixes * letter_count >= min(count, letter_count**2)
    )
    single_count = letter_count - prefix_count
    pairs = [first + second for first in LETTERS[single_count:] for second in LETTERS]
    return [*LETTERS[:single_count], *pairs][:count]


class Jump(Dialog[Spot | None]):
    """Gives the spot whose label was typed, None on any other key."""

    FRAMED = False
    COMPONENT_CLASSES = {"jump--label"}
    DEFAULT_CSS = """
    Jump { background: $background 50%; }
    Jump > .jump--label { background: $accent; color: $background; text-style: bold; }
    Jump:ansi > .jump--label { text-style: bold reverse; }
    """

    def __init__(self, found: list[Spot]) -> None:
        super().__init__()
        self._spots = dict(zip(labels(len(found)), found, strict=False))
        self._typed = ""

    def draw_on_picture(self, picture: list[Strip]) -> list[Strip]:
        style = self.get_component_rich_style("jump--label")
        positions: list[tuple[int, int, str]] = []
        occupied = set[tuple[int, int]]()
        for label, spot in self._spots.items():
            if label.startswith(self._typed):
                x, y = spot.on_screen
                rest = label[len(self._typed) :]
                before = {(x - back, y) for back in range(1, len(rest) + 1)}
                if x >= len(rest) and not occupied & before and not picture[y].crop(x - len(rest), x).text.strip():
                    x -= len(rest)  # in the gap before the word, which can be read then
                occupied |= {(x + at, y) for at in range(len(rest))}
                positions.append((x, y, rest))
        for x, y, rest in reversed(positions):
            line = picture[y]
            after = line.crop(x + len(rest), line.cell_length)
            picture[y] = Strip.join([line.crop(0, x), Strip([Segment(rest, style)]), after])
        return picture

    def on_key(self, event: events.Key) -> None:
        event.stop()
        typed = self._typed + (event.character or "")
        if event.is_printable and typed in self._spots:
            self.dismiss(self._spots[typed])
        elif event.is_printable and any(label.startswith(typed) for label in self._spots):
            self._typed, self._picture = typed, None
            self.refresh()
        else:
            self.dismiss(None)

    def on_click(self) -> None:
        self.dismiss(None)


# Palette


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
