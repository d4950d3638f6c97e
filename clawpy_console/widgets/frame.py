"""The lines around the panes of a screen: the state of the engine, tabs, the keys.

`ConsoleScreen` has a `Frame` above its panes and a `KeyLine` below; some dialogs have them, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.content import Content
from textual.reactive import Reactive, reactive
from textual.widget import Widget

from clawpy_console import formats
from clawpy_console.fields import SIGNS, WORDS
from clawpy_console.fields.cards import SWITCH_ON_COMMAND, choose_cost_tone
from clawpy_console.formats import cap_amount, clock_time, crop, fit_to_width, one_line, workspace_name
from clawpy_console.keys import KEY_LINE_ACTIONS, format_key
from clawpy_console.state import AppState
from clawpy_console.widgets.texts import ReflowingText
from engine.model import AutonomyState, Hold
from engine.wording import MICRO

if TYPE_CHECKING:
    from clawpy_console.console import Console


SCREENS = ("mission", "work", "hierarchy", "memory", "learning", "safety", "insights")
"""The modes of the screens, which are their labels, too."""

ALWAYS_SHOWN = frozenset({"mission", "work"})
"""Screens whose tabs are always shown; the others once used (see `find_used_screens`) or opened by key."""

HOLD_HEADINGS = WORDS["banner"]
"""The heading of the banner by the word of a hold; the one that stops the most work is first."""

MAX_PLACE_CELLS = 16
"""Cells of the name of the workspace for which the tabs make room: a repository and a branch such as `main*`."""


class Frame(Widget):
    """The lines on top, live on a screen and above every dialog."""

    DEFAULT_CSS = """
    Frame { dock: top; height: auto;
        & > #state { height: 2; padding: 0 1; background: $background; }
        & > #banner { height: 1; padding: 0 1; display: none; text-style: bold; background: $wants; color: $paper;
            &.-stop { background: $wrong; }
            &.-shown { display: block; }
        }
    }
    Frame:ansi > #banner { text-style: bold reverse; background: ansi_default; color: ansi_default; }
    """

    app: Console

    def __init__(self, screen_name: str) -> None:
        """`screen_name` is the screen whose tab is marked."""
        super().__init__()
        self.screen_name = screen_name

    def compose(self) -> ComposeResult:
        yield ReflowingText(id="state")
        yield ReflowingText(id="banner")

    def draw(self) -> None:
        """Draw the state of the console."""
        app = self.app
        now = app.now()
        state = app.state
        hold = find_gravest_hold(app.holds)
        key = format_key("app.resume", app.keymap)
        place = " ".join(part for part in ("DEMO" if app.demo else "", describe_place(state)) if part)
        shown = ALWAYS_SHOWN.union(state.used_screens, app.visited_screens, [self.screen_name])
        is_stopped = hold is not None and hold.word == "stop"
        keys = tuple(format_key(f"app.{mode}", app.keymap) for mode in SCREENS)

        def draw_state(width: int) -> list[Content]:
            tabs = make_screen_tabs(self.screen_name, shown, keys, width - min(cell_len(place), MAX_PLACE_CELLS) - 2)
            right = crop(place, max(0, width - tabs.cell_length - 2))
            gap = " " * max(1, width - tabs.cell_length - cell_len(right))
            line = make_state_line(state, now, app.opening_step, width, key if is_stopped else "")
            return [Content.assemble(tabs, gap, (right, "$grey")), line]

        self.query_one("#state", ReflowingText).show(draw_state)
        banner = self.query_one("#banner", ReflowingText)
        banner.set_class(hold is not None, "-shown")
        banner.set_class(is_stopped, "-stop")
        if hold is not None:
            hint = f"Press {key} to resume"
            if hold.word == "config":
                hint = SWITCH_ON_COMMAND
            elif len(app.screen_stack) > 1:
                hint = f"Close this, then {key} to resume"
            banner.show(lambda width: [Content(make_banner_text(hold, hint, width))])


@lru_cache(maxsize=16)
def make_screen_tabs(current: str, shown: frozenset[str], keys: tuple[str, ...], width: int) -> Content:
    """The tabs of the screens `shown` in the longest form that fits `width`: after the program's name, without it,
    closer together, or with the last ones by key alone. `keys` are those of all `SCREENS`."""
    wide = _make_tabs(current, shown, keys, "  ", labelled=len(SCREENS))
    tight = (_make_tabs(current, shown, keys, " ", labelled=count) for count in range(len(SCREENS), -1, -1))
    forms = (Content.assemble(("clawpy", "bold $accent"), "  ", wide), wide, *tight)
    return next((form for form in forms if form.cell_length <= width), Content(""))


def _make_tabs(current: str, shown: Collection[str], keys: Sequence[str], gap: str, *, labelled: int) -> Content:
    """The tabs; only the present one and the first `labelled` of all screens have their label."""
    return Content(gap).join(
        Content.styled(
            f"{key} {mode}" if mode == current or number < labelled else key,
            f"{'bold $ink underline' if mode == current else '$grey'} @click=app.go('{mode}')",
        )
        for number, (mode, key) in enumerate(zip(SCREENS, keys, strict=True))
        if mode in shown
    )


def describe_place(state: AppState) -> str:
    """`api :8477 shop main*`: the port of the gateway, if it listens, and the workspace, with the number of others."""
    api = f"api :{state.gateway_url.rpartition(':')[2]} " if state.gateway_url else ""
    if not state.workspaces:
        return api.strip()
    others = f" +{len(state.workspaces) - 1}" if len(state.workspaces) > 1 else ""
    return f"{api}{state.workspace_label or workspace_name(state.workspaces[0])}{others}"


STOP_KEY_TEXT = "F12 stop"
"""What the state line says of the stop key."""


def make_state_line(state: AppState, now: datetime, opening_step: str, width: int, resume_key: str = "") -> Content:
    """State, inactivity, next check, do not disturb, learning, costs against caps and the stop key, as far as they fit
    `width` cells.

    `opening_step` is what the engine is still doing, "" once it is open. `resume_key` ends a stop; it is "" while
    nothing is stopped.
    """
    key = Content.styled(STOP_KEY_TEXT, "$grey @click=app.stop_everything()")
    if resume_key:
        key = Content.styled(f"{resume_key} resume", "$grey @click=app.resume()")
    room = width - key.cell_length - 2
    parts = _make_state_parts(state, now, opening_step, is_stopped=bool(resume_key), full=True)
    error = "" if opening_step else state.home_error or state.settings_error
    if error:  # in place of the costs until it is mended
        parts = [parts[0], _make_error_part(error, room - parts[0].cell_length)]
    elif _sum_cells(parts) > room:
        parts = _make_state_parts(state, now, opening_step, is_stopped=bool(resume_key), full=False)
    while _sum_cells(parts) > room and len(parts) > 1:
        parts.pop()
    state_text = Content("").join(parts)
    return state_text + " " * max(2, width - state_text.cell_length - key.cell_length) + key


def _make_error_part(error: str, width: int) -> Content:
    """An error of the home or the settings. The place comes last and without the folder, which would take the room of
    what is wrong."""
    line = re.sub(r"^/.*?([^/]+\.toml(?::\d+)?): (.+)", r"\2 (\1)", one_line(error))
    return Content.styled("  " + fit_to_width(f"▲ {line}", max(0, width - 2)), "$wants")


def _sum_cells(parts: Sequence[Content]) -> int:
    return sum(part.cell_length for part in parts)


def _make_state_parts(
    state: AppState, now: datetime, opening_step: str, *, is_stopped: bool, full: bool
) -> list[Content]:
    """The parts before the stop key, with `full` in their longer form; the last ones are left out first."""
    if opening_step:
        return [Content.assemble(("◌ ", "$accent"), (opening_step, "$grey")), *_make_cost_parts(state, full=full)]
    autonomy = state.autonomy
    gap = "   " if full else "  "
    parts = [_make_state_part(autonomy.state, is_stopped=is_stopped)]
    if (
        full
        and state.acts_by_itself
        and not is_stopped
        and autonomy.state not in (AutonomyState.DISABLED, AutonomyState.PAUSED)
    ):
        silence = formats.short_span(autonomy.compute_silence(now))
        parts.append(Content.assemble(("  inactive ", "$faint"), (f"{silence:>3}", "$grey")))
        threshold_minutes = int(autonomy.inactivity_threshold_s // 60)
        parts.append(Content.assemble((f", acts by itself from {threshold_minutes}m", "$faint")))
    if autonomy.next_cycle is not None and autonomy.next_cycle > now:
        check = f"{gap}{'next check' if full else 'check'} "
        parts.append(Content.assemble((check, "$faint"), (clock_time(autonomy.next_cycle), "$grey")))
    if state.quiet.dnd_until is not None and state.quiet.dnd_until > now:
        label = "do not disturb until" if full else "dnd"
        parts.append(Content.assemble(gap, (f"{label} {clock_time(state.quiet.dnd_until)}", "$wants")))
    if state.twin_progress:
        progress = state.twin_progress if full else state.twin_progress.replace(" from your decisions", "")
        parts.append(Content.assemble(gap, (progress, "$grey")))
    return [*parts, *_make_cost_parts(state, full=full)]


AUTONOMY_SIGNS = SIGNS["autonomy"]
"""Sign and tone of each state of the engine's autonomy, of a stop, and of a state that was not read yet."""


