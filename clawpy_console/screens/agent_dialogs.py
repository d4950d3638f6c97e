"""The dialogs that change agents: edit a file (SPEC 4.1) or the guidance of a leader (SPEC 1.4), move, create; and the
choice of the agent or model that serves koji-core.

No edit is lost, neither the operator's nor another program's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, TextArea

from clawpy_console import external_programs
from clawpy_console.fields import Document, text_line
from clawpy_console.fields.agent import make_edit_fields, make_move_fields
from clawpy_console.formats import crop, has_words
from clawpy_console.keys import make_bindings
from clawpy_console.screens.agent_tree import OWNER_ID, make_search_text
from clawpy_console.screens.dialog import Answer, Dialog, PreviewDialog, Question, show_text
from clawpy_console.widgets import Row, Rows
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.texts import PlainText
from engine import dispatch
from engine.model import AgentFile, AgentView, LeaderProfile, ProfileEdit, Refusal
from engine.text import sanitise
from engine.wording import join_names

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from clawpy_console.console import Console
    from engine import Engine
    from engine.installed import FoundAgent, LocalModels, SetupStep


class EditDialog(Dialog[None]):
    """Edits a text, and calls `on_saved` once it was saved. An unsaved edit needs the key that closes twice."""

    AUTO_FOCUS = "#text"

    original = ""
    """The text before the edit."""

    _confirming_close = False

    _editor = getters.query_one("#text", TextArea)

    def make_editor(self, *, line_numbers: bool = False) -> TextArea:
        """The widget of the text."""
        return TextArea(self.original, id="text", soft_wrap=True, show_line_numbers=line_numbers, tab_behavior="focus")

    @property
    def text(self) -> str:
        """The text in the editor."""
        return self._editor.text

    @on(TextArea.Changed, "#text")
    def _on_edited(self) -> None:
        self._confirming_close = False

    def action_close(self) -> None:
        if self.text == self.original or self._confirming_close:
            self.dismiss(None)
            return
        self._confirming_close = True
        self.show_status("▲ Not saved. Press the same key again to discard your edit.")


def make_editable(file: AgentFile) -> str:
    """The text of a file for the editor: without control characters, and with spaces for tabs."""
    return sanitise(file.text.replace("\r\n", "\n"))


class EditFile(EditDialog):
    """Edits one file.

    If another program changed the file meanwhile, its text is shown below the operator's. Then ^s saves the text above,
    and ^t replaces it with the text below.
    """

    BINDINGS = make_bindings("edit")
    DEFAULT_CLASSES = "-alone"
    DEFAULT_CSS = """
    EditFile #text { height: 1fr; }
    EditFile #other { height: 1fr; display: none; }
    EditFile #status { height: auto; padding: 0 1; }
    EditFile KeyLine { background: $surface; dock: bottom; padding: 0; }
    EditFile.-clash #other { display: block; }
    """

    def __init__(self, file: AgentFile, on_saved: Callable[[], object]) -> None:
        super().__init__()
        self._file = file
        self._report_saved = on_saved
        self.original = make_editable(file)
        self._other_version: AgentFile | None = None

    def compose(self) -> ComposeResult:
        with self.make_frame(f"{self._file.agent}/{self._file.name}", classes="-whole"):
            yield self.make_editor(line_numbers=self._file.name.endswith(".json"))
            yield PlainText(id="status")
            yield TextArea(id="other", soft_wrap=True, show_line_numbers=False, read_only=True)
            yield KeyLine()

    def on_mount(self) -> None:
        if self.original != self._file.text.replace("\r\n", "\n"):
            self.show_status("Tabs are shown as spaces, and control characters not at all: saving writes it like that.")
        elif self._file.problem:
            self.show_status(f"✗ {self._file.problem}", "$wrong")

    def action_save(self) -> None:
        """Save the text. If another program changed the file meanwhile, show its text, too."""
        file = self._other_version or self._file
        text = self.text

        def on_refusal(refusal: Refusal) -> None:
            if refusal.code == "changed_meanwhile":
                self.app.call_engine(
                    lambda engine: engine.agent_files.read(file.agent, file.name),
                    self._show_conflict,
                    self.show_refusal,
                )
            else:
                self.show_refusal(refusal)

        def on_saved(_: AgentFile) -> None:
            self.app.show_toast(f"saved {file.agent}/{file.name}")
            self._report_saved()

        self.submit(
            lambda engine: engine.agent_files.write(file.agent, file.name, text, based_on=file.digest),
            on_saved,
            on_refusal,
        )

    def _show_conflict(self, other: AgentFile) -> None:
        if not self.is_running:
            self.app.show_toast(f"Not saved: another program changed {other.agent}/{other.name}.", "warning")
            return
        self._other_version = other
        self.query_one("#other", TextArea).text = make_editable(other)
        self.add_class("-clash")
        self.show_status("▲ Another program changed the file; its text is below. Save again to keep yours.")
        self.refresh_bindings()

    def offers(self, action: str, *parameters: object) -> bool:
        if action == "take_other":
            return self._other_version is not None
        return True

    def action_take_other(self) -> None:
        """Go on with the other program's text. The editor's own undo brings the operator's text back."""
        if self._other_version is not None:
            area = self._editor
            area.replace(make_editable(self._other_version), (0, 0), area.document.end)


