"""The details of a card: its evidence, what it would do, and its prompt, which can be edited first (SPEC 9.2).

`Details` is the dialog that Enter opens. `make_evidence_fields` is also the pane WHY beside the stack."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from textual import getters
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import TextArea

from clawpy_console import formats
from clawpy_console.fields import Field, Fields, draw_bar, heading, make_fact_fields, text_line
from clawpy_console.fields import cards as card_fields
from clawpy_console.formats import one_line
from clawpy_console.keys import make_bindings
from clawpy_console.screens.card_view import describe_signal, make_headline
from clawpy_console.screens.dialog import Dialog
from clawpy_console.screens.safety_fields import VERDICT_SIGNS
from clawpy_console.state import AppState
from clawpy_console.widgets.frame import Frame, KeyLine
from clawpy_console.widgets.session import describe_result
from clawpy_console.widgets.texts import Heading, PlainText, ReflowingText
from engine.model import (
    CONFIDENCE_WEIGHTS,
    NO_SANDBOX_WARNING,
    Card,
    RailVerdict,
    Refusal,
    Source,
    Tier,
    Verdict,
    join_reasons,
)

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from clawpy_console.console import EngineCall
    from engine import Engine


# The evidence for a card, read from the engine and as fields, for its details and for the pane beside it.


class Evidence(NamedTuple):
    """What the engine says of a card now; empty until it was read."""

    rails: tuple[RailVerdict, ...] = ()
    """The verdict of each rail."""
    similar: tuple[int, int] | None = None
    """The number of cards like it that you approved, and of those you decided."""
    sandbox: str = ""
    """The sandbox that would hold the work, with the hosts that it may reach; "" while nothing can do the work."""


def read_evidence(engine: Engine, card_id: str) -> Evidence:
    """Read the evidence of a card. Blocking: call it in a thread."""
    cards = engine.cards
    return Evidence(cards.preview_rails(card_id), cards.count_similar(card_id), cards.describe_sandbox(card_id))


def make_evidence_fields(card: Card, evidence: Evidence, state: AppState, now: datetime, *, in_full: bool) -> Fields:
    """The evidence for and against `card`; unless `in_full`, without weights and without rails that allow it."""
    if card.reasoning:
        yield from (text_line(line, "grey") for line in card.reasoning.splitlines())
    yield heading("place in the stack")
    yield from _make_place_fields(card)
    yield from make_fact_fields(_collect_history_facts(card, evidence.similar, state, now), "grey")
    signals = [signal for signal in card.signals if signal.relevance or signal.error]
    if signals:  # the operator's own prompt has none
        yield heading("signals (weight · relevance)" if in_full else "signals")
    for signal in signals:
        name, text = describe_signal(signal)
        figures = f"  {signal.weight:.2f} · {signal.relevance:.2f}" if in_full else ""
        yield Field(name, f"{draw_bar(signal.relevance)} {text}{figures}", "grey")
    if evidence.rails:
        yield heading("rails now")
    yield from _make_rails_fields(evidence.rails, in_full=in_full)
    yield heading("work")
    yield from make_fact_fields(_collect_work_facts(card, evidence.sandbox, now), "grey")
    yield from _make_confidence_fields(card)


def format_parameters(parameters: Mapping[str, Any]) -> str:
    """A flow's parameters as `key = value` lines, values as JSON except plain texts."""
    return "\n".join(
        f"{key} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in parameters.items()
    )


def parse_parameters(text: str) -> dict[str, Any] | None:
    """The parameters that `format_parameters` wrote as `text`; None for any other text, such as a sentence."""
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


def _make_place_fields(card: Card) -> Fields:
    """The place of a card in the stack, and the reasons for it."""
    if not card.can_run:
        yield text_line("cards that cannot run come last", "grey")
    elif card.source is Source.OPERATOR:
        yield text_line("your own prompts come first", "grey")
    if card.source is Source.OPERATOR:
        return
    place = f"{card.tier_word.upper()}: {card.tier.meaning} (group {int(card.tier)} of 4)"
    yield text_line(place, "wrong" if card.tier is Tier.AT_RISK else "ink")
    reasons = card.parts.words[len(CONFIDENCE_WEIGHTS) :] if card.parts is not None else ()
    yield from (text_line(one_line(reason), "grey") for reason in reasons)


