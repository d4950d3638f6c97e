"""The night (SPEC 4.8): what a day leaves, once, within its caps, whatever the model says or the clocks do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from engine.memory.nightly import (
    COST_CAP,
    MAX_ATTEMPTS,
    Nightly,
    day_bounds,
    latest_day,
    missed_days,
    parse_evaluation,
)
from engine.memory.para import NewFact, Para
from engine.memory.store import MemoryStore
from engine.memory.summaries import MAX_WORDS, SessionFacts, SessionSummariser, clip, summarise_by_rules
from engine.model import Answer, Bucket, Capture, CheckResult, Layer, NoAnswer, NobodyAsks, Question, Refusal, Trust
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.validation_runs import ValidationRuns
from tests.memory.fake_work import NOW, FakeWork, ended, view

TODAY = date(2026, 1, 5)
SAID = "We decided to keep the new parser."


def proposed(fact: str, category: str, bucket: str, group: str, source: str) -> dict[str, str]:
    """A fact as a model writes it."""
    return {"fact": fact, "category": category, "bucket": bucket, "group": group, "source": source}


GOOD = proposed(SAID, "decision", "projects", "shop", "session_1:2")
"""What the operator said, word for word."""

CLAIM = proposed("The service listens on port 8000", "configuration", "projects", "shop", "session_1")
"""What a model made of the day."""


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
    def __init__(self, folder: Path, database: Database, clock: FakeClock, model: Model | None = None) -> None:
        self.work = FakeWork()
        (folder / "agents" / "backend_builder").mkdir(parents=True)
        self.files = AgentFiles(folder / "agents", database, lambda *_: None)
        self.database = database
        self.para = Para(folder / "para", database, clock)
        self.captures = Captures(database, self.work, self.work.remember)
        self.drafts = Drafts(database, self.para, self.captures, clock)
        self.nightly = Nightly(
            database,
            clock,
            ledger=Ledger(database),
            captures=self.captures,
            work=self.work,  # type: ignore[arg-type]
            drafts=self.drafts,
            para=self.para,
            files=self.files,
            model=model or NobodyAsks(),
        )

    @property
    def page(self) -> str:
        """The `memory.md` of the agent that worked."""
        return self.files.read("backend_builder", "memory.md").text

    def happen(self) -> None:
        session = self.work.add(view(), ("say", "We decided to keep the old parser."), ("reply", SAID))
        self.captures.capture_session(session.id)
        ended(self.database, session)
        landed = ChangeSetLanded(subject="change_1", workspace=session.workspace, session_id=session.id, files=2)
        self.database.write(lambda tx: tx.record(landed))


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path, database: Database, clock: FakeClock) -> MakeWorld:
    """Makes a day on which something happened, evaluated by `model` if there is one."""

    def make(model: Model | None = None) -> World:
        world = World(tmp_path, database, clock, model)
        world.happen()
        return world

    return make


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


class TestWithoutAModel:
    def test_nothing_is_promoted_and_drafts_wait(self, world: World) -> None:
        report = world.nightly.run(TODAY)
        assert (report.promoted, report.drafted) == (0, 3)
        assert "no model" in report.reason
        assert world.para.facts() == []
        waiting = [(draft.category, draft.trust.value) for draft in world.drafts.waiting()]
        assert waiting == [("decision", "quoted"), ("decision", "operator"), ("change", "quoted")]
        assert "(2 files landed)" in world.page

    def test_a_correction_takes_the_place_of_what_it_corrects(self, world: World) -> None:
        old = world.para.add([NewFact("The service listens on port 8000", workspace="/home/me/shop")])[0]
        world.work.add(view("session_2"), ("say", "Actually, the service listens on port 8001."))
        world.captures.capture_session("session_2")
        world.nightly.run(TODAY)
        waiting = next(draft for draft in world.drafts.waiting() if draft.category == "correction")
        assert waiting.supersedes == old.id
        new = world.drafts.promote(waiting.id)
        assert [correction.id for correction in world.para.corrections(old.id)] == [old.id, new.id]

    def test_a_crash_in_the_middle_is_made_good(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Drafts, "add", crash)
            with pytest.raises(InterruptedError):
                world.nightly.run(TODAY)
        assert world.nightly.run(TODAY).drafted == 3
        assert world.page.count("## 2026-01-05") == 1

    def test_a_second_time_changes_no_byte(self, world: World) -> None:
        world.nightly.run(TODAY)
        page, waiting = world.page, world.drafts.waiting()
        facts = Ledger(world.database).latest(1_000)
        report = world.nightly.run(TODAY)
        assert (report.promoted, report.drafted) == (0, 0)
        assert (world.page, world.drafts.waiting()) == (page, waiting)
        assert Ledger(world.database).latest(1_000) == facts

    def test_after_days_away_each_day_is_worked_through_once(self, world: World, clock: FakeClock) -> None:
        world.nightly.run_due()
        clock.advance(timedelta(days=3))
        assert [report.subject for report in world.nightly.run_due()] == ["2026-01-05", "2026-01-06", "2026-01-07"]
        assert world.nightly.run_due() == []

    def test_the_operator_decides_once(self, world: World) -> None:
        world.nightly.run(TODAY)
        first, second, _ = world.drafts.waiting()
        fact = world.drafts.promote(first.id, edit="We keep the old parser")
        assert world.drafts.promote(first.id).id == fact.id
        assert world.drafts.reject(second.id).state == "rejected"
        for decide, draft_id in ((world.drafts.promote, second.id), (world.drafts.reject, first.id)):
            with pytest.raises(Refusal):
                decide(draft_id)
        assert [kept.fact for kept in world.para.facts()] == ["We keep the old parser"]

    def test_what_an_agent_said_may_guide_once_its_draft_is_kept(self, world: World) -> None:
        world.nightly.run(TODAY)
        quote = next(entry for entry in world.captures.entries() if entry.trust is Trust.QUOTED)
        assert quote.approved_at is None
        world.drafts.promote(next(waiting.id for waiting in world.drafts.waiting() if waiting.fact == quote.text))
        (kept,) = [entry for entry in world.captures.entries() if entry.id == quote.id]
        assert kept.approved_at is not None


class TestWithAModel:
    def test_what_can_be_used_is_promoted(self, make_world: MakeWorld, tmp_path: Path) -> None:
        model = Model([GOOD])
        world = make_world(model)
        report = world.nightly.run(TODAY)
        assert (report.promoted, report.drafted, report.cost) == (1, 0, 30_000)
        assert world.para.facts()[0].source == "nightly:2026-01-05:session_1:2"
        before = {file: file.read_bytes() for file in tmp_path.rglob("para/**/*.*")}
        world.nightly.run(TODAY)
        assert {file: file.read_bytes() for file in tmp_path.rglob("para/**/*.*")} == before
        assert len(model.asked) == 1

    def test_what_is_the_models_own_waits_for_the_operator(self, make_world: MakeWorld, clock: FakeClock) -> None:
        world = make_world(Model([GOOD, CLAIM]))
        report = world.nightly.run(TODAY)
        assert (report.promoted, report.drafted) == (1, 1)
        assert [fact.fact for fact in world.para.facts()] == [SAID]
        (waits,) = world.drafts.waiting()
        assert (waits.fact, waits.trust) == (CLAIM["fact"], Trust.QUOTED)
        fact = world.drafts.promote(waits.id)
        assert (fact.trust, fact.approved_at) == (Trust.QUOTED, clock.now())

    def test_it_is_asked_again_with_what_was_wrong(self, make_world: MakeWorld, database: Database) -> None:
        bad = proposed("A fact", "x", "nowhere", "shop", "session_1")
        model = Model([bad], [GOOD])
        world = make_world(model)
        assert world.nightly.run(TODAY).promoted == 1
        assert "nowhere" in model.asked[1].text
        assert [question.budget for question in model.asked] == [COST_CAP, COST_CAP - 30_000]
        assert [(run.check.tool, run.check.failed) for run in ValidationRuns(database).latest("")] == [
            ("nightly", 0),
            ("nightly", 1),
        ]

    def test_tries_are_bounded(self, make_world: MakeWorld) -> None:
        bad = proposed("A fact", "x", "nowhere", "shop", "session_1")
        model = Model(*[[bad]] * 9)
        world = make_world(model)
        report = world.nightly.run(TODAY)
        assert (len(model.asked), report.promoted, report.drafted) == (MAX_ATTEMPTS, 0, 3)
        assert "given up after 3 tries" in report.reason

    @pytest.mark.parametrize(("cost", "promoted"), [(COST_CAP, 1), (COST_CAP + 1, 0)])
    def test_twelve_cents_and_not_more(self, make_world: MakeWorld, cost: int, promoted: int) -> None:
        assert COST_CAP == 120_000
        world = make_world(Model([GOOD], cost=cost))
        assert world.nightly.run(TODAY).promoted == promoted

    def test_a_crash_after_the_evaluation_costs_no_second_one(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = Model([GOOD])
        world = make_world(model)
        with monkeypatch.context() as patch:
            patch.setattr(Para, "add", crash)
            with pytest.raises(InterruptedError):
                world.nightly.run(TODAY)
        assert world.nightly.run(TODAY).promoted == 1
        assert len(model.asked) == 1

    def test_eight_facts_and_not_more(self) -> None:
        def faults(*facts: dict[str, str]) -> str:
            return "\n".join(parse_evaluation(json.dumps({"facts": facts}), "[session_1:2] something")[1])

        assert faults(*[GOOD] * 8) == ""
        assert "at most 8 items" in faults(*[GOOD] * 9)
        assert "secret" in faults(GOOD | {"fact": "The key is sk-" + "a1" * 15})
        assert "is not in the day" in faults(GOOD | {"source": "session_9"})
        assert faults(GOOD | {"source": "[session_1:2]"}) == ""
        for wrong in ({"group": "../etc"}, {"fact": " "}, {"fact": "x" * 1_001}, {"bucket": "nowhere"}):
            assert faults(GOOD | wrong)
        assert parse_evaluation("I cannot", "")[1]


class TestDays:
    def test_from_three_o_clock_on_it_is_the_day_before(self) -> None:
        assert latest_day(datetime(2026, 1, 6, 2, 59, tzinfo=UTC)) == date(2026, 1, 4)
        assert latest_day(datetime(2026, 1, 6, 3, 0, tzinfo=UTC)) == date(2026, 1, 5)

    def test_seven_missed_days_are_caught_up_with_the_newest(self) -> None:
        assert missed_days(date(2026, 1, 5), date(2026, 1, 5)) == []
        assert missed_days(date(2026, 1, 4), date(2026, 1, 5)) == [date(2026, 1, 5)]
        week = [date(2026, 1, day) for day in range(4, 11)]
        assert missed_days(date(2026, 1, 3), date(2026, 1, 10)) == week
        assert missed_days(date(2026, 1, 2), date(2026, 1, 10)) == week
        assert missed_days(date(2026, 2, 1), date(2026, 1, 10)) == []

    def test_a_day_has_23_or_25_hours_when_clocks_change(self) -> None:
        clock = FakeClock(NOW, ZoneInfo("Europe/Berlin"))
        spans = [day_bounds(day, clock) for day in (date(2026, 3, 28), date(2026, 3, 29), date(2026, 10, 25))]
        assert [(end - start) / timedelta(hours=1) for start, end in spans] == [24, 23, 25]
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


class TestContext:
    def test_a_summary_has_at_most_120_words(self) -> None:
        words = " ".join(["word"] * 500)
        record = SessionFacts(
            view(prompt=words, summary=words), (f"keep {words}", words), tuple(f"a/{one}.py" for one in range(200))
        )
        told = summarise_by_rules(record)
        assert len(told.split()) <= MAX_WORDS
        for part in ("Task:", "Outcome: succeeded", "Decided:", "Files: a/0.py", "more."):
            assert part in told
        assert len(clip(words, 120).split()) == 120
        assert clip(" ".join(["w"] * 120), 120).endswith("w")

    def test_a_models_words_are_clipped_and_without_any_the_record_speaks(self, context: SessionSummariser) -> None:
        class Summing:
            def ask(self, question: Question) -> Answer | None:
                return Answer(" ".join(["word"] * 300), 1) if question.subject == "session_1" else None

        context._model = Summing()  # type: ignore[assignment]
        assert len(context.summary(SessionFacts(view())).split()) == MAX_WORDS
        assert context.summary(SessionFacts(view("session_2"))).startswith("Task: Fix the parser.")

    def test_it_is_remembered_once_for_each_outcome(self, context: SessionSummariser, database: Database) -> None:
        work: Any = context._work
        one = work.add(view(check=CheckResult("pytest", 3, 1)))
        work.files["session_1"] = ("parser.py",)
        ended(database, one)
        (fact,) = Ledger(database).latest(1)
        context.handle(fact)
        context.handle(fact)
        store = MemoryStore(database)
        (red,) = store.entries(Layer.CONTEXT)
        assert (red.layer, red.session, red.kind, red.tags) == (
            "E",
            "session_1",
            "summary",
            ("summary", "problem found"),
        )
        assert "parser.py" in red.text
        assert "Outcome: problem found. 3 tests passed, 1 failed." in red.text
        work.add(replace(one, discarded_at=NOW))
        gone = replace(fact, kind="ChangeSetDiscarded", subject="change_1", payload={"session_id": "session_1"})
        context.handle(gone)
        now, before = store.entries(Layer.CONTEXT)
        assert (now.tags[1], before.superseded_by) == ("discarded", now.id)

    @pytest.fixture
    def context(self, database: Database, clock: FakeClock) -> SessionSummariser:
        work, store = FakeWork(), MemoryStore(database)
        captures = Captures(database, work, store.remember)
        said = lambda where, words: None  # noqa: E731
        return SessionSummariser(work, captures, store, store.remember, model=NobodyAsks(), clock=clock, report=said)


def crash(*_: object, **__: object) -> None:
    raise InterruptedError("the power went")