TYPING_DEBOUNCE_S = 0.3
"""Seconds without a key before the preview of an edit is computed."""


class EditProfile(PreviewDialog[None], EditDialog):  # the first base is the one whose styles apply
    """Edits the profile of a leader."""

    BINDINGS = make_bindings("profile", "preview")
    DEFAULT_CLASSES = "-alone"
    DEFAULT_CSS = """
    EditProfile #text { width: 1fr; height: 1fr; }
    EditProfile.-narrow #body { layout: vertical; }
    EditProfile.-narrow #text, EditProfile.-narrow #pane { width: 100%; height: 1fr; }
    """

    def __init__(self, before: LeaderProfile, text: str, on_saved: Callable[[], object]) -> None:
        """`text` is the profile as it is edited."""
        super().__init__()
        self._before = before
        self.original = text
        self._report_saved = on_saved
        self._edits: tuple[ProfileEdit, ...] | None = ()  # None until their preview is shown

    def compose(self) -> ComposeResult:
        with self.make_frame(f"Guidance from {self._before.leader}", classes="-whole"):
            with Horizontal(id="body"):
                yield self.make_editor()
                yield from self.compose_pane()
            yield PlainText(id="status")
            yield KeyLine()

    def on_mount(self) -> None:
        self.show([text_line("Edit the text. The prompts that this changes are shown here.", "grey")])

    @on(TextArea.Changed)
    def _on_typed(self) -> None:
        self._edits, text = None, self.text
        self.preview(lambda engine: self._compute_edits(engine, text), self._show_edits, wait=TYPING_DEBOUNCE_S)

    def _compute_edits(self, engine: Engine, text: str) -> tuple[tuple[ProfileEdit, ...], Document]:
        edits = engine.profiles.parse_edits(self._before, text)
        preview = engine.cascade.preview_edits(self._before.leader, edits)
        prompts = [{"agents": change.agents, "changes": change.lines} for change in preview.changes]
        return edits, {"edits": edits, "fromSoul": preview.from_soul, "prompts": prompts}

    def _show_edits(self, result: tuple[tuple[ProfileEdit, ...], Document]) -> None:
        self._edits, document = result
        self.show_status("")
        self.show(make_edit_fields(document))

    def action_save(self) -> None:
        """Save the edits whose preview is shown."""
        leader = self._before.leader
        edits = self._edits
        if edits is None:
            self.show_status("Not saved: what it changes is not shown yet.")
        elif not edits:
            self.show_status("Nothing has changed.", "$grey")
        else:
            self.submit(lambda engine: engine.profiles.edit(leader, edits), lambda _: self._report_saved())


def edit_file(app: Console, agent: str, name: str, on_saved: Callable[[], object]) -> None:
    """Edit a file of an agent in the console; `on_saved` is called once it was saved."""
    app.load_for_dialog(
        lambda engine: engine.agent_files.read(agent, name), lambda file: app.push_screen(EditFile(file, on_saved))
    )


def open_in_editor(app: CardConsole, agent: str, name: str) -> None:
    """Edit a file of an agent in the operator's own editor; what is saved there is shown by itself."""
    if app.engine is not None:
        external_programs.open_editor(app, str(app.engine.agent_files.folder / agent / name))


PREVIEW_DEBOUNCE_S = 0.08
"""Seconds that the cursor stays on a leader before the preview of a move is computed."""


