"""The prompt box: a prompt of your own, or a flow, for one of the workspaces.

Mission control, the work screen and the palette open it. What is written becomes a card.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual import events, getters, on
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from clawpy_console.formats import crop, workspace_name
from clawpy_console.keys import make_bindings
from clawpy_console.screens.agent_dialogs import ChannelOptions, choose_agent, make_channel_hint, read_channel_options
from clawpy_console.screens.dialog import Dialog
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.texts import PlainText, ReflowingText
from engine.model import Card, FlowForm, Refusal

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole


class Completion(NamedTuple):
    """A way in which what was typed may go on."""

    text: str
    """The whole text with it."""
    meaning: str


def complete_text(text: str, forms: Sequence[FlowForm]) -> list[Completion]:
    """The completions of `text` at its end: names of flows, or the next parameters of one."""
    name, space, rest = text.lstrip().partition(" ")
    form = next((form for form in forms if form.name == name), None)
    if form is not None and space:
        return _complete_parameters(text, rest, form)
    typed = text.lower().replace("_", " ").split()
    matches = [form for form in forms if "\n" not in text and form.name != text and _is_beginning_of(typed, form)]
    return [Completion(f"{form.name} " if form.parameters else form.name, form.title) for form in matches]


def _complete_parameters(text: str, parameters: str, form: FlowForm) -> list[Completion]:
    """The completions of `text`, which names a flow and ends with its `parameters`."""
    *earlier, last = parameters.split(" ")
    key, value, _ = last.partition("=")
    if value:
        return [Completion(text, f"{key}: {means}") for parameter, means, _ in form.parameters if parameter == key]
    used = {item.partition("=")[0] for item in earlier}
    head = text.removesuffix(last)
    return [
        Completion(f"{head}{parameter}=", f"{means} (required)" if required else means)
        for parameter, means, required in form.parameters
        if parameter.startswith(last) and parameter not in used
    ]


def _is_beginning_of(typed: Sequence[str], form: FlowForm) -> bool:
    """Whether each word that was typed begins a word of the flow's name or title."""
    vocabulary = f"{form.name.replace('_', ' ')} {form.title.lower()}".split()
    return all(word == "the" or any(item.startswith(word) for item in vocabulary) for word in typed)


MAX_PROMPT_CHARS = 20_000
"""The engine accepts no longer prompt, and the editor is slow with one."""


class PromptArea(TextArea):
    """A text whose ↑ in the first line and ↓ in the last leave it. It takes no more than `MAX_PROMPT_CHARS`."""

    class RefusedPaste(Message):
        """What was pasted is too long."""

    @dataclass
    class Left(Message):
        """Towards what was written before (-1), or after that (1)."""

        direction: int

    def on_key(self, event: events.Key) -> None:
        """Enter is the dialog's: it comes there after the keys before it have become text."""
        if event.key == "enter":
            event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        if len(self.text) + len(event.text) > MAX_PROMPT_CHARS:
            event.prevent_default()
            self.post_message(self.RefusedPaste())

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self.navigator.is_first_wrapped_line(self.cursor_location):
            super().action_cursor_up(select)
        else:
            self.post_message(self.Left(-1))

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self.post_message(self.Left(1))


def open_prompt_box(
    app: CardConsole,
    workspace: str | None,
    show: Callable[[Card], object] | None = None,
    start: Callable[[Card], object] | None = None,
) -> None:
    """Ask for a prompt for `workspace`, by default the first, and make a card of it. `show` puts the card in front, and
    `start` approves it; without them the card waits among the others. Nothing happens if the box is open already,
    because its key was pressed twice."""
    if not isinstance(app.screen, PromptBox):
        workspaces = app.state.workspaces
        last = app.last_screen
        workspace = workspace or next(iter(workspaces), "")
        workspaces = tuple(dict.fromkeys((*workspaces, workspace)))
        if last.draft and last.draft_of not in ("", workspace):  # ↑ shows it
            app.update_last_screen(draft="", prompts=(last.draft, *last.prompts))
        on_card = partial(app.cards.handle_prompt_card, show=show, start=start)
        app.push_screen(PromptBox(workspaces, workspace, app.last_screen.draft, on_card))


MAX_COMPLETIONS = 6
"""Maximum number of completions that are shown at once."""


