"""How a learning is written: scopes, entries in the list and by themselves, where one came from and went to (SPEC 6).
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words
from clawpy_console.widgets.parts import cropped, named, score
from clawpy_console.widgets.rows import Row
from engine.values import (
    LearningEntry,
    LearningKind,
    LearningReach,
    LearningScope,
    LearningStatus,
    LearningView,
    ScopeState,
)

TEXT_MOST = 20_000
"""Characters of an entry that are shown; the file has it whole."""

ALL = "all"
"""The id of the row that stands for every scope."""

SCOPES: Mapping[LearningScope, str] = {
    LearningScope.GLOBAL: "all projects",
    LearningScope.PROJECT: "one repository",
    LearningScope.SESSION: "one session",
    LearningScope.TEAM: "of the people of one leader, in one session",
}
"""What each scope means, the widest first."""

KINDS: Mapping[LearningKind, tuple[str, str]] = {
    LearningKind.INSTITUTIONAL: ("how", "institutional: how things are done here"),
    LearningKind.TASK: ("task", "task: what was found out about a piece of work"),
    LearningKind.PROXY: ("you", "about you: it is never promoted"),
}
"""What a kind is called in the list, and by itself."""

STATUS: Mapping[LearningStatus, tuple[str, str, str]] = {
    LearningStatus.ACTIVE: ("●", "grey", "holds"),
    LearningStatus.RETIRED: ("✗", "faint", "retracted"),
    LearningStatus.COMPACTED: ("·", "faint", "folded into another"),
}


# Scopes


def scope_key(one: ScopeState) -> str:
    """What a row of the scopes stands for: its folder, for a leader has a team in each session."""
    return one.path or one.scope.value


def scope_name(scope: LearningScope, scope_id: str, workspace: str, task: str = "") -> str:
    """What a scope is called, in a column: a session by the `task` that it was at, where that is known, a team by its
    leader, and by that too."""
    match scope:
        case LearningScope.GLOBAL:
            return "everywhere"
        case LearningScope.PROJECT:
            return words.name(workspace) or words.one_line(scope_id)
        case LearningScope.TEAM:
            return words.one_line(f"{scope_id}: {task}" if task else scope_id)
    return words.one_line(task or scope_id)


def scope_rows(scopes: Sequence[ScopeState], tasks: Mapping[str, str], now: datetime) -> list[Row]:
    """Every scope, the widest first; of those of a kind the youngest first. `tasks` are those of sessions, by id."""
    total = sum(_count(one) for one in scopes)
    rows = [Row(ALL, "all of them", "●" if total else "○", f"{total:,}     ", "ink", "grey", "grey")]
    for scope in SCOPES:
        members = [one for one in scopes if one.scope is scope]
        members.sort(key=lambda one: (-(one.newest.timestamp() if one.newest else 0.0), one.scope_id))
        rows += [_scope_row(one, tasks.get(session_of(one), ""), now) for one in members]
    return rows


def session_of(one: ScopeState) -> str:
    """The session that a scope is of, "" for none: a team's folder is in that of its session."""
    folders = one.path.split("/")
    if one.scope is LearningScope.TEAM and "sessions" in folders[:-1]:
        return folders[folders.index("sessions") + 1]
    return one.scope_id if one.scope is LearningScope.SESSION else ""


def _count(one: ScopeState) -> int:
    return one.institutional + one.tasks + one.proxy


def _scope_row(one: ScopeState, task: str, now: datetime) -> Row:
    mark, style = ("▲", "wants") if one.faults else ("●", "grey") if _count(one) else ("○", "faint")
    right = f"{_count(one):,} {words.span(now - one.newest) if one.newest else '–':>4}"
    name = f"{one.scope.value:<9}{scope_name(one.scope, one.scope_id, one.workspace, task)}"
    return Row(scope_key(one), name, mark, right, "ink", style, "grey")


def scope_lines(one: ScopeState | None, width: int) -> list[Content]:
    """What a scope is and holds, and what of it cannot be read."""
    if one is None:
        return []
    counts = (
        (one.institutional, "how things are done"), (one.tasks, "about work"), (one.proxy, "about you"),
        (one.retired, "retracted"),
    )  # fmt: skip
    said = ", ".join(f"{count:,} {name}" for count, name in counts if count) or "nothing in it yet"
    lines = [*Content.styled(f"{SCOPES[one.scope]}: {said}", "$grey").wrap(max(8, width))]
    for fault in one.faults[:5]:
        lines += Content.styled(f"▲ {words.one_line(fault)}", "$wants").wrap(max(8, width))
    if len(one.faults) > 5:
        lines.append(Content.styled(f"  and {len(one.faults) - 5:,} more", "$faint"))
    return lines


