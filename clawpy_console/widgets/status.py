"""The status line on top of every screen, and the banner under it when the engine is stopped or paused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget

from clawpy_console import words
from clawpy_console.state import AppState
from clawpy_console.widgets.reflowing_text import ReflowingText
from engine.model import MICRO, Hold

SCREENS = (
    ("mission", "1", "mission"), ("work", "2", "work"), ("hierarchy", "3", "hierarchy"), ("memory", "4", "memory"),
    ("learning", "5", "learning"), ("safety", "6", "safety"), ("insights", "7", "insights"),
)  # fmt: skip
"""The screens there are: mode, key, name. A number stays the key of its screen, whether its tab is shown or not."""

ALWAYS = frozenset({"mission", "work"})
"""Screens whose tabs are always shown; the others once they are used (see `used_screens`) or were opened by key."""

STATES = {
    "DISABLED": ("■", "$wrong"),
    "WATCHING": ("●", "$grey"),
    "PRIMING": ("◐", "$accent"),
    "AUTONOMOUS": ("●", "$accent"),
    "PAUSED": ("▲", "$wants"),
}

STOP = "F12 stop"

Piece = tuple[str, str]


class Frame(Widget):
    """What stands on top of every screen and every dialog, and stays live in both: state line and banner."""

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
        resume: str,
        how: str,
    ) -> None:
        """Say how things stand. `visited` are screens that were shown before; `opening` says what the engine is still
        doing, "" when it is live; `resume` is the key that ends a stop, `how` says how to get to it."""
        stopped = any(hold.word == "stop" for hold in holds)
        bar = self.query_one(StatusBar)
        bar.tell(state, now, visited, opening=opening, demo=demo, resume=resume if stopped else "")
        self.query_one(Banner).tell(holds, how)


MIN_PLACE_CELLS = 8
"""Cells of the name of the workspace for which the screens make room."""


class StatusBar(ReflowingText):
    """Two lines: the screens, and how the engine stands."""

    DEFAULT_CSS = "StatusBar { height: 2; padding: 0 1; background: $background; }"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._screen_name = screen_name

    def tell(
        self, state: AppState, now: datetime, visited: Collection[str], *, opening: str, demo: bool, resume: str
    ) -> None:
        """See `Frame.show`; `resume` is "" while nothing is stopped."""
        place = " ".join(part for part in ("DEMO" if demo else "", place_words(state)) if part)
        shown = ALWAYS.union(state.used, visited, [self._screen_name])

        def draw(width: int) -> list[Content]:
            tabs = Content.assemble(*self._tabs(width - min(cell_len(place), MIN_PLACE_CELLS) - 2, shown))
            right = words.crop(place, max(0, width - tabs.cell_length - 2))
            gap = " " * max(1, width - tabs.cell_length - cell_len(right))
            pieces = state_line(state, now, opening, width, resume)
            return [Content.assemble(tabs, gap, (right, "$grey")), Content.assemble(*pieces)]

        self.show(draw)

    def _tabs(self, width: int, shown: Collection[str]) -> list[Piece]:
        """The screens; where they need the room, without our own name before them, then closer together, and then the
        numbers alone of those that are not shown: the line below them says how the engine stands, and must stay where
        it is."""
        name: list[Piece] = [("clawpy", "bold $accent"), ("  ", "")]
        whole, tight = (self._screens(shown, lambda key, label: f"{key} {label}", gap) for gap in ("  ", " "))
        for tabs in (name + whole, whole, tight, self._screens(shown, lambda key, _: key, "  ")):
            if _cells(tabs) <= width:
                return tabs
        return []

    def _screens(self, shown: Collection[str], other: Callable[[str, str], str], gap: str) -> list[Piece]:
        tabs: list[Piece] = []
        for mode, key, label in SCREENS:
            if mode not in shown:
                continue
            here = mode == self._screen_name
            text, style = (f"{key} {label}", "bold $ink underline") if here else (other(key, label), "$grey")
            tabs += [(gap, ""), (text, f"{style} @click=app.go('{mode}')")]
        return tabs[1:]


def place_words(state: AppState) -> str:
    """`api :8477 shop main*`: where the gateway listens, if it does, the workspace, and how many there are besides."""
    api = f"api :{state.gateway.rpartition(':')[2]} " if state.gateway else ""
    if not state.workspaces:
        return api.strip()
    more = f" +{len(state.workspaces) - 1}" if len(state.workspaces) > 1 else ""
    return f"{api}{state.place or words.workspace_name(state.workspaces[0])}{more}"


def state_line(state: AppState, now: datetime, opening: str, width: int, resume: str = "") -> list[Piece]:
    """State, silence, next check, learning, costs against caps, the stop key: the longest wording that fits `width`
    cells. After a stop, `resume` is the key that ends it."""
    stopped = bool(resume)
    key, does = (f"{resume} resume", "app.resume") if resume else (STOP, "app.stop_everything")
    ends = (key, f"$grey @click={does}()")
    if state.fault and not opening:
        fault_text = words.one_line(f"▲ {state.fault}")  # until it is mended it stands where the costs do
        head = _state_pieces(state, now, opening, False, stopped)[:2]
        room = width - _cells(head) - cell_len(key) - 4
        fault = words.fit_to_width(fault_text, max(0, room))
        return [*head, ("  ", ""), (fault, "$wants"), ("  ", ""), ends]
    pieces = _state_pieces(state, now, opening, True, stopped)
    room = width - cell_len(key) - 2
    if _cells(pieces) > room:
        pieces = _state_pieces(state, now, opening, False, stopped)
    while _cells(pieces) > room and len(pieces) > 2:
        del pieces[-2:]  # a label and its figure: the state and the stop key are what is needed
    return [*pieces, (" " * max(2, width - _cells(pieces) - cell_len(key)), ""), ends]


def _cells(pieces: Sequence[Piece]) -> int:
    return sum(cell_len(text) for text, _ in pieces)


def _state_pieces(state: AppState, now: datetime, opening: str, full: bool, stopped: bool) -> list[Piece]:
    wide = "   " if full else "  "
    pieces: list[Piece] = []
    if opening:
        pieces += [("◌ ", "$accent"), (opening, "$grey")]
    else:
        glyph, color = STATES.get(state.autonomy.state, ("○", "$grey"))
        word = state.autonomy.state or "…"
        if stopped:
            glyph, color, word = "■", "$wrong", "STOPPED"
        pieces += [(f"{glyph} ", color), (word, "bold $ink" if color == "$grey" else f"bold {color}")]
        if full:
            silence = words.span(state.autonomy.silence_at(now)).replace("now", "0m")
            after = int(state.autonomy.threshold // 60)
            pieces += [("  inactive ", "$faint"), (f"{silence:>3} of {after}m", "$grey")]
        next_cycle = state.autonomy.next_cycle
        if next_cycle is not None and next_cycle > now:
            pieces += [
                (f"{wide}{'next check' if full else 'next'} ", "$faint"),
                (words.clock_time(next_cycle), "$grey"),
            ]
        if state.learning:
            pieces += [(wide, ""), (state.learning, "$grey")]
    costs = state.costs
    if costs is not None and "costs" in state.used:
        for label, short, spent, cap in (
            ("hour", "h", costs.hour, costs.hour_cap),
            ("day", "d", costs.day, costs.day_cap),
            ("month", "m", costs.month, costs.month_cap),
        ):
            text = f"{'$' if full else ''}{spent / MICRO:.2f}/{words.cap(cap)}"
            pieces += [(f"{wide if full or label == 'hour' else ' '}{label if full else short} ", "$faint")]
            pieces += [(text, cost_color(spent, cap))]
    return pieces


def cost_color(spent: int, cap: int) -> str:
    """Grey while it is well, then the colours that ask for a person: from 80 % on, and at the cap."""
    if cap <= 0 or spent < cap * 0.8:
        return "$grey"
    return "bold $wants" if spent < cap else "bold $wrong"


def gravest_hold(holds: Sequence[Hold]) -> Hold | None:
    """The hold that stops most, None when there is none."""
    order = ("stop", "month", "pause")
    return min(holds, key=lambda hold: order.index(hold.word), default=None)


class Banner(ReflowingText):
    """Says in one line that the engine is stopped or paused, and how to resume. Hidden when nothing does."""

    DEFAULT_CSS = """
    Banner { height: 1; padding: 0 1; display: none; text-style: bold;
        background: $wants; color: $paper;
        &.-stop { background: $wrong; }
        &.-shown { display: block; }
    }
    Banner:ansi { text-style: bold reverse; background: ansi_default; color: ansi_default; }
    """

    def tell(self, holds: Sequence[Hold], how: str) -> None:
        """Show the gravest hold of `holds`; `how` says how to resume."""
        grave = gravest_hold(holds)
        self.set_class(grave is not None, "-shown")
        if grave is None:
            return
        self.set_class(grave.word == "stop", "-stop")
        heading = {"stop": "■ STOPPED", "month": "■ MONTH STOP", "pause": "▲ PAUSED"}.get(grave.word, f"▲ {grave.word}")
        until = f", until {words.clock_time(grave.until)}" if grave.until else ""
        text = f"{heading} {words.clock_time(grave.since)}{until}  {words.one_line(grave.reason)}"
        self.show(lambda width: [Content(words.fit_to_width(text, max(10, width - cell_len(how) - 2)) + "  " + how)])
