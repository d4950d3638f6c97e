"""Screen 1, mission control: the card stack between what is going on and what waits (SPEC 9.2, 9.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.mission import undelivered
from clawpy_console.screens.mission.stack import CardStack
from clawpy_console.state import Known
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.rows import Row, Rows
from clawpy_console.widgets.session import ended
from clawpy_console.widgets.transcript import Transcript
from engine.values import (
    AgentView,
    Bubble,
    Card,
    Layer,
    Outcome,
    Refusal,
    SessionView,
    Status,
    Task,
    Tier,
    Waiting,
)

WHY = ("not now", "wrong", "done", "never here", "never")
"""Why a card was dismissed, in a word or two, in the order of the keys."""

LONG = 8
"""Agents beyond which those who never worked are folded."""

QUEUE = {
    "change_set": "▼", "permission": "▲", "bubble": "▲", "candidate": "▲", "learning": "▲", "interrupted": "✗",
    "notification": "✗",
}  # fmt: skip


class Queue(Rows):
    """What waits for the operator; an interruption can be put away from here."""

    BINDINGS = bindings("queue")

    class Dismissed(Message):
        """The operator knows of the row of `row_id`."""

        def __init__(self, row_id: str) -> None:
            super().__init__()
            self.row_id = row_id

    def action_dismiss(self) -> None:
        if self.current:
            self.post_message(self.Dismissed(self.current))


class MissionScreen(ConsoleScreen):
    """The screen the console opens with."""

    BINDINGS = bindings("mission", "zoom")
    MODE = "mission"
    CSS_PATH = "mission.tcss"
    AUTO_FOCUS = "#stack"
    PANES = {"stack": "stack", "tasks": "tasks", "queue": "queue", "agents": "agents", "live": "live"}
    COLUMNS = {"stack": "middle", "tasks": "right", "queue": "right", "agents": "left", "live": "left"}

    def __init__(self) -> None:
        super().__init__()
        self._workspace = ""  # the filter, "" for all
        self._trail: tuple[str, str] = ("", "")
        self._begun = ""  # the card that the trail says begins
        self._held = False  # the trail tells of a hold
        self._shown: set[str] = set()

    def body(self) -> ComposeResult:
        yield Static(id="folded", markup=False)
        with Horizontal(id="columns"):
            with Vertical(id="left"):
                with Vertical(id="pane-agents", classes="pane"):
                    yield Static("AGENTS", classes="heading", markup=False)
                    yield Rows(id="agents", empty="None yet.", classes="-fit")
                with Vertical(id="pane-live", classes="pane"):
                    yield Static("LIVE", id="live-title", classes="heading", markup=False)
                    yield Transcript(id="live", tail=400, wrap=False)
            with Vertical(id="middle"), Vertical(id="pane-stack", classes="pane"):
                yield Static(id="greeting", markup=False)
                yield Static(id="stack-title", markup=False)
                yield CardStack(id="stack")
                yield Static(id="hints", markup=False)
                yield Static(id="trail", markup=False)
                yield Drawn(id="below")
                yield Static(id="glance", markup=False)
            with Vertical(id="right"):
                with Vertical(id="pane-tasks", classes="pane"):
                    yield Static("TASKS", classes="heading", markup=False)
                    yield Rows(id="tasks", empty="None yet.")
                with Vertical(id="pane-queue", classes="pane"):
                    yield Static("WAITING FOR YOU", id="queue-title", classes="heading", markup=False)
                    yield Queue(id="queue", empty="nothing")

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        known = self.known
        if not changed or changed & {"cards", "recent", "autonomy", "workspaces"}:
            stack = self.query_one("#stack", CardStack)
            cards = self._filtered(self.app.cards.pending(known.cards))
            stack.show(cards, empty=self._empty_words(known), several=len(self._workspaces()) > 1)
        if self._held and not self.app.holds:
            self.trail("", "$grey")
        if not changed or changed & {"sessions"}:
            newest = known.newest_running
            if self._begun and any(one.prediction_id == self._begun and one.state.over for one in known.sessions):
                self.trail("", "$grey")
            title = f"LIVE  {newest.channel}  {words.name(newest.workspace)}" if newest else "LIVE"
            self.put("#live-title", Content(title))
            self.query_one("#live", Transcript).follow(newest, self.app.transcript)

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self._complete:
            self._draw_lists(self.known, now)

    def _draw_lists(self, known: Known, now: datetime) -> None:
        now = now.replace(microsecond=0)  # all clocks turn together, once a second, not each at its own moment
        self.query_one("#agents", Rows).show(_agent_rows(known))
        self.query_one("#tasks", Rows).show([_task_row(one, known, now) for one in _tasks_in_order(known.tasks)])
        self.query_one("#queue", Rows).show([_queue_row(one, now) for one in known.waiting])
        waits = len(known.waiting)
        self.put("#queue-title", Content(f"WAITING FOR YOU  {waits}" if waits else "WAITING FOR YOU"))
        self.query_one("#pane-queue").set_class(bool(waits), "-wants")
        self.put("#folded", self._folded(known, now))
        self._draw_glance()

    def _draw_glance(self) -> None:
        """On a narrow terminal: the last line of the live output, under the stack."""
        newest = self.known.newest_running
        last = self.query_one("#live", Transcript).last_line if newest else ""
        text = words.crop(words.one_line(last), max(0, self.size.width - 22))
        channel = words.fit(newest.channel, 14) if newest and text else ""
        self.put("#glance", Content.assemble((channel, "$grey"), "  ", (text, "$faint")))

    def _folded(self, known: Known, now: datetime) -> Content:
        running = len(known.running)
        open_tasks = sum(1 for one in known.tasks if one.state in ("open", "running"))
        waits = len(known.waiting)
        age = words.span(now - min((one.since for one in known.waiting), default=now))
        oldest = "" if not waits else ", just now" if age == "now" else f", oldest {age}"
        return Content.assemble(
            ("agents ", "$faint"), (f"{running} running", "$accent" if running else "$grey"),
            ("   tasks ", "$faint"), (f"{open_tasks} open", "$grey"),
            ("   waiting for you ", "$faint"), (f"{waits}{oldest}", "bold $wants" if waits else "$grey"),
            ("   ⇥ to look", "$faint"),
        )  # fmt: skip

    def _draw_stack_words(self) -> None:
        stack = self.query_one("#stack", CardStack)
        title = "CARDS  {} of {}".format(*stack.place) if stack.cards else "CARDS"
        if self._workspace:
            title += f"   only {words.name(self._workspace)}"
        self.put("#stack-title", Content(title))
        self.put("#hints", self._hints(stack))

    def _hints(self, stack: CardStack) -> Content:
        keys = self.app.keymap

        def pair(action: str, label: str, style: str = "$grey") -> Content:
            return Content.assemble((shown_key(f"stack.{action}", keys), "$accent"), " ", (label, style))

        if stack.armed:
            sure = Content.assemble(("▲ risky: ", "bold $wants"), (shown_key("stack.insist", keys), "bold $accent"))
            return Content.assemble(sure, (" approves it anyway   ", "$grey"), pair("dismiss", "dismiss"))
        if stack.asks_why:
            actions = ("not_now", "wrong", "done", "never_here", "never")
            reasons = [pair(*one) for one in zip(actions, WHY, strict=True)]
            asks = Content.styled(" why? ", "bold reverse $accent")
            line = Content("  ").join([asks, *reasons])
            tight = line.cell_length > self.query_one("#hints").size.width
            return Content(" ").join([Content.styled("?", "bold reverse $accent"), *reasons]) if tight else line
        if not stack.has_focus:
            return Content.assemble((shown_key("mission.back", keys), "$accent"), (" back to the cards", "$faint"))
        if stack.front is None:
            return Content("   ").join([pair("predict", "check now"), pair("own", "new prompt")])
        return Content("   ").join(
            [
                pair("dismiss", "dismiss"),
                pair("snooze", "snooze"),
                pair("approve", "approve"),
                pair("details", "details"),
            ]
        )

    def _draw_below(self, known: Known, now: datetime) -> None:
        self._draw_stack_words()
        style, trail = self._trail
        self.put("#trail", Content.styled(trail, style))
        behind = self.query_one("#stack", CardStack).cards[1:]
        self.query_one("#below", Drawn).show(lambda width: _below(behind, known, now, width))

    def _workspaces(self) -> list[str]:
        """Those that are looked after, and others that cards of the stack are about."""
        stacked = sorted({one.assignment.workspace for one in self.app.cards.pending(self.known.cards)})
        return list(dict.fromkeys((*self.known.workspaces, *stacked)))

    def _filtered(self, cards: Iterable[Card]) -> tuple[Card, ...]:
        return tuple(one for one in cards if not self._workspace or one.assignment.workspace == self._workspace)

    def _empty_words(self, known: Known) -> str:
        if self.app.opening:
            return f"No cards from last time.\n\nThe engine is {self.app.opening}."
        cycle = known.autonomy.next_cycle
        when = f"Next check: {words.hour(cycle)}" if cycle else "No check is scheduled."
        remark = known.autonomy.remark
        said = "".join(f"{line}\n" for line in [*words.one_line(remark).split("; "), ""] if remark)
        looked = [at for place, at in known.autonomy.looked if self._workspace in ("", place)]
        head = "No cards: nothing has been checked yet."
        if looked:
            where = words.name(self._workspace) if self._workspace else words.count(len(looked), "workspace")
            head = f"✓ Nothing needs you\n\nChecked {where} at {words.moment(min(looked), self.app.now())}"
        return f"{head}\n{said}{when}\n{shown_key('stack.predict', self.app.keymap)} checks now"

    # What the operator was away for, and the first run

    def greet(self, lines: list[Content]) -> None:
        """Show a few lines above the stack until a key is pressed; none hides them."""
        greeting = self.query_one("#greeting", Static)
        greeting.display = bool(lines)
        greeting.update(Content("\n").join(lines))

    # The stack

    @on(CardStack.Turned)
    def _turned(self) -> None:
        self._draw_below(self.known, self.app.now())
        front = self.query_one("#stack", CardStack).front
        if front is not None and front.id not in self._shown and self.app.engine is not None:
            self._shown.add(front.id)
            engine = self.app.engine
            self.app.ask(lambda: engine.cards.mark_shown([front.id]))

    @on(CardStack.Decided)
    def _decided(self, message: CardStack.Decided) -> None:
        card = message.card
        said = {"approve": "✓ Started:", "dismiss": "← Dismissed:", "snooze": "↑ Snoozed:"}[message.how]
        undo = f"  ·  Undo: {shown_key('stack.undo', self.app.keymap)}"
        room = self.query_one("#trail").size.width - len(said) - len(undo) - 1
        self.trail(f"{said} {words.crop(words.one_line(card.assignment.prompt), max(12, room))}{undo}", "$grey")
        self._begun = card.id if message.how == "approve" else ""
        self.app.cards.decide(card, message.how, self._refused, lambda note: self.trail(f"{note}{undo}", "$wants"))

    @on(CardStack.Explained)
    def _explained(self, message: CardStack.Explained) -> None:
        undo = f"  ·  Undo: {shown_key('stack.undo', self.app.keymap)}"
        self.app.cards.explain(message.card_id, message.reason, self.trail, undo)

    def _refused(self, card: Card, refusal: Refusal) -> None:
        # Of no card, and over as soon as the hold is lifted; the settings or the API may have stopped it as well.
        held = bool(self.app.holds) and refusal.message.startswith("kill: ")
        self.query_one("#stack", CardStack).bring_back(card, "" if held else refusal.message)
        self.trail(f"✗ {refusal}", "$wrong")
        self._held = held

    def put_on_top(self, card: Card) -> None:
        """Put `card` in front: it was taken back, or just written."""
        if not self._filtered([card]):
            self._workspace = ""  # it is seen, whatever the filter
        self.query_one("#stack", CardStack).bring_back(card, "")

    def trail(self, text: str, style: str) -> None:
        """The line under the stack: what was just done. Only what is grey is cut; what went wrong is told whole."""
        self._begun, self._held = "", False
        text = text.replace("\n", " ")
        if style == "$grey":
            text = words.crop(text, max(20, self.query_one("#trail").size.width))
        self._trail = (style, text)
        self.put("#trail", Content.styled(self._trail[1], style))

    @on(CardStack.Wanted)
    def _wanted(self, message: CardStack.Wanted) -> None:
        match message.what:
            case "details" if message.card is not None:
                self.app.cards.show_details(message.card)
            case "undo":
                stack = self.query_one("#stack", CardStack)
                self.app.cards.undo(self.put_on_top, stack.leave, self.trail)
            case "own":
                start = lambda card: self.post_message(CardStack.Decided(card, "approve"))  # noqa: E731
                self.app.cards.write_own_prompt(self._workspace, self.put_on_top, start)
            case "predict":
                self.app.cards.predict(self.trail)
            case "filter":
                choices = ["", *self._workspaces()]
                here = choices.index(self._workspace) if self._workspace in choices else 0
                self._workspace = choices[(here + 1) % len(choices)]
                self.refresh_known(frozenset({"cards"}))
                self.trail(f"cards of {words.name(self._workspace) if self._workspace else 'all workspaces'}", "$grey")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Back is offered where there is something to come back from."""
        return self.pane != "stack" if action == "back" else super().check_action(action, parameters)

    def action_back(self) -> None:
        """Back to the cards."""
        self.go_to("stack")

    def output_grew(self, sessions: frozenset[str]) -> None:
        live = self.query_one("#live", Transcript)
        if live.session_id in sessions and self.app.transcript is not None:
            live.pull(self.app.transcript)

    @on(Transcript.Grew)
    def _grew(self) -> None:
        if self.has_class("-narrow"):
            self._draw_glance()

    # The lists

    @on(Rows.Opened, "#queue")
    def _open_waiting(self, message: Rows.Opened) -> None:
        waiting = next((one for one in self.known.waiting if one.id == message.row_id), None)
        if waiting is not None and waiting.kind == "fact":
            self.app.open_memory(Layer.PARA, waiting.id)
        elif waiting is not None and waiting.kind == "candidate":
            self.app.open_candidate(waiting.id)
        elif waiting is not None and waiting.kind == "learning":
            self.app.open_learning(waiting.id)
        elif waiting is not None and waiting.kind == "bubble" and waiting.text:
            self._ask_to_approve(waiting)
        elif waiting is not None and waiting.kind == "bubble":
            from clawpy_console.dialogs.send_up import send_up

            send_up(self.app)
        elif waiting is not None and waiting.kind == "notification":
            if (engine := self.app.live()) is not None:
                undelivered.ask_to_retry(self.app, engine, waiting)
        elif waiting is not None:
            change = next((one for one in self.known.changes if one.id == waiting.id), None)
            self.app.open_session(waiting.session_id or (change.session_id if change else ""))

    def _ask_to_approve(self, waiting: Waiting) -> None:
        """A quote goes up at the operator's word alone (SPEC 6.8)."""
        engine = self.app.live()
        if engine is None:
            return
        hostile = f"▲ hostile: {words.one_line(waiting.hostile)}\n\n" if waiting.hostile else ""
        question = (
            f"{hostile}{words.one_line(waiting.text)}\n\nThis text comes from tools, files or agents. "
            "If you approve it, it becomes a pattern of a leader and goes into the prompts of all agents below."
        )

        def approve() -> None:
            self.app.ask(lambda: engine.wisdom.approve(waiting.id), approved)

        def approved(one: Bubble) -> None:
            self.app.say(f"Approved. It reaches {one.leader} with the next round.")
            self.app.renew(["changes"])

        self.app.confirm("Use it as guidance?", question, "approve", approve, risky=bool(hostile))

    @on(Queue.Dismissed)
    def _dismiss_waiting(self, message: Queue.Dismissed) -> None:
        engine = self.app.live()
        waiting = next((one for one in self.known.waiting if one.id == message.row_id), None)
        if engine is None or waiting is None:
            return
        if waiting.kind == "notification":
            undelivered.let_go(self.app, engine, waiting)
            return
        if waiting.kind != "interrupted":
            self.app.say("Only interrupted sessions can be dismissed here. ⏎ opens what needs a decision.", "warning")
            return
        self.app.ask(lambda: engine.acknowledge(waiting.id), lambda _: self.app.renew(["changes"]))

    @on(Rows.Opened, "#tasks")
    def _open_task(self, message: Rows.Opened) -> None:
        task = next((one for one in self.known.tasks if one.id == message.row_id), None)
        if task is not None and task.session_id:
            self.app.open_session(task.session_id)
        elif task is not None:
            self.app.say("It has not run yet.")

    @on(Rows.Opened, "#agents")
    def _open_agent(self, message: Rows.Opened) -> None:
        session = next((one for one in self.known.sessions if one.agent == message.row_id), None)
        if session is not None:
            self.app.open_session(session.id)
        else:
            self.app.open_agent(message.row_id)  # who never worked is to be read about

    def copy_text(self) -> str:
        pane = self.pane
        if pane == "live":
            return self.query_one("#live", Transcript).session_id
        if pane and pane != "stack":
            return self.query_one(f"#{self.PANES[pane]}", Rows).current
        front = self.query_one("#stack", CardStack).front
        return front.id if front else ""