# Entries


def entry_rows(entries: Sequence[LearningEntry], now: datetime, width: int, *, scoped: bool) -> list[Row]:
    """Entries as they come; with their scope where they are of several (`scoped` False)."""
    wide = 0 if scoped else min(18, max(8, width // 5), max((cell_len(_where(one)) for one in entries), default=0))
    return [_entry_row(one, wide, now) for one in entries]


def _where(one: LearningEntry) -> str:
    return scope_name(
        one.scope, one.scope_id, one.workspace, one.session_task if one.scope is LearningScope.SESSION else ""
    )


def _entry_row(one: LearningEntry, wide: int, now: datetime) -> Row:
    mark, style, _ = STATUS[one.status]
    if one.review and one.active:
        mark, style = "▲", "wants"
    where = f"{words.fit(_where(one), wide)}  " if wide else ""
    text = f"{KINDS[one.kind][0]:<5}{where}{words.one_line(one.title or one.text[:200])}"
    said = f"×{one.reinforcement_count + 1}" if one.reinforcement_count else ""
    age = words.span(now - one.created_at) if one.created_at else ""
    return Row(one.id, text, mark, f"{said:>4} {age:>4}", "ink" if one.active else "faint", style, "grey")


def entry_lines(view: LearningView | None, now: datetime, width: int) -> list[Content]:
    """An entry: what it says, how sure and how weighty it is and why, where it is kept."""
    if view is None:
        return [Content.styled("Select a learning.", "$faint")]
    one = view.entry
    mark, style, said = STATUS[one.status]
    where = _where(one)
    head = f"{one.scope.value} {where}" if where != "everywhere" else one.scope.value
    title = words.one_line(one.title)
    titled = bool(title) and not words.one_line(one.text).startswith(title.rstrip("…. "))  # else the text says it
    lines = [
        *(Content.styled(title, "bold $ink").wrap(max(8, width))[:3] if titled else []),
        cropped([(f"{mark} {said}", f"${style}"), (f"  {head}", "$accent"), (f"  {one.type.value}", "$ink")], width),
    ]
    if one.review:
        lines += Content.styled(f"▲ look at it again: {words.one_line(one.review)}", "$wants").wrap(max(8, width))
    if one.retired_because:
        lines += Content.styled(words.one_line(one.retired_because), "$wants").wrap(max(8, width))
    if one.merged_into:
        lines.append(Content.styled(words.crop(f"folded into {one.merged_into}", width), "$grey"))
    lines.append(Content(""))
    lines += _text(one.text, width)
    lines += [
        Content(""),
        *score("confidence", one.confidence, (), width),
        *score("importance", one.importance, one.reasons, width),
    ]
    lines.append(Content(""))
    lines += named("kind", KINDS[one.kind][1], width)
    lines += named("found", _found(one, now), width)
    if one.session_task:
        lines += named("at work on", words.one_line(one.session_task), width)
    if one.reinforcement_count:
        last = f", last {words.moment(one.last_reinforced, now)}" if one.last_reinforced else ""
        lines += named("said again", f"by {words.count(one.reinforcement_count, 'session')}{last}", width)
    if one.promoted_at is not None:
        count = words.count(len(one.promoted_from), "entry", "entries")
        lines += named("promoted", f"{words.moment(one.promoted_at, now)}, from {count}", width)
    if view.gone:
        lines += named("gone", f"{words.count(len(view.gone), 'source')} in no file any more", width, "$wants")
    lines += named("prompts", _prompts(view), width)
    if one.path:
        lines += named("file", one.path, width, "$faint")
    return lines


def _found(one: LearningEntry, now: datetime) -> str:
    at = words.moment(one.created_at, now) if one.created_at else "at an unknown time"
    by = f" by {one.agent}" if one.agent else ""
    about = "how people work together" if one.domain == "team" else "the work itself"
    return f"{at}{by}, {one.phase or 'written by hand'}, about {about}"


def _prompts(view: LearningView) -> str:
    if not view.prompts:
        return "it reached none yet"
    return f"it reached {words.count(view.prompts, 'prompt')}"


def _text(text: str, width: int) -> list[Content]:
    lines: list[Content] = []
    for line in text[:TEXT_MOST].rstrip("\n").expandtabs(4).split("\n"):
        lines += Content.styled(line, "$ink").wrap(max(8, width)) if line.strip() else [Content("")]
    if len(text) > TEXT_MOST:
        lines.append(Content.styled(f"… {words.count(len(text) - TEXT_MOST, 'character')} more", "$faint"))
    return lines


# Provenance


@dataclass(frozen=True, slots=True)
class Lead:
    """Where a row of the provenance goes: to an entry, or to a session; "" for what is not there."""

    row: Row
    entry: str = ""
    session: str = ""


def leads(view: LearningView | None, tasks: Mapping[str, str], now: datetime) -> list[Lead]:
    """Both ways: what it was promoted from and the sessions that it is owed to; what was promoted from it and the
    prompts that carried it. Headings have an empty id; `tasks` are those of sessions, by id."""
    if view is None:
        return []
    groups: tuple[tuple[str, list[Lead]], ...] = (
        ("CAME FROM", [_entry_lead("from", one, now) for one in view.promoted_from]),
        ("OWED TO", [
            Lead(Row(f"session:{one}", f"session {_task(one, tasks)}", "○", "", "ink", "grey"), session=one)
            for one in view.sessions
        ]),
        ("WENT TO", [_entry_lead("to", one, now) for one in view.promoted_to]),
        ("REACHED", [_reach_lead(number, one, tasks, now) for number, one in enumerate(view.reached)]),
    )  # fmt: skip
    found: list[Lead] = []
    for title, members in groups:
        if members:
            more = view.prompts - len(members) if title == "REACHED" else 0
            found += [Lead(Row("", ""))] if found else []
            found += [Lead(Row("", f" {title}  {len(members) + max(0, more):,}")), *members]
    return found


def _reach_lead(number: int, one: LearningReach, tasks: Mapping[str, str], now: datetime) -> Lead:
    name = f"a prompt of {one.agent or 'an agent'}: {_task(one.session, tasks)}"
    return Lead(
        Row(f"call:{one.call}:{number}", name, "▸", words.span(now - one.at), "ink", "grey"), session=one.session
    )


def _task(session_id: str, tasks: Mapping[str, str]) -> str:
    return words.one_line(tasks.get(session_id, "")) or session_id


def _entry_lead(way: str, one: LearningEntry, now: datetime) -> Lead:
    mark, style, _ = STATUS[one.status]
    name = f"{one.scope.value:<8}{words.one_line(one.title or one.text[:200])}"
    at = one.promoted_at or one.created_at
    shown = "ink" if one.active else "faint"
    return Lead(Row(f"{way}:{one.id}", name, mark, words.span(now - at) if at else "", shown, style), entry=one.id)


# Deciding


def retract_lines(view: LearningView, width: int) -> list[Content]:
    """What retracting changes, for the question before it."""
    held = [one for one in view.promoted_to if one.active]
    lines = [
        *Content.styled(words.one_line(view.entry.title or view.entry.text[:200]), "bold $ink").wrap(width)[:3],
        Content(""),
        *Content.styled("No prompt carries it from now on. It stays in its file, marked as retired, with your reason.",
                        "$ink").wrap(width),
    ]  # fmt: skip
    if not held:
        return [*lines, *Content.styled("Nothing valid was promoted from it.", "$grey").wrap(width)]
    told = f"{words.count(len(held), 'learning was', 'learnings were')} promoted from it, and will wait for your word:"
    lines += Content.styled(told, "$wants").wrap(width)
    for one in held[:8]:
        lines.append(
            Content.styled(
                words.crop(f"▸ {one.scope.value}: {words.one_line(one.title or one.text[:200])}", width), "$ink"
            )
        )
    if len(held) > 8:
        lines.append(Content.styled(f"  and {len(held) - 8:,} more", "$faint"))
    return lines


def promote_lines(view: LearningView, width: int) -> list[Content]:
    """What promoting to global changes, for the question before it."""
    one = view.entry
    return [
        *Content.styled(words.one_line(one.title or one.text[:200]), "bold $ink").wrap(width)[:3],
        *_text(one.text, width)[:12],
        Content(""),
        *Content.styled(
            f"It applies in {_where(one)} now. If you confirm, a copy goes into the global file and from there into "
            "the prompts of every project. The copy can be retracted.", "$ink",
        ).wrap(width),
    ]  # fmt: skip