def _make_confidence_fields(card: Card) -> Fields:
    """The confidence as a sum of terms, each with its value and its reason; nothing while none is stated."""
    parts = card.parts
    if parts is None or not card.has_stated_confidence:
        return
    yield heading("confidence (weight · value)")
    for number, (name, weight) in enumerate(CONFIDENCE_WEIGHTS.items()):
        value = getattr(parts, name)
        reason = one_line(parts.words[number]) if number < len(parts.words) else ""
        yield text_line(f"{weight:.2f} · {value:.2f} = {weight * value:.3f}  {name:<8}  {reason}", "grey")
    yield text_line(f"sum         = {parts.total:.3f}  {card.band.value}")


def _make_rails_fields(rails: Sequence[RailVerdict], *, in_full: bool) -> Fields:
    """Each rail: its first reason, then the others together. Rails that allow without a reason share one line; unless
    `in_full`, all that allow do, and the other reasons are left out."""
    allowing = [rail for rail in rails if rail.verdict is Verdict.ALLOW and not (in_full and rail.reason)]
    for rail in rails:
        if rail in allowing:
            continue
        sign, tone = VERDICT_SIGNS[rail.verdict]
        first, *others = rail.reasons or [""]
        yield Field(rail.rail, f"{sign} {one_line(first)}", tone)
        if others and in_full:
            yield text_line(f"also: {one_line(join_reasons(others))}", "grey")
    if allowing:
        yield text_line(f"✓ {', '.join(rail.rail for rail in allowing)}: no objection", "grey")


def _collect_history_facts(
    card: Card, similar: tuple[int, int] | None, state: AppState, now: datetime
) -> Iterator[tuple[str, str]]:
    """The decisions about cards like it, and the end of the last run of the flow in this workspace."""
    if similar is not None:
        approved, decided = similar
        text = f"approved {approved} of {decided} cards like this here"
        yield "decisions", text if decided else "no card like this decided here yet"
    flow = card.assignment.flow
    workspace = card.assignment.workspace
    for session in state.sessions if flow else ():
        if (session.flow, session.workspace) == (flow, workspace) and session.state.is_over:
            yield "last run", describe_result(session, now)
            return


def _collect_work_facts(card: Card, sandbox: str, now: datetime) -> list[tuple[str, str]]:
    """The work: its kind, cost, runner and changes. Facts without a text are not shown."""
    from engine import kind_title  # not before the first frame

    assignment = card.assignment
    served = one_line(card.consent_text)
    changes = card_fields.describe_changes(
        card.changes, check_only=card.check_only, without_sandbox=card.without_sandbox
    )
    lifetime = f"made {formats.moment(card.created_at, now)}, expires {formats.moment(card.expires_at, now)}"
    return [
        ("kind", kind_title(card.kind)),
        ("cost", f"est. {formats.money(card.estimate)}" if card.estimate else ""),
        ("runs", f"{assignment.flow or served or assignment.runner}, by {card.agent}"),
        ("commands", served if assignment.flow else ""),
        ("continues", "" if assignment.flow else assignment.parameters.get("continues", "")),
        ("where", assignment.workspace),
        ("changes", changes),
        ("sandbox", sandbox),
        ("undo", card.undo_note),
        ("source", f"{card.source.value}, {lifetime}"),
    ]


