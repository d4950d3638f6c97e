"""The night work (SPEC 4.8): it handles each day once and within its caps, whatever the model answers or the clock
does."""

import json
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.events.work import ChangeSetLanded
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import Captures
from engine.memory.drafts import DayRecord, Drafts, FailingTests
from engine.memory.nightly import COST_CAP_MICROUSD, Nightly, parse_evaluation
from engine.memory.para import NewFact, Para
from engine.model import Bucket, ModelAnswer, ModelQuestion, NoAnswer, SessionView, Trust
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.validation_runs import ValidationRuns
from tests.memory.stand_in_work import StandInWork, make_view, record_end
from tests.support.checks import refused
from tests.support.questions import NobodyAsks

TODAY = date(2026, 1, 5)
DECISION = "We decided to keep the new parser."
QUOTED = {"fact": DECISION, "category": "decision", "bucket": "projects", "group": "shop", "source": "session_1:2"}
"""What the operator said, word for word, as a model answers it."""

CLAIM = QUOTED | {"fact": "The service listens on port 8000", "source": "session_1"}
"""What a model concludes from the day."""

INVALID = QUOTED | {"bucket": "nowhere"}
"""A fact in a bucket that does not exist."""


class FactModel:
    """Gives these answers, each at the same cost; then none."""

    def __init__(self, *answers: Sequence[dict[str, str]], cost: int = 30_000):
        self.answers = list(answers)
        self.cost = cost
        self.questions: list[ModelQuestion] = []

    def ask(self, question: ModelQuestion) -> ModelAnswer:
        assert (question.purpose, question.subject) == ("nightly", f"nightly:{TODAY}")
        if not self.answers:
            raise NoAnswer("it is silent", self.cost)
        self.questions.append(question)
        return ModelAnswer(json.dumps({"facts": list(self.answers.pop(0))}), self.cost)


class Nights:
    """A day on which something happened, evaluated by `model` if there is one."""

    def __init__(self, folder: Path, database: Database, clock: FakeClock, model: FactModel | None):
        self.work: Any = StandInWork()
        (folder / "agents" / "backend_builder").mkdir(parents=True)
        self.folder, self.database = folder, database
        self.para = Para(folder / "para", database, clock)
        self.captures = Captures(database, self.work, self.work.remember)
        self.drafts = Drafts(database, self.para, self.captures, clock)
        self.nightly = Nightly(
            Ledger(database),
            clock,
            captures=self.captures,
            work=self.work,
            drafts=self.drafts,
            para=self.para,
            files=AgentFiles(folder / "agents", database, lambda *_: None),
            model=model or NobodyAsks(),
        )
        session = self.add_session("session_1", ("say", "We decided to keep the old parser."), ("reply", DECISION))
        record_end(database, session)
        landed = ChangeSetLanded(subject="change_1", workspace=session.workspace, session_id=session.id, files=2)
        database.write(lambda tx: tx.record(landed))

    def add_session(self, name: str, *lines: tuple[str, str]) -> SessionView:
        """A session with these lines of (kind, text) in its transcript, whose captures are taken."""
        session = self.work.add(make_view(name), *lines)
        self.captures.capture_session(name)
        return session

    @property
    def diary(self) -> str:
        """The `memory.md` of the agent that worked."""
        return (self.folder / "agents/backend_builder/memory.md").read_text()

    def read_contents(self) -> object:
        """All files of facts and agents, the drafts, and the ledger, to be compared."""
        files = {file: file.read_bytes() for file in self.folder.rglob("*.*") if file.suffix in (".md", ".json")}
        return files, self.drafts.list_waiting(), Ledger(self.database).read_newest(1_000)


def crash(*_: object, **__: object):
    raise InterruptedError("the power went")


def find_faults(facts: list[dict[str, str]]) -> str:
    """The faults of a model's answer about a day with the source `session_1:2`."""
    return "\n".join(parse_evaluation(json.dumps({"facts": facts}), "[session_1:2] something")[1])


@pytest.fixture
def make_world(tmp_path: Path, database: Database, clock: FakeClock) -> Callable[..., Nights]:
    return lambda model=None: Nights(tmp_path, database, clock, model)


@pytest.fixture
def world(make_world: Callable[..., Nights]) -> Nights:
    return make_world()


# The work of a night


