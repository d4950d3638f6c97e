"""How a session and what it changed are written: its row, its heading, its change set, its tests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import words
from clawpy_console.widgets.rows import Row
from engine.model import ChangeSet, ChangeState, CheckResult, FileChange, SessionState, SessionView
from engine.model.text import failures, seconds_in_words

if TYPE_CHECKING:
    from engine.model import ModelCall

MARKS = {"added": ("+", "good"), "deleted": ("-", "wrong"), "renamed": ("→", "grey"), "mode": ("·", "grey")}


def waits(change: ChangeSet | None) -> bool:
    """Whether it can be landed, branched or discarded: a landing that was taken back can be landed again."""
    return change is not None and change.state in (ChangeState.WAITING, ChangeState.UNDONE)


def session_outcome(session: SessionView) -> tuple[str, str, str]:
    """Sign, tone and words of how a session stands."""
    check, state = session.check, "discarded" if session.discarded_at else session.state
    failed = (check.failed, check.errors) if check and session.flow in words.TEST_RUNS else None
    return words.session_outcome(state, session.result, failed)


def session_row(
    session: SessionView, now: datetime, *, waits: bool = False, asks: bool = False, placed: bool = False
) -> Row:
    """A session in the list. `waits`: its changes wait to be landed; `asks`: it waits for a permission; `placed`: its
    repository is named, for the list has those of several."""
    mark, style = ("▲", "wants") if asks else ("▼", "wants") if waits else session_outcome(session)[:2]
    if session.state is SessionState.RUNNING and session.started_at:
        right = words.duration(now - session.started_at)
    else:
        right = words.span(now - (session.discarded_at or session.ended_at or session.created_at))
    place = f"{words.workspace_name(session.workspace)}: " if placed else ""
    text = f"{place}{words.one_line(session.prompt)}"
    return Row(session.id, text, mark, right, "ink" if waits or not session.state.over else "grey", style)


def file_row(file: FileChange) -> Row:
    """A changed file in the list."""
    mark, style = MARKS.get(file.status, ("~", "accent"))
    if file.refused or file.note:
        mark, style = ("✗", "wrong") if file.refused else ("▲", "wants")
    counts = "binary" if file.added is None else f"+{file.added} -{file.removed}"
    name = f"{file.old_path} → {file.path}" if file.old_path else file.path
    return Row(file.path, name, mark, counts, "ink", style, "faint")


def marked_files(files: Sequence[FileChange], width: int, limit: int) -> list[Content]:
    """What a reviewer must know of files before reading the diff, one line each: what cannot be landed first."""
    refused = [(f"✗ {file.path}: {file.refused}; cannot be landed", "$wrong") for file in files if file.refused]
    noted = [(f"▲ {file.path}: {file.note}", "$wants") for file in files if file.note and not file.refused]
    lines = [*refused, *noted]
    if len(lines) > limit:
        omitted = lines[limit - 1 :]
        summary = f"▲ {words.count(len(omitted), 'more file')} marked in the list below"
        lines = [*lines[: limit - 1], (summary, "$wrong" if len(refused) >= limit else "$wants")]
    return [Content.styled(words.crop(text, width), style) for text, style in lines]


def heading_lines(session: SessionView, calls: Sequence[ModelCall], now: datetime, width: int) -> list[Content]:
    """The heading of a session: what it does, how it stands, what it cost, who does it and where."""
    glyph, style, how = session_outcome(session)
    end = session.ended_at or now
    took = words.duration(end - session.started_at) if session.started_at else "not started"
    if session.state is SessionState.INTERRUPTED and session.started_at:
        took = f"started {words.moment(session.started_at, now)}"  # when it ended nobody saw: it was found out later
    workspace = words.workspace_name(session.workspace)
    place = f"{workspace} → {session.channel} · {session.flow or session.runner} · {session.mode}"
    outcome = words.one_line(session.error or session.summary)
    lines = [
        *Content.styled(words.one_line(session.prompt), "bold $ink").wrap(width)[:2],
        Content.assemble((f"{glyph} {how}", f"${style}"), (f"  {took} · {cost_words(session, calls)}", "$grey")),
        Content.styled(words.crop(place, width), "$grey"),
        *([Content.styled(words.crop(served, width), "$grey")] if (served := model_words(session, calls)) else []),
        Content.styled(words.crop(session.sandbox, width), "$faint"),
        Content.styled(words.crop(session.gone or session.cwd, width), "$faint"),
    ]
    if outcome and session.state.over:
        lines[3:3] = Content.styled(outcome, "$wrong" if session.error else "$ink").wrap(width)[:2]
    return lines


def cost_words(session: SessionView, calls: Sequence[ModelCall] = ()) -> str:
    """What it cost, with its tokens; `≈` before what is an estimate, for a model whose price nobody knows."""
    about = "≈" if any(not call.price_known for call in calls) and session.cost else ""
    tokens = f" · {words.tokens(session.tokens)} tokens" if session.tokens else ""
    return f"{about}{words.money(session.cost)}{tokens}"


def model_words(session: SessionView, calls: Sequence[ModelCall]) -> str:
    """The agent and the models that its calls went to, "" for a flow."""
    if session.flow is not None:
        return ""
    models = ", ".join(
        dict.fromkeys(f"{call.provider}:{call.model}" if call.provider else call.model for call in calls)
    )
    counted = f" · {words.count(len(calls), 'call')}" if calls else ""
    return f"{session.agent} by {models or session.runner}{counted}"


def change_words(change: ChangeSet | None, session: SessionView | None) -> str:
    """What became of what a session changed."""
    if change is None:
        return "This changed no files." if session is None or session.state.over else "None yet."
    files = words.count(len(change.files), "file")
    landed = f"{words.count(change.landed, 'file')} landed, " if change.landed else ""
    return {
        ChangeState.WAITING: f"▼ {landed}{files} to land",
        ChangeState.LANDED: f"✓ {files} landed",
        ChangeState.BRANCHED: f"✓ {files} on branch {change.branch}",
        ChangeState.DISCARDED: f"{files} discarded",
        ChangeState.UNDONE: f"↶ {files}, landing undone",
    }[change.state]


def check_words(check: CheckResult) -> Content:
    """How the tests ended, with the first that failed."""
    errors = words.count(check.errors, "error")
    parts = ((check.failed, f"{check.failed} failed"), (check.errors, errors), (True, f"{check.passed} passed"))
    counts = ", ".join(word for number, word in parts if number)
    glyph, style = ("✓", "$grey") if check.green else ("✗", "$wrong")
    head = Content.assemble(
        (f"{glyph} {check.tool}: {counts}", style), (f"  {seconds_in_words(check.seconds)}", "$faint")
    )
    return Content("\n").join(
        [head, *(Content.styled(f"  {words.one_line(item)}", "$grey") for item in check.failing[:5])]
    )


def failure_lines(session: SessionView) -> list[tuple[str, str]]:
    """What stands at the end of the output of a run whose tests failed: each cause with its number of tests, and the
    first of these. The engine tells which failures are alike. A bisect ends with its culprit."""
    check = session.check
    if check is None or not check.failing or session.facts.get("culprit"):
        return []
    causes_found = session.facts.get("causes")
    if causes_found:
        groups = {item["cause"]: list(item["tests"]) for item in causes_found}
    else:
        alike = session.facts.get("signatures") or {}
        groups = {}
        for test in check.failing:
            groups.setdefault(alike.get(test, ""), []).append(test)
    causes = f", {words.count(len(groups), 'cause')}" if any(groups) else ""
    lines = [("", ""), ("failed", f"{failures(check.failed, check.errors)}{causes}")]
    for cause, tests in sorted(groups.items(), key=lambda pair: (not pair[0], -len(pair[1]))):
        more = f"  and {len(tests) - 1} more like it" if len(tests) > 1 else ""
        message = words.one_line(session.facts.get("messages", {}).get(cause, cause))
        if not message:  # the output tells no cause: the tests are named, and no more
            lines += [("error", words.one_line(test)) for test in tests]
            continue
        lines.append(("error", f"{words.count(len(tests), 'test')}: {message}"))
        if more or tests[0] not in message:
            lines.append(("same", f"  {words.one_line(tests[0])}{more}"))
    return lines
