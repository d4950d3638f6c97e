"""Screen 6, safety: the rails as a pipeline, caps, the state machine, holds, what was blocked and why (SPEC 3, 7.1)."""

from __future__ import annotations

from datetime import datetime

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.actions import bindings, shown_key
from clawpy_console.known import Known, Logged
from clawpy_console.screens.base import RESUME, ConsoleScreen
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.rows import Row, Rows
from clawpy_console.widgets.status import STATES, cost_color
from engine.values import MICRO, Verdict

RAILS = (
    ("rate", "rate"), ("loop", "loops"), ("cost", "cost"), ("content", "content"), ("gate", "human gate"),
    ("kill", "kill switch"),
)  # fmt: skip
"""The pipeline in its order: the rail's name, and how people call it."""

SAID = {Verdict.ALLOW: ("✓ allows", "$grey"), Verdict.ASK: ("▲ asks", "$wants"), Verdict.BLOCK: ("✗ blocks", "$wrong")}


class SafetyScreen(ConsoleScreen):
    """What keeps the engine in bounds, and how it stands."""

    MODE = "safety"
    CSS_PATH = "safety.tcss"
    AUTO_FOCUS = "#blocked"
    BINDINGS = bindings("safety")
    PANES = {"blocked": "blocked", "switches": "switches"}
    COLUMNS = {"blocked": "right", "switches": "left"}

    def body(self) -> ComposeResult:
        yield Drawn(id="pipeline")
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static("COST", classes="heading", markup=False)
                yield Static(id="gauges", markup=False)
                yield Static("STATE", classes="heading", markup=False)
                yield Static(id="machine", markup=False)
                yield Static("HOLDS", classes="heading", markup=False)
                yield Static(id="holds", markup=False)
                yield Static("SWITCHES", classes="heading", markup=False)
                yield Rows(id="switches", classes="-fit")
                yield Static("SANDBOX", classes="heading", markup=False)
                yield Static(id="sandbox", markup=False)
            with Vertical(id="right", classes="pane"):
                yield Static("BLOCKED", classes="heading", markup=False)
                yield Rows(id="blocked", empty="nothing was blocked")
                yield Static(id="blocked-why", markup=False)

    def on_mount(self) -> None:
        self.add_class("-at-right")

    def draw(self, changed: frozenset[str]) -> None:
        known, now = self.known, self.app.now()
        self.query_one("#pipeline", Drawn).show(lambda width: _pipeline(known, width))
        self.put("#gauges", _gauges(known))
        self.put("#machine", _machine(known, now))
        self.put("#holds", self._holds())
        self.query_one("#switches", Rows).show([_switch(name, on) for name, on in known.switches])
        self.put("#sandbox", Content(known.sandbox or "not tried yet"))
        self.query_one("#blocked", Rows).show([_blocked_row(one, now) for one in known.blocked])
        self._draw_why()
        self.refresh_bindings()

    def _holds(self) -> Content:
        lines = []
        for hold in self.app.holds:
            action = RESUME.get(hold.word)
            key = shown_key(action, self.app.keymap) if action else f"clawpy resume {hold.word}"
            style = "$wrong" if hold.word == "stop" else "$wants"
            until = f", until {words.hour(hold.until)}" if hold.until else ""
            lines.append(
                Content.assemble((f"■ {hold.word:<6}", f"bold {style}"), (key, "bold $accent"), (" resumes", "$grey"))
            )
            lines.append(
                Content.styled(f"  since {words.hour(hold.since)}{until}: {words.one_line(hold.reason)}", "$grey")
            )
        return Content("\n").join(lines) if lines else Content.styled("none", "$grey")

    @on(Rows.Moved, "#blocked")
    def _draw_why(self) -> None:
        current = self.query_one("#blocked", Rows).current
        one = next((one for one in self.known.blocked if one.id == current), None)
        why = Content("")
        if one is not None:
            rule = f"  ·  rule {one.rule}" if one.rule else ""
            why = Content.assemble(
                (words.one_line(one.what), "$ink"), "\n", (f"✗ {one.blocked_by}", "$wrong"), (rule, "$faint"),
                "\n", (words.one_line(one.reason), "$grey"),
            )  # fmt: skip
        self.put("#blocked-why", why)

    @on(Rows.Opened, "#switches")
    def _toggle(self, message: Rows.Opened) -> None:
        from clawpy_console.dialogs.confirm import Confirm

        name = message.row_id
        wanted = not dict(self.known.switches).get(name, False)
        if not wanted:
            self.app.keep_setting(name, False)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.app.keep_setting(name, True)

        self.app.push_screen(Confirm(f"Turn {name} on?", SWITCH_WORDS.get(name, ""), key="Y", word="turn on"), answered)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "resume":
            return any(hold.word in parameters for hold in self.app.holds)
        return super().check_action(action, parameters)

    def action_resume(self, word: str) -> None:
        if any(hold.word == word for hold in self.app.holds):
            self.app.resume(word)

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.query("#machine"):
            self.put("#machine", _machine(self.known, now))

    def copy_text(self) -> str:
        current = self.query_one("#blocked", Rows).current
        return next((one.reason for one in self.known.blocked if one.id == current), "")


