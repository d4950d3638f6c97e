"""What the safety screen writes below the pipeline, as lines for a width: values in, words out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.safety import machine, pipeline
from clawpy_console.screens.safety.pipeline import GLYPHS, first_no
from clawpy_console.state import Known, Logged
from clawpy_console.widgets.rows import Row
from engine.values import ChainStep, Hold, RailState, RailVerdict, StopLevel, Verdict

QUESTIONS = {
    "stop": ("Resume after the stop?", "Approved work may start again. Stopped sessions stay stopped."),
    "month": ("Resume after the month stop?", "The month's cap was reached. Raise the cap as "
              "well, or the next paid call stops everything again."),
}  # fmt: skip
"""Holds that ask for a second key, with the question and what lifting means."""
LEVELS = {"config": "configuration", "api": "API, this run", "key": "F12", "outside": "from outside"}


def content_block(one: Logged) -> RailVerdict | None:
    """The content filter's block of this decision, if that is what it was."""
    return next((v for v in one.verdicts if v.rail == "content" and v.verdict is Verdict.BLOCK), None)


def searched(one: Logged) -> str:
    """What a filter looks at."""
    said = " ".join(f"{v.rail} {v.rule} {v.reason}" for v in one.verdicts if v.verdict is not Verdict.ALLOW)
    return f"{one.blocked_by} {said} {one.what} {one.channel} {one.workspace} {one.trigger}".lower()


def decision_lines(known: Known, width: int, now: datetime, cursor: int) -> list[Content]:
    newest = known.log[0] if known.log else None
    lines = [pipeline.newest_line(newest, now, width)]
    stopper = first_no(newest.verdicts) if newest else None
    rail: RailState | None
    if 0 <= cursor < len(known.rails):
        rail = known.rails[cursor]
    else:
        rail = next((one for one in known.rails if stopper and one.rail == stopper.rail), None)
        foremost = pipeline.foremost(known.rails)
        if rail is None or (foremost is not None and foremost.rail == "kill"):
            rail = foremost
    if rail is not None:
        lines.append(pipeline.rail_line(rail, width, now, known.acts))
    return lines


def machine_lines(known: Known, now: datetime, width: int, low: bool) -> list[Content]:
    """The state machine and what is known of it."""
    lines = [*machine.diagram(known.autonomy.state, tall=not low), *machine.facts(known, now, width)]
    if known.by_itself:
        lines += Content.styled(words.one_line(known.by_itself), "$ink").wrap(max(8, width))[: 2 if low else 4]
    if known.phase and not known.learning and not low:
        lines.append(Content.styled(words.crop(words.one_line(known.phase), width), "$grey"))
    return lines


def hold_lines(known: Known, holds: Iterable[Hold], now: datetime, width: int, resume: str, dnd: str) -> list[Content]:
    """What holds the engine and how it is lifted, then quiet hours; `resume` and `dnd` are keys."""
    lines: list[Content] = []
    for hold in holds:
        style = "$wrong" if hold.word == "stop" else "$wants"
        left = f", over in {words.duration(hold.until - now)}" if hold.until and hold.until > now else ""
        lines.append(
            Content.assemble(
                (f"■ {hold.word:<6}", f"bold {style}"), (resume, "bold $accent"), (f" to resume{left}", "$grey")
            )
        )
        said = f"  since {words.moment(hold.since, now)}: {words.one_line(hold.reason)}"
        lines.append(Content.styled(words.crop(said, width), "$grey"))
    if not lines:
        lines.append(Content.styled("none", "$grey"))
    quiet = known.quiet
    hours = "none" if quiet.start == quiet.end else f"{quiet.start:02}:00–{quiet.end:02}:00"
    if quiet.dnd_until is not None:
        until = f"until {words.hour(quiet.dnd_until)}, {dnd} to end"
        lines.append(Content.assemble(("● do not disturb ", "$wants"), (until, "$grey")))
    else:
        mark, style = ("● now in", "$wants") if quiet.now else ("○", "$grey")
        lines.append(
            Content.assemble((f"{mark} quiet hours {hours}", style), (f" · {dnd} do not disturb for 2 h", "$faint"))
        )
    return lines


