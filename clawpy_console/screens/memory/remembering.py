"""What the memory screen does with an entry: edit, forget, decide a draft, ask what would be recalled (SPEC 9.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clawpy_console import outside, words
from clawpy_console.dialogs.edit_file import EditFile
from clawpy_console.fields import Document
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.memory.entry import Entry, forgetting
from clawpy_console.screens.memory.recalled import WouldRecall
from engine import dispatch
from engine.values import AgentFile, FactDraft, GraphNode, Layer, PromptRequest

if TYPE_CHECKING:
    from engine import Engine


class Remembering(ConsoleScreen):
    """Base of the screen: the keys that do something with the entry under the cursor."""

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor."""
        raise NotImplementedError

    def show(self, layer: Layer, id: str) -> None:
        """Show one entry."""
        raise NotImplementedError

    def read_again(self, *, whole: bool = False) -> None:
        """Entries changed: read them again, `whole` all of the layer where only one of its entries was shown."""
        raise NotImplementedError

    @property
    def _thing(self) -> Any:
        return self.entry.thing if self.entry is not None else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing with this entry are not offered."""
        if action in ("edit", "editor"):
            return self.ready and isinstance(self._thing, AgentFile)
        if action in ("promote", "reject"):
            return self.ready and isinstance(self._thing, FactDraft)
        if action == "forget":
            return self.ready and self.entry is not None and self.entry.can_be_forgotten
        return super().check_action(action, parameters)

    def action_edit(self) -> None:
        """Edit the file here."""
        file = self._thing
        self.app.look_up(
            lambda engine: engine.files.read(file.agent, file.name),
            lambda now: self.app.push_screen(EditFile(now), lambda saved: self.read_again() if saved else None),
        )

    def action_editor(self) -> None:
        """Edit the file in your own editor; what you save there is shown by itself."""
        engine, file = self.app.engine, self._thing
        if engine is not None:
            outside.open_editor(self.app, str(engine.files.folder / file.agent / file.name))
            self.read_again()

    def action_promote(self) -> None:
        """Keep the draft as a fact."""
        draft = self._thing
        said = f"Kept: {words.crop(words.one_line(draft.fact), 60)}"
        self._do(lambda engine: engine.memory.drafts.promote(draft.id), lambda _: said)

    def action_reject(self) -> None:
        """Reject the draft; it is not drafted again."""
        draft = self._thing
        self._do(
            lambda engine: engine.memory.drafts.reject(draft.id), lambda _: "Rejected. It will not be drafted again."
        )

    def action_forget(self) -> None:
        """Show what forgetting it would touch, and ask."""
        if (entry := self.entry) is None:
            return

        def forget() -> None:
            self._do(lambda engine: dispatch(engine, "forget", {"what": entry.id, "yes": True}), _forgotten)

        def asked(found: Document) -> None:
            title = f"Forget it in {words.count(sum(found['counts'].values()), 'place')}?"
            text = "\n".join(one.text for one in forgetting(found))
            self.app.confirm(title, text, "forget", forget, risky=True)

        self.app.look_up(lambda engine: dispatch(engine, "forget", {"what": entry.id}), asked)

    def _do(self, act: Callable[[Engine], Any], said: Callable[[Any], str]) -> None:
        """Do something to the memory, say what it did, and show the layer as it is then."""

        def done(result: Any) -> None:
            self.app.say(said(result))
            self.app.renew(["memory", "changes"])
            self.read_again(whole=True)

        self.app.ask(act, done)

    def action_recall(self) -> None:
        """What would be recalled for the task under the cursor, or for the first card."""
        card, thing = next(iter(self.known.cards), None), self._thing
        task = thing.title if isinstance(thing, GraphNode) else card.assignment.prompt if card else ""
        workspace = card.assignment.workspace if card else next(iter(self.known.workspaces), "")
        place = (card.agent, card.assignment.channel) if card else ("", "")
        request = PromptRequest(*place, getattr(thing, "workspace", "") or workspace, task)
        self.app.push_screen(WouldRecall(request), lambda one: self.show(one.layer, one.id) if one else None)


def _forgotten(report: Document) -> str:
    left = f". Not forgotten: {'; '.join(report['left'])}" if report["left"] else ""
    return f"Forgotten in {words.count(sum(report['counts'].values()), 'place')}{left}"