def _agents_in_order(known: Known) -> list[AgentView]:
    busy = {one.agent for one in known.running}
    return sorted(
        known.agents, key=lambda one: (not one.broken, one.id not in busy, not one.channels, one.tier, one.id)
    )


def _agent_rows(known: Known) -> list[Row]:
    """The agents, those in work first; in a long list members that never worked fold into a count (SPEC 6)."""
    agents = _agents_in_order(known)
    worked = {one.agent for one in known.sessions}
    shown = [one for one in agents if one.broken or one.channels or one.tokens or one.id in worked]
    folded = len(agents) - len(shown)
    if len(agents) <= LONG or folded < 2:
        return [_agent_row(one, known) for one in agents]
    return [*(_agent_row(one, known) for one in shown), Row("", f"   and {folded} not used yet")]


def _agent_row(agent: AgentView, known: Known) -> Row:
    name = agent.channels[0] if agent.channels else agent.id
    tokens = f"{words.tokens(agent.tokens):>5}" if agent.tokens else "    –"
    if agent.broken:
        return Row(agent.id, agent.id, "✗", "broken", "wrong", "wrong", "wrong")
    if any(one.agent == agent.id for one in known.running):
        return Row(agent.id, name, "●", f"run  {tokens}", "ink", "accent", "grey")
    return Row(agent.id, name, "○", f"{agent.state:<4} {tokens}", "grey", "faint", "faint")


