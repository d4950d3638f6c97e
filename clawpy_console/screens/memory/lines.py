"""How memory is written: the layers, an entry in the list and by itself, the parts of a score. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.memory.layers import NAMES, Detail, Entry, Link
from clawpy_console.widgets.rows import Row
from engine.values import Injection, Layer, LayerState, Recalled

STATES: Mapping[str, tuple[str, str]] = {
    "ready": ("●", "grey"), "building": ("◐", "accent"), "degraded": ("▲", "wants"), "off": ("○", "faint"),
}  # fmt: skip

BAR = 12

TEXT_MOST = 20_000
"""Characters of an entry that are shown; the file or the session has it whole."""


def state_of(layers: Sequence[LayerState], layer: Layer) -> LayerState | None:
    """How one layer stands; None before it was read."""
    return next((one for one in layers if one.layer is layer), None)


def layer_row(layer: Layer, state: LayerState | None, now: datetime) -> Row:
    """A layer in the list: letter, name, how many, how fresh."""
    name = f"{layer.value}  {NAMES[layer][0]}"
    if state is None:
        return Row(layer.value, name, "○", "", "grey", "faint")
    mark, style = STATES.get(state.state, ("▲", "wants"))
    if state.state == "building":
        right = f"{_count(state.count)} {round(state.progress * 100):>3} %"
    else:
        right = f"{_count(state.count)} {words.span(now - state.fresh_at) if state.fresh_at else '–':>4}"
    return Row(layer.value, name, mark, right, "ink", style, "grey")


def layer_lines(layer: Layer, state: LayerState | None, now: datetime, width: int) -> list[Content]:
    """What a layer is and how it stands, in words."""
    lines = [
        Content.assemble((f"{layer.value} {NAMES[layer][0]}", "bold $accent")),
        *Content.styled(NAMES[layer][1], "$grey").wrap(width),
    ]
    if state is None:
        return [*lines, Content.styled("not read yet", "$faint")]
    mark, style = STATES.get(state.state, ("▲", "wants"))
    said = f"{mark} {state.state}" + (f": {state.words}" if state.words else "")
    lines += [Content(""), *Content.styled(words.one_line(said), f"${style}").wrap(width)]
    if state.state == "building":
        done = round(state.progress * (width - 6))
        lines.append(
            Content.assemble(
                ("━" * done, "$accent"), ("·" * (width - 6 - done), "$faint"), f" {round(state.progress * 100):>3} %"
            )
        )
    newest = f", newest {words.moment(state.fresh_at, now)}" if state.fresh_at else ""
    lines.append(Content.styled(words.crop(f"{words.count(state.count, 'entry', 'entries')}{newest}", width), "$grey"))
    return lines


def _count(number: int) -> str:
    return f"{number:,}" if number < 100_000 else words.tokens(number)


def entry_rows(entries: Sequence[Entry], now: datetime) -> list[Row]:
    """Entries as rows, a heading where the group changes."""
    rows: list[Row] = []
    wide = min(14, max((len(one.word) for one in entries if one.score is None), default=0))
    group = ""
    for one in entries:
        if one.group != group and one.score is None:
            rows += [Row("", "")] if rows else []
            rows.append(Row("", f" {one.group}"))
            group = one.group
        rows.append(_entry_row(one, wide, now))
    return rows


def _entry_row(one: Entry, wide: int, now: datetime) -> Row:
    text = words.one_line(one.text[:400])
    if one.score is not None:
        return Row(one.key, text, f"{one.score:.2f}", words.moment(one.at, now) if one.at else "", "ink", "accent")
    style = "faint" if one.old else "ink"
    right = words.span(now - one.at) if one.at else ""
    return Row(
        one.key, f"{words.fit(one.word, wide)}  {text}" if wide else text, one.mark or " ", right, style, one.mark_style
    )


def detail_lines(detail: Detail | None, now: datetime, width: int) -> list[Content]:
    """One entry: what it is and where it came from, then its text."""
    if detail is None:
        return [Content.styled("Select an entry.", "$faint")]
    one = detail.entry
    ago = words.span(now - one.at) if one.at else ""
    at = f"  {words.moment(one.at, now)}, {'just now' if ago == 'now' else f'{ago} ago'}" if one.at else ""
    lines = [
        Content.assemble((f"{one.layer.value} {NAMES[one.layer][0]}", "bold $accent"), (at, "$grey")),
        Content.styled(words.crop(one.id, width), "$faint"),
    ]
    for name, value in detail.told:
        lines += _named(name, value, width)
    if one.old:
        lines.append(Content.styled("· no longer valid", "$wants"))
    if detail.trouble:
        lines += Content.styled(f"✗ {detail.trouble}", "$wrong").wrap(width)
    lines.append(Content(""))
    shown = detail.text[:TEXT_MOST]
    for line in shown.split("\n"):
        lines += Content.styled(line, "$ink").wrap(width) if line else [Content("")]
    if len(detail.text) > TEXT_MOST:
        lines.append(Content.styled(f"… {words.count(len(detail.text) - TEXT_MOST, 'character')} more", "$faint"))
    if not detail.text:
        lines.append(Content.styled("it is empty", "$faint"))
    return lines


def _named(name: str, value: str, width: int) -> list[Content]:
    first, *rest = Content.styled(value, "$grey").wrap(max(8, width - 10))
    return [Content.assemble((f"{name:<10}", "$faint"), first), *(Content.assemble(" " * 10, line) for line in rest)]


def link_rows(links: Sequence[Link], now: datetime) -> list[Row]:
    """Where one can go on from an entry."""
    rows: list[Row] = []
    heading = ""
    wide = max((len(one.word) for one in links), default=0)
    for one in links:
        if one.heading != heading:
            rows += [Row("", "")] if rows else []
            rows.append(Row("", f" {one.heading}"))
            heading = one.heading
        right = "this one" if one.here else words.span(now - one.at) if one.at else ""
        text = f"{words.fit(one.word, min(wide, 20))}  {words.one_line(one.text)}" if wide else words.one_line(one.text)
        style = "ink" if one.here or one.layer is not Layer.PARA or one.word == "holds" else "grey"
        rows.append(Row(one.key, text, one.mark or " ", right, style, one.mark_style))
    return rows


# What would be recalled


def score_lines(one: Recalled | None, dropped: bool, now: datetime, width: int) -> list[Content]:
    """Why a memory is recalled: where it is from, the reason, and each part of its score as a bar."""
    if one is None:
        return [Content.styled("Select a line.", "$faint")]
    at = f"  {words.moment(one.at, now)}" if one.at else ""
    lines = [
        Content.assemble(
            (f"{one.layer.value} {NAMES[one.layer][0]}", "bold $accent"), (f"{at}  {one.tokens:,} tokens", "$grey")
        )
    ]
    if dropped:
        lines.append(Content.styled("▼ left out (budget)", "$wants"))
    lines += [*Content.styled(words.one_line(one.reason), "$ink").wrap(width), Content("")]
    name_room = min(18, max([len(part.name) for part in one.parts] + [5]))
    for part in one.parts:
        filled = round(max(0.0, min(1.0, part.value)) * BAR)
        lines.append(
            Content.assemble(
                (words.fit(part.name, name_room) + " ", "$grey"),
                ("▇" * filled, "$accent"), ("·" * (BAR - filled), "$faint"),
                (f" {part.value:.2f}", "$ink"), (f" × {part.weight:.2f}", "$faint"),
            )
        )  # fmt: skip
    lines.append(
        Content.assemble((words.fit("score", name_room) + " " * (BAR + 1), "$grey"), (f" {one.score:.2f}", "bold $ink"))
    )
    lines.append(Content(""))
    lines += _named("source", words.one_line(one.source) or one.id, width)
    return lines + (_named("speaker", words.one_line(one.speaker), width) if one.speaker else [])


def recall_words(found: Injection) -> Content:
    """One line over the block: how many lines, how much of the budget, how long it took."""
    fell = f"  ·  {words.count(len(found.dropped), 'memory', 'memories')} left out" if found.dropped else ""
    if found.part is None:
        said = "nothing would be recalled" + ("" if found.budget else ": recallTokens is 0")
    else:
        said = f"{words.count(len(found.items), 'memory', 'memories')}, {found.tokens:,} of {found.budget:,} tokens"
    return Content.assemble((said, "bold $ink"), (f"{fell}  ·  {found.seconds * 1000:.0f} ms", "$grey"))