class Details(Dialog[None]):
    """The details of one card. They close when the card is approved.

    The screen is made once and shown again for each card: composing it for each would double the time of the key.
    """

    BINDINGS = make_bindings("details")
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

    _pane = getters.query_one("#details", VerticalScroll)
    _editor = getters.query_one("#editor", TextArea)

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card = card
        self._evidence = Evidence()
        self._is_risk_shown = False  # then the next key may approve
        self._approving_id = ""  # the card whose approval the engine has not answered yet

    @property
    def _editable_text(self) -> str:
        """The parameters of a flow, else the prompt."""
        assignment = self._card.assignment
        return format_parameters(assignment.parameters) if assignment.flow else assignment.prompt

    def compose(self) -> ComposeResult:
        with self.make_frame("Card details", classes="-wide"):
            with VerticalScroll(id="details"):
                yield ReflowingText(id="head")
                yield Heading(id="editor-title")
                yield TextArea(id="editor", show_line_numbers=False, tab_behavior="focus")
                yield PlainText(id="refusal")
                yield ReflowingText(id="why")
            yield KeyLine()

    def on_mount(self) -> None:
        self._show_card()

    def show(self, card: Card) -> None:
        """Show `card` from now on. Call it while the screen is not open."""
        if card.id != self._card.id:
            self._evidence = Evidence()
        self._card = card
        self._is_risk_shown = False
        if self.is_mounted:
            self.query_one(Frame).screen_name = self.app.current_mode
            self._show_card()

    def _show_card(self) -> None:
        """Show the card from its top, with its text in the editor."""
        flow = self._card.assignment.flow
        self.query_one(".dialog").border_subtitle = Content(self._card.id)
        self.query_one("#editor-title", PlainText).update(f"PARAMETERS OF {flow}" if flow else "PROMPT", layout=False)
        editor = self._editor
        editor.placeholder = "No parameters set. Write key = value, one per line." if flow else ""
        if editor.text != self._editable_text:
            editor.load_text(self._editable_text)
        editor.move_cursor((0, 0))
        self.query_one("#refusal").display = False
        self._pane.scroll_home(animate=False)
        self._pane.vertical_scrollbar.position = 0  # a hidden scrollbar does not follow
        self.set_focus(self._pane)
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
        warning = Content.styled(f"▲ {NO_SANDBOX_WARNING}" if card.without_sandbox else "", "bold $wants")
        self.query_one("#head", ReflowingText).show(
            lambda width: [make_headline(card, width), warning, *head.wrap(width)]
        )
        # The note names what is missing in the prompt, so it stands below the editor.
        note = [text_line(f"▲ {one_line(card.note)}", "wants"), text_line("")] if card.note else []
        fields = [*note, *make_evidence_fields(card, self._evidence, self.app.state, self.now, in_full=True)]
        self.show_fields("#why", fields)

    def _show_refusal(self, reason: object) -> None:
        line = self.query_one("#refusal", PlainText)
        line.display = True
        line.update(Content(f"✗ {reason}"))
        self._pane.scroll_home(animate=False)

    def action_edit(self) -> None:
        self._editor.focus()

    def action_close(self) -> None:
        editor = self._editor
        if editor.has_focus:
            self._pane.focus()
        else:
            self.dismiss()

    def offers(self, action: str, *parameters: object) -> bool:
        """While the editor has the focus, letters are text, and another key approves."""
        is_typing = bool(self.query("#editor:focus"))
        if action == "approve":
            return is_typing is bool(parameters)
        return not (is_typing and action == "edit")

    def action_approve(self, typing: bool = False) -> None:
        """Approve the card with the text in the editor. A risky card shows its risk, and waits for `action_insist`."""
        risk = self._card.approval_risk
        if not risk:
            self._approve()
        elif not self._is_risk_shown:
            self._is_risk_shown = True
            self._show_refusal(f"risky: {risk}; {self.key_of('details.insist')} approves it anyway")
            self._pane.focus()

    def action_insist(self) -> None:
        if self._is_risk_shown:
            self._approve()

    def _approve(self) -> None:
        """Approve the card, unless its approval is on its way."""
        card = self._card
        if card.id == self._approving_id:  # the key was pressed twice
            return
        self._approving_id = card.id

        def is_shown() -> bool:  # meanwhile the details may be closed, or show another card
            return self in self.app.screen_stack and self._card.id == card.id

        def on_approved() -> None:
            self._approving_id = ""
            if is_shown():
                self.finish()

        def on_refusal(refusal: Refusal) -> None:
            self._approving_id = ""
            if not is_shown():
                self.app.show_toast(f"Not started: {one_line(card.assignment.prompt)}: {refusal}", "warning")
                return
            self._show_refusal(refusal)
            self._is_risk_shown = False
            self._read_again()

        self.app.cards.approve_edited(card, self._make_approval(card), on_approved, on_refusal)

    def _make_approval(self, card: Card) -> EngineCall[Card]:
        """The call that approves `card` with the text in the editor. An edited text of a flow is its parameters, or a
        sentence for the engine to understand."""
        text = self._editor.text.strip()
        is_edited = text != self._editable_text.strip()
        parameters = parse_parameters(text) if is_edited and card.assignment.flow else None
        edit = text if is_edited and parameters is None else None
        without_sandbox = self._is_risk_shown and card.needs_confirmation
        return lambda engine: engine.cards.approve(
            card.id, edit=edit, parameters=parameters, without_sandbox=without_sandbox
        )


def show_details(app: CardConsole, card: Card) -> None:
    """Open the details of `card`, on a screen that is made at the first call."""
    if not app.is_screen_installed("details"):
        app.install_screen(Details(card), "details")
    details = app.get_screen("details")
    if isinstance(details, Details) and details not in app.screen_stack:
        details.show(card)
        app.push_screen(details)