class MoveAgent(PreviewDialog[str | None]):
    """Asks for a leader to move an agent under. Gives the leader's id, None on Escape."""

    BINDINGS = make_bindings("moving", "preview")
    AUTO_FOCUS = "#leader-filter"
    DEFAULT_CSS = """
    MoveAgent #leaders-pane { width: 32; margin: 0 1 0 0; }
    MoveAgent #pane { border-left: vkey $line; }
    MoveAgent #leader-filter { height: 3; }
    """

    _rows = getters.query_one("#leaders", Rows)

    def __init__(self, agent: AgentView, leaders: Sequence[AgentView]) -> None:
        """`leaders`: the agents that it may be moved under, besides the owner."""
        super().__init__()
        self._agent = agent
        self._leaders = leaders
        self._leader_id = ""  # the leader under the cursor
        self._has_preview = False  # whether the preview of that leader is shown

    def compose(self) -> ComposeResult:
        title = f"Move {crop(self._agent.id, 40)} under …"
        subtitle = f"now under {crop(self._agent.reports_to, 40)}"
        with self.make_frame(title, subtitle, classes="-whole"):
            with Horizontal(id="body"):
                with Vertical(id="leaders-pane"):
                    yield Input(placeholder="name, title, domain, tier 3", id="leader-filter")
                    yield Rows(id="leaders", empty="No match.", classes="-lit")
                yield from self.compose_pane()
            yield PlainText(id="status")
            yield KeyLine()

    def on_mount(self) -> None:
        self._rows.can_focus = False
        self._show_leaders("")
        self._rows.select(self._agent.reports_to)

    def _show_leaders(self, text: str) -> None:
        """List the leaders that have all words of `text`."""
        words = text.lower().split()
        tiers = {OWNER_ID: ""} if has_words(OWNER_ID, words) else {}
        tiers |= {leader.id: f"{leader.tier}" for leader in self._leaders if has_words(make_search_text(leader), words)}
        rows = []
        for id, tier in tiers.items():
            is_present = id == self._agent.reports_to
            rows.append(Row(id, id, "●" if is_present else " ", tier, "grey" if is_present else "ink", "grey"))
        self._rows.show(rows)
        self._on_leader_moved()

    @on(Input.Changed, "#leader-filter")
    def _on_typed(self, event: Input.Changed) -> None:
        self._show_leaders(event.value)
        self._rows.action_first()

    @on(Rows.Moved, "#leaders")
    def _on_leader_moved(self) -> None:
        leader_id = self._rows.current
        if leader_id == self._leader_id:
            return
        self._leader_id = leader_id
        self._has_preview = False
        self.show([text_line("Working out the preview…", "grey")] if leader_id else [])
        if leader_id:
            request = {"id": self._agent.id, "reportsTo": leader_id}
            self.preview(lambda engine: dispatch(engine, "guidance", request), self._show_move, wait=PREVIEW_DEBOUNCE_S)

    def _show_move(self, document: Document) -> None:
        self._has_preview = True
        self.show_status("")
        self.show([text_line(f"{self._agent.id} under {self._leader_id}", "title"), *make_move_fields(document)])

    def action_step(self, by: int) -> None:
        self._rows.action_step(by)

    @on(Rows.Opened, "#leaders")
    def action_move(self) -> None:
        """Choose the leader under the cursor, once its preview is shown."""
        if self._leader_id == self._agent.reports_to:
            self.show_status(f"▲ {self._agent.id} is under {self._leader_id} already.")
        elif self._has_preview:
            self.dismiss(self._leader_id)


ID_HINT = "a lower-case letter, then a-z, 0-9, _ and -"

NEW_AGENT_FIELDS = {
    "id": f"id: {ID_HINT}",
    "title": "title, in words",
    "archetype": "archetype, sets its tier: lead, builder, junior … (optional)",
    "domain": "domain, in words: what it knows about",
}
"""The fields of a new agent, each with its hint."""


class NewAgent(Dialog[None]):
    """Creates an agent under `leader`, and passes it to `on_created`. After a refusal the fields keep their text."""

    BINDINGS = make_bindings("new_agent")
    AUTO_FOCUS = "#id"
    DEFAULT_CSS = "NewAgent KeyLine { background: $surface; dock: none; padding: 0; }"

    def __init__(self, leader: str, on_created: Callable[[AgentView], object]) -> None:
        super().__init__()
        self._leader = leader
        self._on_created = on_created

    def compose(self) -> ComposeResult:
        with self.make_frame(f"A new agent under {self._leader}"):
            for name, hint in NEW_AGENT_FIELDS.items():
                yield Input(placeholder=hint, id=name)
            yield PlainText(id="status", classes="note")
            yield KeyLine()

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == [*NEW_AGENT_FIELDS][-1]:
            self.action_create()
        else:
            self.focus_next()

    def action_create(self) -> None:
        values = {name: self.query_one(f"#{name}", Input).value.strip() for name in NEW_AGENT_FIELDS}
        if agent_id := values.pop("id"):
            self.submit(lambda engine: engine.agents.add(agent_id, reports_to=self._leader, **values), self._on_created)
        else:
            self.show_refusal(Refusal("bad_id", "The id is missing.", ID_HINT))


