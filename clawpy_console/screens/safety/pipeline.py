"""The rails as a pipeline, left to right: how each stands now, what it said last, and where the last work ended."""

from __future__ import annotations

from datetime import datetime

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.state import Known, Logged
from clawpy_console.widgets.drawn import Drawn
from engine.values import RailState, RailVerdict, Verdict

NAMES = {"rate": "rate", "loop": "loops", "cost": "cost", "content": "content", "gate": "gate", "kill": "kill"}
LONG = {"gate": "human gate", "kill": "kill switch"}
GLYPHS = {Verdict.ALLOW: ("✓", "$grey"), Verdict.ASK: ("▲", "$wants"), Verdict.BLOCK: ("✗", "$wrong")}
BOXED = 100
"""From so many cells on each rail has a box of its own."""

Piece = tuple[str, str]


def now_word(rail: RailState, now: datetime, acts: bool = True) -> Piece:
    """How a rail stands: a glyph and a word or two. What time alone lifts counts down. Unless the engine `acts` by
    itself, the human gate lets through what the operator approves, and nothing else."""
    if rail.rail == "gate" and rail.verdict is Verdict.ALLOW and not acts:
        return "✓ by you", "$grey"
    if rail.until is not None and rail.until > now:
        return f"◐ in {words.duration(rail.until - now)}", "$accent"
    glyph, style = GLYPHS[rail.verdict]
    return f"{glyph} {rail.brief}", "$ink" if rail.verdict is Verdict.ASK else style


def last_word(rail: RailState, now: datetime) -> Piece:
    """What it said at the newest decision, and when."""
    if rail.last is None or rail.last_at is None:
        return "· not asked", "$faint"
    glyph, style = GLYPHS[rail.last.verdict]
    return f"{glyph} {words.moment(rail.last_at, now)}", style


def first_no(verdicts: tuple[RailVerdict, ...]) -> RailVerdict | None:
    """The rail that decided: the first that did not allow."""
    return next((one for one in verdicts if one.verdict is not Verdict.ALLOW), None)


def foremost(rails: tuple[RailState, ...]) -> RailState | None:
    """The rail that matters most now: one that blocks until something is done, one that waits, one that asks."""
    ranks = {Verdict.BLOCK: 1, Verdict.ASK: 2, Verdict.ALLOW: 3}
    first = [one for one in rails if one.verdict is Verdict.BLOCK and (one.until is None or one.rail == "kill")]
    ranked = [(0 if one in first else ranks[one.verdict], one) for one in rails]
    return min(ranked, key=lambda pair: pair[0], default=(0, None))[1]


def through(rails: tuple[RailState, ...], acts: bool) -> Piece:
    """The end of the pipeline: what becomes of work that nobody approved, by what the rails say now; where nothing
    `acts` by itself yet, open means for what the operator approves."""
    most = foremost(rails)
    if most is None or most.verdict is Verdict.ALLOW:
        return ("✓ open", "$grey") if acts else ("✓ by you", "$grey")
    if most.verdict is Verdict.ASK:
        return "▲ asks", "$ink"
    if most.rail == "kill" and most.until is not None:
        return "▲ by you", "$wants"  # a pause holds only what nobody approved
    return ("■ held", "$wrong") if most.until is None else ("◐ waits", "$accent")


def pipeline(known: Known, width: int, now: datetime, cursor: int = -1) -> list[Content]:
    """The pipeline at this width; the rail at `cursor` is marked."""
    rails = known.rails
    if not rails:
        return [Content.styled("Loading the rails…", "$faint")]
    newest = known.log[0] if known.log else None
    stopper = first_no(newest.verdicts) if newest else None
    lit = next((place for place, one in enumerate(rails) if stopper is not None and one.rail == stopper.rail), None)
    draw = _boxes if width >= BOXED else _folded
    return draw(known, width, now, cursor, lit)


def _boxes(known: Known, width: int, now: datetime, cursor: int, lit: int | None) -> list[Content]:
    rails = known.rails
    inner = (width - len(rails)) // (len(rails) + 1) - 4
    gap = " "
    lines: list[list[Piece]] = [[], [], [], [], [], []]
    for place, rail in enumerate(rails):
        last = last_word(rail, now)
        stopped = f"{rail.stopped} stopped" if rail.stopped else "–"
        label = LONG.get(rail.rail, NAMES.get(rail.rail, rail.rail))
        name = f"▸{label}" if place == cursor else label
        if inner >= 18:
            last = (f"last {last[0]}", last[1])
            stopped = f"{rail.stopped} stopped in 24 h" if rail.stopped else "none stopped"
        cells = [
            (name, "bold $accent" if place == cursor else "bold $ink"),
            now_word(rail, now, known.acts),
            last,
            (stopped, "$grey" if rail.stopped else "$faint"),
        ]
        edge = "$line" if lit != place else last[1]
        if place == cursor and lit != place:
            edge = "$accent"
        _box(lines, cells, inner, edge, heavy=lit == place)
        arrow = ("┄", "$faint") if lit is not None and place >= lit else ("▸", "$grey")
        for number, line in enumerate(lines):
            line.append(arrow if number == 2 else (gap, ""))
    running = len(known.running)
    ended = ("not reached", "$faint") if lit is not None else (f"{running} running", "$grey" if running else "$faint")
    end = through(rails, known.acts)
    yours = "for what you approve" if inner >= 20 and end[0].endswith("by you") else ""
    _box(lines, [("execute", "bold $ink"), end, ended, (yours, "$faint")], inner, "$line", heavy=False)
    return [Content.assemble(*line) for line in lines]