def _tasks_in_order(tasks: Iterable[Task]) -> list[Task]:
    place = {"running": 0, "open": 1}
    return sorted(tasks, key=lambda one: (place.get(one.state, 2), -one.updated_at.timestamp()))


def _task_row(task: Task, known: Known, now: datetime) -> Row:
    title = words.one_line(task.title)
    match task.state:
        case "running":
            session = next((one for one in known.sessions if one.id == task.session_id), None)
            since = session.started_at if session and session.started_at else task.updated_at
            return Row(task.id, title, "◐", words.duration(now - since), "ink", "accent", "grey")
        case "failed" | "done":
            session = next((one for one in known.sessions if one.id == task.session_id and one.state.over), None)
            red = task.state == "failed"
            plain = ("✗", "wrong", "") if red else ("✓", "grey", "")
            glyph, style, _ = ended(session) if session else plain  # what it ran may be red, or could not run
            text = f"{title}: {words.one_line(task.note)}" if red and task.note else title
            return Row(task.id, text, glyph, words.span(now - task.updated_at), "ink" if red else "grey", style)
    return Row(task.id, title, "○", "open", "ink", "faint")


def _queue_row(waiting: Waiting, now: datetime) -> Row:
    return Row(waiting.id, words.one_line(waiting.title), QUEUE.get(waiting.kind, "▲"), words.span(now - waiting.since),
               "ink", "wants", "wants")  # fmt: skip


