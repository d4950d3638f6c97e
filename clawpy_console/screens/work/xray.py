"""The X-ray: what exactly the models of a session were sent, call by call, each line with its source (SPEC 9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings
from clawpy_console.widgets.keyline import KeyLine
from clawpy_console.widgets.prompt_lines import PromptLines
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows
from engine.model import ModelCall, PromptPart, PromptSource, SessionView

if TYPE_CHECKING:
    from engine import Engine

STATES = {
    "running": ("◐", "accent"), "done": ("✓", "grey"), "failed": ("✗", "wrong"), "cancelled": ("✗", "grey"),
    "interrupted": ("✗", "wants"),
}  # fmt: skip

REFRESH_S = 1.0
"""Seconds after which a session that still makes calls is looked at again."""


class XRay(Dialog[PromptSource | None]):
    """The calls of one session; gives the source that the operator wants to see, None when he is done."""

    BINDINGS = bindings("xray", "panes", "zoom")
    DEFAULT_CLASSES = "-alone"
    AUTO_FOCUS = "#calls"
    DEFAULT_CSS = """
    XRay #body { height: 1fr; }
    XRay #calls { width: 36; height: 1fr; margin: 0 1 0 0; }
    XRay #sent { width: 1fr; height: 1fr; }
    XRay #standing { height: 1; dock: bottom; }
    XRay #call { height: auto; max-height: 6; margin-bottom: 1; }
    XRay.-wide #calls { width: 46; }
    XRay.-narrow {
        #body { layout: vertical; }
        #calls { width: 1fr; height: auto; max-height: 4; margin: 0 0 1 0; }
    }
    """

    def __init__(self, session: SessionView) -> None:
        super().__init__()
        self._session = session
        self._calls: tuple[ModelCall, ...] = ()
        self._shown = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -whole") as frame:
            frame.border_title = Content(f"X-ray  {words.crop(words.one_line(self._session.prompt), 60)}")
            frame.border_subtitle = Content(self._session.id)
            with Horizontal(id="body"):
                yield Rows(id="calls", empty="Loading…")
                with Vertical(id="sent"):
                    yield ReflowingText(id="call")
                    yield PromptLines(id="prompt")
                    yield ReflowingText(id="standing")
        yield KeyLine()

    def on_mount(self) -> None:
        self._read_calls()
        self.set_interval(REFRESH_S, self._look_again, name="calls")

    @property
    def call(self) -> ModelCall | None:
        """The call under the cursor."""
        current = self.query_one("#calls", Rows).current
        return next((call for call in self._calls if call.id == current), None)

    def _look_again(self) -> None:
        if any(call.state == "running" for call in self._calls) or any(
            session.id == self._session.id and not session.state.over for session in self.app.state.sessions
        ):
            self._read_calls()

    def _read_calls(self) -> None:
        self.read(lambda engine: engine.calls.for_session(self._session.id), self._take_calls, group="calls")

    def _take_calls(self, calls: list[ModelCall]) -> None:
        first = not self._calls
        self._calls = tuple(calls)
        rows = self.query_one("#calls", Rows)
        row_list = [_row(number, call) for number, call in enumerate(self._calls, 1)]
        rows.show(row_list, empty="it has made no call yet")
        if first and self._calls:
            rows.select(self._calls[-1].id)
        if not self._calls:
            self.query_one("#prompt", PromptLines).clear(empty="nothing was sent to a model")
        self._show()

    @on(Rows.Moved, "#calls")
    def _show(self) -> None:
        """The call under the cursor: its figures at once, its prompt when it was read."""
        call = self.call
        self.query_one("#call", ReflowingText).show(lambda width: _about(call, self._session, width) if call else [])
        state = f"{call.id} {call.state}" if call else ""
        if call is None or state == self._shown:
            return
        same_call = self._shown.startswith(call.id)  # the same call, which has ended: only its answer is new
        self._shown = state

        def read(engine: Engine) -> tuple[tuple[PromptPart, ...], str, list[list[str]]]:
            parts = engine.calls.prompt(call.id)
            return parts, engine.calls.reply(call.id), engine.objections(parts)

        def drawn(sent: tuple[tuple[PromptPart, ...], str, list[list[str]]]) -> None:
            view = self.query_one("#prompt", PromptLines)
            at = view.cursor
            view.show(*sent)
            if same_call:
                view.go(at, 1)

        self.read(read, drawn, group="prompt")

    @on(Rows.Opened, "#calls")
    def _call_opened(self) -> None:
        self.set_focus(self.query_one("#prompt"))

    @on(PromptLines.Moved, "#prompt")
    def _line_moved(self) -> None:
        """Below the prompt: how far the line under the cursor may be followed."""
        standing = self.query_one("#prompt", PromptLines).standing
        self.query_one("#standing", ReflowingText).show(
            lambda width: [Content.styled(words.crop(standing, width), "$wrong" if "▲" in standing else "$grey")]
        )

    @on(PromptLines.Opened)
    def _line_opened(self, message: PromptLines.Opened) -> None:
        self.dismiss(message.source)

    def action_next_pane(self) -> None:
        self.set_focus(self.query_one("#calls" if self.focused and self.focused.id == "prompt" else "#prompt"))

    action_previous_pane = action_next_pane

    def action_copy_line(self) -> None:
        self._copy(self.query_one("#prompt", PromptLines).line, "the line")

    def action_copy_all(self) -> None:
        self._copy(self.query_one("#prompt", PromptLines).whole, "the whole prompt")

    def _copy(self, text: str, what: str) -> None:
        if text:
            self.app.copy_to_clipboard(text)
            self.app.say(f"copied {what}")


def _row(number: int, call: ModelCall) -> Row:
    glyph, style = STATES.get(call.state, ("?", "grey"))
    money = f"{'' if call.price_known or not call.cost else '≈'}{words.money(call.cost)}"
    figures = f"{words.tokens(call.input_tokens + call.output_tokens):>5} {money:>6}"
    return Row(call.id, f"{number} {call.model}", glyph, figures, "ink", style, "grey")


def _about(call: ModelCall, session: SessionView, width: int) -> list[Content]:
    glyph, style = STATES.get(call.state, ("?", "grey"))
    took = f" · {call.seconds:.1f} s" if call.seconds is not None else ""
    estimated = "" if call.price_known else " estimated: unknown price"
    figures = (
        f" · {call.input_tokens:,} tokens in, {call.output_tokens:,} out · {words.money(call.cost)}{estimated}{took}"
    )
    provider = f"{call.provider}:" if call.provider else ""
    lines = [
        Content.assemble(
            (f"{glyph} {call.state}", f"${style}"), (f"  {provider}{call.model} · {call.run_kind}", "$ink")
        ),
        Content.styled(words.crop(figures.removeprefix(" · "), width), "$grey"),
    ]
    if session.runner.startswith("acp"):
        lines.append(Content.styled(words.crop(AGENTS_OWN, width), "$faint"))
    if call.error:
        lines.append(Content.styled(words.crop(words.one_line(call.error), width), "$wrong"))
    lines += [Content.styled(words.crop(f"▲ {words.one_line(note)}", width), "$wants") for note in call.notes]
    return lines


AGENTS_OWN = "what was sent to the agent; what it sends to its own model is not visible here"
