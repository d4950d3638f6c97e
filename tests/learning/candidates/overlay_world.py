"""Overlays, trials and the part of prompts over a real database."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import timedelta

from engine.clock import FakeClock
from engine.config import AdaptationSettings, FixedSettings, Settings
from engine.events import ChangeSetDiscarded, ChangeSetLanded, SessionEnded, ToolsUsed
from engine.learning.candidates.candidates import add_candidate, decide_candidate, find_candidate
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.model import Contribution, PromptRequest
from engine.model.adaptation import Candidate, CandidateMove, CandidateStatus, Effect, Overlay, PromptFragment
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger

FLOW_NAMES = ("run_tests", "lint")


@dataclass
class OverlayWorld:
    """The services. `settings` may be replaced."""

    database: Database
    clock: FakeClock
    settings: FixedSettings = field(default_factory=FixedSettings)

    def __post_init__(self) -> None:
        self.numbers = itertools.count()
        self.overlays = Overlays(self.database)
        self.ledger = Ledger(self.database)
        self.trials = Trials(self.database, self.overlays, self, ledger=self.ledger)
        self.fragments = LearnedGuidance(self.overlays, self.trials, self)

    @property
    def current(self) -> Settings:
        return self.settings.current

    def adapt(self, **settings: object) -> None:
        self.settings = FixedSettings(Settings(adaptation=AdaptationSettings.model_validate(settings)))

    def candidate(
        self, effect: Effect, *, agent: str = "", run_kind: str = "", workspace: str = "", id: str = ""
    ) -> Candidate:
        id = id or f"cand_{next(self.numbers)}"
        return Candidate(
            id=id,
            type=effect.kind,
            scope_type="agent",
            scope_id=agent,
            source_label=f"failed_tdd/{id}",
            title="a title",
            status=CandidateStatus.ACTIVE,
            score=80.0,
            effect=effect,
            created_at=self.clock.now(),
            changed_at=self.clock.now(),
            agent_id=agent,
            run_kind=run_kind,
            workspace=workspace,
        )

    def promote(self, candidate: Candidate) -> Overlay:
        """Activate a candidate, also one that was rolled back."""

        def activate(tx: Transaction) -> Overlay:
            row = add_candidate(tx, candidate, "drafted")
            if row.status == CandidateStatus.DRAFTED:
                row.status = CandidateStatus.REVIEW.value
            decide_candidate(tx, row, CandidateMove.APPROVE, "operator", "", FLOW_NAMES)
            return row.overlays[0]

        return self.database.write(activate)

    def activate_effect(self, effect: Effect, **scope: str) -> Overlay:
        """Activate an effect; the next one is a second newer."""
        overlay = self.promote(self.candidate(effect, **scope))
        self.clock.advance(timedelta(seconds=1))
        return overlay

    def guide(self, *lines: str, **scope: str) -> Overlay:
        return self.activate_effect(PromptFragment(lines or ("Keep it small.",)), **scope)

    def roll_back(self, candidate_id: str) -> None:
        self.database.write(
            lambda tx: decide_candidate(
                tx, find_candidate(tx.session, candidate_id), CandidateMove.ROLL_BACK, "operator", ""
            )
        )

    def part(
        self, session: str = "", *, agent: str = "cto", run_kind: str = "task", workspace: str = ""
    ) -> Contribution:
        return self.fragments.part(PromptRequest(agent, "koji-core", workspace, "do it", run_kind, session_id=session))

    def run(self, session: str, *, good: bool = True, landed: bool | None = None) -> None:
        """A session whose prompt is sent, and which ends."""
        provenance = self.part(session).provenance
        self.database.write(
            lambda tx: self.trials.record_applied(tx, provenance, session_id=session, agent="cto", workspace="")
        )
        self.end(session, good=good, landed=landed)

    def end(self, session: str, *, good: bool = True, landed: bool | None = None) -> None:
        state = "succeeded" if good else "failed"
        events = [
            ToolsUsed(subject=session, workspace="", agent="cto", calls=("read",)),
            SessionEnded(subject=session, workspace="", prediction_id="", state=state, summary="", cost=0),
        ]
        if landed is not None:
            kind = ChangeSetLanded if landed else ChangeSetDiscarded
            events.append(kind(subject="chg", workspace="", session_id=session, **({"files": 1} if landed else {})))
        self.database.write(lambda tx: [tx.record(event) for event in events])

    def event_kinds(self) -> list[str]:
        return [entry.kind for entry in reversed(self.ledger.latest(500))]
