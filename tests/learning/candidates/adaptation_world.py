"""Adaptation with the real ledger, overlays, trials and learned guidance on a real database. A test records the events
that sessions cause, and gives `StandInSources` what adaptation reads from other packages."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from engine.clock import FakeClock
from engine.config.settings import AdaptationMode, AdaptationSettings, Settings
from engine.events import Event
from engine.events.work import AgentErred, ChangeSetLanded, RetryRepeated, ValidationFailed, ValidationHealed
from engine.learning.candidates import HealedTests, ModelsUsed
from engine.learning.candidates.adaptation import Adaptation
from engine.learning.candidates.overlays import OverlayRun, Overlays, Trials
from engine.model import Bucket, ParaFact, TranscriptLine, Trust
from engine.model.adaptation import Candidate, CandidateStatus, LearningRecord, RecordKind
from engine.model.decisions import Correction
from engine.randomness import Randomness
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from tests.support import MONDAY_MORNING

AGENT = "backend_builder"
"""The agent of the sessions that candidates come from."""

SHOP = "/shop"
"""The workspace of the sessions that candidates come from."""

TOTAL = "tests/test_cart.py::test_total"
"""The test that fails in sessions."""

HEALED_BY = "total() left the discount out; it is subtracted now."
"""How an agent says that it fixed the test."""

FLOW_NAMES = ("run_tests", "lint")
"""The built-in flows."""


def make_record(number: int, *, label: str = "repeated_retry", score: float = 80.0, **changes: Any) -> LearningRecord:
    """A record of the session with this number, which is also its hour."""
    kind = RecordKind(label.partition("/")[0])
    original = LearningRecord(
        f"rec_{number}", MONDAY_MORNING + timedelta(hours=number), kind, label, "agent", AGENT, score, "",
        agent=AGENT, session_id=f"sess_{number}", ledger_id=number,
    )  # fmt: skip
    return replace(original, **changes)


CORRECTION = Correction("Fix the total", "Fix the total and run the tests too", AGENT, "fix", "koji-core", "")
"""The operator's edit of the prompt of the card `pred_edited`."""

KEPT_FACT = ParaFact(
    "fact_1",
    "Prices are whole cents.",
    "preference",
    "",
    "active",
    Bucket.AREAS,
    "",
    MONDAY_MORNING,
    trust=Trust.QUOTED,
)
"""A fact that the operator keeps."""


