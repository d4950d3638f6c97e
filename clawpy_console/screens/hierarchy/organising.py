"""What the hierarchy screen does to the organisation: move, tier, edit, create, retire, teach (SPEC 1, 9.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clawpy_console import outside, words
from clawpy_console.keys import shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.hierarchy.lines import broken_file
from clawpy_console.screens.hierarchy.organisation import OWNER, below
from engine.values import AgentFile, AgentView, LeaderProfile, Taught

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
"""How the rule begins by which an agent has the tier that the operator gave it."""


class Organising(ConsoleScreen):
    """Base of a screen with an agent under the cursor. The last change of the organisation can be taken back."""

    _undo: tuple[str, Callable[[Engine], object]] | None = None

    @property
    def agent(self) -> AgentView | None:
        """The agent under the cursor, retired ones included."""
        raise NotImplementedError

    @property
    def hands_down(self) -> bool:
        """Whether what is shown of the agent is guidance for the agents below."""
        raise NotImplementedError

    @property
    def leads_here(self) -> str:
        """Whom a new agent would report to: the row under the cursor."""
        raise NotImplementedError

    def select_agent(self, agent_id: str) -> None:
        """Put the cursor on an agent, now or as soon as it is there."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing here are not offered."""
        one = self.agent if self.ready else None
        member = one is not None and one.state != "retired"
        if action == "move":
            return member and one is not None and not one.broken
        if action in ("edit", "editor"):
            return member and bool(self._file)
        if action in ("tier", "retire"):
            return member
        if action == "restore":
            return one is not None and not member
        if action == "undo":
            return self._undo is not None
        return super().check_action(action, parameters)

    # Where it stands

    def action_move(self) -> None:
        """Under another leader, after a look at what that changes."""
        from clawpy_console.screens.hierarchy.move_agent import MoveAgent

        engine, one = self.app.live(), self.agent
        if engine is None or one is None:
            return

        def chosen(leader: str | None) -> None:
            if leader is not None:
                self._change(
                    f"{one.id} reports to {leader} now",
                    lambda engine: engine.hierarchy.move(one.id, leader),
                    lambda _: (f"{one.id} is back", lambda engine: engine.hierarchy.move(one.id, one.reports_to)),
                    shows=one.id,
                )

        under = below(self.known.agents, one.id)
        leaders = [two for two in self.known.agents if not two.broken and two.id != one.id and two.id not in under]
        self.app.push_screen(MoveAgent(one, leaders), chosen)

    def action_tier(self) -> None:
        """Say which tier it is, or take that back."""
        from clawpy_console.dialogs.ask import Ask

        one = self.agent
        if self.app.live() is None or one is None:
            return
        before = one.tier if one.tier_rule.startswith(ASSIGNED) else None

        def chosen(key: str | None) -> None:
            tier = int(key) if key and key != "a" else None
            if key is None or tier == before:
                return
            said = f"{one.id} is now tier {tier}" if tier else f"{one.id}: tier set by the rules again"
            self._change(
                said,
                lambda engine: engine.hierarchy.assign_tier(one.id, tier),
                lambda _: (f"{one.id}: undone", lambda engine: engine.hierarchy.assign_tier(one.id, before)),
            )

        title = f"Which tier is {words.crop(one.id, 40)}? Now {one.tier}, by {words.crop(one.tier_rule, 60)}"
        present = str(before) if before else "auto"
        self.app.push_screen(Ask(words.crop(title, 70), "", TIERS, present=present), chosen)

    # Its files

    @property
    def _file(self) -> str:
        """The file to edit: of a broken agent the one that is broken; "" when no file would mend it."""
        one = self.agent
        if one is None:
            return ""
        return broken_file(one) if one.broken else "soul.md"

    def action_edit(self) -> None:
        """Edit here what is shown: what a leader tells those below, else the file."""
        from clawpy_console.dialogs.edit_file import EditFile

        engine, one, name = self.app.live(), self.agent, self._file
        if engine is None or one is None or not name:
            return
        if self.hands_down and not one.broken:
            self.app.look_up(lambda: engine.wisdom.profile(one.id), lambda now: self._edit_profile(engine, now))
            return

        def opened(now: AgentFile) -> None:
            self.app.push_screen(EditFile(now), lambda saved: self.app.renew(["agents"]) if saved else None)

        self.app.look_up(lambda: engine.files.read(one.id, name), opened)

    def _edit_profile(self, engine: Engine, now: LeaderProfile) -> None:
        from clawpy_console.screens.hierarchy.edit_profile import EditProfile

        def saved(change: tuple[LeaderProfile, LeaderProfile] | None) -> None:
            if change is None:
                return
            before, after = change
            leader, back = now.leader, engine.wisdom.profile_edits(after, engine.wisdom.profile_text(before))
            self._done(
                f"Saved the guidance from {leader}",
                (f"the guidance from {leader} is as it was", lambda engine: engine.wisdom.revise_profile(leader, back)),
            )

        self.app.push_screen(EditProfile(engine, now), saved)

    def action_editor(self) -> None:
        """Edit the file in the operator's editor; what he saves there shows up by itself."""
        engine, one, name = self.app.live(), self.agent, self._file
        if engine is not None and one is not None and name:
            outside.open_editor(self.app, str(engine.files.folder / one.id / name))

    # Who there is

    def action_new(self) -> None:
        """A new agent under the one under the cursor."""
        from clawpy_console.screens.hierarchy.new_agent import NewAgent

        if self.app.live() is None:
            return

        def made(one: AgentView | None) -> None:
            if one is not None:
                self._done(
                    f"Created {one.id}",
                    (f"{one.id} is removed again", lambda engine: engine.hierarchy.retire(one.id)),
                    shows=one.id,
                )

        self.app.push_screen(NewAgent(self.leads_here or OWNER), made)

    def action_retire(self) -> None:
        """Take it out, after a second key; whether it may go is looked at before that is asked."""
        engine, one = self.app.live(), self.agent
        if engine is not None and one is not None:
            self.app.look_up(lambda: engine.hierarchy.check_retire(one.id), lambda _: self._ask_to_retire(one))

    def _ask_to_retire(self, one: AgentView) -> None:
        def retire() -> None:
            self._change(
                f"{one.id} is retired",
                lambda engine: engine.hierarchy.retire(one.id),
                lambda name: (f"{one.id} is back", lambda engine: engine.hierarchy.restore(str(name))),
            )

        question = (
            "It no longer runs anything. Its folder and memory are kept; you can restore it from the list of "
            "retired agents."
        )
        self.app.confirm(f"Retire {words.crop(one.id, 40)}?", question, "retire", retire)

    def action_restore(self) -> None:
        """Bring a retired agent back."""
        one = self.agent
        if one is not None:
            agent_id = one.id.partition(".")[0]
            self._change(
                f"{agent_id} is back under {one.reports_to}",
                lambda engine: engine.hierarchy.restore(one.id),
                lambda _: (f"{agent_id} is retired again", lambda engine: engine.hierarchy.retire(agent_id)),
                shows=agent_id,
            )

    # Down and up

    def action_teach(self) -> None:
        """Write what leaders say into every worker's soul, after a second key."""

        def teach() -> None:
            if (engine := self.app.live()) is not None:
                self.app.ask(engine.wisdom.teach, taught)

        def taught(agents: list[Taught]) -> None:
            did = {word: sum(one.did == word for one in agents) for word in ("taught", "unchanged", "skipped")}
            self.app.say(
                ", ".join(f"{count} {word}" for word, count in did.items() if count) or "There is no worker to teach."
            )
            self.app.renew(["agents"])

        question = (
            "The guidance of its leaders is written into the section “Inherited Wisdom” of every worker's soul.md. "
            "The rest of each file stays as it is; edits inside that section are overwritten."
        )
        self.app.confirm("Teach every worker now?", question, "teach", teach)

    def action_flush(self) -> None:
        """Send what passed all gates up, after a look at it and a second key."""
        from clawpy_console.dialogs.send_up import send_up

        send_up(self.app)

    # Doing and undoing

    def action_undo(self) -> None:
        """Take the last change back."""
        engine, undo = self.app.live(), self._undo
        if engine is None or undo is None:
            return
        said, back = undo

        def done(_: object) -> None:
            self._undo = None
            self.app.say(said)
            self.app.renew(["agents"])
            self.refresh_bindings()

        self.app.ask(lambda: back(engine), done)

    def _change(
        self,
        said: str,
        act: Callable[[Engine], object],
        back: Callable[[object], tuple[str, Callable[[Engine], object]]],
        *,
        shows: str = "",
    ) -> None:
        """Do `act`; `back` gets what it returned, and says how it is taken back."""
        engine = self.app.live()
        if engine is not None:
            self.app.ask(lambda: act(engine), lambda result: self._done(said, back(result), shows=shows))

    def _done(self, said: str, undo: tuple[str, Callable[[Engine], object]], *, shows: str = "") -> None:
        self._undo = undo
        self.app.say(f"{said}. Undo: {shown_key('hierarchy.undo', self.app.keymap)}")
        self.app.renew(["agents"])
        if shows:
            self.select_agent(shows)
        self.refresh_bindings()
