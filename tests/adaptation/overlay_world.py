"""Overlays, trials and the part of prompts over a real database."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from engine.adaptation.fragments import LearnedGuidance
from engine.adaptation.overlays import Overlays
from engine.adaptation.trials import Trials
from engine.clock import FakeClock
from engine.config import AdaptationSettings, FixedSettings, Settings
from engine.events import ChangeSetDiscarded, ChangeSetLanded, SessionEnded, ToolsUsed
from engine.memory.ledger import Ledger
from engine.storage.database import Database
from engine.values import Contribution, PromptRequest, Randomness
from engine.values.adaptation import Candidate, CandidateStatus, Effect, Overlay, PromptFragment

OWN_FLOWS = ("run_tests", "lint")


class Now:
    """How things are done where no overlay says otherwise."""

    fragments: LearnedGuidance

    def guidance(self, overlays: Sequence[Overlay]) -> tuple[str, ...]:
        return self.fragments.lines(overlays)

    def model(self, hint: tuple[str, str] | None, agent: str, channel: str, run_kind: str) -> str:
        return f"{hint[0]} ({hint[1]})" if hint else "openai:gpt-6-luna (tools.json)"

    def caps(self) -> tuple[int, int]:
        return 3, 500_000

    def flows(self) -> Sequence[str]:
        return OWN_FLOWS


@dataclass
class World:
    """The services; `settings` may be replaced, they ask it each time."""

    database: Database
    clock: FakeClock
    settings: FixedSettings = field(default_factory=FixedSettings)

    def __post_init__(self) -> None:
        now = Now()
        self.numbers = itertools.count()
        self.overlays = Overlays(self.database, Randomness(7), present=now, flows=lambda: OWN_FLOWS)
        self.ledger = Ledger(self.database)
        self.trials = Trials(self.database, self.overlays, self, facts=self.ledger)
        self.fragments = now.fragments = LearnedGuidance(self.overlays, self.trials, self)

    @property
    def current(self) -> Settings:
        return self.settings.current

    def adapt(self, **settings: object) -> None:
        self.settings = FixedSettings(Settings(adaptation=AdaptationSettings.model_validate(settings)))

    def candidate(
        self, effect: Effect, *, agent: str = "", run_kind: str = "", workspace: str = "", id: str = ""
    ) -> Candidate:
        return Candidate(
            id=id or f"cand_{next(self.numbers)}",
            type=effect.kind,
            scope_type="agent",
            scope_id=agent,
            source_label="failed_tdd",
            title="a title",
            status=CandidateStatus.PROMOTED,
            score=80.0,
            effect=effect,
            created_at=self.clock.now(),
            changed_at=self.clock.now(),
            agent_id=agent,
            run_kind=run_kind,
            workspace=workspace,
        )

    def put(self, effect: Effect, **where: str) -> Overlay:
        """In force from now on, and a second goes by: what comes later is newer."""
        candidate = self.candidate(effect, **where)
        overlay = self.database.write(lambda tx: self.overlays.put(tx, candidate, tx.now))
        self.clock.advance(timedelta(seconds=1))
        return overlay

    def guide(self, *lines: str, **where: str) -> Overlay:
        return self.put(PromptFragment(lines or ("Keep it small.",)), **where)

    def withdraw(self, overlay: Overlay) -> None:
        self.database.write(lambda tx: self.overlays.withdraw(tx, overlay.candidate_id, tx.now))

    def part(
        self, session: str = "", *, agent: str = "cto", run_kind: str = "task", workspace: str = ""
    ) -> Contribution:
        return self.fragments.part(PromptRequest(agent, "koji-core", workspace, "do it", run_kind, session_id=session))

    def run(self, session: str, *, good: bool = True, landed: bool | None = None) -> None:
        """A session whose prompt is made and sent, and which ends."""
        told = self.part(session).provenance
        self.database.write(lambda tx: self.trials.applied(tx, told, session_id=session, agent="cto", workspace=""))
        self.end(session, good=good, landed=landed)

    def end(self, session: str, *, good: bool = True, landed: bool | None = None) -> None:
        state = "succeeded" if good else "failed"
        facts = [
            ToolsUsed(subject=session, workspace="", agent="cto", calls=("read",)),
            SessionEnded(subject=session, workspace="", prediction_id="", state=state, summary="", cost=0),
        ]
        if landed is not None:
            kind = ChangeSetLanded if landed else ChangeSetDiscarded
            facts.append(kind(subject="chg", workspace="", session_id=session, **({"files": 1} if landed else {})))
        self.database.write(lambda tx: [tx.record(fact) for fact in facts])

    def kinds(self) -> list[str]:
        return [entry.kind for entry in reversed(self.ledger.latest(500))]