def _below(behind: Sequence[Card], known: Known, now: datetime, width: int) -> list[Content]:
    """The cards behind the first, then what was decided before."""
    lines: list[Content] = []
    if behind:
        lines.append(Content.styled("NEXT", "bold $faint"))
        several = len({one.assignment.workspace for one in known.cards}) > 1
        place = max(cell_len(words.name(one.assignment.workspace)) for one in behind[:6]) if several else 0
        sure = max(cell_len(words.how_sure(one, both=width >= 80)) for one in behind[:6])
        lines += [*(_next_line(one, width, min(place, 12), sure) for one in behind[:6]), Content("")]
    # A card that was withdrawn was decided by nobody, and the next check makes most of them again.
    decided = [one for one in known.recent if one.status is not Status.PENDING and one.outcome is not Outcome.WITHDRAWN]
    decided.sort(key=lambda one: one.decided_at or one.created_at, reverse=True)
    if decided:
        lines.append(Content.styled("HISTORY", "bold $faint"))
        sessions = {one.prediction_id: one for one in known.sessions}
        lines += [_past_line(one, sessions.get(one.id), now, width) for one in decided[:12]]
    return lines


def _next_line(card: Card, width: int, place: int, sure: int) -> Content:
    """How sure it is in `sure` cells, repository in `place` cells, channel, prompt; the repository takes the channel's
    room where that is scarce."""
    share = words.fit(words.how_sure(card, both=width >= 80), sure) + "  "
    where = words.fit(words.name(card.assignment.workspace), place) + "  " if place else ""
    where += words.fit(card.assignment.channel, 14) + " " if width >= 60 or (not place and sure <= 5) else ""
    prompt = words.crop(words.one_line(card.assignment.prompt), max(8, width - len(share) - cell_len(where)))
    mark = words.tier_style(card) if card.tier is Tier.BROKEN else "$wants" if words.risk(card) else "$grey"
    return Content.assemble((share, mark), (where, "$faint"), (prompt, "$grey"))