def _box(lines: list[list[Piece]], cells: list[Piece], inner: int, edge: str, *, heavy: bool) -> None:
    left_top, right_top, left_bottom, right_bottom, across, down = "┏┓┗┛━┃" if heavy else "╭╮╰╯─│"
    lines[0].append((left_top + across * (inner + 2) + right_top, edge))
    for line, (text, style) in zip(lines[1:5], cells, strict=True):
        line += [(f"{down} ", edge), (words.fit(text, inner), style), (f" {down}", edge)]
    lines[5].append((left_bottom + across * (inner + 2) + right_bottom, edge))


def _folded(known: Known, width: int, now: datetime, cursor: int, lit: int | None) -> list[Content]:
    rails = known.rails
    each = max(7, width // (len(rails) + 1))
    names: list[Piece] = []
    states: list[Piece] = []
    lasts: list[Piece] = []
    for place, rail in enumerate(rails):
        name = NAMES.get(rail.rail, rail.rail)
        name = f"▸{name}" if place == cursor else name
        style = "$accent" if place == cursor else "$ink"
        if lit == place and rail.last is not None:
            style = GLYPHS[rail.last.verdict][1] + " reverse"
        line, end = ("┄", "┄") if lit is not None and place >= lit else ("─", "▸")
        name = words.crop(name, each - 3)
        names += [(name, f"bold {style}"), (" " + line * (each - len(name) - 3) + end + " ", "$faint")]
        state, last = now_word(rail, now, known.acts), last_word(rail, now)
        states += [(words.fit(state[0], each - 1) + " ", state[1])]
        lasts += [(words.fit(last[0], each - 1) + " ", last[1])]
    names.append(("execute", "bold $ink"))
    states.append(through(rails, known.acts))
    lasts.append(("not reached" if lit is not None else "", "$faint"))
    return [Content.assemble(*line) for line in (names, states, lasts)]


def newest_line(newest: Logged | None, now: datetime, width: int) -> Content:
    """The newest decision, and the rail that decided it."""
    if newest is None:
        return Content.styled("No decisions yet.", "$faint")
    stopper = first_no(newest.verdicts)
    if stopper is None:
        said, style = "all rails allowed it", "$grey"
    else:
        glyph, style = GLYPHS[stopper.verdict]
        said = f"{glyph} {NAMES.get(stopper.rail, stopper.rail)}: {words.one_line(stopper.reason)}"
    head = f"last decision {words.moment(newest.at, now)}  "
    room = width - len(head)
    what = words.crop(f"“{words.one_line(newest.what)}”", max(10, room * 2 // 5))
    parts = Content.assemble((head, "$faint"), (what, "$ink"), "  ")
    return Content.assemble(parts, (words.crop(said, max(4, width - parts.cell_length)), style))


def rail_line(rail: RailState, width: int, now: datetime, acts: bool = True) -> Content:
    """One rail in a sentence: how it stands now and why."""
    word, style = now_word(rail, now, acts)
    name = LONG.get(rail.rail, NAMES.get(rail.rail, rail.rail))
    head = Content.assemble((f"{name} now  ", "$faint"), (f"{word}  ", style))
    return Content.assemble(head, (words.crop(words.one_line(rail.reason), max(4, width - head.cell_length)), "$grey"))


class Pipeline(Drawn, can_focus=True):
    """The pipeline with a cursor on one rail. ↑ and ↓ scroll what stands below it."""

    BINDINGS = bindings("rails")

    cursor: reactive[int] = reactive(0, repaint=False)

    class Moved(Message):
        """The cursor stands on another rail, or the pipeline got or lost the focus."""

    class Scrolled(Message):
        """What stands below shall scroll by `lines`."""

        def __init__(self, lines: int) -> None:
            super().__init__()
            self.lines = lines

    def action_left(self) -> None:
        self.cursor = max(0, self.cursor - 1)

    def action_right(self) -> None:
        self.cursor = min(len(NAMES) - 1, self.cursor + 1)

    def action_scroll_left_up(self) -> None:
        self.post_message(self.Scrolled(-3))

    def action_scroll_left_down(self) -> None:
        self.post_message(self.Scrolled(3))

    def watch_cursor(self) -> None:
        self.post_message(self.Moved())

    def on_focus(self) -> None:
        self.post_message(self.Moved())

    def on_blur(self) -> None:
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        each = max(1, self.content_size.width // (len(NAMES) + 1))
        self.cursor = min(len(NAMES) - 1, event.x // each)
