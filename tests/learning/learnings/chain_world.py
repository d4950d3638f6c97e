"""A home with the promotion chain, on real files and a real database; a test says what sessions did."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from engine.clock import FakeClock
from engine.events import Event
from engine.events.engine import FaultReported
from engine.events.work import SessionStarted
from engine.learning.learnings import SessionRecord, Statement
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.recurrence import StoredVectors
from engine.model import (
    LearningEntry,
    ModelAnswer,
    ModelAsker,
    ModelQuestion,
    NoAnswer,
    SessionState,
    SessionView,
    TranscriptLine,
)
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerEntry
from tests.support import MONDAY_MORNING
from tests.support.questions import NobodyAsks
from tests.support.sessions import make_session_ended, make_session_view

SHOP = "/srv/shop"
"""The workspace of sessions."""

NO_ANSWER = NoAnswer("the model did not answer within 30 s")


def make_view(id: str, **changes: Any) -> SessionView:
    """A session that succeeded after ten minutes, with these changes."""
    succeeded = {
        "id": id, "prediction_id": f"pred_{id}", "prompt": "round cart totals", "workspace": SHOP, "cwd": "/tmp/tree",
        "agent": "backend_builder", "state": SessionState.SUCCEEDED,
        "ended_at": MONDAY_MORNING + timedelta(minutes=10),
    }  # fmt: skip
    return make_session_view(**succeeded | changes)


@dataclass
class StandInSessions:
    """A `SessionSource` with the `records` that a test puts in, by session."""

    report: Callable[[str, str], None]
    records: dict[str, SessionRecord] = field(default_factory=dict)

    def load_record(self, session_id: str, /) -> SessionRecord | None:
        return self.records.get(session_id)

    def load_start(self, session_id: str, /) -> SessionRecord | None:
        record = self.records.get(session_id)
        return None if record is None else SessionRecord(record.view, record.leader, failing=record.failing)

    def read_transcript(self, session_id: str, /) -> Iterable[TranscriptLine]:
        return ()

    def list_secrets(self) -> Iterable[str]:
        return ()

    def offer(self, entry: LearningEntry, /):
        pass

    def retract(self, lesson: str, reason: str, /):
        pass


class ScriptedModel:
    """A model that gives these answers, in turn, and then the last one again and again. An exception is raised."""

    def __init__(self, *answers: str | Exception):
        self.answers = list(answers)
        self.questions: list[ModelQuestion] = []

    def ask(self, question: ModelQuestion, /) -> ModelAnswer | None:
        self.questions.append(question)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return ModelAnswer(answer, 10)


class ChainWorld:
    """A home with the chain in it."""

    def __init__(self, folder: Path, database: Database, clock: FakeClock, *, model: ModelAsker | None = None):
        self.data = folder
        self.database = database
        self.clock = clock
        self.sessions = StandInSessions(self._report)
        self.faults: list[str] = []
        self.learnings = Learnings(
            folder, database, clock, ledger=Ledger(database), sessions=self.sessions,
            vectors=StoredVectors(database, lambda texts: None, "fake"),
            model=model or NobodyAsks(),
        )  # fmt: skip

    def end_session(self, id: str, *decisions: str, speaker: str = "agent", **fields: Any):
        """A session ended in which `speaker` stated these decisions; `fields` are others of its record."""
        statements = tuple(Statement("decision", text, speaker) for text in decisions)
        self.sessions.records[id] = SessionRecord(
            make_view(id), **{"statements": statements, "leader": "backend_lead", **fields}
        )
        self.record(SessionStarted(subject=id, workspace=SHOP, prediction_id="p", sandbox="none"))
        self.record(make_session_ended(id, workspace=SHOP))
        self.learnings.catch_up()

    def end_sessions(self, *decisions: str, count: int = 3, speaker: str = "agent"):
        """`count` sessions `s0`, `s1`, … that state the same decisions."""
        for number in range(count):
            self.end_session(f"s{number}", *decisions, speaker=speaker)

    def record(self, event: Event):
        """Write an event into the ledger."""
        self.database.write(lambda tx: tx.record(event))

    def read_events(self, kind: str) -> list[LedgerEntry]:
        """The ledger entries of a kind."""
        return [entry for entry in Ledger(self.database).read_since(0, 5_000) if entry.kind == kind]

    def read_pages(self) -> dict[str, bytes]:
        """Every page of the home, byte for byte, by its path."""
        paths = sorted((self.data / "learnings").rglob("*.md"))
        return {path.relative_to(self.data).as_posix(): path.read_bytes() for path in paths}

    def find_project_entry(self) -> LearningEntry:
        """The only entry of a project."""
        (entry,) = self.learnings.list_entries("project")
        return entry

    def _report(self, service: str, message: str):
        self.faults.append(f"{service}: {message}")
        self.record(FaultReported(where=service, message=message))


MakeWorld = Callable[[ModelAsker], ChainWorld]
"""Makes the home of a test, with a model."""


def fail_with_full_disk(path: Path, data: bytes):
    """What writes a file when the disk is full."""
    raise OSError(28, "No space left on device")
