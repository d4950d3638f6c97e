"""The state machine of SPEC 7.1, drawn with the present state lit, and what is known of its next change."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content

from clawpy_console import words
from clawpy_console.state import Known
from clawpy_console.widgets.status import STATES

LINE = ("DISABLED", "WATCHING", "PRIMING", "AUTONOMOUS")
ASIDE = "PAUSED"
PLACE_OF_PAUSED = 16
Piece = tuple[str, str]


def diagram(state: str, *, tall: bool) -> list[Content]:
    """Five states, one lit: with a box around it, or in one line and a half."""
    return _boxed(state) if tall else _flat(state)


def _flat(state: str) -> list[Content]:
    def station(name: str) -> Piece:
        glyph, style = STATES[name]
        if name != state:
            return f"○ {name}", "$faint"
        return f"{glyph} {name}", "bold reverse " + ("$ink" if style == "$grey" else style)

    parts: list[Piece] = []
    for place, name in enumerate(LINE):
        parts += [(" ─▸ ", "$faint")] if place else []
        parts.append(station(name))
    parts += [("   ╰ ", "$faint"), station(ASIDE)]
    return [Content.assemble(*parts)]


def _boxed(state: str) -> list[Content]:
    top: list[Piece] = []
    middle: list[Piece] = []
    bottom: list[Piece] = []
    for place, name in enumerate(LINE):
        if place:
            top.append((" ", ""))
            middle.append(("▸", "$faint"))
            bottom.append((" ", ""))
        up, across, down = _station(name, state)
        top.append(up)
        middle += across
        bottom.append(down)
    above, paused, under = _station(ASIDE, state)
    indent = " " * PLACE_OF_PAUSED
    aside = Content.assemble(indent, ("╰▸ ", "$faint"), *paused, ("  cap or 3 rejections", "$faint"))
    if state == ASIDE:
        upper = Content.assemble(indent, ("│  ", "$faint"), above)
        return [Content.assemble(*middle), upper, aside, Content.assemble(indent, "   ", under)]
    return [Content.assemble(*top), Content.assemble(*middle), Content.assemble(*bottom), aside]


def _station(name: str, state: str) -> tuple[Piece, list[Piece], Piece]:
    glyph, style = STATES[name]
    size = len(name) + 2
    if name != state:
        blank = " " * (size + 2)
        return (blank, ""), [(f"  {name}  ", "$faint")], (blank, "")
    color = "$accent" if style == "$grey" else style
    return (
        (f"╭{'─' * size}╮", color),
        [("│", color), (f"{glyph} ", color), (name, f"bold {color}"), ("│", color)],
        (f"╰{'─' * size}╯", color),
    )


def facts(known: Known, now: datetime, width: int) -> list[Content]:
    """Since when and why, when time alone changes it, and how long the operator is silent."""
    view = known.autonomy
    lines = []
    if view.since:
        said = f"since {words.moment(view.since, now)}: {words.one_line(view.cause)}"
        lines.append(Content.styled(words.crop(said, width), "$grey"))
    change: Piece = ("no automatic change ahead", "$grey")
    # Silent long enough: whether nobody wrote in a workspace either is found by the next look.
    looks = view.state == "WATCHING" and view.silence_at(now).total_seconds() >= view.threshold
    if view.state == "PRIMING":
        change = ("AUTONOMOUS once it starts a card by itself", "$ink")
    elif looks and view.next_change is not None:
        change = ("inactive long enough, next check any moment", "$ink")
    if view.next_change is not None and view.next_change > now:
        left = words.duration(view.next_change - now)
        what = "next check" if looks else "next change"
        change = (f"{what} in {left}, at {words.hour(view.next_change)}", "$ink")
    lines.append(Content.assemble(("▸ ", "$accent"), change))
    silence = words.span(view.silence_at(now)).replace("now", "0m")
    quiet = f"inactive for {silence} of {int(view.threshold // 60)}m"
    cycle = f" · next check {words.hour(view.next_cycle)}" if view.next_cycle and view.next_cycle > now else ""
    lines.append(Content.styled(words.crop(f"{quiet}{cycle}", width), "$grey"))
    return lines


def counts_down(known: Known, now: datetime) -> bool:
    """Whether a second makes a difference to what is drawn of the machine and the rails."""
    moments = [known.autonomy.next_change, *(one.until for one in known.rails), *(one.until for one in known.holds)]
    return any(one is not None and one > now for one in moments)
