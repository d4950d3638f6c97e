"""The night (SPEC 4.8): what a day leaves, once, within its caps, whatever the model says or the clocks do; and the
summaries of sessions (SPEC 4.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from engine.clock import FakeClock
from engine.events import ChangeSetLanded
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import Captures
from engine.memory.drafts import MAX_FACTS, Day, Drafts
from engine.memory.nightly import COST_CAP, Nightly, day_bounds, latest_day, missed_days, parse_evaluation
from engine.memory.para import NewFact, Para
from engine.model import Answer, Bucket, Capture, NoAnswer, NobodyAsks, Question, Refusal, Trust
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.validation_runs import ValidationRuns
from tests.memory.fake_work import NOW, FakeWork, ended, view

TODAY = date(2026, 1, 5)
SAID = "We decided to keep the new parser."
GOOD = {"fact": SAID, "category": "decision", "bucket": "projects", "group": "shop", "source": "session_1:2"}
"""What the operator said, word for word, as a model writes it."""

CLAIM = GOOD | {"fact": "The service listens on port 8000", "source": "session_1"}
"""What a model made of the day."""

BAD = GOOD | {"bucket": "nowhere"}


class Model:
    """Says what it is told to, at a price."""

    def __init__(self, *answers: Sequence[dict[str, str]], cost: int = 30_000) -> None:
        self.answers = list(answers)
        self.cost = cost
        self.asked: list[Question] = []

    def ask(self, question: Question) -> Answer:
        assert (question.purpose, question.subject) == ("nightly", f"nightly:{TODAY}")
        if not self.answers:
            raise NoAnswer("it is silent", self.cost)
        self.asked.append(question)
        return Answer(json.dumps({"facts": list(self.answers.pop(0))}), self.cost)


class World:
    """A day on which something happened, evaluated by `model` if there is one."""

    def __init__(self, folder: Path, database: Database, clock: FakeClock, model: Model | None) -> None:
        self.work: Any = FakeWork()
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
        session = self.say("session_1", ("say", "We decided to keep the old parser."), ("reply", SAID))
        ended(database, session)
        landed = ChangeSetLanded(subject="change_1", workspace=session.workspace, session_id=session.id, files=2)
        database.write(lambda tx: tx.record(landed))

    def say(self, name: str, *said: tuple[str, str]) -> Any:
        session = self.work.add(view(name), *said)
        self.captures.capture_session(name)
        return session

    @property
    def page(self) -> str:
        """The `memory.md` of the agent that worked."""
        return (self.folder / "agents/backend_builder/memory.md").read_text()

    def everything(self) -> object:
        files = {file: file.read_bytes() for file in self.folder.rglob("*.*") if file.suffix in (".md", ".json")}
        return files, self.drafts.waiting(), Ledger(self.database).latest(1_000)


@pytest.fixture
def make_world(tmp_path: Path, database: Database, clock: FakeClock) -> Callable[..., World]:
    return lambda model=None: World(tmp_path, database, clock, model)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.mark.parametrize(
    ("model", "asked", "promoted", "drafted", "reason"),
    [
        (None, 0, 0, 3, "no model"),
        (Model(), 0, 0, 3, "no model evaluated it"),
        (Model([GOOD]), 1, 1, 0, ""),
        (Model([GOOD, CLAIM]), 1, 1, 1, ""),
        (Model([]), 1, 0, 0, "the model found nothing to keep"),
        (Model([BAD], [GOOD]), 2, 1, 0, ""),
        (Model(*[[BAD]] * 9), 3, 0, 3, "given up after 3 tries"),
        (Model([GOOD], cost=120_000), 1, 1, 0, ""),
        (Model([GOOD], cost=120_001), 1, 0, 3, "it cost 0.120 dollars"),
    ],
    ids=["none", "silent", "good", "claim", "nothing", "corrected", "bad", "at the cap", "over the cap"],
)
def test_what_a_day_leaves_and_that_a_second_time_changes_nothing(
    make_world: Callable[..., World], model: Model | None, asked: int, promoted: int, drafted: int, reason: str
) -> None:
    assert COST_CAP == 120_000
    world = make_world(model)
    report = world.nightly.run(TODAY)
    assert (report.promoted, report.drafted) == (promoted, drafted)
    assert reason in report.reason
    assert [fact.fact for fact in world.para.facts()] == [SAID] * promoted
    assert "(2 files landed)" in world.page
    before = world.everything()
    again = world.nightly.run(TODAY)
    assert (again.promoted, again.drafted) == (0, 0)
    assert world.everything() == before
    assert model is None or len(model.asked) == asked


def test_it_is_asked_again_with_what_was_wrong(make_world: Callable[..., World], database: Database) -> None:
    model = Model([BAD], [GOOD])
    make_world(model).nightly.run(TODAY)
    assert "nowhere" in model.asked[1].text
    assert [question.budget for question in model.asked] == [COST_CAP, COST_CAP - 30_000]
    assert [run.check.failed for run in ValidationRuns(database).latest("")] == [0, 1]


def test_what_is_the_models_own_waits_for_the_operator(make_world: Callable[..., World], clock: FakeClock) -> None:
    world = make_world(Model([GOOD, CLAIM]))
    world.nightly.run(TODAY)
    (waits,) = world.drafts.waiting()
    assert (waits.fact, waits.trust) == (CLAIM["fact"], Trust.QUOTED)
    fact = world.drafts.promote(waits.id)
    assert (fact.trust, fact.approved_at) == (Trust.QUOTED, clock.now())


@pytest.mark.parametrize("step", [(Drafts, "add"), (Para, "add"), (AgentFiles, "append")])
def test_a_crash_in_the_middle_is_made_good_and_costs_no_second_evaluation(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    model = Model([GOOD, CLAIM])
    world = make_world(model)
    with monkeypatch.context() as patch:
        patch.setattr(*step, crash)
        with pytest.raises(InterruptedError):
            world.nightly.run(TODAY)
    report = world.nightly.run(TODAY)
    assert (len(world.para.facts()), report.drafted, len(model.asked)) == (1, 1, 1)
    assert world.page.count("## 2026-01-05") == 1


def crash(*_: object, **__: object) -> None:
    raise InterruptedError("the power went")


def test_a_correction_takes_the_place_of_what_it_corrects(world: World) -> None:
    old = world.para.add([NewFact("The service listens on port 8000", workspace="/home/me/shop")])[0]
    world.say("session_2", ("say", "Actually, the service listens on port 8001."))
    world.nightly.run(TODAY)
    waiting = next(draft for draft in world.drafts.waiting() if draft.category == "correction")
    assert waiting.supersedes == old.id
    new = world.drafts.promote(waiting.id)
    assert [correction.id for correction in world.para.corrections(old.id)] == [old.id, new.id]


def test_the_operator_decides_once_and_a_quote_may_guide_once_it_is_kept(world: World) -> None:
    world.nightly.run(TODAY)
    quoted, own, change = world.drafts.waiting()
    assert [(one.category, one.trust.value) for one in (quoted, own, change)] == [
        ("decision", "quoted"),
        ("decision", "operator"),
        ("change", "quoted"),
    ]
    fact = world.drafts.promote(own.id, edit="We keep the old parser")
    assert (world.drafts.promote(own.id).id, fact.trust) == (fact.id, Trust.OPERATOR)
    assert world.drafts.reject(change.id).state == "rejected"
    for decide, draft_id in ((world.drafts.promote, change.id), (world.drafts.reject, own.id)):
        with pytest.raises(Refusal):
            decide(draft_id)
    world.drafts.promote(quoted.id)
    approved = {one.text: one.approved_at is not None for one in world.captures.entries()}
    assert approved == {quoted.fact: True, own.fact: False}


def test_after_days_away_each_day_is_worked_through_once(world: World, clock: FakeClock) -> None:
    world.nightly.run_due()
    clock.advance(timedelta(days=3))
    assert [report.subject for report in world.nightly.run_due()] == ["2026-01-05", "2026-01-06", "2026-01-07"]
    assert world.nightly.run_due() == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"source": "[session_1:2]"}, ""),
        ({"fact": "The key is sk-" + "a1" * 15}, "secret"),
        ({"source": "session_9"}, "is not in the day"),
        ({"group": "../etc"}, "facts.0.group"),
        ({"fact": " "}, "facts.0.fact"),
        ({"fact": "x" * 1_001}, "facts.0.fact"),
        ({"bucket": "nowhere"}, "facts.0.bucket"),
    ],
)
def test_what_a_model_may_say(change: dict[str, str], fault: str) -> None:
    def faults(number: int) -> str:
        answer = json.dumps({"facts": [GOOD | change] * number})
        return "\n".join(parse_evaluation(answer, "[session_1:2] something")[1])

    assert fault in faults(1) if fault else faults(8) == ""
    assert "at most 8 items" in faults(9) or fault
    assert parse_evaluation("I cannot", "")[1]


def test_days() -> None:
    assert latest_day(datetime(2026, 1, 6, 2, 59, tzinfo=UTC)) == date(2026, 1, 4)
    assert latest_day(datetime(2026, 1, 6, 3, 0, tzinfo=UTC)) == date(2026, 1, 5)
    week = [date(2026, 1, day) for day in range(4, 11)]
    for last, days in ((10, []), (9, week[-1:]), (3, week), (2, week)):
        assert missed_days(date(2026, 1, last), date(2026, 1, 10)) == days
    assert missed_days(date(2026, 2, 1), date(2026, 1, 10)) == []
    clock = FakeClock(NOW, ZoneInfo("Europe/Berlin"))
    spans = [day_bounds(day, clock) for day in (date(2026, 3, 28), date(2026, 3, 29), date(2026, 10, 25))]
    assert [(end - start) / timedelta(hours=1) for start, end in spans] == [24, 23, 25], "when clocks change"
    assert spans[0][1] == spans[1][0]


def test_rules_keep_eight_drafts_at_most_and_name_what_stays_red() -> None:
    def said(number: int) -> Capture:
        text = f"The part number {number} lives in the shop"
        return Capture(f"cap_{number}", "fact", text, (), NOW, "session_1", number, "a", "/home/me/shop")

    red = {f"session_{number}": ("/home/me/shop", ("tests/test_a.py::test_x",)) for number in (1, 2)}
    many = Day("2026-01-05", captures=tuple(said(number) for number in range(20)), failing=red)
    assert len(many.draft([])) == MAX_FACTS
    few = Day("2026-01-05", failing=red).draft([])
    assert few[0].bucket is Bucket.RESOURCES
    assert "still failed in 2 sessions" in few[0].reason
    assert Day("2026-01-05", failing={"session_1": red["session_1"]}).draft([]) == []
    lines = many.lines_for("a")
    assert (len(lines), lines[-1]) == (12, "and 9 more")
