"""Overlays, their trials and the learned guidance of prompts on a real database, without adaptation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import timedelta

from engine.clock import FakeClock
from engine.config import AdaptationSettings, FixedSettings, Settings
from engine.events import SessionEnded, ToolsUsed
from engine.learning.candidates.candidates import add_candidate, decide_candidate, find_candidate
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.model import Contribution, PromptRequest
from engine.model.adaptation import Candidate, CandidateMove, CandidateStatus, Effect, Overlay, PromptFragment
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger

FLOW_NAMES = ("run_tests", "lint")
"""The built-in flows."""


@dataclass
class OverlayWorld:
    """The services. They read `settings`, which `adapt` replaces."""

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
        """Replace the settings of adaptation."""
        self.settings = FixedSettings(Settings(adaptation=AdaptationSettings.model_validate(settings)))

    def activate_effect(self, effect: Effect, *, agent: str = "", run_kind: str = "", workspace: str = "") -> Overlay:
        """Activate an effect in a scope; the next one is a second newer."""
        number = next(self.numbers)
        candidate = Candidate(
            id=f"cand_{number}",
            type=effect.kind,
            scope_type="agent",
            scope_id=agent,
            source_label=f"failed_tdd/{number}",
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

        def activate(tx: Transaction) -> Overlay:
            row = add_candidate(tx, candidate, "drafted")
            row.status = CandidateStatus.REVIEW
            decide_candidate(tx, row, CandidateMove.APPROVE, "operator", "", FLOW_NAMES)
            return row.overlays[0]

        overlay = self.database.write(activate)
        self.clock.advance(timedelta(seconds=1))
        return overlay

    def guide(self, *lines: str, **scope: str) -> Overlay:
        """Activate a fragment with these lines in a scope."""
        return self.activate_effect(PromptFragment(lines or ("Keep it small.",)), **scope)

    def roll_back(self, candidate_id: str) -> None:
        """Deactivate a candidate."""

        def deactivate(tx: Transaction) -> None:
            decide_candidate(tx, find_candidate(tx.session, candidate_id), CandidateMove.ROLL_BACK, "operator", "")

        self.database.write(deactivate)

    def part(
        self, session: str = "", *, agent: str = "cto", run_kind: str = "task", workspace: str = ""
    ) -> Contribution:
        """The learned guidance in a prompt of an agent."""
        return self.fragments.part(PromptRequest(agent, "koji-core", workspace, "do it", run_kind, session_id=session))

    def run(self, session: str, *, good: bool) -> None:
        """A session whose prompt is sent, and which ends well or badly."""
        provenance = self.part(session).provenance
        state = "succeeded" if good else "failed"

        def record_session(tx: Transaction) -> None:
            self.trials.record_applied(tx, provenance, session_id=session, agent="cto", workspace="")
            tx.record(ToolsUsed(subject=session, workspace="", agent="cto", calls=("read",)))
            tx.record(SessionEnded(subject=session, workspace="", prediction_id="", state=state, summary="", cost=0))

        self.database.write(record_session)

    def event_kinds(self) -> list[str]:
        """The kinds of all ledger entries, oldest first."""
        return [entry.kind for entry in reversed(self.ledger.latest(500))]