# Who serves koji-core


class ChannelOptions(NamedTuple):
    """Who serves koji-core, and the agents and models of this machine that could."""

    served_by: str
    """The agent or model that serves it now, "" for none."""
    agents: list[FoundAgent]
    local: LocalModels
    next_step: SetupStep
    """The next step towards a model, if nothing serves it."""


def read_channel_options(engine: Engine) -> ChannelOptions:
    """Find the agents and models of this machine. Blocking: call it in a thread."""
    setup = engine.channel_setup
    return ChannelOptions(setup.find_executor(), setup.find_agents(), setup.find_local_models(), setup.find_next_step())


def choose_agent(app: Console, on_assigned: Callable[[], object] = lambda: None) -> None:
    """List the agents and models on this machine, and let the operator choose one for koji-core. `on_assigned` is
    called once it serves the channel."""
    app.load_for_dialog(read_channel_options, lambda options: _ask_for_agent(app, options, on_assigned))


AGENT_KEYS = "123456789abcdefghi"
"""The keys of the answers."""


def _ask_for_agent(app: Console, options: ChannelOptions, on_assigned: Callable[[], object]) -> None:
    """Let the operator choose one of `options`, and say what is missing if there is none."""
    agents = options.agents
    models = options.local.ids
    faults = options.local.faults
    if not agents and not models:
        step = f"Run `{options.next_step.shown_command}` to use a model."
        app.show_toast("; ".join((*faults, f"No coding agent on the PATH and no local model. {step}")), "warning")
        return
    for fault in faults:
        app.show_toast(fault, "warning")
    details = {agent.name: _describe_agent(agent) for agent in agents} | dict.fromkeys(
        models, "a model on this machine"
    )

    def on_choice(answer: Answer) -> None:
        name = answer.label

        def on_result(agent: FoundAgent | None) -> None:
            _report_assignment(app, name, agent)
            on_assigned()

        app.call_engine(lambda engine: _assign(engine, name, is_model=name in models), on_result)

    answers = [Answer(key, *choice) for key, choice in zip(AGENT_KEYS, details.items(), strict=False)]
    text = ""
    if unlisted := len(details) - len(answers):
        text = f"{unlisted} more are not listed; `clawpy help models` says how to choose one of them."
    question = Question(
        "Which agent or model should serve koji-core?", answers, text=text, current_label=options.served_by
    )
    app.ask(question, on_choice)


def _report_assignment(app: Console, name: str, agent: FoundAgent | None) -> None:
    """Say that a model or an agent serves koji-core, and how to log in to the agent."""
    app.reload(["settings", "cards"])
    if agent is None:
        app.show_toast(f"koji-core is served by {name}")
    else:
        message = "It gets its own folder and no access to the rest of your home, so log in once:"
        show_text(app, f"koji-core is served by {agent.title}", f"{message}\n\n{agent.login}")


def _assign(engine: Engine, name: str, *, is_model: bool) -> FoundAgent | None:
    """Have a model or an agent serve koji-core. Returns the agent."""
    agent = None
    if is_model:
        engine.channel_setup.assign_model(name)
    else:
        agent = engine.channel_setup.assign_agent(name)
    engine.approvals.refresh_runners()  # pending cards say at once who would do them
    return agent


def _describe_agent(agent: FoundAgent) -> str:
    """The title of an agent, and what it needs or which hosts it reaches."""
    if agent.missing:
        return f"{agent.title}, once its adapter is installed: {agent.missing}"
    return f"{agent.title}; reaches {join_names(agent.hosts, 1)}" if agent.hosts else agent.title


def make_channel_hint(options: ChannelOptions, key: str) -> Content:
    """The agent or model that answers text prompts. If there is none: those that `key` or a verb can connect."""
    if options.served_by:
        return Content.styled(f"text prompts go to {crop(options.served_by, 60)}", "$grey")
    ready_names = [agent.title for agent in options.agents if not agent.missing] + list(options.local.ids)
    names = ready_names or [f"{agent.title} (adapter missing)" for agent in options.agents]
    if not names:
        return Content.styled(f"{options.next_step.problem}: {options.next_step.shown_command}", "$grey")
    text = f" connects {crop(' or '.join(names), 60)}, found here; or {options.next_step.shown_command}"
    return Content.assemble(("no model configured: ", "$grey"), (key, "$accent"), (text, "$grey"))