def _make_state_part(state: AutonomyState | None, *, is_stopped: bool) -> Content:
    """Sign and word of the state of the engine's autonomy, or that it is stopped."""
    label = "…" if state is None else state.value
    if is_stopped:
        label = "STOPPED"
    sign, tone = AUTONOMY_SIGNS[label]
    return Content.assemble((f"{sign} ", f"${tone}"), (label, "bold $ink" if tone == "grey" else f"bold ${tone}"))


def _make_cost_parts(state: AppState, *, full: bool) -> list[Content]:
    """The costs of the hour, the day and the month against their caps, once something costs money."""
    costs = state.costs
    if costs is None or "costs" not in state.used_screens:
        return []
    parts = []
    for name in ("hour", "day", "month"):
        spent = getattr(costs, name)
        cap = getattr(costs, f"{name}_cap")
        amount = f"{spent / MICRO:.2f}/{cap_amount(cap)}"
        tone = choose_cost_tone(spent, cap)
        gap = "  " if name == "hour" else " "
        lead = f"   {name} " if full else f"{gap}{name[0]} "
        parts.append(
            Content.assemble((lead, "$faint"), (f"${amount}" if full else amount, f"bold ${tone}" if tone else "$grey"))
        )
    return parts


def find_gravest_hold(holds: Sequence[Hold]) -> Hold | None:
    """The hold that stops the most work, None when there is none."""
    return min(holds, key=lambda hold: list(HOLD_HEADINGS).index(hold.word), default=None)


