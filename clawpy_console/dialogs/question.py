"""Questions: a text, and one key for each answer; and those about findings, mutes and the gateway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from clawpy_console import formats
from clawpy_console.dialogs.base import Dialog
from clawpy_console.formats import crop, one_line, workspace_name
from clawpy_console.widgets.reflowing_text import ReflowingText
from engine import kind_title
from engine.model import Bubble, BubbleState, FlushReport, Mute

if TYPE_CHECKING:
    from clawpy_console.console import Console


class Answer(NamedTuple):
    """One answer to a question."""

    key: str
    label: str
    """The verb of what it does, or the value that it chooses."""
    detail: str = ""
    """More about that."""


CANCEL = Answer("escape", "cancel")


class Question(Dialog[Answer | None]):
    """Gives the answer that was chosen, None on Escape.

    The cursor begins at the answer that changes nothing: the one with the label `present`, else `cancel`. Enter
    chooses the answer under the cursor, but never one whose key is an upper-case letter: what cannot be undone has its
    key alone.
    """

    DEFAULT_CSS = """
    Question #text { height: auto; max-height: 60vh; margin: 0 0 1 0; scrollbar-size-vertical: 1; }
    """

    def __init__(
        self,
        title: str,
        answers: Sequence[Answer],
        *,
        text: str | Content = "",
        present: str = "",
        cancel: Answer = CANCEL,
    ) -> None:
        super().__init__()
        self._title, self._text = title, Content(text) if isinstance(text, str) else text
        self._answers = (*answers, cancel)
        self._present = present
        self._cursor = next((at for at, answer in enumerate(answers) if answer.label == present), len(answers))

    def compose(self) -> ComposeResult:
        with self.frame(self._title):
            if self._text:
                with VerticalScroll(id="text", can_focus=False):
                    yield Static(self._text, markup=False)
            yield ReflowingText(id="answers")

    def on_mount(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.query_one("#answers", ReflowingText).show(self._lines)

    def _lines(self, width: int) -> list[Content]:
        lines, label_cells = [], max(len(answer.label) for answer in self._answers) + 2
        for at, (key, label, detail) in enumerate(self._answers):
            dot = ("● " if label == self._present else "○ ") if self._present and detail else ""
            has_cursor = at == self._cursor
            head = Content.assemble(
                ("▸ " if has_cursor else "  ", "$accent"),
                (f"{'esc' if key == 'escape' else key:<5}", "bold $wants" if key.isupper() else "bold $accent"),
                (f"{dot}{label:<{label_cells}}", "bold $ink" if has_cursor else "$ink"),
            )
            first, *rest = Content.styled(detail, "$grey").wrap(max(10, width - head.cell_length)) or [Content("")]
            rows = [head + first, *(Content(" " * head.cell_length) + item for item in rest)]
            click = f"@click=screen.choose({at})"
            lines += [row.pad_right(max(0, width - row.cell_length)).stylize(click) for row in rows]
        return lines

    def action_choose(self, at: int) -> None:
        """Choose the answer at this place."""
        self.dismiss(None if at == len(self._answers) - 1 else self._answers[at])

    def on_key(self, event: events.Key) -> None:
        keys = [answer.key for answer in self._answers]
        if event.character in keys:
            self.action_choose(keys.index(event.character or ""))
        elif event.key == "escape":
            self.dismiss(None)
        elif event.key in ("up", "k", "down", "j"):
            self._cursor = (self._cursor + (-1 if event.key in ("up", "k") else 1)) % len(keys)
            self._draw()
        elif event.key == "enter" and keys[self._cursor].isupper():
            self.query_one(".dialog").border_subtitle = Content(f"Enter does not do this. Press {keys[self._cursor]}.")
        elif event.key == "enter":
            self.action_choose(self._cursor)
        elif event.key in ("pageup", "pagedown"):
            for pane in self.query("#text"):
                pane.scroll_page_up(animate=False) if event.key == "pageup" else pane.scroll_page_down(animate=False)
        elif not event.is_printable:
            return  # such as F12, which stops everything
        event.stop()


def confirm(
    app: Console,
    title: str,
    question: str | Content,
    verb: str,
    act: Callable[[], object],
    *,
    risky: bool = False,
) -> None:
    """Ask first: y calls `act`. What is `risky`, since it cannot be undone, has X in place of y. Escape, n and
    Enter do nothing."""
    answers = [Answer("X" if risky else "y", verb)]
    dialog = Question(title, answers, text=question, cancel=Answer("n", "cancel"))

    def on_answer(answer: Answer | None) -> None:
        if answer is not None:
            act()

    app.push_screen(dialog, on_answer)


def show_text(app: Console, title: str, text: str) -> None:
    """Show a few words that have to be read, and maybe copied, until they are closed."""
    dialog = Question(title, [Answer("c", "copy")], text=text, cancel=Answer("escape", "close"))
    app.push_screen(dialog, lambda answer: app.copy_to_clipboard(text) if answer else None)


# What is muted (SPEC 2.9)


MUTE_KEYS = "abcdefghilmnopqrstuvwxyz"
"""A key for each mute that is listed, the newest first. j and k move the cursor."""


def show_muted(app: Console) -> None:
    """List what is muted; the key of one ends it."""

    def on_list(muted: Sequence[Mute]) -> None:
        if not muted:
            app.show_toast("Nothing is muted.")
            return
        by_key = dict(zip(MUTE_KEYS, muted, strict=False))

        def on_choice(answer: Answer | None) -> None:
            if answer is not None:
                mute = by_key[answer.key]
                app.call_engine(
                    lambda engine: engine.cards.lift(mute.id),
                    lambda item: app.show_toast(f"Unmuted: {_describe_mute(item)}"),
                )

        answers = [Answer(key, _describe_mute(item), _describe_end(item)) for key, item in by_key.items()]
        question = "Muted: which should appear again?"
        if len(muted) > len(by_key):
            question += f" ({len(muted) - len(by_key):,} more: clawpy muted)"
        app.push_screen(Question(question, answers), on_choice)

    app.load_for_dialog(lambda engine: engine.cards.muted(), on_list)


def _describe_mute(mute: Mute) -> str:
    """The muted subject, and its place."""
    where = workspace_name(mute.workspace) if mute.workspace else "everywhere"
    about = crop(one_line(mute.prompt), 34) if mute.subject else f"all cards “{kind_title(mute.kind)}”"
    return f"{about}, {where}"


def _describe_end(mute: Mute) -> str:
    """Until when, and why."""
    until = f"until {mute.until.astimezone():%-d %b %H:%M}" if mute.until else "switched off"
    return f"{until}, {mute.why}"


# Findings that wait to be sent up (SPEC 1.7)


MAX_LISTED = 6
"""Maximum number of findings that the question lists."""


def send_findings(app: Console) -> None:
    """Show the findings that passed all gates, and send them up once you confirm."""

    def send() -> None:
        app.call_engine(lambda engine: engine.bubbles.flush(), lambda report: _show_report(app, report))

    app.load_for_dialog(
        lambda engine: engine.bubbles.list(state=BubbleState.QUEUED),
        lambda queued: confirm(app, "Send these findings up now?", _question(queued), "send up", send),
    )


def _question(queued: Sequence[Bubble]) -> str:
    """The findings that would be sent up, and their effect."""
    ready = [finding for finding in queued if finding.may_guide]
    lines = [
        crop(f"▸ {finding.learning.agent} → {finding.leader}: {finding.learning.text}", 70)
        for finding in ready[:MAX_LISTED]
    ]
    if len(ready) > MAX_LISTED:
        lines.append(f"  and {len(ready) - MAX_LISTED:,} more")
    if len(ready) < len(queued):
        quotes = formats.count(len(queued) - len(ready), "quote")
        lines.append(f"  Not included: {quotes} that you have not approved yet (see “waiting for you”)")
    if not lines:
        return "Nothing is waiting. Findings of the last sessions are checked now."
    if ready:
        lines.append(
            "\nEach becomes a pattern of its leader and goes into the prompts of all agents below. To undo that, edit "
            "the guidance of the leader."
        )
    return "\n".join(lines)


def _show_report(app: Console, report: FlushReport) -> None:
    up = sum(len(ids) for ids in report.flushed.values())
    remainder = f", {report.waiting:,} still waiting" if report.waiting else ""
    app.show_toast(f"{formats.count(up, 'finding')} sent up{remainder}")
    if report.failed:
        app.show_toast(f"The shared leadership could not be reached: {report.failed}. It is synced later.", "warning")
    app.reload(["agents", "changes"])


# The gateway (SPEC 10.1)


def switch_gateway(app: Console, on: bool) -> None:
    """Open or close the gateway, and show the result."""
    app.call_engine(
        lambda engine: (engine.gateway.set_enabled(on), engine.gateway.state()),
        lambda result: _on_switched(app, *result),
    )


def _on_switched(app: Console, new_token: str, state: Any) -> None:
    app.reload(["place", "settings"])
    if not state.listening:
        app.show_toast("the gateway is off")
        return
    _show_address(app, new_token, state)


def show_gateway(app: Console) -> None:
    """Show where the gateway listens, and its token if nobody has read that yet."""
    app.load_for_dialog(
        lambda engine: (engine.gateway.take_new_token(), engine.gateway.state()),
        lambda answer: _show_address(app, *answer),
    )


def _show_address(app: Console, new_token: str, state: Any) -> None:
    token = f"the token, shown once:\n{new_token}\n" if new_token else ""
    hint = "" if state.token == "this run" else "clawpy token      shows the token\n"
    lasts = "clawpy token new --store file      makes a token that lasts\n" if state.token == "this run" else ""
    show_text(app, "The gateway listens", f"{state.url}\n{state.words}\n\n{token}{hint}{lasts}".rstrip())
