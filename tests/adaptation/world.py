"""Adaptation on a real database and a real ledger: facts are recorded as their producers record them, what sessions
said is given, and effects in force are rows of the same database, so that a transaction has both or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from engine.adaptation.adaptation import Adaptation
from engine.adaptation.material import Mended, ModelsUsed
from engine.adaptation.overlays import Overlays
from engine.adaptation.reading import Edit
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
from engine.memory.ledger import Ledger
from engine.storage.database import Database, Transaction
from engine.values import Randomness, TranscriptLine, Trust
from engine.values.adaptation import Candidate, Lift, Overlay, PromptFragment
from tests.conftest import MONDAY_MORNING

AGENT = "backend_builder"
SHOP = "/shop"
TOTAL = "tests/test_cart.py::test_total"
HEALED_BY = "total() left the discount out; it is subtracted now."


@dataclass
class Rewritten:
    """See `engine.adaptation.readers.Edit`."""

    original: str
    edited: str
    agent: str = AGENT
    kind: str = "fix"
    channel: str = "koji-core"
    session: str = ""


@dataclass
class KeptFact:
    fact: str
    category: str = "preference"
    trust: Trust = Trust.QUOTED


@dataclass
class Told:
    """What owners of other things tell: `Known` and `Material`."""

    rewritten: dict[str, Rewritten] = field(default_factory=dict)
    facts: dict[str, KeptFact] = field(default_factory=dict)
    transcripts: dict[str, list[TranscriptLine]] = field(default_factory=dict)
    edited: dict[str, list[Edit]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    learnt: dict[str, list[str]] = field(default_factory=dict)
    used: ModelsUsed | None = None
    patches: dict[str, str] = field(default_factory=dict)
    turned_green: dict[str, Mended] = field(default_factory=dict)
    most_tries: int = 3
    running: set[str] = field(default_factory=set)

    def edit(self, card_id: str) -> Rewritten | None:
        return self.rewritten.get(card_id)

    def kept_fact(self, fact_id: str) -> KeptFact | None:
        return self.facts.get(fact_id)

    def day(self, at: datetime) -> str:
        return at.date().isoformat()

    def over(self, session_id: str) -> bool:
        return session_id not in self.running

    def transcript(self, session_id: str) -> Sequence[TranscriptLine]:
        return self.transcripts.get(session_id, [])

    def edits(self, session_id: str) -> Sequence[Edit]:
        return self.edited.get(session_id, [])

    def changed(self, session_id: str) -> Sequence[str]:
        return self.files.get(session_id, [])

    def patch(self, session_id: str, *, landed: bool) -> str:
        return self.patches.get(session_id, "")

    def title(self, session_id: str) -> str:
        return f"the task of {session_id}"

    def mended(self, session_id: str) -> Mended | None:
        return self.turned_green.get(session_id)

    def summary(self, session_id: str) -> str:
        return self.summaries.get(session_id, "")

    def corrections(self, session_id: str) -> Sequence[str]:
        return self.learnt.get(session_id, [])

    def memory(self, memory_id: str) -> tuple[str, Trust]:
        return self.said.get(memory_id, ""), Trust.QUOTED

    saying = memory

    def models(self, agent: str) -> ModelsUsed | None:
        return self.used

    def tries(self) -> int:
        return self.most_tries


class Present:
    """How things are done where no overlay says otherwise."""

    def guidance(self, overlays: Sequence[Overlay]) -> tuple[str, ...]:
        return tuple(line for one in overlays if isinstance(one.effect, PromptFragment) for line in one.effect.guidance)

    def model(self, hint: tuple[str, str] | None, agent: str, channel: str, run_kind: str) -> str:
        return hint[0] if hint else "openai:gpt-5"

    def caps(self) -> tuple[int, int]:
        return 3, 500_000

    def flows(self) -> Sequence[str]:
        return ("run_tests",)


class Shelf(Overlays):
    """The real overlays. `breaks`: the next write raises after it wrote."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, Randomness(), present=Present())
        self.breaks = False

    def put(self, tx: Transaction, candidate: Candidate, now: datetime) -> Overlay:
        overlay = super().put(tx, candidate, now)
        self._maybe_break()
        return overlay

    def withdraw(self, tx: Transaction, candidate_id: str, now: datetime) -> None:
        super().withdraw(tx, candidate_id, now)
        self._maybe_break()

    @property
    def in_force(self) -> list[str]:
        """Ids of the candidates whose effect is in force."""
        return [one.candidate_id for one in self.every()]

    def _maybe_break(self) -> None:
        if self.breaks:
            self.breaks = False
            raise RuntimeError("the power went")


@dataclass
class Trials:
    """What overlays do: `lifts` by candidate."""

    shelf: Shelf
    lifts: dict[str, Lift] = field(default_factory=dict)

    def lift_of(self, overlay_id: str) -> Lift | None:
        return next((lift for lift in self.lifts.values() if lift.overlay_id == overlay_id), None)

    def harmful(self) -> list[tuple[Overlay, Lift]]:
        return [
            (self.shelf.of(candidate)[0], lift)
            for candidate, lift in self.lifts.items()
            if lift.verdict == "harms" and candidate in self.shelf.in_force
        ]


class World:
    """An engine's adaptation without the engine."""

    def __init__(self, database: Database, clock: FakeClock, *, mode: AdaptationMode = AdaptationMode.MANUAL) -> None:
        self.database = database
        self.clock = clock
        self.told = Told()
        self.shelf = Shelf(database)
        self.trials = Trials(self.shelf)
        self.phase = 1
        self.hold = ""
        self.objection = ""
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
            known=self.told,
            material=self.told,
            overlays=self.shelf,
            trials=self.trials,
            phase=lambda: self.phase,
            held=lambda: self.hold,
            objects=lambda candidate: self.objection,
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
