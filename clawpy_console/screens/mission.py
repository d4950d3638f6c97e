"""Screen 1, mission control: the cards, their evidence, live output, work, and what waits for you (SPEC 9.2, 9.3).

The screen asks `CardController` for each decision, and passes what the operator chooses from pane to pane. The stack
itself is in `card_stack`, one card in `card_view`, the panes around it are in `mission_panes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from clawpy_console.card_controller import SNOOZE, CardDecision
from clawpy_console.fields import WORDS
from clawpy_console.formats import clock_time, count, crop, one_line, workspace_name
from clawpy_console.keys import make_bindings
from clawpy_console.screens import ConsoleScreen, find_next_choice
from clawpy_console.screens import mission_panes as panes
from clawpy_console.screens.card_stack import CardStack
from clawpy_console.state import AppState
from clawpy_console.widgets import Pane, Rows
from clawpy_console.widgets.texts import Heading, PlainText
from clawpy_console.widgets.transcript import Transcript
from engine.model import ALREADY_REVIEWED, Card, DismissReason, Refusal, Waiting

REASON_LABELS = WORDS["reason"]
"""The reasons for a dismissal, by the name of their key, in the order of the keys."""

ROW_MAKERS = {
    "sessions": panes.make_work_rows, "queue": panes.make_waiting_rows, "tasks": panes.make_task_rows,
    "agents": panes.make_agent_rows,
}  # fmt: skip
"""The function that makes the rows of each list, by the id of the list."""

STOP_RAIL = "kill"
"""The rail that refuses work during a stop."""


class MissionScreen(ConsoleScreen):
    """The screen the console opens with."""

    BINDINGS = make_bindings("mission", "zoom")
    MODE = "mission"
    CSS_PATH = "mission.tcss"
    AUTO_FOCUS = "#stack"
    PANES = {
        "stack": "middle", "queue": "right", "tasks": "right", "agents": "right", "sessions": "right", "live": "live",
    }  # fmt: skip

    _stack = getters.query_one("#stack", CardStack)
    _live = getters.query_one("#live", Transcript)
    _message = getters.query_one("#message", panes.MessageLine)
    _evidence_pane = getters.query_one(panes.EvidencePane)

    def __init__(self) -> None:
        super().__init__()
        self._reported_ids: set[str] = set()  # cards of which the engine knows that they were shown

    def compose_body(self) -> ComposeResult:
        # Before the panes are mounted, or the style sheet is applied to them twice.
        self.set_class(not self._shown_state.sessions, "-unused", update=False)
        self.set_class(not self._select_shown(self.app.cards.pending(self.state.cards)), "-empty", update=False)
        yield PlainText(id="hidden-panes")
        yield PlainText(id="greeting")
        with Vertical(id="panes"):
            with Pane(id="pane-stack"):
                yield PlainText(id="stack-title")
                yield CardStack(self._draw_stack, self._on_decision, self._on_reason)
                yield panes.MessageLine(id="message")
                yield PlainText(id="question")
                yield panes.CardRows(id="cards", classes="-lit")
                yield PlainText(id="glance")
            with Vertical(id="side"):
                yield panes.EvidencePane()
                yield from self._compose_list("queue", panes.Queue(id="queue", empty="Nothing.", classes="-fit"))
                yield from self._compose_list("tasks", Rows(id="tasks", classes="-fit"))
                yield from self._compose_list("agents", Rows(id="agents", classes="-fit"))
            with Pane(id="pane-live"):
                yield Heading(id="live-title")
                yield Transcript(id="live", max_lines=400)
            yield from self._compose_list("work", Rows(id="sessions"))

    def _compose_list(self, name: str, rows: Rows) -> ComposeResult:
        with Pane(id=f"pane-{name}"):
            yield Heading(name.upper(), id=f"{name}-title")
            yield rows

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        state = self.state
        if not changed or changed & {"cards", "recent_cards", "autonomy", "workspaces", "waiting", "sessions"}:
            pending = self.app.cards.pending(state.cards)
            empty = f"No cards from last time.\n\nThe engine is {self.app.opening_step}."
            if not self.app.opening_step:
                empty = panes.describe_empty_stack(self._shown_state, self.now, self.app.keymap)
            self._stack.show(self._select_shown(pending), empty=empty, pending=pending if self.app.is_loaded else None)
            if not changed or changed & {"cards", "workspaces"}:
                self._draw_stack()
            else:
                self._evidence_pane.show(self._stack.front, is_changed=True)
        if not changed or changed & {"sessions"}:
            shown = self._shown_state
            self._set_layout_class("-unused", is_set=not shown.sessions)
            self._live.follow(shown.newest_running)

    def on_mount(self) -> None:
        self.watch(self.query_one("#cards"), "scroll_y", self._draw_stack_title)

    def draw_times(self) -> None:
        self._draw_lists()

    def on_descendant_focus(self) -> None:
        """A narrow terminal shows other panes, which had no width before."""
        self.call_after_refresh(self._draw_for_widths)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._draw_for_widths)

    def _set_layout_class(self, name: str, *, is_set: bool) -> None:
        """Add or remove a class of the screen that decides which panes there are."""
        if self.has_class(name) != is_set:
            self.set_class(is_set, name)
            self.call_after_refresh(self._draw_for_widths)

    def _mark_empty_stack(self) -> None:
        if self.is_ready:
            self._set_layout_class("-empty", is_set=self._stack.front is None)

    def _draw_for_widths(self) -> None:
        """Draw what depends on the widths of panes, once these are laid out."""
        if self.is_ready:
            self._evidence_pane.show(self._stack.front)
            self._draw_lists()

    def _draw_lists(self) -> None:
        state = self.state
        shown = self._shown_state
        now = self.now.replace(microsecond=0)  # so that all clocks change in the same frame
        for name, make_rows in ROW_MAKERS.items():
            rows = self.query_one(f"#{name}", Rows)
            items = make_rows(shown if name == "sessions" else state, now, rows.scrollable_content_region.width or 40)
            rows.show(items)
            if name in ("tasks", "agents"):
                self.query_one(f"#pane-{name}").display = bool(items)
            elif name == "sessions" and not rows.has_focus:
                rows.action_first()  # the newest stays in sight
        waiting_count = len(state.waiting)
        self.show_content(
            "#queue-title", Content(f"WAITING FOR YOU  {waiting_count}" if waiting_count else "WAITING FOR YOU")
        )
        self.query_one("#pane-queue").set_class(bool(waiting_count), "-wants")
        self.show_content("#live-title", Content(panes.make_live_title(shown.newest_running, now)))
        self.show_content("#hidden-panes", panes.describe_hidden_panes(shown, now, self.key_of("panes.next")))
        self._draw_glance()

    def _draw_glance(self) -> None:
        """On a narrow terminal, draw the last line of output below the cards."""
        width = self.query_one("#glance").content_size.width or self.size.width
        session = self._shown_state.newest_running
        place = "" if session is None else self.state.make_place_prefix(session.workspace)
        text = panes.make_glance(self._live.last_line, session, place, width)
        self.show_content("#glance", Content.styled(text, "$faint"))

    def _draw_stack_title(self) -> None:
        stack = self._stack
        title = "CARDS"
        if stack.front is not None:
            title += f"  {stack.cards.index(stack.front) + 1} of {len(stack.cards)}"
        if hidden_above := round(self.query_one("#cards", Rows).scroll_y):
            title += f"   ▲ {hidden_above} more above"
        if self.app.workspace_filter:
            title += f"   only {workspace_name(self.app.workspace_filter)}"
        elif others := self._count_other_workspaces():
            places = count(len(others), "other repository", "other repositories")
            hidden = f"+{sum(others.values())} in {places}: {self.key_of('mission.filter')}"
            title += f"   {'all repositories' if self.app.workspace_filter == '' else hidden}"
        self.show_content("#stack-title", Content(title))

    def _make_question(self, stack: CardStack) -> Content:
        """The keys that approve a risky card, or give the reason of a dismissal, while one of these is asked."""

        def key(name: str) -> tuple[str, str]:
            return (self.key_of(f"stack.{name}"), "$accent")

        if stack.is_risk_shown and stack.front is not None:
            blocking_verdict = stack.front.blocking_verdict
            effect = f"tries it; {blocking_verdict.rail} would block it" if blocking_verdict else "approves it anyway"
            return Content.assemble(("▲ risky: ", "bold $wants"), key("insist"), (f" {effect}", "$grey"))
        if question := stack.reason_question:
            reasons: list[str | tuple[str, str]] = []
            for name, label in REASON_LABELS.items():
                reasons += ["  ", key(name), (f" {label}", "$grey")] if question.takes(label) else []
            return Content.assemble(("why?", "bold reverse $accent"), *reasons)
        return Content("")

    def _count_other_workspaces(self) -> Counter[str]:
        """The numbers of pending cards of workspaces that are not of this console."""
        places = (card.assignment.workspace for card in self.app.cards.pending(self.state.cards))
        return Counter(place for place in sorted(places) if place not in self.state.workspaces)

    def _list_filters(self) -> list[str | None]:
        """The choices of `workspace_filter`."""
        own = self.state.workspaces
        others = self._count_other_workspaces()
        return [None, *(own if len(own) > 1 else ()), *others, *([""] if others else ())]

    def _select_shown(self, cards: Iterable[Card]) -> tuple[Card, ...]:
        """Those of `cards` that belong to the workspaces that are shown."""
        return tuple(card for card in cards if self.app.shows(card.assignment.workspace))

    @property
    def _shown_state(self) -> AppState:
        """The state with the sessions and the checks of the workspaces that are shown, and no others."""
        state = self.state
        shows = self.app.shows
        checked = tuple((place, at) for place, at in state.autonomy.last_checked if shows(place))
        sessions = tuple(session for session in state.sessions if shows(session.workspace))
        return replace(state, sessions=sessions, autonomy=replace(state.autonomy, last_checked=checked))

    # Greeting

    def greet(self, lines: list[Content]) -> None:
        """Show `lines` above the stack; an empty list hides the greeting."""
        greeting = self.query_one("#greeting", PlainText)
        greeting.display = bool(lines)
        greeting.update(Content("\n").join(lines))

    # The stack

    def _draw_stack(self) -> None:
        """Draw what depends on the cards and on the one in front."""
        if not self.is_ready:
            return
        stack = self._stack
        front = stack.front
        rows = self.query_one("#cards", Rows)
        if self._message.error_card_id not in (None, self._front_id):
            self._message.clear()
        self._draw_stack_title()
        self.show_content("#question", self._make_question(stack))
        rows.show(panes.make_card_rows(stack.cards, self.state))
        rows.select(front.id if front else "")
        self._evidence_pane.show(front, is_changed=True)
        if self.has_class("-empty") != (front is None):
            # The next frame shows what the key did; new sizes of panes take long and wait for the frame after it.
            self.call_after_refresh(self._mark_empty_stack)
        if front is not None and front.id not in self._reported_ids and self.app.engine is not None:
            self._reported_ids.add(front.id)
            self.app.call_engine(lambda engine: engine.cards.mark_shown([front.id]))

    @property
    def _front_id(self) -> str:
        """The id of the card in front, "" for none."""
        return self._stack.front.id if self._stack.front else ""

    @property
    def _undo_hint(self) -> str:
        return f"  ·  Undo: {self.key_of('stack.undo')}"

    def _on_decision(self, card: Card, decision: CardDecision) -> None:
        label = {
            CardDecision.APPROVE: "✓ Started:",
            CardDecision.DISMISS: "← Dismissed:",
            CardDecision.SNOOZE: f"↑ Snoozed until {clock_time(self.now + SNOOZE)}:",
        }[decision]
        undo_hint = self._undo_hint if decision is not CardDecision.APPROVE else self._make_approval_undo_hint(card)
        prompt_width = self._message.size.width - len(label) - len(undo_hint) - 1
        prompt = crop(one_line(card.assignment.prompt), max(12, prompt_width))
        self.show_message(f"{label} {prompt}{undo_hint}", "$grey")

        self.app.cards.decide(
            card, decision, self._on_refusal, lambda note: self.show_message(note, "$wants"), self._undo_hint
        )

    def _make_approval_undo_hint(self, card: Card) -> str:
        """How the work of `card` is undone; "" where it only reads."""
        if card.check_only:
            return ""
        return self._undo_hint if card.gives_change_set else f"  ·  Undo: {one_line(card.undo_note)}"

    def _on_reason(self, card_id: str, reason: DismissReason) -> None:
        self.app.cards.record_reason(card_id, reason, self.show_message, self._undo_hint)

    def _on_refusal(self, card: Card, refusal: Refusal) -> None:
        if refusal.code == ALREADY_REVIEWED:
            self._stack.restore(card, "")
            self.show_message("You reviewed this already: the details say what to do.", "$grey")
            if self.is_active:
                self.action_details()
            return
        if refusal.rail == STOP_RAIL:  # it concerns no single card
            self._stack.restore(card, "")
            self._message.clear()
            self.app.show_toast(refusal, "warning")
            return
        self._stack.restore(card, refusal.message)
        self.show_message(f"✗ {refusal}", "$wrong")

    def show(self, card: Card) -> None:
        """Put `card` in front: its decision was undone, or the operator just wrote it."""
        if not self._select_shown([card]):
            workspace = card.assignment.workspace
            self.app.workspace_filter = None if workspace in self.state.workspaces else workspace
        self._stack.restore(card, "")

    def show_message(self, text: str, style: str) -> None:
        """Show in the line under the card what was just done, or with the style "$wrong" why it was refused."""
        self._message.show(text, style, error_card_id=self._front_id if style == "$wrong" else None)

    @on(Rows.Opened, "#cards")
    def _on_card_clicked(self, message: Rows.Opened) -> None:
        stack = self._stack
        stack.focus()
        if stack.front is not None and stack.front.id == message.row_id:
            self.action_details()
        else:
            stack.select(message.row_id)

    def action_details(self) -> None:
        """Open the details of the card in front."""
        if (card := self._stack.front) is not None:
            from clawpy_console.screens.card_details import show_details

            self._stack.chosen_id = card.id
            show_details(self.app, card)

    def action_undo(self) -> None:
        """Undo the last decision."""
        self.app.cards.undo(self.show, self.show_message, self._undo_hint)

    def action_own_prompt(self) -> None:
        """Write a prompt; one that names a flow runs at once."""
        from clawpy_console.screens.own_prompt import open_prompt_box  # not before the first frame

        def start(card: Card) -> None:
            self._stack.chosen_id = ""  # its next step may come in front
            self._on_decision(card, CardDecision.APPROVE)

        open_prompt_box(self.app, self.app.workspace_filter, self.show, start)

    def action_predict(self) -> None:
        """Check for new cards."""
        self.app.cards.predict(self.show_message)

    def action_filter(self) -> None:
        """Show the next workspace alone; after the last of other repositories all, then those of this console."""
        self.app.workspace_filter = find_next_choice(self._list_filters(), self.app.workspace_filter)
        self.refresh_state(frozenset({"cards", "sessions"}))

    def offers(self, action: str, *parameters: object) -> bool:
        """Keys that can do nothing now are not offered."""
        if action == "back":
            return self.pane != "stack"
        if action == "details":
            return self.is_ready and self._stack.front is not None
        if action == "filter":
            return len(self._list_filters()) > 1 or self.app.workspace_filter is not None
        return True

    def action_back(self) -> None:
        """Back to the cards."""
        self.go_to("stack")

    @on(Transcript.Grew)
    def _on_live_output(self) -> None:
        if self.has_class("-narrow"):
            self._draw_glance()

    # The lists

    @property
    def _waiting(self) -> Waiting | None:
        """The item under the cursor of the queue."""
        return self.query_one("#queue", Rows).find(self.state.waiting)

    @on(Rows.Opened, "#queue")
    def _open_waiting(self) -> None:
        if (waiting := self._waiting) is not None:
            panes.open_waiting(self.app, waiting)

    def action_dismiss_waiting(self) -> None:
        if (waiting := self._waiting) is not None:
            panes.dismiss_waiting(self.app, waiting)

    @on(Rows.Opened, "#sessions")
    def _open_session(self, message: Rows.Opened) -> None:
        self.app.open("work", message.row_id)

    @on(Rows.Opened, "#tasks")
    def _open_task(self) -> None:
        self.app.show_toast("This task is open; a card proposes it when it is its turn.")

    @on(Rows.Opened, "#agents")
    def _open_agent(self, message: Rows.Opened) -> None:
        session = next((session for session in self.state.sessions if session.agent == message.row_id), None)
        if session is not None:
            self.app.open("work", session.id)
        else:
            self.app.open("hierarchy", message.row_id)

    def find_text_to_copy(self) -> str:
        focused = self.focused
        front = self._stack.front
        if isinstance(focused, Transcript):
            return focused.session_id
        if isinstance(focused, Rows):
            return focused.current
        return front.id if front else ""
