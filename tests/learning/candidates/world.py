"""Adaptation on a real database and a real ledger. Events are those that the real producers record. The test supplies
the data of sessions and other packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from engine.clock import FakeClock
from engine.config import AdaptationMode, AdaptationSettings, Settings
from engine.events import (
    AgentErred,
    BudgetExceeded,
    Event,
    RetryRepeated,
    ToolsUsed,
    ValidationFailed,
    ValidationHealed,
)
from engine.learning.candidates.adaptation import Adaptation
from engine.learning.candidates.overlays import Overlays
from engine.learning.candidates.records import HealedTests, ModelsUsed
from engine.model import Bucket, ParaFact, Randomness, TranscriptLine, Trust
from engine.model.adaptation import Candidate, Lift, Overlay
from engine.model.learnings import Correction
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.conftest import MONDAY_MORNING

AGENT = "backend_builder"
SHOP = "/shop"
TOTAL = "tests/test_cart.py::test_total"
HEALED_BY = "total() left the discount out; it is subtracted now."


def correction(original: str, edited: str, *, session: str = "") -> Correction:
    """The operator's edit of a card's prompt."""
    return Correction(original, edited, AGENT, "fix", "koji-core", session)


def para_fact(fact: str, category: str = "preference", trust: Trust = Trust.QUOTED) -> ParaFact:
    """A fact that the operator keeps."""
    return ParaFact("fact_1", fact, category, "", "active", Bucket.AREAS, "", MONDAY_MORNING, trust=trust)


@dataclass
class FakeSources:
    """A `Sources` with the values that a test puts in."""

    corrections_by_card: dict[str, Correction] = field(default_factory=dict)
    facts: dict[str, ParaFact] = field(default_factory=dict)
    transcripts: dict[str, list[TranscriptLine]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    corrections_by_session: dict[str, list[str]] = field(default_factory=dict)
    models_used: ModelsUsed | None = None
    patches: dict[str, str] = field(default_factory=dict)
    healed_by_session: dict[str, HealedTests] = field(default_factory=dict)
    undone_sessions: set[str] = field(default_factory=set)
    max_attempts: int = 3
    running: set[str] = field(default_factory=set)

    flow_names: tuple[str, ...] = ("run_tests",)
    phase_number: int = 1
    hold_reason: str = ""
    objection: str = ""
    secret_values: tuple[str, ...] = ()

    def flows(self) -> tuple[str, ...]:
        return self.flow_names

    def phase(self) -> int:
        return self.phase_number

    def block_reason(self) -> str:
        return self.hold_reason

    def objection_to(self, candidate: Candidate) -> str:
        return self.objection

    def secrets(self) -> tuple[str, ...]:
        return self.secret_values

    def card_correction(self, card_id: str) -> Correction | None:
        return self.corrections_by_card.get(card_id)

    def kept_fact(self, fact_id: str) -> ParaFact | None:
        return self.facts.get(fact_id)

    def session_ended(self, session_id: str) -> bool:
        return session_id not in self.running

    def transcript(self, session_id: str) -> Sequence[TranscriptLine]:
        return self.transcripts.get(session_id, [])

    def changed_files(self, session_id: str) -> Sequence[str]:
        return self.files.get(session_id, [])

    def patch(self, session_id: str, *, landed: bool) -> str:
        return self.patches.get(session_id, "")

    def title(self, session_id: str) -> str:
        return "" if session_id in self.undone_sessions else f"the task of {session_id}"

    def healed_tests(self, session_id: str) -> HealedTests | None:
        return self.healed_by_session.get(session_id)

    def summary(self, session_id: str) -> str:
        return self.summaries.get(session_id, "")

    def corrections(self, session_id: str) -> Sequence[str]:
        return self.corrections_by_session.get(session_id, [])

    def memory_text(self, memory_id: str) -> tuple[str, Trust]:
        return self.texts.get(memory_id, ""), Trust.QUOTED

    guidance_text = memory_text

    def models(self, agent: str) -> ModelsUsed | None:
        return self.models_used

    def max_healing_attempts(self) -> int:
        return self.max_attempts


class ActiveOverlays(Overlays):
    """The real overlays."""

    @property
    def candidate_ids(self) -> list[str]:
        """The ids of the active candidates."""
        return [overlay.candidate_id for overlay in self.load_active()]


@dataclass
class FakeTrials:
    """Trials with the lifts that a test puts in, by candidate."""

    overlays: ActiveOverlays
    lifts_by_candidate: dict[str, Lift] = field(default_factory=dict)

    def measure_lifts(self) -> dict[str, Lift]:
        return {lift.overlay_id: lift for lift in self.lifts_by_candidate.values()}

    def find_harmful(self) -> list[tuple[Overlay, Lift]]:
        harmful = {lift.overlay_id: lift for lift in self.lifts_by_candidate.values() if lift.verdict == "harms"}
        return [(overlay, harmful[overlay.id]) for overlay in self.overlays.load_active() if overlay.id in harmful]


class World:
    """Adaptation without an engine."""

    def __init__(self, database: Database, clock: FakeClock, *, mode: AdaptationMode = AdaptationMode.MANUAL) -> None:
        self.database = database
        self.clock = clock
        self.sources = FakeSources()
        self.overlays = ActiveOverlays(database)
        self.trials = FakeTrials(self.overlays)
        self.current = Settings(adaptation=AdaptationSettings(mode=mode))
        self.adaptation = self.reopen()

    def reopen(self) -> Adaptation:
        """Adaptation after a restart."""
        return Adaptation(
            self.database,
            clock=self.clock,
            settings=self,
            randomness=Randomness(),
            ledger=Ledger(self.database),
            sources=self.sources,
            trials=self.trials,  # type: ignore[arg-type]
        )

    def candidate_events(self) -> list[str]:
        """The kinds of all ledger entries about candidates, oldest first."""
        return [entry.kind for entry in Ledger(self.database).since(0, 10_000) if entry.kind.startswith("Candidate")]

    def record(self, *events: Event) -> None:
        """Record events, a minute apart."""
        for event in events:
            self.clock.advance(timedelta(minutes=1))
            self.database.write(lambda tx, event=event: tx.record(event))

    def heal(
        self, session: str, *, attempts: int = 2, cost: int = 100_000, failing: tuple[str, ...] = (TOTAL,)
    ) -> None:
        """A session that fixed the tests it broke, with a transcript that says how."""
        self.sources.transcripts[session] = transcript_of(
            ("note", "1 test failed; back to the agent, try 1"), ("say", HEALED_BY), ("tool", "edit cart.py:4"),
            ("command", "pytest -q"), ("output", "1 passed"),
        )  # fmt: skip
        self.sources.files[session] = ["cart.py"]
        self.record(
            ValidationHealed(
                subject=session, workspace=SHOP, agent=AGENT, attempts=attempts, cost=cost, failing=failing
            )
        )


def transcript_of(*kinds_and_texts: tuple[str, str]) -> list[TranscriptLine]:
    """A transcript."""
    return [
        TranscriptLine(number, MONDAY_MORNING, kind, text) for number, (kind, text) in enumerate(kinds_and_texts, 1)
    ]


def validation_failed(
    session: str, *, attempts: int = 4, cost: int = 100_000, failing: tuple[str, ...] = (TOTAL,)
) -> Event:
    return ValidationFailed(
        subject=session, workspace=SHOP, agent=AGENT, attempts=attempts, cost=cost, failing=failing, reason="given up"
    )


def retry_repeated(session: str, *, attempts: int = 4, cost: int = 200_000) -> Event:
    return RetryRepeated(subject=session, workspace=SHOP, agent=AGENT, attempts=attempts, cost=cost, failing=(TOTAL,))


def agent_erred(session: str, message: str = "no_match: the old text is not in src/a.py", tool: str = "edit") -> Event:
    return AgentErred(subject=session, workspace=SHOP, agent=AGENT, tool=tool, message=message)


def budget_exceeded(spent: int = 1_500_000, budget: int = 1_000_000) -> Event:
    return BudgetExceeded(subject=AGENT, spent=spent, budget=budget)


def tools_used(session: str, *calls: str) -> Event:
    return ToolsUsed(subject=session, workspace=SHOP, agent=AGENT, calls=calls)
