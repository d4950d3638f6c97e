"""Cards on a real database, with the real store, cycle, router and Twin. The rails issue permits by the words of a
prompt, a test ends the sessions, and it says what templates propose."""

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
from engine.prediction.cards import Cards
from engine.prediction.context import WorkspaceContext
from engine.prediction.cycle import CardCycle, RoundSources
from engine.prediction.routing import Route, Router
from engine.prediction.twin import Calibrator, EmbeddedTwin
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from tests.prediction.sensing import make_session

SHOP = "/shop"
"""The workspace of cards."""


class IdentityCalibrator:
    """Passes every confidence through as it is, and never says that it is calibrated."""

    def calibrate(self, kind: str, score: float) -> float:
        return score

    def check(self) -> CalibrationCheck:
        return CalibrationCheck(held_out=0, is_calibrated=False, reason="confidence is not calibrated yet")


WITHOUT_QUIET_HOURS = Settings(quiet_hours_start=0, quiet_hours_end=0)
"""Settings with which cards expire after 24 hours by the clock."""


class SimpleRails:
    """Rails that let everything pass except prompts with `forbidden`, which they block, and with `risky`, about which
    they ask until the operator acknowledged it."""

    def __init__(self) -> None:
        self.permits_by_card: dict[str, Permit] = {}
        """The permits that were not revoked, by card."""
        self.triggers: list[Trigger] = []
        """The requests so far."""
        self.revoked: list[str] = []
        """The cards whose permits were revoked."""
        self.held_back: list[Assignment] = []
        self.allowed_once: set[str] = set()
        """The digests of the work that the operator allowed once."""
        self.is_novel_pair = False
        """Whether the pair of channels never ran before."""
        self.is_stopped = False
        """Whether the kill switch stops everything."""

    def preview(self, trigger: Trigger) -> tuple[RailVerdict, ...]:
        verdict = self._check_content(trigger)
        if verdict.verdict is Verdict.BLOCK and trigger.assignment.digest in self.allowed_once:
            verdict = replace(verdict, verdict=Verdict.ASK)
        return (verdict, RailVerdict("gate", Verdict.ASK, "", "novel-pair" if self.is_novel_pair else ""))

    def decide(self, transaction: Transaction, trigger: Trigger) -> Ruling:
        self.triggers.append(trigger)
        verdict = self._check_content(trigger)
        if verdict.verdict is Verdict.ASK and trigger.acknowledged_digest == trigger.assignment.digest:
            verdict = replace(verdict, verdict=Verdict.ALLOW)
        if self.is_stopped:
            verdict = RailVerdict("kill", Verdict.BLOCK, "stop: lunch")
        if verdict.verdict is not Verdict.ALLOW:
            return Ruling((verdict,), None, verdict)
        now = transaction.now
        permit = Permit(
            f"permit_{len(self.triggers)}", trigger.prediction_id, trigger.assignment.digest, trigger.type, now,
            now + timedelta(minutes=15),
        )  # fmt: skip
        self.permits_by_card[trigger.prediction_id] = permit
        return Ruling((verdict,), permit, None)

    def hold_back(
        self, transaction: Transaction, prediction_id: str, assignment: Assignment, *verdicts: object
    ) -> None:
        self.held_back.append(assignment)

    def revoke(self, transaction: Transaction, prediction_id: str) -> None:
        self.permits_by_card.pop(prediction_id, None)
        self.revoked.append(prediction_id)

    def _check_content(self, trigger: Trigger) -> RailVerdict:
        prompt = trigger.assignment.prompt
        if "forbidden" in prompt:
            return RailVerdict("content", Verdict.BLOCK, "it is forbidden", "rule")
        if "risky" in prompt:
            return RailVerdict("content", Verdict.ASK, "it is risky", "rule")
        return RailVerdict("content", Verdict.ALLOW, "harmless")


