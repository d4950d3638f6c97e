"""What the hierarchy screen does to the organisation: move, tier, edit, create, retire, teach (SPEC 1, 9.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clawpy_console import outside, words
from clawpy_console.dialogs.ask import Ask, confirm, send_up
from clawpy_console.dialogs.edit_file import EditFile
from clawpy_console.keys import shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.hierarchy.agent import broken_file
from clawpy_console.screens.hierarchy.dialogs import EditProfile, MoveAgent, NewAgent
from clawpy_console.screens.hierarchy.tree import OWNER, Node, Tree, ids_below
from clawpy_console.widgets.keyline import TabLine
from engine.model import AgentView, LeaderProfile, Taught

if TYPE_CHECKING:
    from engine import Engine

TIERS = (
    ("1", "1", "core identity: leads and guides those below"),
    ("2", "2", "senior executive: leads"),
    ("3", "3", "junior leader: leads"),
    ("4", "4", "worker: receives guidance, sends findings up"),
    ("5", "5", "junior worker: receives guidance, sends findings up"),
    ("a", "auto", "set by archetype, name or default"),
)
ASSIGNED = "tier_assignments"
"""The rule of a tier that you set begins with this."""

Undo = tuple[str, Callable[["Engine"], object]]
"""What is said when a change was undone, and the call that undoes it."""


class AgentActions(ConsoleScreen):
    """Base of the screen: the keys that change the agent in the row under the cursor. The last change can be undone."""

    _undo: Undo | None = None

    @property
    def node(self) -> Node | None:
        """The row under the cursor."""
        return self.query_one("#tree", Tree).node

    @property
    def agent(self) -> AgentView | None:
        """The agent under the cursor, retired ones included."""
        return self.node.agent if self.node is not None else None

    @property
    def gives_guidance(self) -> bool:
        """Whether the guidance of a leader is shown."""
        raise NotImplementedError

    def show(self, agent_id: str) -> None:
        """Put the cursor on an agent, now or as soon as it is there."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing here are not offered."""
        agent = self.agent if self.ready else None
        active = agent is not None and agent.state != "retired"
        match action:
            case "tab":
                return self.ready and len(self.query_one(TabLine).tabs) > 1
            case "move":
                return agent is not None and active and not agent.broken
            case "edit" | "editor":
                return active and bool(self._file)
            case "tier" | "retire":
                return active
            case "restore":
                return agent is not None and not active
            case "undo":
                return self._undo is not None
        return super().check_action(action, parameters)

    # Place and tier

    def action_move(self) -> None:
        """Move it under another leader, with a preview of what that changes."""
        agent = self.agent
        if agent is None:
            return

        def on_choice(leader: str | None) -> None:
            if leader is not None:
                self._change(
                    f"{agent.id} reports to {leader} now",
                    lambda engine: engine.agents.move(agent.id, leader),
                    lambda engine, _: engine.agents.move(agent.id, agent.reports_to),
                    shows=agent.id,
                )

        under = {agent.id, *ids_below(self.state.agents, agent.id)}
        leaders = [two for two in self.state.agents if not two.broken and two.id not in under]
        self.app.push_screen(MoveAgent(agent, leaders), on_choice)

    def action_tier(self) -> None:
        """Set its tier, or let the rules decide."""
        agent = self.agent
        if agent is None:
            return
        before = agent.tier if agent.tier_rule.startswith(ASSIGNED) else None

        def on_choice(key: str | None) -> None:
            tier = int(key) if key and key != "a" else None
            if key is not None and tier != before:
                self._change(
                    f"{agent.id} is now tier {tier}" if tier else f"{agent.id}: tier set by the rules again",
                    lambda engine: engine.agents.assign_tier(agent.id, tier),
                    lambda engine, _: engine.agents.assign_tier(agent.id, before),
                )

        title = f"Which tier is {words.crop(agent.id, 40)}? Now {agent.tier}, by {words.crop(agent.tier_rule, 60)}"
        self.app.push_screen(Ask(words.crop(title, 70), "", TIERS, present=str(before or "auto")), on_choice)

    # Its files

    @property
    def _file(self) -> str:
        """The file to edit: the broken one of a broken agent; "" where no file would fix it."""
        return broken_file(self.agent.broken) if self.agent and self.agent.broken else "soul.md"

    def action_edit(self) -> None:
        """Edit what is shown: the guidance of a leader, else the file."""
        agent, name = self.agent, self._file
        if agent is None or not name:
            return
        if self.gives_guidance and not agent.broken:

            def profile(engine: Engine) -> tuple[LeaderProfile, str]:
                now = engine.wisdom.profile(agent.id)
                return now, engine.wisdom.profile_text(now)

            self.app.look_up(
                profile,
                lambda now: self.app.push_screen(
                    EditProfile(*now), lambda saved: self._saved(agent.id) if saved else None
                ),
            )
        else:
            self.app.look_up(
                lambda engine: engine.agent_files.read(agent.id, name),
                lambda now: self.app.push_screen(
                    EditFile(now), lambda saved: self.app.renew(["agents"]) if saved else None
                ),
            )

    def _saved(self, leader: str) -> None:
        self._changed(f"Saved the guidance from {leader}", lambda engine: engine.wisdom.undo_profile(leader))

    def action_editor(self) -> None:
        """Edit the file in your own editor; what you save there is shown by itself."""
        engine, agent, name = self.app.engine, self.agent, self._file
        if engine is not None and agent is not None and name:
            outside.open_editor(self.app, str(engine.agent_files.folder / agent.id / name))

    # Which agents there are

    def action_new(self) -> None:
        """A new agent under the one under the cursor."""
        agent = self.agent
        leader = agent.id if agent is not None and not agent.broken and agent.state != "retired" else OWNER

        def on_created(new: AgentView | None) -> None:
            if new is not None:
                self._changed(f"Created {new.id}", lambda engine: engine.agents.retire(new.id), shows=new.id)

        self.app.push_screen(NewAgent(leader), on_created)

    def action_retire(self) -> None:
        """Retire it, after a question; what forbids that is said before."""
        if (agent := self.agent) is None:
            return
        title = f"Retire {words.crop(agent.id, 40)}?"
        question = "It runs nothing any more. Its folder and memory are kept. To restore it: the retired agents, below."

        def retire() -> None:
            self._change(
                f"{agent.id} is retired",
                lambda engine: engine.agents.retire(agent.id),
                lambda engine, name: engine.agents.restore(name),
            )

        self.app.look_up(
            lambda engine: engine.agents.check_retire(agent.id),
            lambda _: confirm(self.app, title, question, "retire", retire),
        )

    def action_restore(self) -> None:
        """Restore a retired agent."""
        agent = self.agent
        if agent is not None:
            agent_id = agent.id.partition(".")[0]
            self._change(
                f"{agent_id} is back under {agent.reports_to}",
                lambda engine: engine.agents.restore(agent.id),
                lambda engine, _: engine.agents.retire(agent_id),
                shows=agent_id,
            )

    # Guidance and findings

    def action_teach(self) -> None:
        """Write guidance into the soul.md of every worker, after a question."""

        def taught(agents: list[Taught]) -> None:
            did = {word: sum(agent.did == word for agent in agents) for word in ("taught", "unchanged", "skipped")}
            self.app.say(", ".join(f"{count} {word}" for word, count in did.items() if count) or "No workers.")
            self.app.renew(["agents"])

        question = (
            "The guidance of its leaders is written into the section “Inherited Wisdom” of every worker's soul.md. "
            "The rest of each file stays as it is; edits inside that section are overwritten."
        )

        def teach() -> None:
            self.app.ask(lambda engine: engine.wisdom.teach(), taught)

        confirm(self.app, "Teach every worker now?", question, "teach", teach)

    def action_flush(self) -> None:
        """Send findings that passed all gates to their leaders, after a question."""
        send_up(self.app)

    # Doing and undoing

    def action_undo(self) -> None:
        """Undo the last change."""
        if (undo := self._undo) is None:
            return

        def done(_: object) -> None:
            self._undo = None
            self.app.say(f"Undone: {undo[0]}")
            self.app.renew(["agents"])
            self.refresh_bindings()

        self.app.ask(undo[1], done)

    def _change(
        self,
        message: str,
        act: Callable[[Engine], Any],
        undo: Callable[[Engine, Any], object],
        *,
        shows: str = "",
    ) -> None:
        """Do `act`; `undo` gets what it returned."""
        self.app.ask(act, lambda result: self._changed(message, lambda engine: undo(engine, result), shows=shows))

    def _changed(self, message: str, undo: Callable[[Engine], object], *, shows: str = "") -> None:
        self._undo = message, undo
        self.app.say(f"{message}. Undo: {shown_key('hierarchy.undo', self.app.keymap)}")
        self.app.renew(["agents"])
        if shows:
            self.show(shows)
        self.refresh_bindings()
