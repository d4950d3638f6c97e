"""What stands around the stack on mission control: the line under the card, the evidence, and the lists with their rows
and what opens there.

`MissionScreen` composes them, and tells each what changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields import heading, text_line
from clawpy_console.formats import clock_time, crop, fit_to_width, one_line, workspace_name
from clawpy_console.keys import format_key, make_bindings
from clawpy_console.screens import find_base_screen
from clawpy_console.state import AppState, Autonomy
from clawpy_console.widgets import Pane, Row, Rows
from clawpy_console.widgets.session import describe_result, find_last_event_time, make_session_label
from clawpy_console.widgets.texts import Heading, PlainText, ReflowingText, limit_lines
from engine.model import AgentView, Card, Layer, Result, SessionView, TaskState, Tier, Waiting

if TYPE_CHECKING:
    from textual.timer import Timer

    from clawpy_console.card_controller import CardConsole
    from clawpy_console.screens.card_details import Evidence


class CardRows(Rows, can_focus=False):
    """The pending cards below the stack, which has the keys. A click opens a row."""

    def click(self, number: int) -> None:
        self.cursor = number
        self.action_open()

    def on_resize(self) -> None:
        self.show_cursor()


class Queue(Rows):
    """The items that wait for the operator."""

    BINDINGS = make_bindings("queue")


MESSAGE_DURATION_S = 15.0
"""Seconds for which the line under the card says what was just done."""


class MessageLine(PlainText):
    """The line under the card: what was just done, or why it was refused.

    What was done is removed after `MESSAGE_DURATION_S`, an error when another card is shown.
    """

    error_card_id: str | None = None
    """The card in front when the error that is shown came, "" for no card; None while no error is shown."""
    _timer: Timer | None = None

    def show(self, text: str, style: str, *, error_card_id: str | None = None) -> None:
        """Show `text` in place of what was shown before. A grey text is cropped, and removed after a while."""
        self.error_card_id = error_card_id
        text = text.replace("\n", " ")
        if style == "$grey":
            text = crop(text, max(20, self.size.width))
        self.replace(Content.styled(text, style))
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(MESSAGE_DURATION_S, self.clear) if text and style == "$grey" else None

    def clear(self) -> None:
        """Show nothing."""
        self.show("", "$grey")


EVIDENCE_DEBOUNCE_S = 0.15
"""Seconds that a card stays in front before its evidence is read."""


class EvidencePane(Pane):
    """The evidence for the card in front, beside it on a wide terminal."""

    app: CardConsole

    def __init__(self) -> None:
        super().__init__(id="pane-why")
        self._card: Card | None = None  # the card that was shown last
        self._evidence: Evidence | None = None  # of that card, None until it was read

    def compose(self) -> ComposeResult:
        yield Heading("WHY", id="why-title")
        yield ReflowingText(id="why")

    def show(self, card: Card | None, *, is_changed: bool = False) -> None:
        """Show the evidence for `card`. It is read for another card than before, and again where the cards or the work
        changed, because the rails may count others then."""
        if card is None or not self.screen.has_class("-wide"):
            self._card = None
            return
        is_other_card = self._card is None or self._card.id != card.id
        if is_other_card:
            self._evidence = None
        self._card = card
        if is_other_card or is_changed:
            self._read(card)
        self._draw(card)

    def _read(self, card: Card) -> None:
        from clawpy_console.screens.card_details import read_evidence

        def on_evidence(evidence: Evidence) -> None:
            self._evidence = evidence
            self.show(self._card)

        find_base_screen(self).read(
            lambda engine: read_evidence(engine, card.id), on_evidence, group="rails", wait=EVIDENCE_DEBOUNCE_S
        )

    def _draw(self, card: Card) -> None:
        from clawpy_console.screens.card_details import Evidence, format_parameters, make_evidence_fields

        screen = find_base_screen(self)
        details_hint = (f"  {screen.key_of('stack.details')} shows all", "not bold $faint")
        screen.show_content("#why-title", Content.assemble("WHY", details_hint))
        evidence = self._evidence or Evidence()
        in_full = card.has_stated_confidence
        fields = [*make_evidence_fields(card, evidence, self.app.state, screen.now, in_full=in_full)]
        if card.assignment.flow and (parameters := format_parameters(card.assignment.parameters)):
            fields += [heading("parameters"), *(text_line(item, "grey") for item in parameters.split("\n"))]
        screen.show_fields("#why", fields)


def make_card_rows(cards: Sequence[Card], state: AppState) -> list[Row]:
    """The pending cards: tier, another workspace, what is proposed, the work in a word."""
    rows = []
    for card in cards:
        text = state.make_place_prefix(card.assignment.workspace) + one_line(card.assignment.prompt)
        risk_style = "wants" if card.approval_risk else "faint"
        mark_style = "wrong" if card.tier is Tier.AT_RISK else risk_style
        mark = fit_to_width(card.tier_word.upper(), 7)
        rows.append(Row(card.id, text, mark, card.work, "grey", mark_style))
    return rows


MAX_LISTED_SESSIONS = 20
"""Maximum number of sessions in the list of work."""


def make_work_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """The sessions that run, then those that are over, the newest first; below each its time and result."""
    sessions = sorted(
        state.sessions, key=lambda session: (not session.state.is_over, find_last_event_time(session)), reverse=True
    )
    rows = []
    for session in sessions[:MAX_LISTED_SESSIONS]:
        place = state.make_place_prefix(session.workspace)
        label = make_session_label(session)
        ink = "grey" if session.state.is_over else "ink"
        rows.append(Row(session.id, place + one_line(session.prompt), label.sign, "", ink, label.tone))
        rows += _make_detail_rows(describe_result(session, now), width)
    return rows


def make_live_title(session: SessionView | None, now: datetime) -> str:
    """The heading above the output of `session`."""
    if session is None:
        return "LIVE"
    title = f"{workspace_name(session.workspace)} · {one_line(session.prompt)}"
    return (
        f"LAST OUTPUT  {formats.moment(find_last_event_time(session), now)}  {title}"
        if session.state.is_over
        else f"LIVE  {title}"
    )


QUEUE_SIGNS = {"change_set": "▼", "interrupted": "✗", "notification": "✗"}
"""The sign of an item that waits, by its kind; `▲` for other kinds."""


def make_waiting_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """The items that wait for the operator, each with its age; a long title continues below."""
    workspaces = {session.id: session.workspace for session in state.sessions}
    rows = []
    for waiting in state.waiting:
        mark = QUEUE_SIGNS.get(waiting.kind, "▲")
        age = formats.age(now - waiting.since)
        title = state.make_place_prefix(workspaces.get(waiting.session_id or "", "")) + one_line(waiting.title)
        first, *_ = Content(title).wrap(max(8, width - 4 - len(age)))
        rows.append(Row(waiting.id, first.plain, mark, age, "ink", "wants", "wants"))
        rows += _make_detail_rows(title[len(first.plain) :].strip(), width)
    return rows


MAX_DETAIL_ROWS = 3
"""Maximum number of rows below a session or an item that waits."""


def _make_detail_rows(text: str, width: int) -> list[Row]:
    """`text` as at most three rows of `width` cells, which the cursor skips."""
    text_width = max(8, width - 4)
    lines = limit_lines(Content(text).wrap(text_width), MAX_DETAIL_ROWS, text_width) if text else []
    return [Row("", f"   {line.plain.rstrip()}") for line in lines]


def make_glance(last_line: str, session: SessionView | None, place: str, width: int) -> str:
    """The last line of output of `session`, or its error, in one line of `width` cells, after its `place`.

    An error that is too long and its fix, which stands in brackets at its end, are both cut, so that both are in sight.
    """
    if session is None:
        return ""
    word, error = ("last output", one_line(session.error)) if session.state.is_over else ("live", "")
    head = f"{word}  {place}"
    room = width - cell_len(head)
    if cell_len(error) > room and (parts := re.fullmatch(r"(?P<problem>.+) \((?P<fix>.+)\)", error)):
        fix = crop(parts["fix"], (room - 3) // 2)
        error = f"{crop(parts['problem'], room - 3 - cell_len(fix))} → {fix}"
    text = error or one_line(last_line)
    return crop(f"{head}{text}", width) if text else ""


def describe_hidden_panes(state: AppState, now: datetime, key: str) -> Content:
    """The counts of the panes that a narrow terminal does not show; `key` leads there."""
    running_count = len(state.running)
    waiting_count = len(state.waiting)
    oldest = ""
    if state.waiting:
        age = formats.age(now - min(waiting.since for waiting in state.waiting))
        oldest = ", just now" if age == "now" else f", oldest {age}"
    return Content.assemble(
        ("work ", "$faint"), (f"{running_count} running", "$accent" if running_count else "$grey"),
        ("   waiting for you ", "$faint"),
        (f"{waiting_count}{oldest}", "bold $wants" if waiting_count else "$grey"),
        (f"   {key} shows them" if running_count or waiting_count else "", "$faint"),
    )  # fmt: skip


def make_task_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """The open tasks that no session runs; the others are in the list of work."""
    tasks = [task for task in state.tasks if task.state == TaskState.OPEN and not task.session_id]
    return [Row(task.id, one_line(task.title), "○") for task in tasks]


def make_agent_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """The agents whose folder is broken; then each channel that is served, with what serves it."""
    broken = [
        Row(agent.id, agent.id, "✗", "broken", "wrong", "wrong", "wrong") for agent in state.agents if agent.broken
    ]
    busy = {session.channel for session in state.running if session.flow is None}
    served = [
        _make_served_row(agent, channel, served_by, is_busy=channel in busy)
        for channel, served_by in state.served_channels
        for agent in state.agents
        if channel in agent.channels and not agent.broken
    ]
    return broken + served


def _make_served_row(agent: AgentView, channel: str, served_by: str, *, is_busy: bool) -> Row:
    tokens = agent.activity.current_tokens
    right = f"{served_by}  {formats.tokens(tokens)}" if tokens else served_by
    mark, style = ("●", "accent") if is_busy else ("○", "faint")
    return Row(agent.id, channel, mark, right, "grey", style)


def describe_empty_stack(state: AppState, now: datetime, keymap: Mapping[str, str]) -> str:
    """Why there are no cards, and when the next check is. `state` has only what is shown."""
    autonomy = state.autonomy
    checks = dict(autonomy.last_checked)
    if not checks and autonomy.is_checking:
        return "No cards yet: your files are being checked."
    head = "No cards: nothing has been checked yet."
    if checks:
        place = workspace_name(next(iter(checks))) if len(checks) == 1 else formats.count(len(checks), "workspace")
        title = _make_empty_title(state, keymap)
        head = f"{title}\n\nChecked {place} at {formats.moment(min(checks.values()), now)}"
    remarks = one_line(autonomy.no_cards_reason).replace("; ", "\n") + "\n\n" if autonomy.no_cards_reason else ""
    next_check = f"Next check: {clock_time(autonomy.next_cycle)}" if autonomy.next_cycle else "No check is scheduled."
    return f"{head}\n{remarks}{next_check}\n{format_key('mission.predict', keymap)} checks now"


def _make_empty_title(state: AppState, keymap: Mapping[str, str]) -> str:
    """What needs the operator although there is no card, and why the last run went wrong; else that nothing does."""
    bad_run = _find_last_bad_run(state)
    needs = []
    if state.waiting:
        items = formats.count(len(state.waiting), "item")
        needs.append(f"{items} waiting for you: press {format_key('panes.next', keymap)}")
    if bad_run is not None:
        label = make_session_label(bad_run).words
        place = workspace_name(bad_run.workspace)
        needs.append(f"the last run in {place}, {label}: press {format_key('app.work', keymap)}")
    title = " · ".join(["No cards", *needs])
    if bad_run is not None:
        return f"{title}\n\n{bad_run.error or bad_run.summary}"
    return title if needs or state.autonomy.no_cards_reason or state.holds else "✓ Nothing needs you"


def _find_last_bad_run(state: AppState) -> SessionView | None:
    """The last run, if it went wrong and what it found may still hold."""
    last = max((session for session in state.sessions if session.state.is_over), key=find_last_event_time, default=None)
    if last is None or last.discarded_at or last.result not in (Result.FAILED, Result.CANNOT_RUN):
        return None
    return None if _is_solved(last, state.autonomy) else last


def _is_solved(review: SessionView, autonomy: Autonomy) -> bool:
    """Whether a run found what a card warns of until it is gone, and a later check gives no warning and no problem."""
    has_warning = review.facts.get("next") in ("secret", "large_file")
    checked_at = dict(autonomy.last_checked).get(review.workspace)
    is_checked = checked_at is not None and review.ended_at is not None and checked_at > review.ended_at
    return has_warning and is_checked and not autonomy.no_cards_reason


# What waits (SPEC 9.3). The dialogs are imported when they are opened: not before the first frame.


def open_waiting(app: CardConsole, waiting: Waiting) -> None:
    """Open the screen where the item is decided, or ask for the decision here."""
    match waiting.kind:
        case "fact":
            app.open("memory", Layer.PARA, waiting.id)
        case "candidate" | "learning":
            app.open("learning", waiting.id)
        case "bubble" if waiting.text:
            _confirm_approval(app, waiting)
        case "bubble":
            from clawpy_console.screens.agent_changes import send_findings

            send_findings(app)
        case "notification":
            _confirm_retry(app, waiting)
        case _:
            change = next((change for change in app.state.changes if change.id == waiting.id), None)
            if session_id := waiting.session_id or (change.session_id if change else ""):
                app.open("work", session_id)


def _confirm_approval(app: CardConsole, waiting: Waiting) -> None:
    """Ask whether a quote may be used as guidance; it goes up only with the operator's approval (SPEC 6.8)."""
    from clawpy_console.screens.dialog import confirm

    hostile = f"▲ hostile: {one_line(waiting.hostile)}\n\n" if waiting.hostile else ""
    question = (
        f"{hostile}{one_line(waiting.text)}\n\nThis text comes from tools, files or agents. "
        "If you approve it, it becomes a pattern of a leader and goes into the prompts of all agents below."
    )

    def approve() -> None:
        app.call_engine(
            lambda engine: engine.bubbles.approve(waiting.id),
            lambda finding: app.report(f"Approved. It reaches {finding.leader} with the next round.", "changes"),
        )

    confirm(app, "Use it as guidance?", question, "approve", approve, risky=bool(hostile))


def _confirm_retry(app: CardConsole, waiting: Waiting) -> None:
    """Ask whether to send a notification again; one that is out of date by then is not sent."""
    from clawpy_console.screens.dialog import confirm

    question = f"{one_line(waiting.title)}\n\nOnce it is fixed, `clawpy notify test` checks it."
    retry = partial(
        app.carry_out, lambda engine: engine.notify.retry_waiting(waiting.id), "It is sent again.", "changes"
    )
    confirm(app, "Try again?", question, "try again", retry)


def dismiss_waiting(app: CardConsole, waiting: Waiting) -> None:
    """Dismiss a notification or an interrupted session; other items need a decision."""
    if waiting.kind == "notification":
        app.carry_out(lambda engine: engine.notify.dismiss_waiting(waiting.id), "Dismissed.", "changes")
    elif waiting.kind == "interrupted":
        app.carry_out(lambda engine: engine.acknowledge(waiting.id), "Dismissed.", "changes")
    else:
        opening = f"{format_key('rows.open', app.keymap)} opens what needs a decision."
        app.show_toast(f"Only interrupted sessions and notifications can be dismissed here. {opening}", "warning")
