"""How a candidate is written: its row, its stations, what it would change, what speaks for and against it, its lift
(SPEC 5). Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.learning.lift_lines import points
from clawpy_console.widgets.parts import cropped
from clawpy_console.widgets.rows import Row
from engine.values.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    CandidateView,
    EffectPreview,
    LearningRecord,
    Lift,
)

STATUS: Mapping[CandidateStatus, tuple[str, str, str]] = {
    CandidateStatus.REVIEW: ("▲", "wants", "waits for you"),
    CandidateStatus.PROMOTED: ("●", "accent", "active"),
    CandidateStatus.DRAFTED: ("○", "grey", "needs more evidence"),
    CandidateStatus.ROLLED_BACK: ("▼", "grey", "rolled back"),
    CandidateStatus.REJECTED: ("✗", "faint", "rejected"),
}
"""Glyph, style and words of how a candidate stands, those that want the operator first."""

TYPES: Mapping[CandidateType, tuple[str, str]] = {
    CandidateType.PROMPT_FRAGMENT: ("prompt", "prompt fragment"),
    CandidateType.FIX_TEMPLATE: ("fix", "fix template"),
    CandidateType.ROUTING_HINT: ("routing", "routing hint"),
    CandidateType.POLICY_TWEAK: ("policy", "validation tweak"),
    CandidateType.FLOW_OFFLOAD: ("flow", "flow without a model"),
}
"""What a type is called in the list, and by itself."""

MONEY = frozenset({"cost", "spent", "budget"})
"""Details that are micro-dollars."""

CONTEXT = 3
"""Lines that stay the same, shown around what changes."""


# The list


def widths(width: int) -> tuple[int, int]:
    """Cells for the scope and for what is proposed, in a list of `width` cells; the scope goes first where it is
    narrow."""
    room = width - 3 - 8 - FIGURES
    scope = 0 if room < 40 else min(20, room // 3)
    return scope, max(8, room - (scope + 2 if scope else 0))


FIGURES = 16
"""Cells for score, evidence and lift."""


def columns(width: int) -> Content:
    """What stands over the list."""
    scope, room = widths(width)
    where = words.fit("scope", scope) + "  " if scope else ""
    return Content.styled(
        f"   {'type':<8}{where}{words.fit('what', room)} {'score':>5} {'ev.':>3} {'lift':>5}", "$faint"
    )


def candidate_rows(
    candidates: Sequence[Candidate], lifts: Mapping[str, Lift], width: int, *, only: CandidateStatus | None = None
) -> list[Row]:
    """Candidates by how they stand; within that the best borne out first."""
    rows: list[Row] = []
    for status, (_, _, heading) in STATUS.items():
        members = [one for one in candidates if one.status is status and only in (None, status)]
        members.sort(key=lambda one: (-one.score, one.title, one.id))
        if members:
            rows += [Row("", "")] if rows else []
            rows += [Row("", f" {heading.upper()}"), *(_row(one, lifts.get(one.id), width) for one in members)]
    return rows


def _row(one: Candidate, lift: Lift | None, width: int) -> Row:
    mark, style, _ = STATUS[one.status]
    scope, _ = widths(width)
    where = words.fit(scope_name(one), scope) + "  " if scope else ""
    figures = f"{one.score:>5.0f} {evidence(one):>3} {_lift_word(one, lift):>5}"
    text = f"{TYPES[one.type][0]:<8}{where}{words.one_line(one.title)}"
    shown = "ink" if one.status in (CandidateStatus.REVIEW, CandidateStatus.PROMOTED) else "grey"
    harms = lift is not None and lift.verdict == "harms"
    if harms and one.status is CandidateStatus.PROMOTED:
        mark, style = "▲", "wants"  # it waits to be rolled back
    return Row(one.id, text, mark, figures, shown, style, "wrong" if harms else "grey")


def evidence(one: Candidate) -> int:
    """How many records there are for it and against it."""
    return len({*one.drafted_from, *one.corroborated_by, *one.against})


def _lift_word(one: Candidate, lift: Lift | None) -> str:
    if lift is None:
        return "–"
    return "…" if lift.verdict == "not enough evidence" else points(lift.difference)


def scope_name(one: Candidate) -> str:
    """Whom or what it is about: a workspace by its name."""
    return words.name(one.scope_id) if one.scope_type == "workspace" else words.one_line(one.scope_id)


def searched(one: Candidate) -> str:
    """What words of the filter are looked for in, in lower case."""
    parts = (
        one.id, one.title, TYPES[one.type][1], one.type.value, one.scope_type, one.scope_id, one.source_label,
        STATUS[one.status][2], one.status.value, one.reason,
    )  # fmt: skip
    return " ".join(parts).lower()


# One candidate


def heading(one: Candidate, now: datetime, width: int, *, low: bool = False) -> list[Content]:
    """What it proposes, how it stands, whom it is about, where it holds; in fewer lines where it is `low`."""
    mark, style, said = STATUS[one.status]
    title = words.one_line(one.title)
    first = Content.styled(words.crop(title, width) if low else title, "bold $ink").wrap(max(8, width))[:2]
    by = f" by {BY.get(one.decided_by, one.decided_by)}" if one.decided_by else ""
    lines = [
        *first,
        cropped(
            [
                (f"{mark} {said}", f"bold ${style}" if style == "wants" else f"${style}"),
                (f"{by}  {words.moment(one.changed_at, now)}", "$grey"),
                (f"  {TYPES[one.type][1]}", "$ink"),
                (f"  score {one.score:.0f}", "$ink"),
            ],
            width,
        ),
    ]
    if low:
        lines.append(cropped([(f"{where(one)} · {seen(one)}", "$grey")], width))
    else:
        lines += [cropped([(told, "$grey")], width) for told in (where(one), seen(one))]
    if one.reason:
        reason = words.one_line(one.reason)
        lines += Content.styled(words.crop(reason, width) if low else reason, "$ink").wrap(max(8, width))[:3]
    return lines


BY = {"operator": "you", "autonomy": "the autonomous mode", "api": "the gateway"}


def where(one: Candidate) -> str:
    """Whose runs it changes, in words."""
    who = one.agent_id or "every agent"
    runs = f"{one.run_kind} runs" if one.run_kind else "all runs"
    place = f" in {words.name(one.workspace)}" if one.workspace else ""
    return f"for {who}, {runs}{place}"


def seen(one: Candidate) -> str:
    """What happened again and again, and where, in words."""
    return f"seen in {one.scope_type} {scope_name(one)}: {words.one_line(one.source_label)}"


# What it changes


def effect_lines(preview: EffectPreview, width: int) -> list[Content]:
    """How things are done now against how they would be: each line with its sign, what stays only near to what does
    not."""
    before, after = preview.before, preview.after
    lines: list[Content] = []
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(CONTEXT)):
        lines += [Content.styled("  ⋮", "$faint")] if number else []
        for tag, old, old_end, new, new_end in group:
            if tag == "equal":
                lines += _signed("  ", before[old:old_end], "$grey", width)
            else:
                lines += _signed("- ", before[old:old_end], "$wrong", width)
                lines += _signed("+ ", after[new:new_end], "$good", width)
    return lines or [Content.styled("It would change nothing right now.", "$wants")]


def _signed(sign: str, texts: Sequence[str], style: str, width: int) -> list[Content]:
    lines: list[Content] = []
    for text in texts:
        first, *rest = Content.styled(text.expandtabs(4) or " ", style).wrap(max(8, width - 2))
        lines.append(Content.assemble((sign, style), first))
        lines += [Content.assemble("  ", line) for line in rest]
    return lines


# What it rests on


def record_rows(view: CandidateView, now: datetime, *, low: bool = False) -> list[Row]:
    """Records by what they do for the candidate: it was drafted from them, they bear it out, they speak against it."""
    one = view.candidate
    groups: tuple[tuple[str, Collection[str], str, str], ...] = (
        ("DRAFTED FROM", one.drafted_from, "·", "grey"),
        ("BEAR IT OUT", one.corroborated_by, "✓", "good"),
        ("SPEAK AGAINST IT", one.against, "✗", "wants"),
    )
    rows: list[Row] = []
    for title, ids, mark, style in groups:
        members = [record for record in view.records if record.id in ids]
        if members:
            rows += [Row("", "")] if rows and not low else []
            rows.append(Row("", f" {title}  {len(members):,}"))
            rows += [_record_row(record, mark, style, now) for record in members]
    return rows


def _record_row(one: LearningRecord, mark: str, style: str, now: datetime) -> Row:
    text = f"{one.kind.value}: {words.one_line(one.reason)}"
    return Row(one.id, text, mark, f"{one.score:>3.0f} {words.span(now - one.at):>4}", "ink", style, "grey")


def record_lines(one: LearningRecord | None, now: datetime, width: int, *, leads: str = "") -> list[Content]:
    """One record: what happened, its score and how that was reckoned. `leads` is the key that goes to its session."""
    if one is None:
        return []
    who = ", ".join(part for part in (one.agent, words.name(one.workspace) if one.workspace else "") if part)
    label = one.source_label if one.source_label != one.kind.value else ""
    lines = [
        cropped(
            [
                (one.kind.value, "bold $ink"), (f"  {one.score:.0f} of 100", "$ink"),
                (f"  {words.moment(one.at, now)}", "$grey"), (f"  {who}" if who else "", "$grey"),
            ],
            width,
        ),
        *Content.styled(words.one_line(one.reason), "$grey").wrap(max(8, width)),
    ]  # fmt: skip
    if label:
        lines.append(Content.styled(words.crop(words.one_line(label), width), "$faint"))
    if told := details(one.details):
        lines += Content.styled(told, "$grey").wrap(max(8, width))[:3]
    session = f"{leads} goes to its session {one.session_id}" if one.session_id else "It did not happen in a session."
    return [*lines, Content.styled(words.crop(session, width), "$faint")]


def details(said: Mapping[str, Any]) -> str:
    """What the fact said that a record was made of, as far as it is short: `test tests/test_cart.py · attempts 3`."""
    shown = []
    for name, value in said.items():
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        if name in MONEY and isinstance(value, int):
            text = words.money(value)
        if text:
            shown.append(f"{name.replace('_', ' ')} {words.crop(words.one_line(text), 120)}")
    return " · ".join(shown)


# Deciding


def changes_lines(view: CandidateView, how: str, width: int) -> list[Content]:
    """What a decision changes, for the question before it: `how` is "approve", "reject" or "roll back"."""
    one, preview = view.candidate, view.preview
    told = Content.styled(words.crop(where(one), width), "$grey")
    if how == "approve":
        return [Content.styled("from now on", "bold $ink"), told, Content(""), *effect_lines(preview, width)]
    if how == "roll back":
        back = EffectPreview(preview.after, preview.before)
        return [Content.styled("its changes are removed", "bold $ink"), told, Content(""),
                *effect_lines(back, width)]  # fmt: skip
    return [
        *Content.styled("Nothing changes in how agents act.", "$ink").wrap(width),
        *Content.styled("It is proposed again only if new evidence outweighs your decision.", "$grey").wrap(width),
    ]


def section(title: str, width: int, more: str = "") -> Content:
    """A heading inside of the text."""
    head = f"{title}  " if more else f"{title} "
    room = max(0, width - cell_len(head) - cell_len(more) - (1 if more else 0))
    return Content.assemble((head, "bold $faint"), (f"{more} " if more else "", "$grey"), ("─" * room, "$line"))
