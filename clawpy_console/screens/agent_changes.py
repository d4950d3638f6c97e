"""What you change of agents on the hierarchy screen: place, tier, guidance, which agents there are (SPEC 1); for all
of them together, guidance down (SPEC 1.4) and findings up (SPEC 1.7).

Each change is a call of the engine. The last one of `AgentChanges` can be undone. `agent_dialogs` has the dialogs that
ask what to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clawpy_console import formats
from clawpy_console.fields import WORDS
from clawpy_console.fields.agent import find_broken_file
from clawpy_console.formats import crop, list_first
from clawpy_console.keys import format_key
from clawpy_console.screens.agent_dialogs import EditProfile, MoveAgent, NewAgent
from clawpy_console.screens.agent_tree import OWNER_ID, collect_ids_below
from clawpy_console.screens.dialog import Answer, Question, confirm
from engine.model import AgentView, Bubble, BubbleState, FlushReport, LeaderProfile, Refusal, TeachingResult

if TYPE_CHECKING:
    from clawpy_console.console import Console, EngineCall
    from engine import Engine


TIER_ANSWERS = [Answer(key, *cells) for key, cells in WORDS["tier"].items()]
"""The answers to the question for a tier."""

ASSIGNED_RULE = "tier_assignments"
"""The rule of a tier that the operator set begins with this."""


class AgentChanges:
    """The changes of agents that one screen makes."""

    def __init__(self, app: Console, on_changed: Callable[[str], object]) -> None:
        """`on_changed` is called after each change and each undo, with the id of the agent to show, "" for none."""
        self._app = app
        self._on_changed = on_changed
        self._last: tuple[str, EngineCall[object]] | None = None  # its message, and the call that undoes it

    @property
    def can_undo(self) -> bool:
        return self._last is not None

    def undo(self) -> None:
        """Undo the last change."""
        if self._last is None:
            return
        (message, undo), self._last = self._last, None  # the key may be pressed again before the engine answers

        def on_undone(_: object) -> None:
            self._app.report(f"Undone: {message}", "agents")
            self._on_changed("")

        def on_refusal(refusal: Refusal) -> None:
            self._last = self._last or (message, undo)
            self._app.show_toast(refusal, "error")
            self._on_changed("")

        self._app.call_engine(undo, on_undone, on_refusal)

    def move(self, agent: AgentView) -> None:
        """Move an agent under another leader, after a preview of what that changes."""

        def move(leader: str) -> None:
            self._change(
                f"{agent.id} reports to {leader} now",
                lambda engine: engine.agents.move(agent.id, leader),
                lambda engine, _: engine.agents.move(agent.id, agent.reports_to),
                select=agent.id,
            )

        agents = self._app.state.agents
        subtree = {agent.id, *collect_ids_below(agents, agent.id)}
        self._app.ask(
            MoveAgent(agent, [other for other in agents if not other.broken and other.id not in subtree]), move
        )

    def set_tier(self, agent: AgentView) -> None:
        """Set the tier of an agent, or let the rules decide."""
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
        self._app.ask(Question(crop(title, 70), TIER_ANSWERS, current_label=str(before or "auto")), set_tier)

    def create(self, near: AgentView | None) -> None:
        """Create an agent below this one, or below the owner where it leads nobody: it is broken, retired or none."""
        can_lead = near is not None and not near.broken and not is_retired(near)

        leader = near.id if near is not None and can_lead else OWNER_ID
        self._app.push_screen(
            NewAgent(
                leader,
                lambda new: self._report_change(
                    f"Created {new.id}", lambda engine: engine.agents.retire(new.id), select=new.id
                ),
            )
        )

    def retire(self, agent: AgentView) -> None:
        """Retire an agent, after a question; a reason against it is shown first."""
        title = f"Retire {crop(agent.id, 40)}?"
        question = "It runs nothing any more. Its folder and memory are kept. To restore it: the retired agents, below."

        def retire() -> None:
            self._change(
                f"{agent.id} is retired",
                lambda engine: engine.agents.retire(agent.id),
                lambda engine, name: engine.agents.restore(name),
            )

        self._app.load_for_dialog(
            lambda engine: engine.agents.check_retire(agent.id),
            lambda _: confirm(self._app, title, question, "retire", retire),
        )

    def restore(self, agent: AgentView) -> None:
        """Restore a retired agent."""
        agent_id = agent.id.partition(".")[0]
        self._change(
            f"{agent_id} is back under {agent.reports_to}",
            lambda engine: engine.agents.restore(agent.id),
            lambda engine, _: engine.agents.retire(agent_id),
            select=agent_id,
        )

    def edit_profile(self, leader: str) -> None:
        """Edit the profile that the guidance of a leader is made of."""

        def read_profile(engine: Engine) -> tuple[LeaderProfile, str]:
            profile = engine.profiles.read(leader)
            return profile, engine.profiles.format_text(profile)

        on_saved = partial(
            self._report_change, f"Saved the guidance from {leader}", lambda engine: engine.profiles.undo(leader)
        )
        self._app.load_for_dialog(read_profile, lambda result: self._app.push_screen(EditProfile(*result, on_saved)))

    def _change(
        self, message: str, act: EngineCall[Any], undo: Callable[[Engine, Any], object], *, select: str = ""
    ) -> None:
        """Call `act`, whose result `undo` gets; then show the agent `select`, "" for none."""
        self._app.call_engine(
            act, lambda result: self._report_change(message, lambda engine: undo(engine, result), select=select)
        )

    def _report_change(self, message: str, undo: EngineCall[object], *, select: str = "") -> None:
        """A change was made, which `undo` reverses."""
        self._last = message, undo
        self._app.report(f"{message}. Undo: {format_key('hierarchy.undo', self._app.keymap)}", "agents")
        self._on_changed(select)


CHANGES: Mapping[str, Callable[[AgentChanges, AgentView], None]] = {
    "move": AgentChanges.move,
    "tier": AgentChanges.set_tier,
    "retire": AgentChanges.retire,
    "restore": AgentChanges.restore,
}
"""The changes of one agent, by their names in the table of keys."""


def is_retired(agent: AgentView) -> bool:
    return agent.activity.state == "retired"


def can_change(agent: AgentView, name: str) -> bool:
    """Whether the change `name` can be made. A retired agent can only be restored, a broken one not moved."""
    return is_retired(agent) == (name == "restore") and not (name == "move" and agent.broken)


def find_editable_file(agent: AgentView | None) -> str:
    """The name of the file of an agent that can be edited: the one that needs mending where it is broken. "" when no
    file can mend it, and for a retired agent or none."""
    if agent is None or is_retired(agent):
        return ""
    return find_broken_file(agent.broken) if agent.broken else "soul.md"


TEACHING_RESULTS = ("taught", "unchanged", "skipped")


def teach_workers(app: Console) -> None:
    """Write guidance into the soul.md of every worker, after a question."""

    def on_taught(agents: list[TeachingResult]) -> None:
        counts = {result: sum(agent.outcome == result for agent in agents) for result in TEACHING_RESULTS}
        text = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
        app.report(text or "No workers.", "agents")

    question = (
        "The guidance of its leaders is written into the section “Inherited Wisdom” of every worker's soul.md. "
        "The rest of each file stays as it is; edits inside that section are overwritten."
    )
    teach = partial(app.call_engine, lambda engine: engine.teaching.teach_workers(), on_taught)
    confirm(app, "Teach every worker now?", question, "teach", teach)


def send_findings(app: Console) -> None:
    """Show the findings that passed all gates, and send them up once you confirm."""
    send = partial(app.call_engine, lambda engine: engine.bubbles.flush(), partial(_report_sent, app))
    app.load_for_dialog(
        lambda engine: engine.bubbles.list_bubbles(state=BubbleState.QUEUED),
        lambda queued: confirm(app, "Send these findings up now?", _make_findings_question(queued), "send up", send),
    )


MAX_LISTED_FINDINGS = 6
"""Maximum number of findings that the question lists."""


def _make_findings_question(queued: Sequence[Bubble]) -> str:
    """The findings that would be sent up, and their effect."""
    ready = [finding for finding in queued if finding.may_guide]
    findings = [crop(f"▸ {item.learning.agent} → {item.leader}: {item.learning.text}", 70) for item in ready]
    lines = list_first(findings, MAX_LISTED_FINDINGS)
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


def _report_sent(app: Console, report: FlushReport) -> None:
    up = sum(len(ids) for ids in report.flushed.values())
    remainder = f", {report.waiting:,} still waiting" if report.waiting else ""
    app.show_toast(f"{formats.count(up, 'finding')} sent up{remainder}")
    if report.failed:
        app.show_toast(f"The shared leadership could not be reached: {report.failed}. It is synced later.", "warning")
    app.reload(["agents", "changes"])
