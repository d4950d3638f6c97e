"""Screen 1, mission control: the cards, their evidence, live output, work, and what waits for you (SPEC 9.2, 9.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.mission import lines
from clawpy_console.screens.mission.stack import CardStack
from clawpy_console.state import AppState
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.transcript import Transcript
from engine.model import Card, Layer, Refusal, Waiting

if TYPE_CHECKING:
    from clawpy_console.screens.mission.evidence import SimilarDecisions
    from engine import Engine
    from engine.model import Bubble, RailVerdict

REASONS = {"not_now": "not now", "wrong": "wrong", "done": "done", "never_here": "never here", "never": "never"}
"""Reasons for a dismissal by the key's name, in the order of the keys."""


LISTS = {
    "sessions": lines.work_rows, "queue": lines.waiting_rows, "tasks": lines.task_rows, "agents": lines.agent_rows,
}  # fmt: skip
"""What stands in each list."""


class CardRows(Rows, can_focus=False):
    """The pending cards; the keys are those of the stack. A click opens a row."""

    def click(self, number: int) -> None:
        self.cursor = number
        self.action_open()


class Queue(Rows):
    """What waits for you."""

    BINDINGS = bindings("queue")


class MissionScreen(ConsoleScreen):
    """The screen the console opens with."""

    BINDINGS = bindings("mission", "zoom")
    MODE = "mission"
    CSS_PATH = "mission.tcss"
    AUTO_FOCUS = "#stack"
    PANES = {
        "stack": "stack", "queue": "queue", "tasks": "tasks", "agents": "agents",
        "work": "sessions", "live": "live",
    }  # fmt: skip
    COLUMNS = {
        "stack": "middle", "queue": "right", "tasks": "right", "agents": "right", "work": "right", "live": "live",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._workspace = self.app.only  # the filter, "" for all
        self._stopped = False  # the message tells of a stop
        self._shown: set[str] = set()
        self._evidence_card = ""  # the card that the next two tell of
        self._rails: tuple[RailVerdict, ...] = ()  # what the rails say of it now
        self._similar: SimilarDecisions | None = None

    def body(self) -> ComposeResult:
        # Before the panes are there, or the style sheet is applied to them twice.
        self.set_class(not self.state.sessions, "-unused", update=False)
        self.set_class(not self._filtered(self.app.cards.pending(self.state.cards)), "-empty", update=False)
        yield Static(id="folded", markup=False)
        yield Static(id="greeting", markup=False)
        with Vertical(id="panes"):
            with Vertical(id="pane-stack", classes="pane"):
                yield Static(id="stack-title", markup=False)
                yield CardStack(id="stack")
                yield Static(id="message", markup=False)
                yield Static(id="question", markup=False)
                yield CardRows(id="cards", classes="-lit")
                yield Static(id="glance", markup=False)
            with Vertical(id="side"):
                with Vertical(id="pane-why", classes="pane"):
                    yield Static("WHY", id="why-title", classes="heading", markup=False)
                    yield ReflowingText(id="why")
                yield from self._list("queue", Queue(id="queue", empty="Nothing."))
                yield from self._list("tasks", Rows(id="tasks", classes="-fit"))
                yield from self._list("agents", Rows(id="agents", classes="-fit"))
            with Vertical(id="pane-live", classes="pane"):
                yield Static(id="live-title", classes="heading", markup=False)
                yield Transcript(id="live", max_lines=400)
            yield from self._list("work", Rows(id="sessions"))

    def _list(self, name: str, rows: Rows) -> ComposeResult:
        with Vertical(id=f"pane-{name}", classes="pane"):
            yield Static(name.upper(), id=f"{name}-title", classes="heading", markup=False)
            yield rows

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        state = self.state
        if not changed or changed & {"cards", "recent", "autonomy", "workspaces"}:
            stack = self.query_one("#stack", CardStack)
            stack.show(self._filtered(self.app.cards.pending(state.cards)), empty=self._empty_words(state))
        if self._stopped and not self.app.holds:
            self.show_message("", "$grey")
        if not changed or changed & {"sessions"}:
            self._mark("-unused", not state.sessions)
            self.query_one("#live", Transcript).follow(state.newest_running, self.app.transcript)

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self._complete:
            self._draw_lists(self.state, now)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._fit)

    def _mark(self, name: str, on: bool) -> None:
        """Give the screen a class that changes which panes there are."""
        if self.has_class(name) != on:
            self.toggle_class(name)
            self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """What depends on the widths of panes, once these are laid out."""
        if self.ready:
            self._draw_evidence(self.query_one("#stack", CardStack).front)
            self._draw_lists(self.state, self.app.now())

    def _draw_lists(self, state: AppState, now: datetime) -> None:
        now = now.replace(microsecond=0)  # all clocks turn together, once a second, not each at its own moment
        for name, draw in LISTS.items():
            rows = self.query_one(f"#{name}", Rows)
            items = draw(state, now, rows.scrollable_content_region.width or 40)
            rows.show(items)
            if name in ("tasks", "agents"):
                self.query_one(f"#pane-{name}").display = bool(items)
            elif name == "sessions" and not rows.has_focus:
                rows.action_first()  # the newest stays in sight
        waits = len(state.waiting)
        self.put("#queue-title", Content(f"WAITING FOR YOU  {waits}" if waits else "WAITING FOR YOU"))
        self.query_one("#pane-queue").set_class(bool(waits), "-wants")
        self.put("#live-title", Content(lines.live_title(state.newest_running, now)))
        self.put("#folded", self._folded(state, now))
        self._draw_glance()

    def _draw_glance(self) -> None:
        """On a narrow terminal: the last line of the live output, under the cards."""
        text = words.one_line(self.query_one("#live", Transcript).last_line)
        self.put("#glance", Content.styled(f"live  {text}" if text else "", "$faint"))

    def _folded(self, state: AppState, now: datetime) -> Content:
        """On a narrow terminal: what the panes that are out of sight hold."""
        running, waits = len(state.running), len(state.waiting)
        age = words.span(now - min((item.since for item in state.waiting), default=now))
        oldest = "" if not waits else ", just now" if age == "now" else f", oldest {age}"
        return Content.assemble(
            ("work ", "$faint"), (f"{running} running", "$accent" if running else "$grey"),
            ("   waiting for you ", "$faint"), (f"{waits}{oldest}", "bold $wants" if waits else "$grey"),
            ("   ⇥ shows them", "$faint"),
        )  # fmt: skip

    def _draw_stack_words(self, stack: CardStack) -> None:
        title = f"CARDS  {stack.cards.index(stack.front) + 1} of {len(stack.cards)}" if stack.front else "CARDS"
        if self._workspace and len(self._workspaces()) > 1:
            title += f"   only {words.workspace_name(self._workspace)}"
        self.put("#stack-title", Content(title))
        self.put("#question", self._question(stack))

    def _question(self, stack: CardStack) -> Content:
        """Which keys answer what was just asked: is the risk fine, why was it dismissed."""

        def key(name: str) -> tuple[str, str]:
            return (shown_key(f"stack.{name}", self.app.keymap), "$accent")

        if stack.armed:
            return Content.assemble(("▲ risky: ", "bold $wants"), key("insist"), (" approves it anyway", "$grey"))
        if stack.asks_why:
            reasons = [part for name, label in REASONS.items() for part in (" ", key(name), (f" {label}", "$grey"))]
            return Content.assemble(("why?", "bold reverse $accent"), *reasons)
        return Content("")

    def _draw_evidence(self, card: Card | None) -> None:
        """On a wide terminal: what the details of `card` say, beside it."""
        self._mark("-empty", card is None)
        if card is None or not self.has_class("-wide"):
            return
        from clawpy_console.fields import Field
        from clawpy_console.screens.mission.evidence import evidence_fields, parameter_lines

        more = (f"  {shown_key('stack.details', self.app.keymap)} shows all", "not bold $faint")
        self.put("#why-title", Content.assemble("WHY", more))
        if card.id != self._evidence_card:
            self._evidence_card, self._rails, self._similar = card.id, (), None
            self._ask_rails(card)
        fields = [*evidence_fields(card, self._rails, self._similar, self.state, self.app.now())]
        if card.assignment.flow and (parameters := parameter_lines(card.assignment.parameters)):
            fields += [
                Field("", "parameters", "heading"),
                *(Field("", item, "grey") for item in parameters.split("\n")),
            ]
        self.show_fields("#why", fields)

    def _ask_rails(self, card: Card) -> None:
        """Ask what the rails say of `card` now, and how you decided cards like it."""

        def arrived(answer: tuple[tuple[RailVerdict, ...], SimilarDecisions]) -> None:
            self._rails, self._similar = answer
            self._draw_evidence(self.query_one("#stack", CardStack).front)

        def read(engine: Engine) -> tuple[tuple[RailVerdict, ...], SimilarDecisions]:
            from clawpy_console.screens.mission.evidence import SimilarDecisions

            return engine.cards.rails(card.id), SimilarDecisions(*engine.cards.similar(card.id))

        self.read(read, arrived, group="rails", wait=0.15)

    def _workspaces(self) -> list[str]:
        """Those that are looked after, and others that cards of the stack are about."""
        stacked = sorted({card.assignment.workspace for card in self.app.cards.pending(self.state.cards)})
        return list(dict.fromkeys((*self.state.workspaces, *stacked)))

    def _filtered(self, cards: Iterable[Card]) -> tuple[Card, ...]:
        return tuple(card for card in cards if not self._workspace or card.assignment.workspace == self._workspace)

    def _empty_words(self, state: AppState) -> str:
        if self.app.opening:
            return f"No cards from last time.\n\nThe engine is {self.app.opening}."
        cycle = state.autonomy.next_cycle
        when = f"Next check: {words.clock_time(cycle)}" if cycle else "No check is scheduled."
        remark = state.autonomy.remark
        remarks = words.one_line(remark).replace("; ", "\n") + "\n\n" if remark else ""
        looked = [at for place, at in state.autonomy.looked if self._workspace in ("", place)]
        head = "No cards: nothing has been checked yet."
        if looked:
            where = words.workspace_name(self._workspace) if self._workspace else words.count(len(looked), "workspace")
            head = f"✓ Nothing needs you\n\nChecked {where} at {words.moment(min(looked), self.app.now())}"
        return f"{head}\n{remarks}{when}\n{shown_key('mission.predict', self.app.keymap)} checks now"

    # What happened while you were away, and the first run

    def greet(self, lines: list[Content]) -> None:
        """Show a few lines above the stack until a key is pressed; none hides them."""
        greeting = self.query_one("#greeting", Static)
        greeting.display = bool(lines)
        greeting.update(Content("\n").join(lines))

    # The stack

    @on(CardStack.Turned)
    def _turned(self) -> None:
        stack = self.query_one("#stack", CardStack)
        front, rows = stack.front, self.query_one("#cards", Rows)
        self._draw_stack_words(stack)
        rows.show(lines.card_rows(stack.cards, len(self._workspaces()) > 1))
        rows.select(front.id if front else "")
        if front is not None and front.id == self._evidence_card:
            self._ask_rails(front)  # the cards moved, and so may have what the rails count
        self._draw_evidence(front)
        if front is not None and front.id not in self._shown and self.app.engine is not None:
            self._shown.add(front.id)
            self.app.ask(lambda engine: engine.cards.mark_shown([front.id]))

    @property
    def _undo(self) -> str:
        return f"  ·  Undo: {shown_key('stack.undo', self.app.keymap)}"

    @on(CardStack.Decided)
    def _decided(self, message: CardStack.Decided) -> None:
        card = message.card
        label = {"approve": "✓ Started:", "dismiss": "← Dismissed:", "snooze": "↑ Snoozed:"}[message.how]
        room = self.query_one("#message").size.width - len(label) - len(self._undo) - 1
        prompt = words.crop(words.one_line(card.assignment.prompt), max(12, room))
        self.show_message(f"{label} {prompt}{self._undo}", "$grey")

        def show_note(note: str) -> None:
            self.show_message(f"{note}{self._undo}", "$wants")

        self.app.cards.decide(card, message.how, self._refused, show_note)

    @on(CardStack.Explained)
    def _explained(self, message: CardStack.Explained) -> None:
        self.app.cards.explain(message.card_id, message.reason, self.show_message, self._undo)

    def _refused(self, card: Card, refusal: Refusal) -> None:
        # A stop is about no card, and the message goes when the stop does.
        is_held = bool(self.app.holds) and refusal.message.startswith("kill: ")
        self.query_one("#stack", CardStack).bring_back(card, "" if is_held else refusal.message)
        self.show_message(f"✗ {refusal}", "$wrong")
        self._stopped = is_held

    def show(self, card: Card) -> None:
        """Show `card`: its decision was undone, or it was just written."""
        if not self._filtered([card]):
            self._workspace = ""  # it is shown, whatever the filter
        self.query_one("#stack", CardStack).bring_back(card, "")

    def show_message(self, text: str, style: str) -> None:
        """The line under the card: what was just done. Only what is grey is cut; what went wrong is told whole."""
        self._stopped = False
        text = text.replace("\n", " ")
        if style == "$grey":
            text = words.crop(text, max(20, self.query_one("#message").size.width))
        self.put("#message", Content.styled(text, style))

    @on(Rows.Opened, "#cards")
    def _clicked_card(self, message: Rows.Opened) -> None:
        stack = self.query_one("#stack", CardStack)
        stack.focus()
        if stack.front is not None and stack.front.id == message.row_id:
            self.action_details()
        else:
            stack.turn_to(message.row_id)

    def action_details(self) -> None:
        """Everything about the card that is shown."""
        if (card := self.query_one("#stack", CardStack).front) is not None:
            from clawpy_console.screens.mission.details import show_details

            show_details(self.app, card)

    def action_undo(self) -> None:
        """Undo the last decision."""
        self.app.cards.undo(self.show, self.show_message)

    def action_own_prompt(self) -> None:
        """Write a prompt; one that names a flow runs at once."""

        def start(card: Card) -> None:
            self.post_message(CardStack.Decided(card, "approve"))

        self.app.cards.write_own_prompt(self._workspace, self.show, start)

    def action_predict(self) -> None:
        """Check for new cards."""
        self.app.cards.predict(self.show_message)

    def action_filter(self) -> None:
        """Cards of one workspace, the next, all."""
        self._workspace = words.next_choice(["", *self._workspaces()], self._workspace)
        self.refresh_state(frozenset({"cards"}))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing now are not offered."""
        if action == "back":
            return self.pane != "stack"
        if action == "details":
            return self.ready and self.query_one("#stack", CardStack).front is not None
        return len(self._workspaces()) > 1 if action == "filter" else super().check_action(action, parameters)

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

    def _waiting(self) -> Waiting | None:
        """What is under the cursor in the list of what waits for you."""
        current = self.query_one("#queue", Rows).current
        return next((waiting for waiting in self.state.waiting if waiting.id == current), None)

    @on(Rows.Opened, "#queue")
    def _open_waiting(self) -> None:
        if (waiting := self._waiting()) is None:
            return
        match waiting.kind:
            case "fact":
                self.app.open("memory", Layer.PARA, waiting.id)
            case "candidate" | "learning":
                self.app.open("learning", waiting.id)
            case "bubble" if waiting.text:
                self._ask_to_approve(waiting)
            case "bubble":
                from clawpy_console.dialogs.ask import send_up

                send_up(self.app)
            case "notification":
                self._ask_to_retry(waiting)
            case _:
                change = next((change for change in self.state.changes if change.id == waiting.id), None)
                if session_id := waiting.session_id or (change.session_id if change else ""):
                    self.app.open("work", session_id)

    def _ask_to_approve(self, waiting: Waiting) -> None:
        """A quote goes up only with your approval (SPEC 6.8)."""
        hostile = f"▲ hostile: {words.one_line(waiting.hostile)}\n\n" if waiting.hostile else ""
        question = (
            f"{hostile}{words.one_line(waiting.text)}\n\nThis text comes from tools, files or agents. "
            "If you approve it, it becomes a pattern of a leader and goes into the prompts of all agents below."
        )

        def approve() -> None:
            self.app.ask(lambda engine: engine.wisdom.approve(waiting.id), approved)

        def approved(finding: Bubble) -> None:
            self.app.say(f"Approved. It reaches {finding.leader} with the next round.")
            self.app.renew(["changes"])

        from clawpy_console.dialogs.ask import confirm

        confirm(self.app, "Use it as guidance?", question, "approve", approve, risky=bool(hostile))

    def _ask_to_retry(self, waiting: Waiting) -> None:
        """Ask whether to send a notification again now; one that is out of date by then is not sent."""
        question = f"{words.one_line(waiting.title)}\n\nOnce it is fixed, `clawpy notify test` checks it."

        def retry() -> None:
            self.app.ask(lambda engine: engine.notify.retry_waiting(waiting.id), lambda _: self.app.renew(["changes"]))

        from clawpy_console.dialogs.ask import confirm

        confirm(self.app, "Try again?", question, "try again", retry)

    def action_dismiss_waiting(self) -> None:
        """Dismiss what needs no decision."""
        waiting = self._waiting()
        dismiss: dict[str, Callable[[Engine, str], object]] = {
            "notification": lambda engine, id: engine.notify.dismiss_waiting(id),
            "interrupted": lambda engine, id: engine.acknowledge(id),
        }
        if waiting is None:
            return
        if (call := dismiss.get(waiting.kind)) is not None:
            self.app.ask(lambda engine: call(engine, waiting.id), lambda _: self.app.renew(["changes"]))
        else:
            self.app.say("Only interrupted sessions can be dismissed here. ⏎ opens what needs a decision.", "warning")

    @on(Rows.Opened, "#sessions")
    def _open_session(self, message: Rows.Opened) -> None:
        self.app.open("work", message.row_id)

    @on(Rows.Opened, "#tasks")
    def _open_task(self) -> None:
        self.app.say("This task is open; a card proposes it when it is its turn.")

    @on(Rows.Opened, "#agents")
    def _open_agent(self, message: Rows.Opened) -> None:
        session = next((session for session in self.state.sessions if session.agent == message.row_id), None)
        if session is not None:
            self.app.open("work", session.id)
        else:
            self.app.open("hierarchy", message.row_id)

    def copy_text(self) -> str:
        focused, front = self.focused, self.query_one("#stack", CardStack).front
        if isinstance(focused, Transcript):
            return focused.session_id
        return focused.current if isinstance(focused, Rows) else front.id if front else ""
