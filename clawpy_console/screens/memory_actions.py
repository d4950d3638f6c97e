"""The keys of the memory screen that act on one entry: edit, decide, forget, recall (SPEC 4.7, 4.10, 9.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clawpy_console import external_programs, formats
from clawpy_console.dialogs.edit import edit_file
from clawpy_console.dialogs.question import confirm
from clawpy_console.fields import Document
from clawpy_console.fields.learning import forgetting_fields
from clawpy_console.formats import crop, one_line
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.memory_entries import Entry
from clawpy_console.screens.recall_preview import RecallPreview
from engine import dispatch
from engine.model import AgentFile, FactDraft, GraphNode, Layer, PromptRequest

if TYPE_CHECKING:
    from engine import Engine


class MemoryActions(ConsoleScreen):
    """Base of the screen: the keys that do something with the entry under the cursor."""

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor."""
        raise NotImplementedError

    def show(self, layer: Layer, id: str) -> None:
        """Show a single entry; Escape leads back to all entries of its layer."""
        raise NotImplementedError

    def read_again(self, wait: float = 0.0, *, leave_single: bool = False) -> None:
        """Read the entries of the layer that match the filter, after `wait` seconds. A single entry, which another
        screen opened, stays unless `leave_single`."""
        raise NotImplementedError

    @property
    def _value(self) -> Any:
        """The engine's value of the entry under the cursor, None for no entry."""
        return self.entry.value if self.entry is not None else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing with this entry are not offered."""
        if action in ("edit", "editor"):
            return self.ready and isinstance(self._value, AgentFile)
        if action == "decide":
            return self.ready and isinstance(self._value, FactDraft)
        if action == "forget":
            return self.ready and self.entry is not None and self.entry.can_be_forgotten
        return super().check_action(action, parameters)

    def action_edit(self) -> None:
        """Edit the file in the console."""
        edit_file(self.app, self._value.agent, self._value.name, self.read_again)

    def action_editor(self) -> None:
        """Edit the file in the operator's own editor; what is saved there is shown by itself."""
        engine, file = self.app.engine, self._value
        if engine is not None:
            external_programs.open_editor(self.app, str(engine.agent_files.folder / file.agent / file.name))
            self.read_again()

    def action_decide(self, decision: str) -> None:
        """`promote` the draft to a fact, or `reject` it: it is not drafted again."""
        draft = self._value
        message = "Rejected. It will not be drafted again."
        if decision == "promote":
            message = f"Kept: {crop(one_line(draft.fact), 60)}"
        self._change_memory(lambda engine: getattr(engine.knowledge.drafts, decision)(draft.id), lambda _: message)

    def action_forget(self) -> None:
        """Forget the entry, after a question that says where it would be removed."""
        if (entry := self.entry) is None:
            return

        def forget() -> None:
            request = {"what": entry.id, "yes": True}
            self._change_memory(lambda engine: dispatch(engine, "forget", request), _forgotten_message)

        def confirm_forget(preview: Document) -> None:
            title = f"Forget it in {formats.count(sum(preview['counts'].values()), 'place')}?"
            text = "\n".join(item.text for item in forgetting_fields(preview))
            confirm(self.app, title, text, "forget", forget, risky=True)

        self.app.load_for_dialog(lambda engine: dispatch(engine, "forget", {"what": entry.id}), confirm_forget)

    def _change_memory(self, act: Callable[[Engine], Any], describe: Callable[[Any], str]) -> None:
        """Call `act`, show its result as `describe` words it, and read the layer again."""

        def on_done(result: Any) -> None:
            self.app.report(describe(result), "memory", "changes")
            self.read_again(leave_single=True)

        self.app.call_engine(act, on_done)

    def action_recall(self) -> None:
        """Show what would be recalled for the task under the cursor, or for the first card."""
        value, card = self._value, next(iter(self.state.cards), None)
        agent = channel = task = ""
        workspace = next(iter(self.state.workspaces), "")
        if card is not None:
            agent, channel = card.agent, card.assignment.channel
            task, workspace = card.assignment.prompt, card.assignment.workspace
        if isinstance(value, GraphNode):
            task = value.title
        request = PromptRequest(agent, channel, getattr(value, "workspace", "") or workspace, task)

        self.app.ask(RecallPreview(request), lambda memory: self.show(memory.layer, memory.id))


def _forgotten_message(report: Document) -> str:
    remainder = f". Not forgotten: {'; '.join(report['left'])}" if report["left"] else ""
    return f"Forgotten in {formats.count(sum(report['counts'].values()), 'place')}{remainder}"