def level_lines(levels: Iterable[StopLevel], width: int) -> list[Content]:
    """The four levels of the kill switch; one that is thrown says how it is lifted."""
    lines = []
    for one in levels:
        mark, style = ("■", "$wrong") if one.thrown else ("○", "$faint")
        said = f"{one.words}: {one.lift}" if one.thrown else one.words
        head = Content.assemble((f"{mark} ", style), (f"{LEVELS.get(one.name, one.name):<14}", "$ink"))
        room = max(4, width - head.cell_length)
        lines.append(Content.assemble(head, (words.crop(words.one_line(said), room), style if one.thrown else "$grey")))
    return lines or [Content.styled("not read yet", "$faint")]


def chain_lines(steps: Sequence[ChainStep], now: datetime, width: int) -> list[Content]:
    """Each link with its age, the length of its chain, how often the pair ran, until when no answer may come."""
    if not steps:
        return [Content.styled("No work has triggered other work yet.", "$faint")]
    size = max(14, min(34, width - 27))
    lines = [Content.styled(f"{'age':>4} {'link':<{size}} depth  10m  no reply", "$faint")]
    for one in steps:
        answer = one.answer_until is not None and one.answer_until > now
        counted = one.depth > 1 or one.runs > 0 or answer
        lines.append(
            Content.assemble(
                (f"{words.span(now - one.at):>4} ", "$faint"),
                (words.fit(f"{one.from_channel} → {one.to_channel}", size), "$ink" if counted else "$grey"),
                (f" {one.depth:>5}", "$ink" if one.depth > 1 else "$faint"),
                (f" {f'{one.runs}×' if one.runs else '–':>4}", "$ink" if one.runs else "$faint"),
                (f"  to {words.hour(one.answer_until)}" if answer and one.answer_until else "  –", "$grey"),
            )
        )
    return lines


def switch_rows(known: Known) -> Iterable[Row]:
    """The flags, then what each workspace allows; a workspace's row has its path as id."""
    for name, on_ in known.switches:
        yield Row(name, name, "●" if on_ else "○", "on" if on_ else "off", "ink" if on_ else "grey",
                  "accent" if on_ else "faint", "ink" if on_ else "faint")  # fmt: skip
    if known.autonomies:
        yield Row("", " AUTONOMY BY WORKSPACE")
    for workspace, autonomy in known.autonomies:
        mark = {"act": "●", "cards": "◐"}.get(autonomy, "○")
        yield Row(workspace, words.name(workspace), mark, autonomy, "ink" if autonomy != "off" else "grey",
                  "accent" if autonomy == "act" else "grey", "accent" if autonomy == "act" else "grey")  # fmt: skip


def blocked_row(one: Logged, now: datetime) -> Row:
    """One decision that did not pass: the rail, what was asked, when."""
    no = first_no(one.verdicts)
    asks = no is not None and no.verdict is Verdict.ASK
    mark, style = ("▲", "wants") if asks else ("✗", "wrong")
    if one.lifted:
        mark, style = "◌", "accent"
    rail = pipeline.NAMES.get(one.blocked_by, one.blocked_by)
    return Row(one.id, f"{rail:<8} {words.one_line(one.what)}", mark, words.moment(one.at, now), "ink", style)


def why_lines(one: Logged, now: datetime, width: int, key: str) -> list[Content]:
    """What was asked, each rail that did not allow it with rule and reason, and what can be done."""
    lines = [Content(""), *Content.styled(words.one_line(one.what), "$ink").wrap(width)[:3]]
    kind = f"{one.trigger} · " if one.trigger else ""
    start = f" from {one.from_channel}" if one.from_channel not in ("", "owner") else ""
    where = f"{kind}{words.name(one.workspace)} → {one.channel}{start} · {words.moment(one.at, now)}"
    lines.append(Content.styled(words.crop(where, width), "$faint"))
    for verdict in one.verdicts:
        if verdict.verdict is Verdict.ALLOW:
            continue
        glyph, style = GLYPHS[verdict.verdict]
        head = Content.assemble(
            (f"{glyph} {pipeline.NAMES.get(verdict.rail, verdict.rail)}", style),
            (f"  rule {verdict.rule}" if verdict.rule else "", "$faint"),
        )
        lines += [*head.wrap(width)[:1], *Content.styled(words.one_line(verdict.reason), "$grey").wrap(width)[:2]]
    if one.lifted:
        lines.append(Content.styled("◌ Allowed once. Approve the card to run it.", "$accent"))
    elif content_block(one) is not None:
        lines.append(Content.assemble((key, "bold $accent"), (" to allow exactly this once", "$grey")))
    return lines
