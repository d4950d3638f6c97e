"""What the memory screen does with an entry: edit, forget, decide a draft, ask what would be recalled (SPEC 9.5)."""

from __future__ import annotations

from functools import partial

from clawpy_console import outside, words
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.memory import layers
from clawpy_console.screens.memory.layers import Entry
from engine.values import AgentFile, Capture, FactDraft, ForgetPreview, ForgetReport, GraphNode, Memory, Recalled


class Remembering(ConsoleScreen):
    """Base of a screen with an entry under the cursor."""

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor."""
        raise NotImplementedError

    def show_entry(self, recalled: Recalled) -> None:
        """Go to a memory that was recalled."""
        raise NotImplementedError

    def read_again(self) -> None:
        """Entries changed: read them anew."""
        raise NotImplementedError

    def read_all(self) -> None:
        """The same, and show all of the layer, where only one of its entries was shown."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing with this entry are not offered."""
        thing = self.entry.thing if self.ready and self.entry is not None else None
        if action in ("edit", "editor"):
            return isinstance(thing, AgentFile)
        if action in ("promote", "reject"):
            return isinstance(thing, FactDraft)
        if action == "forget":
            return self.entry is not None and layers.can_be_forgotten(self.entry)
        return super().check_action(action, parameters)

    # Layer A

    def action_edit(self) -> None:
        """Edit the file here."""
        from clawpy_console.dialogs.edit_file import EditFile

        engine, file = self.app.live(), self.entry.thing if self.entry else None
        if engine is None or not isinstance(file, AgentFile):
            return

        def opened(now: AgentFile) -> None:
            self.app.push_screen(EditFile(now), lambda saved: self.read_again() if saved else None)

        self.app.look_up(lambda: engine.files.read(file.agent, file.name), opened)

    def action_editor(self) -> None:
        """Edit the file in the operator's editor; what he saves there shows up by itself."""
        engine, file = self.app.live(), self.entry.thing if self.entry else None
        if engine is not None and isinstance(file, AgentFile):
            outside.open_editor(self.app, str(engine.files.folder / file.agent / file.name))
            self.read_again()

    # Drafts of facts

    def action_promote(self) -> None:
        """Keep the draft for good."""
        engine, draft = self.app.live(), self.entry.thing if self.entry else None
        if engine is None or not isinstance(draft, FactDraft):
            return

        def done(_: object) -> None:
            self.app.say(f"kept: {words.crop(words.one_line(draft.fact), 60)}")
            self._renew()

        self.app.ask(lambda: engine.memory.drafts.promote(draft.id), done)

    def action_reject(self) -> None:
        """Turn the draft down; the like is not drafted again."""
        engine, draft = self.app.live(), self.entry.thing if self.entry else None
        if engine is None or not isinstance(draft, FactDraft):
            return

        def done(_: object) -> None:
            self.app.say("Rejected. It will not be drafted again.")
            self._renew()

        self.app.ask(lambda: engine.memory.drafts.reject(draft.id), done)

    # Forgetting

    def action_forget(self) -> None:
        """Show what forgetting this would touch; a key of its own then does it."""
        engine, entry = self.app.live(), self.entry
        if engine is not None and entry is not None and layers.can_be_forgotten(entry):
            self.app.look_up(lambda: layers.forget_preview(engine, entry), self._ask_to_forget)

    def _ask_to_forget(self, found: ForgetPreview) -> None:
        engine = self.app.live()
        if engine is None:
            return
        if not found.total:
            self.app.say("There is nothing to forget.", "warning")
            return

        title = f"Forget it in {words.count(found.total, 'place')}, for good?"
        forget = partial(self.app.ask, lambda: layers.forget(engine, found), self._forgotten)
        self.app.confirm(title, preview_words(found), "forget", forget, risky=True)

    def _forgotten(self, report: ForgetReport) -> None:
        total = sum(count for _, count in report.counts)
        left = f"; left: {'; '.join(report.left)}" if report.left else ""
        self.app.say(f"forgotten in {words.count(total, 'place')}{left}")
        self._renew()

    def _renew(self) -> None:
        self.app.renew(["memory", "changes"])
        self.read_all()

    # Recall

    def action_recall(self) -> None:
        """What would be recalled for a task; asked at once for the task under the cursor, or the first card's."""
        from clawpy_console.screens.memory.recalled import WouldRecall

        card = next(iter(self.known.cards), None)
        thing = self.entry.thing if self.entry else None
        task = thing.title if isinstance(thing, GraphNode) else card.assignment.prompt if card else ""
        workspace = card.assignment.workspace if card else next(iter(self.known.workspaces), "")
        if isinstance(thing, (GraphNode, Memory, Capture)) and thing.workspace:
            workspace = thing.workspace
        agent, channel = (card.agent, card.assignment.channel) if card else ("", "")

        def chosen(recalled: Recalled | None) -> None:
            if recalled is not None:
                self.show_entry(recalled)

        self.app.push_screen(WouldRecall(task, workspace, agent, channel), chosen)


def preview_words(found: ForgetPreview) -> str:
    """What forgetting would touch, store by store, and what it leaves: short enough for 80x24."""
    lines = [f"“{words.crop(words.one_line(one), 120)}”" for one in found.wanted[:2]]
    lines += ["", " · ".join(f"{count:,} in {store}" for store, count in found.counts), ""]
    shown = found.places[:3]
    lines += [words.crop(f"▸ {one.store}: {words.one_line(one.excerpt)}", 66) for one in shown]
    if found.total > len(shown):
        lines.append(f"  and {found.total - len(shown):,} more")
    lines += [words.crop(f"stays: {words.one_line(one)}", 132) for one in found.left[:2]]
    return "\n".join(
        [*lines, "", "Empty entries stay, so that graphs and chains stay complete. This cannot be undone."]
    )