class PromptBox(Dialog[None]):
    """Calls `on_card` with the card that the engine made of the text, also if the box was closed before the engine
    answered. What was typed is kept by the app until then, and is there again the next time."""

    BINDINGS = make_bindings("prompt")
    AUTO_FOCUS = "#text"
    DEFAULT_CSS = """
    PromptBox #text { height: auto; min-height: 4; max-height: 12; }
    PromptBox #completions { min-height: 8; margin: 0 0 1 0; }
    PromptBox #status { height: auto; display: none; margin: 0 0 1 0; }
    PromptBox.-with-status #status { display: block; }
    PromptBox.-with-status #completions { min-height: 5; }  /* or the keys below would leave a low terminal */
    PromptBox.-low #text { max-height: 8; }
    PromptBox.-low.-long #completions { min-height: 0; margin: 0; }
    PromptBox KeyLine { background: $surface; dock: none; padding: 0; }
    """

    _area = getters.query_one("#text", PromptArea)

    def __init__(self, workspaces: Sequence[str], workspace: str, text: str, on_card: Callable[[Card], object]) -> None:
        super().__init__()
        self._take_card = on_card
        self._workspaces = list(workspaces) or [""]
        self._workspace_index = self._workspaces.index(workspace) if workspace in self._workspaces else 0
        self._history = [text]  # the texts that ↑ and ↓ go through, the newest first
        self._history_index = 0
        self._flows: list[FlowForm] = []
        self._completions: list[Completion] = []
        self._selected = -1  # the completion that stands in the text
        self._model_hint = Content("")  # that nothing runs text, and what could
        self._can_connect = False  # an agent or a model of this machine
        self._confirmed_text = ""  # the text that may be sent although nothing can run it
        self._has_loaded = False

    def compose(self) -> ComposeResult:
        with self.make_frame("New prompt"):
            yield PlainText(id="place", classes="note")
            area = PromptArea(
                self._history[0], id="text", soft_wrap=True, show_line_numbers=False, tab_behavior="focus"
            )
            area.placeholder = "Text for an agent, or a flow: run the tests"
            yield area
            yield PlainText(id="status")
            yield ReflowingText(id="completions")
            yield KeyLine()

    def on_mount(self) -> None:
        self._area.select_all()  # typing replaces the draft; an arrow key goes on with it
        self._history += [prompt for prompt in self.app.last_screen.prompts if prompt != self._history[0]]
        self._draw_place()
        self._load_flows_and_agents()

    def _load_flows_and_agents(self) -> None:
        """Read which flows there are, and whether anything runs text; at a later key if the engine still starts."""
        if not self._has_loaded and self.app.engine is not None:
            self._has_loaded = True
            self.app.call_engine(lambda engine: engine.flows.forms(), self._show_flows)
            self._load_channel_options()

    @property
    def _workspace(self) -> str:
        """The workspace that the prompt is for."""
        return self._workspaces[self._workspace_index]

    def _show_flows(self, forms: list[FlowForm]) -> None:
        self._flows = sorted(forms, key=lambda form: sum(required for _, _, required in form.parameters))
        if self.is_running:
            self._complete_again()

    def _load_channel_options(self) -> None:
        """Say before anything is sent that nothing can run text, and what could."""
        self.app.call_engine(read_channel_options, self._show_channel_options)

    def _show_channel_options(self, options: ChannelOptions) -> None:
        if self.is_running:
            key = self.key_of("prompt.hire")
            self._model_hint = Content("") if options.served_by else make_channel_hint(options, key)
            self._can_connect = not options.served_by and bool(options.agents or options.local.ids)
            self.refresh_bindings()
            self._draw_completions()

    def _draw_place(self) -> None:
        key = self.key_of("prompt.place")
        count = len(self._workspaces)
        position = f"  ({self._workspace_index + 1} of {count}; {key}: the next)" if count > 1 else ""
        name = workspace_name(self._workspace)
        self.query_one("#place", PlainText).update(Content.assemble("in ", (name, "bold $ink"), position))

    # Typing

    @on(TextArea.Changed)
    def _on_typed(self) -> None:
        text = self._area.text
        if self not in self.app.screen_stack:  # it was sent meanwhile, and is no draft any more
            return
        self._load_flows_and_agents()
        self.app.save_prompt(text, self._workspace)
        if not (self._selected >= 0 and text == self._completions[self._selected].text):
            self._complete_again()
        self.remove_class("-with-status")

    @on(PromptArea.RefusedPaste)
    def _explain_refused_paste(self) -> None:
        self.show_status(f"▲ Not pasted: a prompt has at most {MAX_PROMPT_CHARS:,} characters.")

    def _complete_again(self) -> None:
        self._selected = -1
        self._completions = complete_text(self._area.text, self._flows)
        self._draw_completions()

    def _draw_completions(self) -> None:
        """Draw the completions around the selected one, and the hint that nothing can run text yet."""
        self.set_class(self._area.wrapped_document.height > 2, "-long")
        first = max(0, self._selected - MAX_COMPLETIONS + 1)
        shown = self._completions[first : first + MAX_COMPLETIONS]
        word_width = max((len(text.split(" ")[-1] or text) for text, _ in shown), default=0)

        def draw(width: int) -> list[Content]:
            lines = []
            for number, (text, meaning) in enumerate(shown, first):
                mark = "▸ " if number == max(0, self._selected) else "  "
                word = text.rstrip().rpartition(" ")[2]
                line = f"{word:<{word_width}}  {meaning}"
                lines.append(Content.assemble((mark, "$accent"), (crop(line, width - 2), "$grey")))
            if len(self._completions) > first + MAX_COMPLETIONS:
                lines.append(Content.styled(f"  {len(self._completions) - first - MAX_COMPLETIONS} more", "$faint"))
            return [*lines, *self._model_hint.wrap(width)]

        self.query_one("#completions", ReflowingText).show(draw)

    def action_complete(self) -> None:
        """Put the next completion into the text; a single one goes on at once with what follows it."""
        if self._completions:
            self._selected = (self._selected + 1) % len(self._completions)
            self._set_text(self._completions[self._selected].text)
            if len(self._completions) == 1:
                self._complete_again()
            else:
                self._draw_completions()

    def _set_text(self, text: str) -> None:
        self._area.text = text
        self._area.move_cursor(self._area.document.end)

    @on(PromptArea.Left)
    def _recall_prompt(self, message: PromptArea.Left) -> None:
        """↑ shows the prompt before, ↓ the one after; what was typed is the newest."""
        index = self._history_index - message.direction
        if 0 <= index < len(self._history):
            if self._history_index == 0:
                self._history[0] = self._area.text
            self._history_index = index
            self._set_text(self._history[index])

    def action_newline(self) -> None:
        self._area.insert("\n")

    def action_place(self) -> None:
        self._workspace_index = (self._workspace_index + 1) % len(self._workspaces)
        self.app.save_prompt(self._area.text, self._workspace)
        self._draw_place()

    def action_connect_agent(self) -> None:
        choose_agent(self.app, self._load_channel_options)

    def offers(self, action: str, *parameters: object) -> bool:
        if action == "place":
            return len(self._workspaces) > 1
        return self._can_connect or action != "connect_agent"

    # Sending

    def action_send(self) -> None:
        text = self._area.text.strip()
        workspace = self._workspace
        if text:
            self.show_status("Sending…", "$grey")
            self.app.save_prompt(self._area.text, workspace)
            keep_as_card = text == self._confirmed_text  # it was sent before, and nothing could run it
            self.submit(
                lambda engine: engine.cards.propose(text, workspace=workspace, may_wait=keep_as_card),
                partial(self._on_card, text),
                partial(self._on_refusal, text),
            )

    def _on_card(self, text: str, card: Card) -> None:
        """Keep `text` as a prompt that was sent, and what was typed after it, here or in another box, as the draft."""
        last = self.app.last_screen
        draft, workspace = ("", "") if last.draft.strip() == text else (last.draft, last.draft_of)
        self.app.save_prompt(draft, workspace, sent=text)
        self._take_card(card)

    def _on_refusal(self, text: str, refusal: Refusal) -> None:
        if not self.is_running:
            self.app.show_toast(f"Your prompt was not sent: {refusal}", "warning")
            last = self.app.last_screen
            if last.draft.strip() != text:  # ↑ shows it
                self.app.save_prompt(last.draft, last.draft_of, sent=text)
            return
        sentence = str(refusal)
        if refusal.code == "no_model":  # the hint below the text says how to get one
            self._confirmed_text = text
            sentence = f"{refusal.message}. Press {self.key_of('prompt.send')} again to keep it as a card."
        self.show_status(f"▲ {sentence}")

    def show_status(self, text: str, style: str = "$wants") -> None:
        super().show_status(text, style)
        self.add_class("-with-status")
