"""Adaptation on a real database and a real ledger: facts are recorded as their producers record them, what sessions
said is given, and effects in force are rows of the same database, so that a transaction has both or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
from engine.model.lessons import Correction
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerEntry
from tests.conftest import MONDAY_MORNING

AGENT = "backend_builder"
SHOP = "/shop"
TOTAL = "tests/test_cart.py::test_total"
HEALED_BY = "total() left the discount out; it is subtracted now."


def rewritten(original: str, edited: str, *, session: str = "") -> Correction:
    """What the operator made of a card's prompt."""
    return Correction(original, edited, AGENT, "fix", "koji-core", session)


def para_fact(fact: str, category: str = "preference", trust: Trust = Trust.QUOTED) -> ParaFact:
    """A fact that the operator keeps."""
    return ParaFact("fact_1", fact, category, "", "active", Bucket.AREAS, "", MONDAY_MORNING, trust=trust)


@dataclass
class Told:
    """What owners of other things tell: see `engine.learning.candidates.records.Sources`."""

    rewritten: dict[str, Correction] = field(default_factory=dict)
    facts: dict[str, ParaFact] = field(default_factory=dict)
    transcripts: dict[str, list[TranscriptLine]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    learnt: dict[str, list[str]] = field(default_factory=dict)
    used: ModelsUsed | None = None
    patches: dict[str, str] = field(default_factory=dict)
    turned_green: dict[str, HealedTests] = field(default_factory=dict)
    taken_back: set[str] = field(default_factory=set)
    max_attempts: int = 3
    running: set[str] = field(default_factory=set)

    ledger: Ledger | None = None
    own_flows: tuple[str, ...] = ("run_tests",)
    own_phase: int = 1
    hold: str = ""
    objection: str = ""
    keys: tuple[str, ...] = ()

    def entries_between(self, start: datetime, end: datetime, kinds: tuple[str, ...]) -> Sequence[LedgerEntry]:
        assert self.ledger is not None
        return self.ledger.between(start, end, kinds)

    def flows(self) -> tuple[str, ...]:
        return self.own_flows

    def phase(self) -> int:
        return self.own_phase

    def block_reason(self) -> str:
        return self.hold

    def objection_to(self, candidate: Candidate) -> str:
        return self.objection

    def secrets(self) -> tuple[str, ...]:
        return self.keys

    def card_correction(self, card_id: str) -> Correction | None:
        return self.rewritten.get(card_id)

    def kept_fact(self, fact_id: str) -> ParaFact | None:
        return self.facts.get(fact_id)

    def local_day(self, at: datetime) -> str:
        return at.date().isoformat()

    def session_ended(self, session_id: str) -> bool:
        return session_id not in self.running

    def transcript(self, session_id: str) -> Sequence[TranscriptLine]:
        return self.transcripts.get(session_id, [])

    def changed_files(self, session_id: str) -> Sequence[str]:
        return self.files.get(session_id, [])

    def patch(self, session_id: str, *, landed: bool) -> str:
        return self.patches.get(session_id, "")

    def title(self, session_id: str) -> str:
        return "" if session_id in self.taken_back else f"the task of {session_id}"

    def healed_tests(self, session_id: str) -> HealedTests | None:
        return self.turned_green.get(session_id)

    def summary(self, session_id: str) -> str:
        return self.summaries.get(session_id, "")

    def corrections(self, session_id: str) -> Sequence[str]:
        return self.learnt.get(session_id, [])

    def memory_text(self, memory_id: str) -> tuple[str, Trust]:
        return self.said.get(memory_id, ""), Trust.QUOTED

    guidance_text = memory_text

    def models(self, agent: str) -> ModelsUsed | None:
        return self.used

    def max_healing_attempts(self) -> int:
        return self.max_attempts


class Shelf(Overlays):
    """The real overlays."""

    @property
    def in_force(self) -> list[str]:
        """Ids of the candidates whose effect is in force."""
        return [one.candidate_id for one in self.active()]


@dataclass
class Trials:
    """What overlays do: `seen` by candidate."""

    overlays: Shelf
    seen: dict[str, Lift] = field(default_factory=dict)

    def lifts(self) -> dict[str, Lift]:
        return {lift.overlay_id: lift for lift in self.seen.values()}

    def harmful(self) -> list[tuple[Overlay, Lift]]:
        known = {lift.overlay_id: lift for lift in self.seen.values() if lift.verdict == "harms"}
        return [(one, known[one.id]) for one in self.overlays.active() if one.id in known]


class World:
    """An engine's adaptation without the engine."""

    def __init__(self, database: Database, clock: FakeClock, *, mode: AdaptationMode = AdaptationMode.MANUAL) -> None:
        self.database = database
        self.clock = clock
        self.told = Told(ledger=Ledger(database))
        self.shelf = Shelf(database)
        self.trials = Trials(self.shelf)
        self.current = Settings(adaptation=AdaptationSettings(mode=mode))
        self.adaptation = self.opened()

    def opened(self) -> Adaptation:
        """Adaptation as a start of the engine makes it."""
        return Adaptation(
            self.database,
            clock=self.clock,
            settings=self,
            randomness=Randomness(),
            ledger=Ledger(self.database),
            sources=self.told,
            trials=self.trials,  # type: ignore[arg-type]
        )

    def happened(self, *events: Event) -> None:
        """Facts, a minute apart."""
        for event in events:
            self.clock.advance(timedelta(minutes=1))
            self.database.write(lambda tx, event=event: tx.record(event))

    def heal(
        self, session: str, *, attempts: int = 2, cost: int = 100_000, failing: tuple[str, ...] = (TOTAL,)
    ) -> None:
        """A session that mended what it broke, with a transcript that says how."""
        self.told.transcripts[session] = lines(
            ("note", "1 test failed; back to the agent, try 1"), ("say", HEALED_BY), ("tool", "edit cart.py:4"),
            ("command", "pytest -q"), ("output", "1 passed"),
        )  # fmt: skip
        self.told.files[session] = ["cart.py"]
        self.happened(
            ValidationHealed(
                subject=session, workspace=SHOP, agent=AGENT, attempts=attempts, cost=cost, failing=failing
            )
        )


def lines(*said: tuple[str, str]) -> list[TranscriptLine]:
    """A transcript."""
    return [TranscriptLine(number, MONDAY_MORNING, kind, text) for number, (kind, text) in enumerate(said, 1)]


def failed(session: str, *, attempts: int = 4, cost: int = 100_000, failing: tuple[str, ...] = (TOTAL,)) -> Event:
    return ValidationFailed(
        subject=session, workspace=SHOP, agent=AGENT, attempts=attempts, cost=cost, failing=failing, reason="given up"
    )


def retried(session: str, *, attempts: int = 4, cost: int = 200_000) -> Event:
    return RetryRepeated(subject=session, workspace=SHOP, agent=AGENT, attempts=attempts, cost=cost, failing=(TOTAL,))


def erred(session: str, message: str = "no_match: the old text is not in src/a.py", tool: str = "edit") -> Event:
    return AgentErred(subject=session, workspace=SHOP, agent=AGENT, tool=tool, message=message)


def over_budget(spent: int = 1_500_000, budget: int = 1_000_000) -> Event:
    return BudgetExceeded(subject=AGENT, spent=spent, budget=budget)


def called(session: str, *calls: str) -> Event:
    return ToolsUsed(subject=session, workspace=SHOP, agent=AGENT, calls=calls)