@pytest.mark.parametrize(
    "model, questions, promoted, drafted, reason",
    [
        (None, 0, 0, 3, "no model"),
        (FactModel(), 0, 0, 3, "no model evaluated it"),
        (FactModel([QUOTED]), 1, 1, 0, ""),
        (FactModel([QUOTED, CLAIM]), 1, 1, 1, ""),
        (FactModel([]), 1, 0, 0, "the model found nothing to keep"),
        (FactModel([INVALID], [QUOTED]), 2, 1, 0, ""),
        (FactModel(*[[INVALID]] * 9), 3, 0, 3, "cannot be used, so rules draft facts: facts.0.bucket"),
        (FactModel([INVALID], [QUOTED], cost=60_001), 2, 0, 3, "it cost 0.120 dollars"),
        (FactModel([QUOTED], cost=120_000), 1, 1, 0, ""),
    ],
    ids=["none", "silent", "quote", "claim", "nothing", "corrected", "invalid", "over the cap", "at the cap"],
)
def test_a_day_is_worked_through_once_whatever_the_model_answers(
    make_world: Callable[..., Nights],
    model: FactModel | None,
    questions: int,
    promoted: int,
    drafted: int,
    reason: str,
):
    assert COST_CAP_MICROUSD == 120_000
    world = make_world(model)
    report = world.nightly.run(TODAY)
    assert (report.promoted, report.drafted) == (promoted, drafted)
    assert reason in report.reason
    assert [fact.fact for fact in world.para.read_facts()] == [DECISION] * promoted
    assert "(2 files landed)" in world.diary
    before = world.read_contents()
    again = world.nightly.run(TODAY)
    assert (again.promoted, again.drafted) == (0, 0)
    assert world.read_contents() == before
    asked = model.questions if model else []
    assert len(asked) == questions
    assert all("facts.0.bucket" in question.text for question in asked[1:])
    runs = ValidationRuns(world.database).read_of_session(f"nightly:{TODAY}")
    assert [run.attempt for run in runs] == list(range(1, questions + 1))


@pytest.mark.parametrize("step", [(Drafts, "add"), (Para, "add"), (AgentFiles, "append")])
def test_a_crash_in_the_middle_is_finished_without_a_second_evaluation(
    make_world: Callable[..., Nights], monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
):
    model = FactModel([QUOTED, CLAIM])
    world = make_world(model)
    with monkeypatch.context() as patch:
        patch.setattr(*step, crash)
        with pytest.raises(InterruptedError):
            world.nightly.run(TODAY)
    report = world.nightly.run(TODAY)
    assert len(world.para.read_facts()) == 1
    assert report.drafted == 1
    assert len(model.questions) == 1
    assert world.diary.count("## 2026-01-05") == 1


def test_a_correction_supersedes_the_fact_that_it_corrects(world: Nights):
    old = world.para.add([NewFact("The service listens on port 8000", workspace="/home/me/shop")])[0]
    world.add_session("session_2", ("say", "Actually, the service listens on port 8001."))
    world.nightly.run(TODAY)
    draft = next(draft for draft in world.drafts.list_waiting() if draft.category == "correction")
    assert draft.supersedes == old.id
    new = world.drafts.promote(draft.id)
    assert [correction.id for correction in world.para.read_corrections(old.id)] == [old.id, new.id]


def test_each_draft_is_decided_once_and_a_promoted_quote_may_guide(world: Nights):
    world.nightly.run(TODAY)
    quoted, own, change = world.drafts.list_waiting()
    assert [(draft.category, draft.trust.value) for draft in (quoted, own, change)] == [
        ("decision", "quoted"),
        ("decision", "operator"),
        ("change", "quoted"),
    ]
    fact = world.drafts.promote(own.id, edit="We keep the old parser")
    assert world.drafts.promote(own.id).id == fact.id
    assert fact.trust == Trust.OPERATOR
    assert world.drafts.reject(change.id).state == "rejected"
    refused("draft_decided", lambda: world.drafts.promote(change.id))
    refused("draft_decided", lambda: world.drafts.reject(own.id))
    world.drafts.promote(quoted.id)
    approved = {capture.text: capture.approved_at is not None for capture in world.captures.read_entries()}
    assert approved == {quoted.fact: True, own.fact: False}


# Answers, days and limits


@pytest.mark.parametrize(
    "change, fault",
    [
        ({}, ""),
        ({"fact": "The key is sk-" + "a1" * 15}, "secret"),
        ({"source": "session_9"}, "is not in the day"),
        ({"group": "../etc"}, "facts.0.group"),
        ({"fact": "x" * 1_001}, "facts.0.fact"),
    ],
)
def test_a_fact_of_an_answer_is_valid_and_from_the_day(change: dict[str, str], fault: str):
    assert find_faults([QUOTED | change]).partition("facts.0")[1] == ("facts.0" if fault else "")
    assert fault in find_faults([QUOTED | change])


def test_an_answer_has_at_most_8_facts_as_json():
    assert find_faults([QUOTED] * 8) == ""
    assert "at most 8 items" in find_faults([QUOTED] * 9)
    assert parse_evaluation("I cannot", "")[1] == ("the answer is not a JSON object",)


@pytest.mark.parametrize("sessions, drafts", [(1, 0), (2, 1)])
def test_a_test_that_fails_in_two_sessions_becomes_a_draft(sessions: int, drafts: int):
    failing = FailingTests("/home/me/shop", ("tests/test_a.py::test_x",))
    day = DayRecord("2026-01-05", failing={f"session_{number}": failing for number in range(sessions)})
    facts = day.draft_facts([])
    assert [(fact.bucket, fact.reason) for fact in facts] == [
        (Bucket.RESOURCES, "it still failed in 2 sessions of 2026-01-05")
    ] * drafts