SWITCH_WORDS = {
    "crossPollEnabled": "cards are made and approved work runs",
    "autonomousModeEnabled": "work may run by itself after silence, within every rail",
    "twinModelEnabled": "a model is asked which card you would want; costs money",
    "dpoExportEnabled": "decisions are written to dpo-pairs.jsonl every day",
}


def _last_words(known: Known) -> dict[str, tuple[str, str]]:
    """Each rail's word on the newest decision."""
    newest = known.log[0].verdicts if known.log else ()
    return {one.rail: SAID[one.verdict] for one in newest}


def _pipeline(known: Known, width: int) -> list[Content]:
    said = _last_words(known)
    boxes = [(label, *said.get(rail, ("· not asked", "$faint"))) for rail, label in RAILS]
    runs = not known.holds
    boxes.append(("execute", "✓ open", "$grey") if runs else ("execute", "■ held", "$wrong"))
    arrow = " → " if width >= 7 * 15 + 6 * 3 else "→"
    inner = min(20, (width - (len(boxes) - 1) * len(arrow)) // len(boxes) - 4)
    if inner < 11:
        return _pipeline_folded(boxes)
    gap = " " * len(arrow)
    top: list[Content | str | tuple[str, str]] = []
    middle, state, bottom = list(top), list(top), list(top)
    for number, (label, word, style) in enumerate(boxes):
        if number:
            top.append(gap)
            middle.append((arrow, "$faint"))
            state.append(gap)
            bottom.append(gap)
        edge = style if style in ("$wants", "$wrong") else "$line"
        top.append(("╭" + "─" * (inner + 2) + "╮", edge))
        middle += [("│ ", edge), (words.fit(label, inner), "bold $ink"), (" │", edge)]
        state += [("│ ", edge), (words.fit(word, inner), style), (" │", edge)]
        bottom.append(("╰" + "─" * (inner + 2) + "╯", edge))
    return [Content.assemble(*line) for line in (top, middle, state, bottom)]


def _pipeline_folded(boxes: list[tuple[str, str, str]]) -> list[Content]:
    parts: list[tuple[str, str]] = []
    for number, (label, word, style) in enumerate(boxes):
        if number:
            parts.append((" → ", "$faint"))
        short = label.removeprefix("human ").removesuffix(" switch")
        parts += [(f"{word[0]} ", style), (short, "$ink" if style == "$grey" else style)]
    return [Content.assemble(*parts)]


def _gauges(known: Known) -> Content:
    costs = known.costs
    if costs is None:
        return Content.styled("not known yet", "$grey")
    lines = []
    for label, spent, cap in (
        ("hour", costs.hour, costs.hour_cap),
        ("day", costs.day, costs.day_cap),
        ("month", costs.month, costs.month_cap),
    ):
        share = spent / cap if cap else 0.0
        cells = min(20, round(share * 20))
        style = cost_color(spent, cap).removeprefix("bold ")
        bar_style = "$accent" if style == "$grey" else style
        lines.append(
            Content.assemble(
                (f"{label:<6}", "$faint"),
                ("▇" * cells, bar_style),
                ("·" * (20 - cells), "$faint"),
                (f" {share * 100:>3.0f} %", style),
                (f"  {f'${spent / MICRO:.2f}':>8} of {words.cap(cap)}", "$grey"),
            )
        )
    return Content("\n").join(lines)


def _machine(known: Known, now: datetime) -> Content:
    state = known.autonomy.state

    def station(name: str) -> tuple[str, str]:
        glyph, color = STATES[name]
        return (
            (f"{glyph} {name}", f"bold {'$ink' if color == '$grey' else color}")
            if name == state
            else (f"○ {name}", "$faint")
        )

    lines = [
        Content.assemble(
            station("DISABLED"), (" ─ ", "$faint"), station("WATCHING"), (" ─ ", "$faint"), station("PRIMING"),
            (" ─ ", "$faint"), station("AUTONOMOUS"),
        ),
        Content.assemble((" " * 13 + "╰─ ", "$faint"), station("PAUSED")),
    ]  # fmt: skip
    view = known.autonomy
    if view.since:
        lines.append(Content.styled(f"since {words.moment(view.since, now)}: {words.one_line(view.cause)}", "$grey"))
    silence = words.span(view.silence_at(now)).replace("now", "0m")
    change = f"  ·  next change {words.hour(view.next_change)}" if view.next_change else ""
    lines.append(Content.styled(f"silent for {silence} of {int(view.threshold // 60)}m{change}", "$grey"))
    if known.phase:
        lines.append(Content.styled(words.one_line(known.phase), "$grey"))
    return Content("\n").join(lines)


def _switch(name: str, on: bool) -> Row:
    return Row(name, name, "●" if on else "○", "on" if on else "off", "ink" if on else "grey",
               "accent" if on else "faint", "ink" if on else "faint")  # fmt: skip


def _blocked_row(one: Logged, now: datetime) -> Row:
    text = f"{one.blocked_by:<8} {words.one_line(one.what)}"
    return Row(one.id, text, "✗", words.moment(one.at, now), "ink", "wrong")