@dataclass
class StandInSources:
    """A `CandidateSources` with the values that a test puts in."""

    transcripts: dict[str, list[TranscriptLine]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    patches: dict[str, str] = field(default_factory=dict)
    healed_by_session: dict[str, HealedTests] = field(default_factory=dict)
    undone_sessions: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    phase_number: int = 1
    hold_reason: str = ""
    secret_values: tuple[str, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)
    """Memories and guidance, by id."""

    def list_flows(self) -> tuple[str, ...]:
        return FLOW_NAMES

    def read_phase(self) -> int:
        return self.phase_number

    def find_block_reason(self) -> str:
        return self.hold_reason

    def find_objection(self, candidate: Candidate) -> str:
        return ""

    def list_secrets(self) -> tuple[str, ...]:
        return self.secret_values

    def find_correction(self, card_id: str) -> Correction | None:
        return CORRECTION if card_id == "pred_edited" else None

    def find_kept_fact(self, fact_id: str) -> ParaFact | None:
        return KEPT_FACT

    def has_ended(self, session_id: str) -> bool:
        return session_id not in self.running

    def read_transcript(self, session_id: str) -> Sequence[TranscriptLine]:
        return self.transcripts.get(session_id, [])

    def list_changed_files(self, session_id: str) -> Sequence[str]:
        return self.files.get(session_id, [])

    def read_patch(self, session_id: str, *, landed: bool) -> str:
        return self.patches.get(session_id, "")

    def find_landed_prompt(self, session_id: str) -> str:
        return "" if session_id in self.undone_sessions else f"the task of {session_id}"

    def find_healed_tests(self, session_id: str) -> HealedTests | None:
        return self.healed_by_session.get(session_id)

    def read_summary(self, session_id: str) -> str:
        return "Rounded once." if session_id in self.healed_by_session else ""

    def find_corrections(self, session_id: str) -> Sequence[str]:
        return ()

    def read_memory(self, memory_id: str) -> tuple[str, Trust]:
        return self.texts.get(memory_id, ""), Trust.QUOTED

    read_guidance = read_memory

    def find_models(self, agent: str) -> ModelsUsed | None:
        return None


class AdaptationWorld:
    """Adaptation without an engine. It is its own source of settings, which are in `current`."""

    def __init__(self, database: Database, clock: FakeClock, *, mode: AdaptationMode = AdaptationMode.MANUAL):
        self.database = database
        self.clock = clock
        self.sources = StandInSources()
        self.overlays = Overlays(database)
        self.current = Settings(adaptation=AdaptationSettings(mode=mode))
        self.ledger = Ledger(database)
        self.trials = Trials(database, self.overlays, self, ledger=self.ledger)
        self.adaptation = self.reopen()

    def reopen(self) -> Adaptation:
        """Adaptation after a restart."""
        return Adaptation(
            self.database,
            clock=self.clock,
            settings=self,
            randomness=Randomness(),
            ledger=self.ledger,
            sources=self.sources,
            trials=self.trials,
        )

    def adapt(self, **settings: object):
        """Replace the settings of adaptation."""
        self.current = Settings(adaptation=AdaptationSettings.model_validate(settings))

    def list_active_ids(self) -> list[str]:
        """The ids of the active candidates."""
        return [overlay.candidate_id for overlay in self.overlays.load_active()]

    def run_trial(self, candidate_id: str, *, with_good: int, without_good: int):
        """End twelve sessions with the effect of an active candidate, and as many without it. So many of them are
        good."""
        (overlay,) = [overlay for overlay in self.overlays.load_active() if overlay.candidate_id == candidate_id]
        rows = [
            OverlayRun(
                overlay_id=overlay.id, session_id=f"trial_{withheld}_{number}", agent=AGENT, workspace=SHOP,
                withheld=withheld, propensity=0.5, outcome="good" if number < good else "bad", at=self.clock.now(),
            )
            for withheld, good in ((False, with_good), (True, without_good))
            for number in range(12)
        ]  # fmt: skip

        def end_sessions(tx: Transaction):
            tx.session.add_all(rows)
            self.trials.on_outcome_change(tx, rows)

        self.database.write(end_sessions)

    def read_candidate_events(self) -> list[str]:
        """The kinds of all ledger entries about candidates, oldest first."""
        return [entry.kind for entry in self.ledger.read_since(0, 10_000) if entry.kind.startswith("Candidate")]

    def record(self, *events: Event):
        """Record events, a minute apart."""
        for event in events:
            self.clock.advance(timedelta(minutes=1))
            self.database.write(lambda tx, event=event: tx.record(event))

    def land_repair(self, session: str):
        """A session whose changes fixed a test that failed before, and were landed."""
        self.sources.healed_by_session[session] = HealedTests({TOTAL: ""}, "", AGENT, 0)
        self.record(ChangeSetLanded(subject=f"chg_{session}", workspace=SHOP, session_id=session, files=1))

    def end_healed_session(self, session: str, *, attempts: int = 2, failing: tuple[str, ...] = (TOTAL,)):
        """A session that fixed the tests it broke, with a transcript that says how."""
        self.sources.transcripts[session] = make_transcript(
            ("note", "1 test failed; back to the agent, try 1"), ("say", HEALED_BY), ("tool", "edit cart.py:4"),
            ("command", "pytest -q"), ("output", "1 passed"),
        )  # fmt: skip
        self.sources.files[session] = ["cart.py"]
        self.record(
            ValidationHealed(
                subject=session, workspace=SHOP, agent=AGENT, attempts=attempts, cost=100_000, failing=failing
            )
        )

    def bring_to_review(self) -> Candidate:
        """A candidate that two sessions support, and that waits for the operator."""
        self.end_healed_session("sess_1")
        self.end_healed_session("sess_2")
        self.adaptation.run_round()
        (candidate,) = self.adaptation.list_candidates(CandidateStatus.REVIEW)
        return candidate


def make_transcript(*kinds_and_texts: tuple[str, str]) -> list[TranscriptLine]:
    """A transcript of lines with these kinds and texts."""
    return [
        TranscriptLine(number, MONDAY_MORNING, kind, text) for number, (kind, text) in enumerate(kinds_and_texts, 1)
    ]


def make_validation_failed(session: str) -> Event:
    return ValidationFailed(
        subject=session, workspace=SHOP, agent=AGENT, attempts=4, cost=100_000, failing=(TOTAL,), reason="given up"
    )


def make_retry_repeated(session: str) -> Event:
    return RetryRepeated(subject=session, workspace=SHOP, agent=AGENT, attempts=4, cost=200_000, failing=(TOTAL,))


def make_agent_erred(session: str, tool: str = "edit") -> Event:
    message = "no_match: the old text is not in src/a.py"
    return AgentErred(subject=session, workspace=SHOP, agent=AGENT, tool=tool, message=message)
