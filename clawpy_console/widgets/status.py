"""The status line on top of every screen, and the banner under it when the engine is stopped or paused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget

from clawpy_console import formats
from clawpy_console.formats import cap_amount, clock_time, crop, fit_to_width, one_line, workspace_name
from clawpy_console.state import AppState
from clawpy_console.widgets.reflowing_text import ReflowingText
from engine.model import MICRO, Hold

SCREENS = (
    ("mission", "1", "mission"), ("work", "2", "work"), ("hierarchy", "3", "hierarchy"), ("memory", "4", "memory"),
    ("learning", "5", "learning"), ("safety", "6", "safety"), ("insights", "7", "insights"),
)  # fmt: skip
"""The screens: mode, key, label. The keys stay the same when a tab is not shown."""

ALWAYS_SHOWN = frozenset({"mission", "work"})
"""Screens whose tabs are always shown; the others once they are used (see `used_screens`) or were opened by key."""

STATES = {
    "DISABLED": ("■", "$wrong"),
    "WATCHING": ("●", "$grey"),
    "PRIMING": ("◐", "$accent"),
    "AUTONOMOUS": ("●", "$accent"),
    "PAUSED": ("▲", "$wants"),
}
"""Sign and style of each state of the engine's autonomy."""

STOP_TEXT = "F12 stop"

Piece = tuple[str, str]
"""A text and its style."""


class Frame(Widget):
    """The state line and the banner on top of every screen and every dialog, live in both."""

    DEFAULT_CSS = "Frame { dock: top; height: auto; }"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._screen_name = screen_name

    def compose(self) -> ComposeResult:
        yield StatusBar(self._screen_name)
        yield Banner()

    def show(
        self,
        state: AppState,
        now: datetime,
        holds: Sequence[Hold],
        *,
        visited: Collection[str],
        opening: str,
        demo: bool,
        resume_key: str,
        resume_hint: str,
    ) -> None:
        """Draw the state. `visited` are screens that were opened before; `opening` is what the engine is still doing,
        "" once it is open; `resume_key` ends a stop, and `resume_hint` explains that."""
        is_stopped = any(hold.word == "stop" for hold in holds)
        bar = self.query_one(StatusBar)
        bar.show_state(state, now, visited, opening=opening, demo=demo, resume_key=resume_key if is_stopped else "")
        self.query_one(Banner).show_holds(holds, resume_hint)


MIN_PLACE_CELLS = 8
"""Cells of the name of the workspace for which the screens make room."""


class StatusBar(ReflowingText):
    """Two lines: the tabs of the screens, and the state of the engine."""

    DEFAULT_CSS = "StatusBar { height: 2; padding: 0 1; background: $background; }"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._screen_name = screen_name

    def show_state(
        self, state: AppState, now: datetime, visited: Collection[str], *, opening: str, demo: bool, resume_key: str
    ) -> None:
        """See `Frame.show`; `resume_key` is "" while nothing is stopped."""
        place = " ".join(part for part in ("DEMO" if demo else "", place_words(state)) if part)
        shown = ALWAYS_SHOWN.union(state.used, visited, [self._screen_name])

        def draw(width: int) -> list[Content]:
            tabs = Content.assemble(*self._tabs(width - min(cell_len(place), MIN_PLACE_CELLS) - 2, shown))
            right = crop(place, max(0, width - tabs.cell_length - 2))
            gap = " " * max(1, width - tabs.cell_length - cell_len(right))
            pieces = state_line(state, now, opening, width, resume_key)
            return [Content.assemble(tabs, gap, (right, "$grey")), Content.assemble(*pieces)]

        self.show(draw)

    def _tabs(self, width: int, shown: Collection[str]) -> list[Piece]:
        """The tabs in the longest form that fits `width`: after the program's name, without it, closer together, or
        by key alone."""
        name: list[Piece] = [("clawpy", "bold $accent"), ("  ", "")]
        wide, tight = self._tab_pieces(shown, gap="  "), self._tab_pieces(shown, gap=" ")
        for pieces in (name + wide, wide, tight, self._tab_pieces(shown, gap="  ", with_labels=False)):
            if _cells(pieces) <= width:
                return pieces
        return []

    def _tab_pieces(self, shown: Collection[str], *, gap: str, with_labels: bool = True) -> list[Piece]:
        """The tabs of the screens `shown`; without labels only the current one has its label."""
        tabs: list[Piece] = []
        for mode, key, label in SCREENS:
            if mode not in shown:
                continue
            is_current = mode == self._screen_name
            text = f"{key} {label}" if is_current or with_labels else key
            style = "bold $ink underline" if is_current else "$grey"
            tabs += [(gap, ""), (text, f"{style} @click=app.go('{mode}')")]
        return tabs[1:]


def place_words(state: AppState) -> str:
    """`api :8477 shop main*`: the port of the gateway, if it listens, and the workspace, with the number of others."""
    api = f"api :{state.gateway.rpartition(':')[2]} " if state.gateway else ""
    if not state.workspaces:
        return api.strip()
    more = f" +{len(state.workspaces) - 1}" if len(state.workspaces) > 1 else ""
    return f"{api}{state.place or workspace_name(state.workspaces[0])}{more}"


