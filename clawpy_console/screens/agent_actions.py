"""The actions of the hierarchy screen: what the operator can do with the agent under the cursor (SPEC 1).

Each change is a call of the engine, which can be undone once. `agent_dialogs` has the dialogs that ask what to change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual import getters

from clawpy_console import external_programs
from clawpy_console.fields.agent import find_broken_file
from clawpy_console.formats import crop
from clawpy_console.screens.agent_dialogs import EditProfile, MoveAgent, NewAgent, edit_file, send_findings
from clawpy_console.screens.agent_tree import OWNER, Node, Tree, collect_ids_below
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.dialog import Answer, Question, confirm
from clawpy_console.widgets.frame import TabLine
from engine.model import AgentView, LeaderProfile, TeachingResult

if TYPE_CHECKING:
    from engine import Engine


TIER_ANSWERS = (
    Answer("1", "1", "core identity: leads and guides those below"),
    Answer("2", "2", "senior executive: leads"),
    Answer("3", "3", "junior leader: leads"),
    Answer("4", "4", "worker: receives guidance, sends findings up"),
    Answer("5", "5", "junior worker: receives guidance, sends findings up"),
    Answer("a", "auto", "set by archetype, name or default"),
)
"""The answers to the question for a tier."""

ASSIGNED_RULE = "tier_assignments"
"""The rule of a tier that the operator set begins with this."""

TEACHING_RESULTS = ("taught", "unchanged", "skipped")


class AgentActions(ConsoleScreen):
    """Base of the screen: the keys that change the agent under the cursor. The last change can be undone."""

    _last_change: tuple[str, Callable[[Engine], object]] | None = None
    """The message of the last change, and the call that undoes it."""

    _tree = getters.query_one("#tree", Tree)

    @property
    def node(self) -> Node | None:
        """The node under the cursor."""
        return self._tree.node

    @property
    def agent(self) -> AgentView | None:
        """The agent under the cursor, which may be retired."""
        return self.node.agent if self.node is not None else None

    @property
    def shows_profile(self) -> bool:
        """Whether the profile of a leader is shown."""
        raise NotImplementedError

    def show(self, agent_id: str) -> None:
        """Put the cursor on an agent, now or as soon as it is in the tree."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing here are not offered."""
        agent = self.agent if self.ready else None
        active = agent is not None and agent.activity.state != "retired"
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
                return self._last_change is not None
        return super().check_action(action, parameters)

    # Place and tier

    def action_move(self) -> None:
        """Move the agent under another leader, after a preview of what that changes."""
        agent = self.agent
        if agent is None:
            return

        def move(leader: str) -> None:
            self._change(
                f"{agent.id} reports to {leader} now",
                lambda engine: engine.agents.move(agent.id, leader),
                lambda engine, _: engine.agents.move(agent.id, agent.reports_to),
                select=agent.id,
            )

        subtree = {agent.id, *collect_ids_below(self.state.agents, agent.id)}
        leaders = [other for other in self.state.agents if not other.broken and other.id not in subtree]
        self.app.ask(MoveAgent(agent, leaders), move)

    def action_tier(self) -> None:
        """Set the tier of the agent, or let the rules decide."""
        agent = self.agent
        if agent is None:
            return
        before = agent.tier if agent.tier_rule.startswith(ASSIGNED_RULE) else None

        def set_tier(answer: Answer) -> None:
            tier = int(answer.label) if answer.label.isdigit() else None
            if tier != before:
                self._change(
                    f"{agent.id} is now tier {tier}" if tier else f"{agent.id}: tier set by the rules again",
                    lambda engine: engine.agents.assign_tier(agent.id, tier),
                    lambda engine, _: engine.agents.assign_tier(agent.id, before),
                )

        title = f"Which tier is {crop(agent.id, 40)}? Now {agent.tier}, by {crop(agent.tier_rule, 60)}"
        self.app.ask(Question(crop(title, 70), TIER_ANSWERS, present=str(before or "auto")), set_tier)

    # Files of an agent

    @property
    def _file(self) -> str:
        """The name of the file to edit: that of a broken agent that needs mending, "" when no file can mend it."""
        return find_broken_file(self.agent.broken) if self.agent and self.agent.broken else "soul.md"

    def action_edit(self) -> None:
        """Edit the profile of a leader where it is shown, else the file."""
        agent, name = self.agent, self._file
        if agent is None or not name:
            return
        if self.shows_profile and not agent.broken:
            self._edit_profile(agent.id)
        else:
            edit_file(self.app, agent.id, name, lambda: self.app.reload(["agents"]))

    def _edit_profile(self, leader: str) -> None:
        def read_profile(engine: Engine) -> tuple[LeaderProfile, str]:
            profile = engine.profiles.get(leader)
            return profile, engine.profiles.format(profile)

        def on_saved(_: bool) -> None:
            self._on_changed(f"Saved the guidance from {leader}", lambda engine: engine.profiles.undo(leader))

        self.app.load_for_dialog(read_profile, lambda result: self.app.ask(EditProfile(*result), on_saved))

    def action_editor(self) -> None:
        """Edit the file in the operator's own editor; what is saved there is shown by itself."""
        engine, agent, name = self.app.engine, self.agent, self._file
        if engine is not None and agent is not None and name:
            external_programs.open_editor(self.app, str(engine.agent_files.folder / agent.id / name))

    # Create and retire

    def action_new(self) -> None:
        """Create an agent below the one under the cursor."""
        agent = self.agent
        leader = agent.id if agent is not None and not agent.broken and agent.activity.state != "retired" else OWNER

        def on_created(new: AgentView) -> None:
            self._on_changed(f"Created {new.id}", lambda engine: engine.agents.retire(new.id), select=new.id)

        self.app.ask(NewAgent(leader), on_created)

    def action_retire(self) -> None:
        """Retire the agent, after a question; a reason against it is shown first."""
        if (agent := self.agent) is None:
            return
        title = f"Retire {crop(agent.id, 40)}?"
        question = "It runs nothing any more. Its folder and memory are kept. To restore it: the retired agents, below."

        def retire() -> None:
            self._change(
                f"{agent.id} is retired",
                lambda engine: engine.agents.retire(agent.id),
                lambda engine, name: engine.agents.restore(name),
            )

        self.app.load_for_dialog(
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
                select=agent_id,
            )

    # Guidance and findings

    def action_teach(self) -> None:
        """Write guidance into the soul.md of every worker, after a question."""

        def on_taught(agents: list[TeachingResult]) -> None:
            counts = {result: sum(agent.outcome == result for agent in agents) for result in TEACHING_RESULTS}
            text = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
            self.app.report(text or "No workers.", "agents")

        question = (
            "The guidance of its leaders is written into the section “Inherited Wisdom” of every worker's soul.md. "
            "The rest of each file stays as it is; edits inside that section are overwritten."
        )

        def teach() -> None:
            self.app.call_engine(lambda engine: engine.teaching.teach_workers(), on_taught)

        confirm(self.app, "Teach every worker now?", question, "teach", teach)

    def action_flush(self) -> None:
        """Send findings that passed all gates to their leaders, after a question."""
        send_findings(self.app)

    # Change and undo

    def action_undo(self) -> None:
        """Undo the last change."""
        if self._last_change is None:
            return
        message, undo = self._last_change

        def on_undone(_: object) -> None:
            self._last_change = None
            self.app.report(f"Undone: {message}", "agents")
            self.refresh_bindings()

        self.app.call_engine(undo, on_undone)

    def _change(
        self,
        message: str,
        act: Callable[[Engine], Any],
        undo: Callable[[Engine, Any], object],
        *,
        select: str = "",
    ) -> None:
        """Call `act`, whose result `undo` gets; then put the cursor on the agent `select`, "" to leave it."""
        self.app.call_engine(
            act, lambda result: self._on_changed(message, lambda engine: undo(engine, result), select=select)
        )

    def _on_changed(self, message: str, undo: Callable[[Engine], object], *, select: str = "") -> None:
        self._last_change = message, undo
        self.app.report(f"{message}. Undo: {self.key_of('hierarchy.undo')}", "agents")
        if select:
            self.show(select)
        self.refresh_bindings()
