"""A whole `Safety` for the tests of the rails, with triggers and sessions to decide on."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlmodel import Session

from engine.clock import FakeClock
from engine.config.settings import Settings, WorkspaceAutonomy, WorkspaceSettings
from engine.model import Assignment, DecidedBy, Ruling, SessionState, SessionView, Trigger, TriggerType
from engine.randomness import Randomness
from engine.safety.costs import Costs
from engine.safety.kill_switch import KillSwitch
from engine.safety.pipeline import CrosspollLog, Hooks
from engine.safety.safety import Safety
from engine.storage.database import Database
from tests.support.sessions import make_session_view
from tests.support.settings import MutableSettings

WORKSPACE = "/srv/shop"
"""The workspace in which the engine may act."""


@dataclass
class StandInDecisions:
    """The counts of decisions, which a test sets."""

    rejections: int = 0
    """How many of the newest decisions are rejections, without another between them."""
    decisions: int = 100
    """How many there are, and so the id of the newest."""

    def count_consecutive_rejections(self, session: Session, after: int = 0) -> int:
        return max(0, min(self.rejections, self.decisions - after))

    def find_newest_id(self, session: Session) -> int:
        return self.decisions

    def count_decided_cards(self, session: Session) -> int:
        return self.decisions


@dataclass
class Rails:
    """A whole `Safety`, and what it was made of."""

    safety: Safety
    database: Database
    clock: FakeClock
    settings: MutableSettings
    decisions: StandInDecisions
    data: Path
    """The data folder, in which a stop file may be."""
    stopped: list[str] = field(default_factory=list)
    """The reasons with which sessions were stopped."""
    cannot_stop: bool = False
    """Whether the processes of sessions cannot be reached."""
    quiet: bool = False
    """Whether these are quiet hours."""

    @property
    def kill_switch(self) -> KillSwitch:
        return self.safety.kill_switch

    @property
    def costs(self) -> Costs:
        return self.safety.costs

    def stop_sessions(self, reason: str):
        if self.cannot_stop:
            raise OSError("a process could not be reached")
        self.stopped.append(reason)

    def list_hold_words(self) -> list[str]:
        return [hold.word for hold in self.kill_switch.list_holds()]

    def decide(self, trigger: Trigger) -> Ruling:
        return self.write(self.safety.pipeline.decide, trigger)

    def find_blocking_rule(self) -> str:
        """RAIL:RULE that blocks an approval; "" if none does."""
        ruling = self.decide(make_approval())
        return "" if ruling.blocked_by is None else f"{ruling.blocked_by.rail}:{ruling.blocked_by.rule}"

    def write(self, method: Callable[..., Any], *arguments: object) -> Any:
        """The result of a method that is called with a transaction before its arguments."""
        return self.database.write(lambda tx: method(tx, *arguments))

    def know_pairs(self, *pairs: tuple[str, str]):
        """Store for each pair of channels a trigger that passed long ago."""
        for from_channel, channel in pairs:
            row = CrosspollLog(
                prediction_id="old", trigger_type="manual", target_channel=channel, prompt="",
                created_at=self.clock.now(),
                verdicts=(), workspace=WORKSPACE, digest="", from_channel=from_channel, decided_by="operator",
                unattended=False,
            )  # fmt: skip
            self.database.write(lambda tx, row=row: tx.session.add(row))


def make_acting_settings() -> Settings:
    """Settings under which the engine may act by itself."""
    return Settings(
        autonomous_mode_enabled=True, workspaces={WORKSPACE: WorkspaceSettings(autonomy=WorkspaceAutonomy.ACT)}
    )


def make_rails(database: Database, clock: FakeClock, data: Path, **hooks: Any) -> Rails:
    """Rails under which the engine may act by itself; `hooks` replace fields of `Hooks`."""
    settings, decisions = MutableSettings(make_acting_settings()), StandInDecisions()
    rails: Rails
    stated = {
        "stop_sessions": lambda reason: rails.stop_sessions(reason), "find_agent_budget": lambda agent: None,
        "find_quiet_reason": lambda: "quiet hours" if rails.quiet else "",
        "is_confined": lambda: True, "on_change": lambda: None, "data_parameters": lambda flow: frozenset(),
    }  # fmt: skip
    safety = Safety(
        database, settings, clock, Randomness(7), data=data, decisions=decisions, hooks=Hooks(**stated | hooks)
    )
    rails = Rails(safety, database, clock, settings, decisions, data)
    return rails


def make_approval(prompt: str = "run the tests", **changes: Any) -> Trigger:
    """An operator's approval of a flow on koji-core, with changes of the trigger's fields."""
    trigger = Trigger(
        prediction_id="pred_1",
        type=TriggerType.MANUAL,
        assignment=Assignment(prompt, "koji-core", WORKSPACE, "flow", "run_tests"),
        agent="backend_builder",
        confidence=0.4,
        estimate=50_000,
        decided_by=DecidedBy.OPERATOR,
    )
    return replace(trigger, **changes)


def make_unattended(**changes: Any) -> Trigger:
    """A trigger of the same by the engine itself; no rail has anything against it."""
    return replace(
        make_approval(),
        **{
            "type": TriggerType.AUTONOMOUS, "decided_by": DecidedBy.AUTONOMY, "confidence": 0.95, "phase": 1,
            "approval_bound": 0.9, "from_channel": "research", **changes,
        },
    )  # fmt: skip


def move_to_channel(channel: str, trigger: Trigger) -> Trigger:
    """The same trigger on another channel."""
    return replace(trigger, assignment=replace(trigger.assignment, channel=channel))


def make_ended_session(
    prediction_id: str, cost: int, *, started: bool = True, state: SessionState = SessionState.SUCCEEDED
) -> SessionView:
    """A session of this card that has ended. `started`: its runner began."""
    view = make_session_view(id="auto_1", prediction_id=prediction_id, state=state, cost=cost, summary="done")
    return view if started else replace(view, started_at=None)


def start_session(rails: Rails):
    """Start session `auto_1` of card `pred_1` for which 50,000 micro-dollars are reserved."""
    rails.decide(make_approval(estimate=50_000))
    rails.write(rails.costs.session_started, make_ended_session("pred_1", 0))