def _past_line(card: Card, session: SessionView | None, now: datetime, width: int) -> Content:
    glyph, style = {
        Outcome.SUCCEEDED: ("✓", "$grey"), Outcome.FAILED: ("✗", "$wrong"), Outcome.CANCELLED: ("✗", "$grey"),
        Outcome.BLOCKED: ("✗", "$wrong"), Outcome.DISCARDED: ("✗", "$grey"), Outcome.CANNOT_RUN: ("○", "$wants"),
    }.get(card.outcome or Outcome.WITHDRAWN, ("·", "$faint"))  # fmt: skip
    word = (
        card.outcome.value.replace("_", " ")
        if card.outcome
        else {Status.REJECTED: "dismissed", Status.CONFIRMED: "running"}.get(card.status, card.status.value)
    )
    if card.outcome is Outcome.SUCCEEDED and session is not None and session.check and not session.check.green:
        glyph, style, word = ended(session)  # it ran to its end, and what it ran is red
        style = f"${style}"
    at = words.moment(card.decided_at or card.created_at, now)
    prompt = words.fit(words.one_line(card.assignment.prompt), max(8, width - 2 - max(10, len(word)) - 1 - 11))
    return Content.assemble((f"{glyph} ", style), (prompt, "$grey"), (f" {word:>10}", style), (f" {at:>10}", "$faint"))