class FakeSessions:
    """Starts sessions that run until the test ends them."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        self._database = database
        self._clock = clock
        self.cards: Cards
        self.views: dict[str, SessionView] = {}
        """The latest session of each card."""
        self.started: list[tuple[Permit, Assignment, str]] = []
        """The permit, the work and the mode of each session."""
        self.is_full = False
        """Whether new sessions are queued."""
        self.cannot_start = False
        """Whether no session can start."""
        self.choose_other: Callable[[Assignment], tuple[Assignment, str]] | None = None
        """Chooses another runner for work, with the reason."""
        self.text_executor = ""
        """The agent or model that takes text prompts, "" for none."""
        self.estimate = 50_000
        """The estimated cost of a session of that runner in micro-dollars."""

    def start(
        self, permit: Permit, assignment: Assignment, *, agent: str, mode: str, estimate: int, without_sandbox: bool
    ) -> SessionView:
        assert permit.digest == assignment.digest
        if self.cannot_start:
            raise Refusal("permit_used", "the permit was used already")
        self.started.append((permit, assignment, mode))
        now = self._clock.now()
        view = make_session(
            assignment.flow, SessionState.QUEUED if self.is_full else SessionState.RUNNING,
            id=f"session_{len(self.started)}", prediction_id=permit.prediction_id, prompt=assignment.prompt,
            workspace=assignment.workspace, channel=assignment.channel, agent=agent, runner=assignment.runner,
            mode=mode, cwd=assignment.workspace, created_at=now,
            started_at=None if self.is_full else now, ended_at=None,
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
        """End the session of a card."""
        running = self.views[card_id]
        ended = replace(running, state=state, error=error or running.error, ended_at=self._clock.now())
        self.views[card_id] = ended
        self._database.write(lambda tx: self.cards.session_ended(tx, ended))

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        return self.choose_other(assignment) if self.choose_other else (assignment, "")

    def check(self, assignment: Assignment) -> RunnerInfo:
        if self.text_executor:
            return RunnerInfo(True, executor=self.text_executor, hosts=("api.example.com",), estimate=self.estimate)
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


class FakeLandings:
    """Sessions whose change sets are landed."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.number_left = 0

    def reverse(self, session_id: str) -> int | None:
        """Undo a landing of a session. Returns how many are left, None if it has none."""
        is_landed = session_id in self.sessions
        if self.number_left == 0:
            self.sessions.discard(session_id)
        return self.number_left if is_landed else None


def make_proposal(name: str = "a", *, kind: str = "run_tests", workspace: str = SHOP, **fields: Any) -> Proposal:
    """A proposal about `name`, with these other fields."""
    defaults: dict[str, Any] = {
        "prompt": f"run the tests of {name}",
        "reasoning": f"{name} changed",
        "subject": name,
        "facts": {"name": name},
        "flow": kind,
        "parameters": {"paths": [name]},
        "channel": "koji-core",
        "signals": (Signal("git", 1.0, 0.5, (name,)),),
    }
    return Proposal(kind=kind, workspace=workspace, **(defaults | fields))


