"""The promotion chain over a real home folder and a real database; sessions are told by the test."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy

from engine.clock import FakeClock
from engine.events import Event, FaultReported, SessionEnded, SessionStarted
from engine.learning.learnings.entries import entry_id
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.rules import SessionRecord, Statement
from engine.model import (
    Answer,
    Asks,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningStatus,
    LearningType,
    NoAnswer,
    Question,
    SessionState,
    SessionView,
    TranscriptLine,
    Trust,
)
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerEntry
from tests.conftest import MONDAY_MORNING

SHOP = "/srv/shop"


def view(id: str, **more: Any) -> SessionView:
    """A session that succeeded."""
    made = SessionView(
        id=id,
        prediction_id=f"pred_{id}",
        prompt="round cart totals",
        workspace=SHOP,
        channel="koji-core",
        agent="backend_builder",
        runner="model",
        flow=None,
        state=SessionState.SUCCEEDED,
        mode="approved",
        sandbox="none",
        cwd="/tmp/tree",
        created_at=MONDAY_MORNING,
        started_at=MONDAY_MORNING,
        ended_at=MONDAY_MORNING + timedelta(minutes=10),
        tokens=0,
        cost=0,
        summary="",
    )
    return replace(made, **more)


def fact(kind: str, subject: str, workspace: str = SHOP, **payload: Any) -> LedgerEntry:
    """A fact as the ledger has it."""
    return LedgerEntry(1, MONDAY_MORNING, kind, subject, workspace, payload)


@dataclass
class Told:
    """What sessions did, as the test says; see `record.Records`."""

    records: dict[str, SessionRecord] = field(default_factory=dict)
    transcripts: dict[str, list[TranscriptLine]] = field(default_factory=dict)
    tell: Callable[[str, str], None] = lambda where, words: None
    offered: dict[str, LearningEntry] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)

    def load_record(self, session_id: str, /) -> SessionRecord | None:
        return self.records.get(session_id)

    def load_start(self, session_id: str, /) -> SessionRecord | None:
        one = self.records.get(session_id)
        return None if one is None else SessionRecord(one.view, one.leader, failing=one.failing)

    def transcript(self, session_id: str, /) -> Iterable[TranscriptLine]:
        return self.transcripts.get(session_id, [])

    def secrets(self) -> Iterable[str]:
        return ()

    def offer(self, entry: LearningEntry, /) -> None:
        self.offered[entry.id] = entry

    def retract(self, lesson: str, reason: str, /) -> None:
        self.gone.append(lesson)

    def report(self, where: str, words: str, /) -> None:
        self.tell(where, words)


class Says:
    """A model that gives these answers, in turn; the last one again and again. An exception is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []

    def ask(self, question: Question, /) -> Answer | None:
        self.asked.append(question)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer, 10)


class World:
    """A home with the chain in it."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        clock: FakeClock,
        *,
        model: Asks | None = None,
        make: Callable[[Any], Any] = lambda texts: None,
    ) -> None:
        self.data = folder
        self.database = database
        self.clock = clock
        self.told = Told(tell=self._report)
        self.model = model
        self.faults: list[str] = []
        self.learnings = Learnings(
            folder,
            database,
            clock,
            facts=Ledger(database),
            sessions=self.told,
            make=make,
            model_name=lambda: "made",
            model=model,
        )

    def session(self, id: str, *said: str, by: str = "agent", **more: Any) -> None:
        """A session ended in which an agent, or whoever `by` names, said these things; the chain takes it in."""
        sentences = tuple(Statement("decision", one, by) for one in said)
        more = {"statements": sentences, "leader": "backend_lead", **more}
        record = SessionRecord(more.pop("view", None) or view(id), **more)
        self.told.records[id] = record
        self.record(SessionStarted(subject=id, workspace=record.view.workspace, prediction_id="p", sandbox="none"))
        ended = SessionEnded(
            subject=id, workspace=record.view.workspace, prediction_id="p", state="succeeded", summary="", cost=0
        )
        self.record(ended)
        self.learnings.catch_up()

    def record(self, event: Event) -> None:
        self.database.write(lambda tx: tx.record(event))

    def events(self, kind: str) -> list[LedgerEntry]:
        return [one for one in Ledger(self.database).since(0, 5_000) if one.kind == kind]

    def files(self) -> dict[str, bytes]:
        """Every page of the home, byte for byte."""
        found = sorted((self.data / "learnings").rglob("*.md"))
        return {path.relative_to(self.data).as_posix(): path.read_bytes() for path in found}

    def _report(self, where: str, words: str) -> None:
        self.faults.append(f"{where}: {words}")
        self.record(FaultReported(where=where, message=words))


NO_MODEL = NoAnswer("the model did not answer within 30 s")


# Entries for tests, and vectors in which words are directions.


def make_entry(text: str, session: str = "s1", **more: Any) -> LearningEntry:
    """An entry of a session, in the operator's words."""
    made = LearningEntry(
        id="",
        scope=LearningScope.SESSION,
        scope_id=session,
        kind=LearningKind.INSTITUTIONAL,
        type=LearningType.DECLARATIVE,
        domain="team",
        text=text,
        title=text[:40],
        importance=0.5,
        confidence=0.5,
        reasons=("it was observed once",),
        phase="observations",
        status=LearningStatus.ACTIVE,
        created_at=MONDAY_MORNING,
        session_id=session,
        trust=Trust.OPERATOR,
    )
    made = replace(made, **more)
    return (
        made
        if made.id
        else replace(made, id=entry_id(made.scope, made.scope_id, made.kind, made.about, made.text, made.trust))
    )


def no_vectors(texts: Sequence[str]) -> list[bytes | None]:
    """Where there is no model."""
    return [None] * len(texts)


class WordMeaning:
    """Texts with the same words are near: the cosine of two texts is that of their word counts, nearly."""

    def __init__(self, dimensions: int = 384) -> None:
        self.dimensions = dimensions
        self.asked: list[str] = []

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        self.asked += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        total = numpy.zeros(self.dimensions)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.sha256(word.encode(errors="replace")).digest()[:8], "big")
            total += numpy.random.default_rng(seed).standard_normal(self.dimensions)
        length = float(numpy.linalg.norm(total)) or 1.0
        return (total / length).astype("<f4").tobytes()


class Angles:
    """Vectors in the plane: a text `a30 …` has the angle of 30 degrees."""

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes | None:
        word = text.split()[0]
        if not word.startswith("a"):
            return None
        angle = math.radians(float(word[1:].replace("x", ".")))
        return numpy.array([math.cos(angle), math.sin(angle)], dtype="<f4").tobytes()


def shuffled(items: Sequence[LearningEntry], seed: int) -> list[LearningEntry]:
    mixed = list(items)
    random.Random(seed).shuffle(mixed)
    return mixed
