"""A small real world around cards: rails that issue permits, a launcher that keeps sessions, everything in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.config import FixedSettings, Settings
from engine.events import Event
from engine.git.state import GitState
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    Assignment,
    CalibrationCheck,
    Card,
    DecidedBy,
    DecidedCard,
    DecisionSignal,
    Permit,
    Proposal,
    RailVerdict,
    Randomness,
    Refusal,
    Ruling,
    RunnerInfo,
    SessionState,
    SessionView,
    Signal,
    Trigger,
    Verdict,
)
from engine.prediction.approvals import Approvals, link_session
from engine.prediction.card_store import CardStore
from engine.prediction.cards import Cards, PromptCards
from engine.prediction.context import WorkspaceContext
from engine.prediction.cycle import CardCycle
from engine.prediction.routing import Route, Router
from engine.prediction.twin import Calibrator, EmbeddedTwin
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from tests.prediction.sensing import session

SHOP = "/shop"


class IdentityCalibrator:
    """Passes every confidence through as it is, and never claims to hold."""

    def calibrate(self, kind: str, score: float) -> float:
        return score

    def check(self) -> CalibrationCheck:
        return CalibrationCheck(held_out=0, holds=False, reason="confidence is not calibrated yet")


WITHOUT_QUIET_HOURS = Settings(quiet_hours_start=0, quiet_hours_end=0)


class SimpleRails:
    """Lets everything pass but prompts with `forbidden` (blocked) and `risky` (asks, until it was acknowledged)."""

    def __init__(self) -> None:
        self.open: dict[str, Permit] = {}
        self.ruled: list[Trigger] = []
        self.revoked: list[str] = []
        self.held_back: list[Assignment] = []
        self.allowed_once: set[str] = set()
        self.novel = False
        self.stopped = False

    def preview(self, trigger: Trigger) -> tuple[RailVerdict, ...]:
        return (self._content(trigger), RailVerdict("gate", Verdict.ASK, "", "novel-pair" if self.novel else ""))

    def decide(self, transaction: Transaction, trigger: Trigger) -> Ruling:
        self.ruled.append(trigger)
        verdict = self._content(trigger)
        if verdict.verdict is Verdict.ASK and trigger.acknowledged_digest == trigger.assignment.digest:
            verdict = replace(verdict, verdict=Verdict.ALLOW)
        if self.stopped:
            verdict = RailVerdict("kill", Verdict.BLOCK, "stop: lunch")
        if verdict.verdict is not Verdict.ALLOW:
            return Ruling((verdict,), None, verdict)
        now = transaction.now
        permit = Permit(
            f"permit_{len(self.ruled)}", trigger.prediction_id, trigger.assignment.digest, trigger.type, now,
            now + timedelta(minutes=15),
        )  # fmt: skip
        self.open[trigger.prediction_id] = permit
        return Ruling((verdict,), permit, None)

    def is_allowed_once(self, session: object, digest: str) -> bool:
        return digest in self.allowed_once

    def hold_back(
        self, transaction: Transaction, prediction_id: str, assignment: Assignment, *verdicts: object
    ) -> None:
        self.held_back.append(assignment)

    def revoke(self, transaction: Transaction, prediction_id: str) -> None:
        self.open.pop(prediction_id, None)
        self.revoked.append(prediction_id)

    def _content(self, trigger: Trigger) -> RailVerdict:
        prompt = trigger.assignment.prompt
        if "forbidden" in prompt:
            return RailVerdict("content", Verdict.BLOCK, "it is forbidden", "rule")
        if "risky" in prompt:
            return RailVerdict("content", Verdict.ASK, "it is risky", "rule")
        return RailVerdict("content", Verdict.ALLOW, "harmless")


class FakeSessions:
    """Starts sessions that run until the test ends them. `hold` queues them, `broken` refuses to start."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        self._database = database
        self._clock = clock
        self.cards: Cards
        self.views: dict[str, SessionView] = {}
        self.started: list[tuple[Permit, Assignment, str]] = []
        self.hold = False
        self.broken = False
        self.chooses: Callable[[Assignment], tuple[Assignment, str]] | None = None
        self.serves = ""
        self.estimate = 50_000

    def start(
        self, permit: Permit, assignment: Assignment, *, agent: str, mode: str, estimate: int, without_sandbox: bool
    ) -> SessionView:
        assert permit.digest == assignment.digest
        if self.broken:
            raise Refusal("permit_used", "the permit was used already")
        self.started.append((permit, assignment, mode))
        now = self._clock.now()
        view = session(
            assignment.flow, SessionState.QUEUED if self.hold else SessionState.RUNNING,
            id=f"session_{len(self.started)}", prediction_id=permit.prediction_id, prompt=assignment.prompt,
            workspace=assignment.workspace, channel=assignment.channel, agent=agent, runner=assignment.runner,
            mode=mode, cwd=assignment.workspace, created_at=now, started_at=None if self.hold else now, ended_at=None,
        )  # fmt: skip
        self.views[permit.prediction_id] = view
        self._database.write(lambda tx: link_session(tx, view))
        return view

    def of_card(self, prediction_id: str) -> SessionView | None:
        return self.views.get(prediction_id)

    def get(self, session_id: str) -> SessionView:
        for view in self.views.values():
            if view.id == session_id:
                return view
        raise Refusal("unknown_session", f"there is no session {session_id}")

    def stop(self, session_id: str, reason: str) -> None:
        card = next(view.prediction_id for view in self.views.values() if view.id == session_id)
        self.end(card, SessionState.CANCELLED)

    def end(self, card_id: str, state: SessionState = SessionState.SUCCEEDED, error: str = "") -> None:
        before = self.views[card_id]
        ended = replace(before, state=state, error=error or before.error, ended_at=self._clock.now())
        view = self.views[card_id] = ended
        self._database.write(lambda tx: self.cards.session_ended(tx, view))

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        return self.chooses(assignment) if self.chooses else (assignment, "")

    def check(self, assignment: Assignment) -> RunnerInfo:
        if self.serves:
            return RunnerInfo(True, executor=self.serves, hosts=("api.example.com",), estimate=self.estimate)
        if assignment.flow is None:
            return RunnerInfo(False, f"no runner {assignment.runner!r} takes prose")
        return RunnerInfo(True, estimate=0, undo_note="nothing to undo")

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        if edit == "{}":
            return assignment
        key, separator, value = edit.partition("=")
        if not separator:
            raise Refusal("bad_parameters", f"{edit!r} is not key=value", "for example paths=src")
        return replace(assignment, prompt=f"{assignment.flow} {edit}", parameters={key: value})