def state_line(state: AppState, now: datetime, opening: str, width: int, resume_key: str = "") -> list[Piece]:
    """State, inactivity, next check, learning, costs against caps and the stop key, as far as they fit `width` cells.

    `resume_key` ends a stop; it is "" while nothing is stopped.
    """
    is_stopped = bool(resume_key)
    key_text, action = (f"{resume_key} resume", "app.resume") if is_stopped else (STOP_TEXT, "app.stop_everything")
    key_piece = (key_text, f"$grey @click={action}()")
    if state.fault and not opening:  # it stands in place of the costs until it is mended
        head = _state_pieces(state, now, opening, False, is_stopped)[:2]
        fault_width = width - _cells(head) - cell_len(key_text) - 4
        fault = fit_to_width(one_line(f"▲ {state.fault}"), max(0, fault_width))
        return [*head, ("  ", ""), (fault, "$wants"), ("  ", ""), key_piece]
    pieces = _state_pieces(state, now, opening, True, is_stopped)
    room = width - cell_len(key_text) - 2
    if _cells(pieces) > room:
        pieces = _state_pieces(state, now, opening, False, is_stopped)
    while _cells(pieces) > room and len(pieces) > 2:
        del pieces[-2:]  # the last label with its figure
    return [*pieces, (" " * max(2, width - _cells(pieces) - cell_len(key_text)), ""), key_piece]


def _cells(pieces: Sequence[Piece]) -> int:
    return sum(cell_len(text) for text, _ in pieces)


def _state_pieces(state: AppState, now: datetime, opening: str, full: bool, is_stopped: bool) -> list[Piece]:
    """The pieces before the stop key, with `full` in their longer form."""
    if opening:
        return [("◌ ", "$accent"), (opening, "$grey"), *_cost_pieces(state, full)]
    autonomy, gap = state.autonomy, "   " if full else "  "
    sign, color = STATES.get(autonomy.state, ("○", "$grey"))
    label = autonomy.state or "…"
    if is_stopped:
        sign, color, label = "■", "$wrong", "STOPPED"
    pieces: list[Piece] = [(f"{sign} ", color), (label, "bold $ink" if color == "$grey" else f"bold {color}")]
    if full:
        silence = formats.age(autonomy.silence_at(now)).replace("now", "0m")
        pieces += [("  inactive ", "$faint"), (f"{silence:>3} of {int(autonomy.threshold // 60)}m", "$grey")]
    if autonomy.next_cycle is not None and autonomy.next_cycle > now:
        pieces.append((f"{gap}{'next check' if full else 'next'} ", "$faint"))
        pieces.append((clock_time(autonomy.next_cycle), "$grey"))
    if state.learning:
        pieces += [(gap, ""), (state.learning, "$grey")]
    return pieces + _cost_pieces(state, full)


def _cost_pieces(state: AppState, full: bool) -> list[Piece]:
    """The costs of hour, day and month against their caps, once anything costs money."""
    costs = state.costs
    if costs is None or "costs" not in state.used:
        return []
    windows = (
        ("hour", costs.hour, costs.hour_cap),
        ("day", costs.day, costs.day_cap),
        ("month", costs.month, costs.month_cap),
    )
    pieces: list[Piece] = []
    for name, spent, cap in windows:
        if full:
            pieces.append((f"   {name} ", "$faint"))
        else:
            pieces.append((f"{' ' if pieces else '  '}{name[0]} ", "$faint"))
        amount = f"{spent / MICRO:.2f}/{cap_amount(cap)}"
        pieces.append((f"${amount}" if full else amount, cost_color(spent, cap)))
    return pieces


def cost_color(spent: int, cap: int) -> str:
    """Grey below 80 % of the cap, then `wants`, and `wrong` from the cap on."""
    if cap <= 0 or spent < cap * 0.8:
        return "$grey"
    return "bold $wants" if spent < cap else "bold $wrong"


def gravest_hold(holds: Sequence[Hold]) -> Hold | None:
    """The hold that stops the most work, None when there is none."""
    order = ("stop", "month", "pause")
    return min(holds, key=lambda hold: order.index(hold.word), default=None)


class Banner(ReflowingText):
    """One line that says that the engine is stopped or paused, and how to resume; hidden while it is not."""

    DEFAULT_CSS = """
    Banner { height: 1; padding: 0 1; display: none; text-style: bold;
        background: $wants; color: $paper;
        &.-stop { background: $wrong; }
        &.-shown { display: block; }
    }
    Banner:ansi { text-style: bold reverse; background: ansi_default; color: ansi_default; }
    """

    def show_holds(self, holds: Sequence[Hold], hint: str) -> None:
        """Show the gravest of `holds`; `hint` says how to resume."""
        hold = gravest_hold(holds)
        self.set_class(hold is not None, "-shown")
        if hold is None:
            return
        self.set_class(hold.word == "stop", "-stop")
        heading = {"stop": "■ STOPPED", "month": "■ MONTH STOP", "pause": "▲ PAUSED"}.get(hold.word, f"▲ {hold.word}")
        until = f", until {clock_time(hold.until)}" if hold.until else ""
        text = f"{heading} {clock_time(hold.since)}{until}  {one_line(hold.reason)}"
        self.show(lambda width: [Content(fit_to_width(text, max(10, width - cell_len(hint) - 2)) + "  " + hint)])
