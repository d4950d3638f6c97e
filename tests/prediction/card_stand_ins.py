"""What cards need of rails, sessions, change sets and calibration, as values that a test sets."""

from dataclasses import replace
from datetime import timedelta

from engine.clock import FakeClock
from engine.model import (
    Assignment,
    CalibrationCheck,
    Permit,
    RailVerdict,
    Refusal,
    Ruling,
    RunnerInfo,
    SessionState,
    SessionView,
    Trigger,
    Verdict,
)
from engine.prediction.approvals import link_session
from engine.prediction.card_store import CardStore
from engine.storage.database import Database, Transaction
from tests.prediction.builders import make_session


class IdentityCalibrator:
    """Passes every confidence through as it is, and never says that it is calibrated."""

    def calibrate(self, kind: str, score: float) -> float:
        return score

    def check(self) -> CalibrationCheck:
        return CalibrationCheck(held_out=0, is_calibrated=False, reason="confidence is not calibrated yet")


class StandInRails:
    """Rails that let everything pass except prompts with `forbidden`, which they block, and with `risky`, about which
    they ask until the operator acknowledged it."""

    def __init__(self):
        self.permits_by_card: dict[str, Permit] = {}
        """The permits that were not revoked, by card."""
        self.triggers: list[Trigger] = []
        """The requests so far."""
        self.revoked: list[str] = []
        """The cards whose permits were revoked."""
        self.held_back: list[Assignment] = []
        self.allowed_once: set[str] = set()
        """The digests of the work that the operator allowed once."""

    def preview(self, trigger: Trigger) -> tuple[RailVerdict, ...]:
        verdict = self._check_content(trigger)
        if verdict.verdict is Verdict.BLOCK and trigger.assignment.digest in self.allowed_once:
            verdict = replace(verdict, verdict=Verdict.ASK)
        return (verdict, RailVerdict("gate", Verdict.ASK, ""))

    def decide(self, transaction: Transaction, trigger: Trigger) -> Ruling:
        self.triggers.append(trigger)
        verdict = self._check_content(trigger)
        if verdict.verdict is Verdict.ASK and trigger.acknowledged_digest == trigger.assignment.digest:
            verdict = replace(verdict, verdict=Verdict.ALLOW)
        if verdict.verdict is not Verdict.ALLOW:
            return Ruling((verdict,), None, verdict)
        now = transaction.now
        permit = Permit(
            f"permit_{len(self.triggers)}", trigger.prediction_id, trigger.assignment.digest, trigger.type, now,
            now + timedelta(minutes=15),
        )  # fmt: skip
        self.permits_by_card[trigger.prediction_id] = permit
        return Ruling((verdict,), permit, None)

    def hold_back(self, transaction: Transaction, prediction_id: str, assignment: Assignment, *verdicts: object):
        self.held_back.append(assignment)

    def revoke(self, transaction: Transaction, prediction_id: str):
        self.permits_by_card.pop(prediction_id, None)
        self.revoked.append(prediction_id)

    def _check_content(self, trigger: Trigger) -> RailVerdict:
        prompt = trigger.assignment.prompt
        if "forbidden" in prompt:
            return RailVerdict("content", Verdict.BLOCK, "it is forbidden", "rule")
        if "risky" in prompt:
            return RailVerdict("content", Verdict.ASK, "it is risky", "rule")
        return RailVerdict("content", Verdict.ALLOW, "harmless")


class StandInSessions:
    """Starts sessions that run until the test ends them."""

    def __init__(self, database: Database, clock: FakeClock):
        self._database = database
        self._clock = clock
        self.card_store: CardStore
        self.views: dict[str, SessionView] = {}
        """The latest session of each card."""
        self.started: list[tuple[Permit, Assignment, str]] = []
        """The permit, the work and the mode of each session."""
        self.is_full = False
        """Whether new sessions are queued."""
        self.cannot_start = False
        """Whether no session can start."""
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

    def find_of_card(self, prediction_id: str) -> SessionView | None:
        return self.views.get(prediction_id)

    def get(self, session_id: str) -> SessionView:
        for view in self.views.values():
            if view.id == session_id:
                return view
        raise Refusal("unknown_session", f"there is no session {session_id}")

    def stop(self, session_id: str, reason: str):
        self.end(self.get(session_id).prediction_id, SessionState.CANCELLED)

    def end(self, card_id: str, state: SessionState = SessionState.SUCCEEDED, error: str = ""):
        """End the session of a card."""
        running = self.views[card_id]
        ended = replace(running, state=state, error=error or running.error, ended_at=self._clock.now())
        self.views[card_id] = ended
        self._database.write(lambda tx: self.card_store.session_ended(tx, ended))

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        return assignment, ""

    def check(self, assignment: Assignment) -> RunnerInfo:
        if self.text_executor:
            return RunnerInfo(
                available=True, executor=self.text_executor, hosts=("api.example.com",), estimate=self.estimate
            )
        if assignment.flow is None:
            return RunnerInfo(available=False, reason=f"no runner {assignment.runner!r} takes prose")
        return RunnerInfo(available=True, estimate=0, undo_note="nothing to undo")

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        if edit == "{}":
            return assignment
        key, separator, value = edit.partition("=")
        if not separator:
            raise Refusal("bad_parameters", f"{edit!r} is not key=value", "for example paths=src")
        return replace(assignment, prompt=f"{assignment.flow} {edit}", parameters={key: value})