class Landed:
    """Sessions whose change sets are landed."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()

    def reverse(self, session_id: str) -> bool:
        landed = session_id in self.sessions
        self.sessions.discard(session_id)
        return landed


def proposal(name: str = "a", *, kind: str = "run_tests", workspace: str = SHOP, **more: Any) -> Proposal:
    """A proposal whose facts are `name`."""
    given: dict[str, Any] = {
        "prompt": f"run the tests of {name}",
        "reasoning": f"{name} changed",
        "subject": name,
        "facts": {"name": name},
        "flow": kind,
        "parameters": {"paths": [name]},
        "channel": "koji-core",
        "signals": (Signal("git", 1.0, 0.5, (name,)),),
    }
    return Proposal(kind=kind, workspace=workspace, **(given | more))


@dataclass
class World:
    """Everything that a test of cards works with; `proposals` are what the next cycle's templates propose."""

    database: Database
    clock: FakeClock
    settings: Settings = WITHOUT_QUIET_HOURS
    proposals: list[Proposal] = field(default_factory=list)
    stopped: str = ""
    state: GitState | None = field(default_factory=GitState)
    errors: tuple[str, ...] = ()
    calibrator: Calibrator | None = None
    place: Callable[[str, str], Route] = lambda prompt, channel: Route(channel)

    def __post_init__(self) -> None:
        self.rails = SimpleRails()
        self.sessions = FakeSessions(self.database, self.clock)
        self.landed = Landed()
        self.decisions = Decisions(self.database, self.clock)
        self.twin = EmbeddedTwin(self.decisions, calibrator=self.calibrator or IdentityCalibrator())
        self.workspaces = [SHOP]
        settings, randomness = FixedSettings(self.settings), Randomness(1)
        router = Router(settings, self.clock, randomness, self.place)
        self.store = CardStore(
            self.database, self.clock, settings, safety=self._safety(), decisions=self.decisions,
            ledger=Ledger(self.database), deleted=lambda workspace: False,
        )  # fmt: skip
        approvals = Approvals(self.store, self.sessions, self.twin, flows=["run_tests"])  # type: ignore[arg-type]
        self.card_cycle = CardCycle(
            self.store,
            approvals,
            router,
            self.twin,
            randomness,
            contexts=self.contexts,
            workspaces=lambda: self.workspaces,
            propose=lambda context, failed: [item for item in self.proposals if item.workspace == context.workspace],
        )
        self.cards = self.sessions.cards = Cards(
            self.store,
            approvals,
            PromptCards(self.store, approvals, self.card_cycle, router, randomness),
            reverse=self.landed.reverse,
        )

    def _safety(self) -> Any:
        """Rails that are simple, and a kill switch that is thrown while `stopped` says why."""
        kill_switch = SimpleNamespace(stop_reason=lambda: self.stopped, pause_after_rejections=lambda tx: None)
        return SimpleNamespace(pipeline=self.rails, kill_switch=kill_switch)

    def contexts(self, workspaces: Sequence[str]) -> list[WorkspaceContext]:
        return [
            WorkspaceContext(
                name, self.clock.now(), self.clock.local(), git=self.state, errors=self.errors,
                signals=(Signal("git", 0.1, 0.5, ("1 uncommitted file",)),),
            )
            for name in workspaces
        ]  # fmt: skip

    def cycle(self, *proposals: Proposal) -> list[Card]:
        """One cycle that finds exactly these; the cards it made."""
        self.proposals = list(proposals)
        return list(self.card_cycle.run_cycle().created)

    def card(self, name: str = "a", **more: Any) -> Card:
        """A card for one proposal."""
        (card,) = self.cycle(proposal(name, **more))
        return card

    def running(self, name: str = "a", by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """A card whose session runs."""
        return self.cards.approve(self.card(name).id, by=by)

    def finished(self, name: str = "a", by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """A card whose session succeeded."""
        card = self.running(name, by)
        self.sessions.end(card.id)
        return card

    def propose(self, text: str, **more: Any) -> Card:
        """A card of a prompt in the shop."""
        return self.cards.propose(text, **({"workspace": SHOP} | more))

    def follow(self, *events: Event) -> list[str]:
        """The standing signals after these events of change sets."""
        for event in events:
            self.database.write(lambda tx, event=event: tx.record(event))
        self.cards.follow_landings()
        return self.signals()

    def signals(self) -> list[str]:
        """The standing signals, oldest first."""
        return [view.signal for view in reversed(self.decisions.load_newest())]


def refusal(call: object, *arguments: object, **named: object) -> str:
    """The code of the refusal that a call meets."""
    with pytest.raises(Refusal) as refused:
        call(*arguments, **named)  # type: ignore[operator]
    return refused.value.code


def teach(
    world: World, decisions: int, signal: DecisionSignal = DecisionSignal.APPROVED, kind: str = "run_tests"
) -> None:
    """Record this many earlier decisions of the operator on cards of a kind."""
    for number in range(decisions):
        card = DecidedCard(
            f"past_{signal}_{number}", kind, "koji-core", SHOP, kind, "run the tests", 0.4, DecidedBy.OPERATOR
        )
        world.database.write(lambda tx, card=card: world.decisions.record(tx, signal, card))
