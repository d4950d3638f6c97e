"""Helpers of the tests of the rails: triggers, decisions that a test sets, and a whole `Safety`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlmodel import Session

from engine.clock import FakeClock
from engine.config import Settings, WorkspaceAutonomy, WorkspaceSettings
from engine.model import Assignment, DecidedBy, Randomness, Ruling, Trigger, TriggerType
from engine.safety.costs import Costs
from engine.safety.kill_switch import KillSwitch
from engine.safety.safety import Hooks, Safety
from engine.storage.database import Database

WORKSPACE = "/srv/shop"


@dataclass
class MutableSettings:
    """Settings that a test may exchange."""

    current: Settings

    def change(self, **values: Any) -> None:
        self.current = self.current.model_copy(update=values)


@dataclass
class StandInDecisions:
    """Decisions that a test sets."""

    rejections: int = 0
    """In a row, the newest decisions."""
    decisions: int = 100

    def consecutive_rejections(self, session: Session, after: int = 0) -> int:
        return max(0, min(self.rejections, self.decisions - after))

    def newest_id(self, session: Session) -> int:
        return self.decisions

    def count_all(self, session: Session) -> int:
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
    stopped: list[str] = field(default_factory=list)
    quiet: bool = False

    @property
    def switch(self) -> KillSwitch:
        return self.safety.kill_switch

    @property
    def costs(self) -> Costs:
        return self.safety.costs

    def hold_words(self) -> list[str]:
        return [hold.word for hold in self.switch.holds()]

    def decide(self, trigger: Trigger) -> Ruling:
        return self.write(self.safety.pipeline.decide, trigger)

    def write(self, method: Callable[..., Any], *arguments: object) -> Any:
        """The result of a method that is called in a transaction, which comes before its arguments."""
        return self.database.write(lambda tx: method(tx, *arguments))

    def know_pairs(self, *pairs: tuple[str, str]) -> None:
        """Store a trigger of each pair of channels that passed long ago."""
        from engine.safety.pipeline import CrosspollLog

        for from_channel, channel in pairs:
            row = CrosspollLog(
                prediction_id="old", trigger_type="manual", target_channel=channel, prompt="",
                created_at=self.clock.now(),
                verdicts=(), workspace=WORKSPACE, digest="", from_channel=from_channel, decided_by="operator",
                unattended=False,
            )  # fmt: skip
            self.database.write(lambda tx, row=row: tx.session.add(row))


def acting() -> Settings:
    """Settings under which the engine may act by itself."""
    return Settings(
        autonomous_mode_enabled=True, workspaces={WORKSPACE: WorkspaceSettings(autonomy=WorkspaceAutonomy.ACT)}
    )


def make_rails(database: Database, clock: FakeClock, data: Path, **hooks: Any) -> Rails:
    settings, decisions = MutableSettings(acting()), StandInDecisions()
    stopped: list[str] = []
    box: list[Rails] = []
    stop: Callable[[str], object] = hooks.pop("stop_sessions", stopped.append)
    safety = Safety(
        database, settings, clock, Randomness(7), data=data, decisions=decisions,
        hooks=Hooks(stop_sessions=stop, quiet=lambda: box[0].quiet, **hooks),
    )  # fmt: skip
    box.append(Rails(safety, database, clock, settings, decisions, data, stopped))
    return box[0]


def approval(prompt: str = "run the tests", **changes: Any) -> Trigger:
    """An operator's approval of a flow on koji-core."""
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


def unattended(prompt: str = "run the tests", **changes: Any) -> Trigger:
    """The same by the engine itself, with nothing against it."""
    return replace(
        approval(prompt),
        **{
            "type": TriggerType.AUTONOMOUS, "decided_by": DecidedBy.AUTONOMY, "confidence": 0.95, "phase": 1,
            "approval_bound": 0.9, "from_channel": "research", **changes,
        },
    )  # fmt: skip


def on(channel: str, trigger: Trigger) -> Trigger:
    """The same trigger on another channel."""
    return replace(trigger, assignment=replace(trigger.assignment, channel=channel))