@dataclass
class World:
    """Everything that a test of cards works with."""

    database: Database
    clock: FakeClock
    settings: Settings = WITHOUT_QUIET_HOURS
    proposals: list[Proposal] = field(default_factory=list)
    """What templates propose in the next cycle."""
    stop_reason: str = ""
    """Why the engine is stopped, "" if it is not."""
    git_state: GitState | None = field(default_factory=GitState)
    """The state of the repositories, None if git cannot be read."""
    context_errors: tuple[str, ...] = ()
    """The errors of the contexts."""
    calibrator: Calibrator | None = None
    placer: Callable[[str, str], Route] = lambda prompt, channel: Route(channel)
    randomness: Randomness = field(default_factory=lambda: Randomness(1))
    template_errors: tuple[Exception, ...] = ()
    """The errors of templates in the next cycle."""
    deleted_workspaces: tuple[str, ...] = ()
    """The workspaces that are gone from the disk."""

    def __post_init__(self) -> None:
        self.rails = SimpleRails()
        self.sessions = FakeSessions(self.database, self.clock)
        self.landings = FakeLandings()
        self.decisions = Decisions(self.database, self.clock)
        self.twin = EmbeddedTwin(self.decisions, calibrator=self.calibrator or IdentityCalibrator())
        self.workspaces = [SHOP]
        settings = FixedSettings(self.settings)
        router = Router(settings, self.clock, self.randomness, self.placer)
        self.store = CardStore(
            self.database, self.clock, settings, safety=self._make_safety(), decisions=self.decisions,
            ledger=Ledger(self.database), workspace_refusal=self._find_workspace_refusal,
        )  # fmt: skip
        approvals = Approvals(self.store, self.sessions, self.twin, flows=["run_tests"])  # type: ignore[arg-type]
        self.card_cycle = CardCycle(
            self.store,
            approvals,
            router,
            self.twin,
            self.randomness,
            RoundSources(
                prepare=lambda: None,
                contexts=self._make_contexts,
                note_activity=lambda workspace, at: None,
                workspaces=lambda: self.workspaces,
                propose=self._propose,
            ),
        )
        self.cards = self.sessions.cards = Cards(
            self.store, approvals, self.card_cycle, router, self.randomness, reverse=self.landings.reverse
        )

    def _find_workspace_refusal(self, workspace: str) -> Refusal | None:
        """Why a workspace is gone, for `deleted_workspaces`."""
        is_deleted = workspace in self.deleted_workspaces
        return Refusal("no_folder", f"{workspace} is not a folder") if is_deleted else None

    def _make_safety(self) -> Any:
        """The simple rails, and a kill switch with `stop_reason`."""
        kill_switch = SimpleNamespace(stop_reason=lambda: self.stop_reason, pause_after_rejections=lambda tx: None)
        return SimpleNamespace(pipeline=self.rails, kill_switch=kill_switch)

    def _propose(self, context: WorkspaceContext, failed: list[Exception]) -> list[Proposal]:
        failed.extend(self.template_errors)
        return [proposed for proposed in self.proposals if proposed.workspace == context.workspace]

    def _make_contexts(self, workspaces: Sequence[str]) -> list[WorkspaceContext]:
        """The contexts of these workspaces."""
        return [
            WorkspaceContext(
                name, self.clock.now(), self.clock.local(), git=self.git_state, errors=self.context_errors,
                signals=(Signal("git", 0.1, 0.5, ("1 uncommitted file",)),),
            )
            for name in workspaces
        ]  # fmt: skip

    def run_cycle(self, *proposals: Proposal) -> list[Card]:
        """Run a cycle in which templates propose exactly these; returns the cards that it made."""
        self.proposals = list(proposals)
        return list(self.card_cycle.run_cycle().created)

    def make_card(self, name: str = "a", **fields: Any) -> Card:
        """Make a card about `name`, with these fields of its proposal."""
        (card,) = self.run_cycle(make_proposal(name, **fields))
        return card

    def start_card(self, name: str = "a", by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Make and approve a card, whose session runs then."""
        return self.cards.approve(self.make_card(name).id, by=by)

    def finish_card(self, name: str = "a", by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Make and approve a card, and let its session succeed."""
        card = self.start_card(name, by)
        self.sessions.end(card.id)
        return card

    def propose(self, text: str, **arguments: Any) -> Card:
        """A card of a prompt, in `SHOP` unless `arguments` name another workspace."""
        return self.cards.propose(text, **({"workspace": SHOP} | arguments))

    def record_and_follow(self, *events: Event) -> list[str]:
        """Record these events of change sets. Returns the signals that count then."""
        for event in events:
            self.database.write(lambda tx, event=event: tx.record(event))
        self.cards.follow_landings()
        return self.signals()

    def signals(self) -> list[str]:
        """The signals that count, oldest first."""
        return [decision.signal for decision in reversed(self.decisions.load_newest())]


def refusal_code(call: object, *arguments: object, **named: object) -> str:
    """The code of the refusal that a call raises."""
    with pytest.raises(Refusal) as refused:
        call(*arguments, **named)  # type: ignore[operator]
    return refused.value.code


def teach(world: World, count: int, signal: DecisionSignal = DecisionSignal.APPROVED, kind: str = "run_tests") -> None:
    """Record this many earlier decisions of the operator on cards of a kind."""
    for number in range(count):
        card = DecidedCard(
            f"past_{signal}_{number}", kind, "koji-core", SHOP, kind, "run the tests", 0.4, DecidedBy.OPERATOR
        )
        world.database.write(lambda tx, card=card: world.decisions.record(tx, signal, card))