def make_banner_text(hold: Hold, hint: str, width: int) -> str:
    """One line that says that the engine is stopped or paused; `hint` says how to resume."""
    until = f", until {clock_time(hold.until)}" if hold.until else ""
    since = f" {clock_time(hold.since)}" if hold.since else ""
    text = f"{HOLD_HEADINGS[hold.word]}{since}{until}  {one_line(hold.reason)}"
    return f"{fit_to_width(text, max(10, width - len(hint) - 2))}  {hint}"


class Tabs(Widget):
    """Names in a row, with brackets around the current one, and a hint at the end. A click calls `ACTION` with a
    name."""

    ACTION: ClassVar[str]
    DEFAULT_CSS = "Tabs { height: 1; padding: 0 1; }"

    auto_links = Reactive(False)
    tabs: reactive[tuple[tuple[str, str], ...]] = reactive(())
    """(name, text) of each."""
    current: reactive[str] = reactive("")
    """The name of the one in brackets."""
    hint: reactive[str] = reactive("")

    def show(self, tabs: Sequence[tuple[str, str]], current: str, hint: str = "") -> None:
        """Show `tabs`, each a name and its text. `current` is the name of the one in brackets."""
        self.tabs = tuple(tabs)
        self.current = current
        self.hint = hint

    def render(self) -> Content:
        parts = [
            (f"[{text}]", f"bold $accent @click={self.ACTION}('{name}')")
            if name == self.current
            else (f" {text} ", f"$grey @click={self.ACTION}('{name}')")
            for name, text in self.tabs
        ]
        return Content.assemble(*parts, (f"  {self.hint}" if self.hint else "", "$faint"))


class TabLine(Tabs):
    """The tabs of a pane."""

    ACTION = "screen.show_tab"


class Columns(Tabs):
    """The columns of a screen, for a terminal that has room for one."""

    ACTION = "screen.show_column"


KEY_GAP_CELLS = 2
"""Cells between two keys."""

RIGHTMOST_ACTIONS = ("app.help", "app.quit")
"""The actions that are always at the right end of the line: the list of all keys, and quitting."""


class KeyLine(Widget):
    """Shows the active bindings that have a label, those of the focus first. A click presses the key."""

    app: Console

    DEFAULT_CSS = "KeyLine { dock: bottom; height: 1; padding: 0 1; background: $background; }"

    auto_links = Reactive(False)
    keys: reactive[tuple[tuple[str, str, str], ...]] = reactive(())
    """(id of the action, key, label) of each action that can be carried out now."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.update_keys())
        self.call_after_refresh(self.update_keys)

    def update_keys(self) -> None:
        """Take over the bindings that are active now."""
        if not self.is_attached or not self.screen.is_current:
            return
        active = {binding.id for _, binding, enabled, _ in self.screen.active_bindings.values() if enabled}
        self.keys = tuple(
            (action.id, format_key(action.id, self.app.keymap), action.label)
            for action in KEY_LINE_ACTIONS
            if action.id in active
        )

    def render(self) -> Content:
        """The keys that fit, and those of `RIGHTMOST_ACTIONS` at the right end."""
        shown = []
        for action_id, key, label in self.keys:
            text = Content.assemble((key, "$accent"), " ", (label, "$grey"))
            if action_id != "app.stop":  # that key is on top
                piece = text.stylize(f"@click=screen.press('{action_id}')") + " " * KEY_GAP_CELLS
                shown.append((action_id, piece))
        last_keys = Content("").join(piece for action_id, piece in shown if action_id in RIGHTMOST_ACTIONS)
        room = self.size.width - last_keys.cell_length
        line = Content("")
        for action_id, piece in shown:
            if line.cell_length + piece.cell_length > room:
                break
            if action_id not in RIGHTMOST_ACTIONS:
                line += piece
        return (line + " " * (room + KEY_GAP_CELLS - line.cell_length) + last_keys).rstrip()
