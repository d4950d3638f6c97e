"""Everything about one card: why it is there, what it would do, and the prompt to edit before approving (SPEC 9.2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static, TextArea

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog
from clawpy_console.fields import Field
from clawpy_console.keys import bindings
from clawpy_console.screens.mission.card import headline
from clawpy_console.screens.mission.evidence import SimilarDecisions, evidence_fields, parameter_lines
from clawpy_console.widgets.keyline import KeyLine
from clawpy_console.widgets.reflowing_text import ReflowingText, render_fields
from engine.model import Card, RailVerdict, Refusal

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from engine import Engine


def parse_parameters(text: str) -> dict[str, Any] | None:
    """The inverse of `parameter_lines`; None for what is not such lines, such as a sentence."""
    parameters: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        key, equals, value = line.partition("=")
        if not equals or not key.strip().isidentifier():
            return None
        value = value.strip()
        try:
            parameters[key.strip()] = json.loads(value) if value[:1] in '[{"0123456789-tfn' else value
        except json.JSONDecodeError:
            parameters[key.strip()] = value  # a text that only begins like JSON, such as a commit id
    return parameters


class Details(Dialog[None]):
    """The details of one card. Closes itself when it was approved.

    Made once and shown again for every card: to compose it anew would take longer than an operator's key should.
    """

    BINDINGS = bindings("details")
    DEFAULT_CLASSES = "-alone"
    AUTO_FOCUS = "#details"
    DEFAULT_CSS = """
    Details #editor { height: auto; min-height: 3; max-height: 9; }
    Details KeyLine { background: $surface; dock: bottom; padding: 0; margin-top: 1; }
    Details #refused { color: $wrong; height: auto; display: none; }
    Details #why { margin-top: 1; }
    Details #details { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    """

    app: CardConsole

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card = card
        self._rails: tuple[RailVerdict, ...] = ()  # as they are now; none until the engine was asked
        self._similar: SimilarDecisions | None = None
        self._armed = False

    def show(self, card: Card) -> None:
        """Be the details of `card` from now on. Before the first showing, or while another screen is on top."""
        if card.id != self._card.id:
            self._similar, self._rails = None, ()
        self._card = card
        self._armed = False
        if self.is_mounted:
            self._begin()

    @property
    def _text(self) -> str:
        """What can be edited: a flow's parameters, or the prompt."""
        assignment = self._card.assignment
        return parameter_lines(assignment.parameters) if assignment.flow else assignment.prompt

    def compose(self) -> ComposeResult:
        with Vertical(id="frame", classes="dialog -wide") as frame:
            frame.border_title = Content("Card details")
            with VerticalScroll(id="details"):
                yield ReflowingText(id="head")
                yield Static(id="edited", classes="heading", markup=False)
                yield TextArea(id="editor", show_line_numbers=False, tab_behavior="focus")
                yield Static(id="refused", markup=False)
                yield ReflowingText(id="why")
            yield KeyLine()

    def on_mount(self) -> None:
        self._begin()

    def _begin(self) -> None:
        flow = self._card.assignment.flow
        self.query_one("#frame").border_subtitle = Content(self._card.id)
        self.query_one("#edited", Static).update(f"PARAMETERS OF {flow}" if flow else "PROMPT", layout=False)
        editor = self.query_one("#editor", TextArea)
        editor.placeholder = "No parameters set. Write key = value, one per line." if flow else ""
        if editor.text != self._text:
            editor.load_text(self._text)
        self.query_one("#refused").display = False
        self.query_one("#details").scroll_home(animate=False)
        self.set_focus(self.query_one("#details"))
        self._draw()
        self._read_again()

    def _read_again(self) -> None:
        card_id = self._card.id

        def read(engine: Engine) -> tuple[Card, tuple[RailVerdict, ...], SimilarDecisions]:
            similar = SimilarDecisions(*engine.cards.similar(card_id))
            return engine.cards.get(card_id), engine.cards.rails(card_id), similar

        def arrived(answer: tuple[Card, tuple[RailVerdict, ...], SimilarDecisions]) -> None:
            if card_id == self._card.id:
                self._card, self._rails, self._similar = answer
                self._draw()

        if self.app.engine is not None:
            self.app.ask(read, arrived, self._refuse)

    def _draw(self) -> None:
        card = self._card
        head = Content.styled(words.one_line(card.assignment.prompt), "bold $ink")
        bare = Content.styled(f"▲ {words.NO_SANDBOX}" if card.without_sandbox else "", "bold $wants")
        self.query_one("#head", ReflowingText).show(lambda width: [headline(card, width), bare, *head.wrap(width)])
        # What it lacks stands beside the editor, where it can be given.
        lacks = [Field("", f"▲ {words.one_line(card.note)}", "wants"), Field("", "")] if card.note else []
        fields = [*lacks, *evidence_fields(card, self._rails, self._similar, self.app.state, self.app.now())]
        self.query_one("#why", ReflowingText).show(lambda width: render_fields(fields, width))

    def _refuse(self, why: object) -> None:
        line = self.query_one("#refused", Static)
        line.display = True
        line.update(Content(f"✗ {why}"))
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
        """In the text a letter is a letter, and another key approves."""
        typing = bool(self.query("#editor:focus"))
        if action == "approve":
            return typing is bool(parameters)
        return not typing if action == "edit" else super().check_action(action, parameters)

    def action_approve(self, typing: bool = False) -> None:
        """Approve what stands in the editor; a risky card first says so and waits for its own key."""
        if (risk := words.approval_risk(self._card)) and not self._armed:
            self._armed = True
            self._refuse(f"risky: {risk}; A approves it anyway")
            self.query_one("#details").focus()
            return
        if not words.approval_risk(self._card):
            self._approve()

    def action_insist(self) -> None:
        if self._armed:
            self._approve()

    def _approve(self) -> None:
        card, text = self._card, self.query_one("#editor", TextArea).text.strip()
        edited = text != self._text.strip()
        parameters = parse_parameters(text) if edited and card.assignment.flow else None
        edit = text if edited and parameters is None else None

        def on_refusal(refusal: Refusal) -> None:
            self._refuse(refusal)
            self._armed = False
            self._read_again()

        def call(engine: Engine) -> Card:
            return engine.cards.approve(
                card.id, edit=edit, parameters=parameters, without_sandbox=self._armed and card.needs_confirmation
            )

        self.app.cards.approve_edited(card, call, self.dismiss, on_refusal)


def show_details(app: CardConsole, card: Card) -> None:
    """Open the details of `card`. Their screen is kept when it closes."""
    if not app.is_screen_installed("details"):
        app.install_screen(Details(card), "details")
    details = app.get_screen("details")
    if isinstance(details, Details) and details not in app.screen_stack:
        details.show(card)
        app.push_screen(details)
