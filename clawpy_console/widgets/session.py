"""A session in words: its row, its heading, its calls of models, its change set and its tests. Pure.

Mission control, the work screen, the hierarchy screen, the X-ray and the details of a card word sessions with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields import SIGNS, Label
from clawpy_console.fields import cards as card_fields
from clawpy_console.formats import crop, one_line, workspace_name
from clawpy_console.widgets import Row
from clawpy_console.widgets.texts import wrap_text
from engine.model import LEFT_OUT, ChangeSet, ChangeState, CheckResult, FileChange, Result, SessionState, SessionView
from engine.wording import seconds_in_words

if TYPE_CHECKING:
    from engine.model import ModelCall


MAX_HEADING_LINES = 2
"""Maximum number of lines of the prompt, and of the result, in the heading of a session."""


def is_waiting_to_land(change: ChangeSet | None) -> bool:
    """Whether `change` can be landed, branched or discarded; after an undo it can be landed again."""
    return change is not None and change.state.is_undecided


def make_session_label(session: SessionView) -> Label:
    """How a session stands."""
    check = session.check
    state = "discarded" if session.discarded_at else session.state
    failed, errors = (check.failed, check.errors) if check else (0, 0)
    return card_fields.make_outcome_label(state, session.result, session.flow, failed, errors)


def find_last_event_time(session: SessionView) -> datetime:
    """The time of the last event of a session: discarded, ended, started or created."""
    return session.discarded_at or session.ended_at or session.started_at or session.created_at


def describe_result(session: SessionView, now: datetime) -> str:
    """`14:08 · 58s · 3 files changed`: when a session ended, how long it ran and how it ended, where that is known."""
    outcome = make_session_label(session).words
    detail = one_line(session.error or session.summary)
    if session.result is Result.SUCCEEDED and session.discarded_at is None:
        outcome = detail or "finished"
        detail = ""
    elif session.discarded_at or (session.has_problem and session.flow in card_fields.TEST_FLOWS):
        detail = ""  # the word says it: discarded, or how many tests failed
    outcome = f"{outcome}: {detail}" if detail else outcome
    at = formats.moment(find_last_event_time(session), now) if session.state.is_over else ""
    return " · ".join(part for part in (at, _describe_duration(session, now), outcome) if part)


def make_session_row(session: SessionView, now: datetime, place: str, waiting_mark: str = "") -> Row:
    """A session in a list, with `place` before its prompt. `waiting_mark` is the sign of what waits for the operator,
    "" where nothing does."""
    label = make_session_label(session)
    mark, style = (waiting_mark, "wants") if waiting_mark else (label.sign, label.tone)
    if session.state is SessionState.RUNNING and session.started_at:
        right = formats.duration(now - session.started_at)
    else:
        right = formats.age(now - (session.discarded_at or session.ended_at or session.created_at))
    text = f"{place}{card_fields.describe_origin(session.mode)}{one_line(session.prompt)}"
    return Row(session.id, text, mark, right, "ink" if waiting_mark or not session.state.is_over else "grey", style)


FILE_MARKS = SIGNS["file"]
"""Sign and tone of a changed file by its status."""


def make_file_row(file: FileChange) -> Row:
    """A changed file in the list."""
    mark, style = FILE_MARKS.get(file.status, ("~", "accent"))
    if file.refused or file.note:
        mark, style = ("✗", "wrong") if file.refused else ("▲", "wants")
    counts = "binary" if file.added is None else f"+{file.added} -{file.removed}"
    counts = "" if file.status == LEFT_OUT else counts
    name = f"{file.old_path} → {file.path}" if file.old_path else file.path
    return Row(file.path, name, mark, counts, "ink", style, "faint")


def make_file_warnings(files: Sequence[FileChange], width: int, limit: int) -> list[Content]:
    """At most `limit` warnings about files, one line each: those that cannot be landed first."""
    refused = [(f"✗ {file.path}: {file.refused}; cannot be landed", "$wrong") for file in files if file.refused]
    noted = [(f"▲ {file.path}: {file.note}", "$wants") for file in files if file.note and not file.refused]
    return [Content.styled(crop(text, width), style) for text, style in [*refused, *noted][:limit]]


def make_heading_lines(session: SessionView, calls: Sequence[ModelCall], now: datetime, width: int) -> list[Content]:
    """The heading of a session: what it does, how it stands, what it cost, who does it and where; once it is over also
    what came out."""
    label = make_session_label(session)
    mode = "by itself" if session.mode == "autonomous" else session.mode
    participants = (
        f"{workspace_name(session.workspace)} → {session.channel} · {session.flow or session.runner} · {mode}"
    )
    result = wrap_text(
        session.error or session.summary, "$wrong" if session.error else "$ink", width, MAX_HEADING_LINES
    )
    models = describe_models(session, calls)
    duration = _describe_duration(session, now) or _describe_start(session, now)
    return [
        *wrap_text(session.prompt, "bold $ink", width, MAX_HEADING_LINES),
        Content.assemble(
            (f"{label.sign} {label.words}", f"${label.tone}"),
            (f"  {duration} · {_describe_cost(session, calls)}", "$grey"),
        ),
        Content.styled(crop(participants, width), "$grey"),
        *(result if session.state.is_over else []),
        *([Content.styled(crop(models, width), "$grey")] if models else []),
        Content.styled(crop(session.sandbox, width), "$faint"),
        Content.styled(crop(_describe_place(session), width), "$faint"),
    ]


def _describe_duration(session: SessionView, now: datetime) -> str:
    """The time that a session took, or has run; "" before its start. The end of an interrupted one was not seen."""
    if session.started_at is None or session.state is SessionState.INTERRUPTED:
        return ""
    return formats.duration((session.ended_at or now) - session.started_at)


def _describe_start(session: SessionView, now: datetime) -> str:
    """When a session started."""
    return f"started {formats.moment(session.started_at, now)}" if session.started_at else "not started"


def _describe_cost(session: SessionView, calls: Sequence[ModelCall]) -> str:
    """The money and the tokens of a session. The money is an estimate if the price of a call is not known."""
    estimate_sign = "≈" if any(not call.price_known for call in calls) and session.cost else ""
    tokens = f" · {formats.tokens(session.tokens)} tokens" if session.tokens else ""
    return f"{estimate_sign}{formats.money(session.cost)}{tokens}"


def _describe_place(session: SessionView) -> str:
    """The folder of a session, or why it has none."""
    if session.state is SessionState.QUEUED:
        return "waits until another session ends; `maxRunningSessions` sets how many run at once"
    if not session.state.is_over and session.cwd == session.workspace:
        return ""  # its own folder is not made yet
    return session.gone or session.cwd


def describe_models(session: SessionView, calls: Sequence[ModelCall]) -> str:
    """The agent of a session and the models that its calls went to, "" for a flow."""
    if session.flow is not None:
        return ""
    models = ", ".join(dict.fromkeys(map(_name_model, calls)))
    call_count = f" · {formats.count(len(calls), 'call')}" if calls else ""
    return f"{session.agent} by {models or session.runner}{call_count}"


def _name_model(call: ModelCall) -> str:
    """The provider and the model of a call: `openai:gpt-5`."""
    return f"{call.provider}:{call.model}" if call.provider else call.model


CALL_SIGNS = SIGNS["call"]
"""Sign and tone of each state of a model call."""


def make_call_row(number: int, call: ModelCall) -> Row:
    """A call as a row: its model, state, tokens and cost."""
    sign, style = CALL_SIGNS.get(call.state, ("?", "grey"))
    money = f"{'' if call.price_known or not call.cost else '≈'}{formats.money(call.cost)}"
    figures = f"{formats.tokens(call.input_tokens + call.output_tokens):>5} {money:>6}"
    return Row(call.id, f"{number} {call.model}", sign, figures, "ink", style, "grey")


CODING_AGENT_NOTE = "what was sent to the agent; what it sends to its own model is not visible here"


def make_call_heading(call: ModelCall, session: SessionView, width: int) -> list[Content]:
    """The heading of a call: state, model, tokens, cost and what went wrong."""
    sign, style = CALL_SIGNS.get(call.state, ("?", "grey"))
    duration = f" · {call.seconds:.1f} s" if call.seconds is not None else ""
    cost = formats.money(call.cost) + ("" if call.price_known else " estimated" if call.cost else " unknown price")
    figures = f"{call.input_tokens:,} tokens in, {call.output_tokens:,} out · {cost}{duration}"
    lines = [
        Content.assemble((f"{sign} {call.state}", f"${style}"), (f"  {_name_model(call)} · {call.run_kind}", "$ink")),
        Content.styled(crop(figures, width), "$grey"),
    ]
    if session.runner.startswith("acp"):
        lines.append(Content.styled(crop(CODING_AGENT_NOTE, width), "$faint"))
    if call.error:
        lines.append(Content.styled(crop(one_line(call.error), width), "$wrong"))
    lines += [Content.styled(crop(f"▲ {one_line(note)}", width), "$wants") for note in call.notes]
    return lines


def describe_change_set(change: ChangeSet | None, session: SessionView | None) -> str:
    """The number of files of a change set that wait, landed, were discarded or are continued in another session."""
    if change is None:
        return "This changed no files." if session is None or session.state.is_over else "None yet."
    files = formats.count(len(change.files), "file")
    landed = f"{formats.count(change.landed, 'file')} landed, " if change.landed else ""
    landable_files = change.landable_files
    to_land = [f"{formats.count(len(landable_files), 'file')} to land"] if landable_files else []
    if refused := len(change.files) - len(landable_files):
        to_land.append(f"{formats.count(refused, 'file')} that cannot be landed")
    return {
        ChangeState.WAITING: f"▼ {landed}{', '.join(to_land)}",
        ChangeState.LANDED: f"✓ {files} landed",
        ChangeState.BRANCHED: f"✓ {files} on branch {change.branch}",
        ChangeState.DISCARDED: f"{files} {change.note or 'discarded'}",
        ChangeState.UNDONE: f"↶ {files}, landing undone",
    }[change.state]


def describe_check(check: CheckResult) -> Content:
    """The result of the tests, with up to five faults, those first that were not there before the changes."""
    errors = formats.count(check.errors, "error")
    parts = [f"{check.failed} failed"] if check.failed else []
    parts += [errors] if check.errors else []
    parts.append(f"{check.passed} passed")
    sign, style = ("✓", "$grey") if check.green else ("✗", "$wrong")
    if check.faults and not check.has_new_failures:
        sign = "✓"
        style = "$grey"
        parts.insert(0, "nothing new fails")
    head = Content.assemble(
        (f"{sign} {check.tool}: {', '.join(parts)}", style), (f"  {seconds_in_words(check.seconds)}", "$faint")
    )
    failed_before = frozenset(check.failed_before or ())
    faults = sorted(check.faults, key=lambda fault: fault in failed_before)[:5]
    names = [f"  {one_line(fault)}{' (failed before as well)' if fault in failed_before else ''}" for fault in faults]
    return Content("\n").join([head, *(Content.styled(name, "$grey") for name in names)])
