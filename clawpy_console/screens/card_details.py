"""The details of a card: its evidence, what it would do, and its prompt, which can be edited first (SPEC 9.2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static, TextArea

from clawpy_console.dialogs.base import Dialog
from clawpy_console.fields import Field, states
from clawpy_console.formats import one_line
from clawpy_console.keys import bindings
from clawpy_console.screens.card_evidence import Evidence, evidence_fields, parameter_lines, read_evidence
from clawpy_console.screens.card_stack import headline
from clawpy_console.widgets.bars import KeyLine
from clawpy_console.widgets.reflowing_text import ReflowingText
from engine.model import Card, Refusal

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from engine import Engine


def parse_parameters(text: str) -> dict[str, Any] | None:
    """The parameters that `parameter_lines` wrote as `text`; None for any other text, such as a sentence."""
    parameters: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        key, equals, value = line.partition("=")
        if not equals or not key.strip().isidentifier():
            return None
        value = value.strip()
        try:
            parameters[key.strip()] = json.loads(value) if value[:1] in '[{"0123456789-tfn' else value
        except json.JSONDecodeError:
            parameters[key.strip()] = value  # not JSON, such as a commit id that begins with a digit
    return parameters


class Details(Dialog[None]):
    """The details of one card. They close when the card is approved."""

    BINDINGS = bindings("details")
    DEFAULT_CLASSES = "-alone"
    AUTO_FOCUS = "#details"
    DEFAULT_CSS = """
    Details #editor { height: auto; min-height: 3; max-height: 9; }
    Details KeyLine { background: $surface; dock: bottom; padding: 0; margin-top: 1; }
    Details #refusal { color: $wrong; height: auto; display: none; }
    Details #why { margin-top: 1; }
    Details #details { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    """

    app: CardConsole

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card = card
        self._evidence = Evidence()
        self._armed = False  # the risk was shown, and the next key may approve

    @property
    def _editable_text(self) -> str:
        """The parameters of a flow, else the prompt."""
        assignment = self._card.assignment
        return parameter_lines(assignment.parameters) if assignment.flow else assignment.prompt

    def compose(self) -> ComposeResult:
        with self.frame("Card details", classes="-wide"):
            with VerticalScroll(id="details"):
                yield ReflowingText(id="head")
                yield Static(id="editor-title", classes="heading", markup=False)
                yield TextArea(id="editor", show_line_numbers=False, tab_behavior="focus")
                yield Static(id="refusal", markup=False)
                yield ReflowingText(id="why")
            yield KeyLine()

    def on_mount(self) -> None:
        flow = self._card.assignment.flow
        self.query_one(".dialog").border_subtitle = Content(self._card.id)
        self.query_one("#editor-title", Static).update(f"PARAMETERS OF {flow}" if flow else "PROMPT")
        editor = self.query_one("#editor", TextArea)
        editor.placeholder = "No parameters set. Write key = value, one per line." if flow else ""
        editor.load_text(self._editable_text)
        self._draw()
        self._read_again()

    def _read_again(self) -> None:
        def read(engine: Engine) -> tuple[Card, Evidence]:
            return engine.cards.get(self._card.id), read_evidence(engine, self._card.id)

        def show(answer: tuple[Card, Evidence]) -> None:
            self._card, self._evidence = answer
            self._draw()

        if self.app.engine is not None:
            self.read(read, show, self._show_refusal, group="card")

    def _draw(self) -> None:
        card = self._card
        head = Content.styled(one_line(card.assignment.prompt), "bold $ink")
        warning = Content.styled(f"▲ {states.NO_SANDBOX}" if card.without_sandbox else "", "bold $wants")
        self.query_one("#head", ReflowingText).show(lambda width: [headline(card, width), warning, *head.wrap(width)])
        # The note names what is missing in the prompt, so it stands below the editor.
        note = [Field("", f"▲ {one_line(card.note)}", "wants"), Field("", "")] if card.note else []
        fields = [*note, *evidence_fields(card, self._evidence, self.app.state, self.app.now())]
        self.query_one("#why", ReflowingText).show_fields(fields)

    def _show_refusal(self, reason: object) -> None:
        line = self.query_one("#refusal", Static)
        line.display = True
        line.update(Content(f"✗ {reason}"))
        self.query_one("#details").scroll_home(animate=False)

    def action_edit(self) -> None:
        self.query_one("#editor").focus()

    def action_close(self) -> None:
        editor = self.query_one("#editor")
        if editor.has_focus:
            self.query_one("#details").focus()
        else:
            self.dismiss()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While the editor has the focus, letters are text, and another key approves."""
        is_typing = bool(self.query("#editor:focus"))
        if action == "approve":
            return is_typing is bool(parameters)
        return not is_typing if action == "edit" else super().check_action(action, parameters)

    def action_approve(self, typing: bool = False) -> None:
        """Approve the card with the text in the editor. A risky card shows its risk, and waits for `action_insist`."""
        risk = states.approval_risk(self._card)
        if not risk:
            self._approve()
        elif not self._armed:
            self._armed = True
            self._show_refusal(f"risky: {risk}; A approves it anyway")
            self.query_one("#details").focus()

    def action_insist(self) -> None:
        if self._armed:
            self._approve()

    def _approve(self) -> None:
        card, text = self._card, self.query_one("#editor", TextArea).text.strip()
        is_edited = text != self._editable_text.strip()
        parameters = parse_parameters(text) if is_edited and card.assignment.flow else None
        edit = text if is_edited and parameters is None else None

        def on_refusal(refusal: Refusal) -> None:
            self._show_refusal(refusal)
            self._armed = False
            self._read_again()

        def call(engine: Engine) -> Card:
            return engine.cards.approve(
                card.id, edit=edit, parameters=parameters, without_sandbox=self._armed and card.needs_confirmation
            )

        self.app.cards.approve_edited(card, call, self.dismiss, on_refusal)
