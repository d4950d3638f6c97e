"""From a project to all of them: only at a clear yes (SPEC 6.4). And what a model says of a session (SPEC 6.6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.learning.learnings.chain import NO_JUDGE
from engine.learning.learnings.questions import JUDGE, read_claims, read_verdict, session_text
from engine.learning.learnings.scores import Impact
from engine.learning.learnings.session_records import SessionRecord
from engine.model import Answer, LearningEntry, LearningScope, Question, Refusal
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from tests.learning.learnings.world import NO_MODEL, SHOP, Says, World, view

UV = "We install with uv"
NOTHING = '{"learnings": []}'
YES = '{"generalises": true, "reason": "it always helps"}'


def judged_by(tmp_path: Path, database: Database, clock: FakeClock, *answers: str | Exception) -> World:
    """A project that knows one thing, and a judge that says this."""
    world = World(tmp_path / "data", database, clock, model=Says(NOTHING, NOTHING, NOTHING, *answers))
    for number in range(3):
        world.session(f"s{number}", UV, by="operator")
    return world


def everywhere(world: World) -> list[LearningEntry]:
    return world.learnings.entries("global")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (NO_MODEL, "no answer: no answer: the model did not answer within 30 s"),
        (Refusal("cost_cap", "the day's cap is reached"), "no answer: no answer: the day's cap is reached"),
        ("yes", "no answer: the answer is not a JSON object"),
        ("", "no answer"),
        ("[true]", "no answer: the answer says neither true nor false"),
        ('{"generalises": "true"}', "no answer: the answer says neither"),
        ('{"generalises": 1, "reason": "x"}', "no answer: the answer says neither"),
        ('{"generalises": null}', "no answer: the answer says neither"),
        ('I think so: {"generalises": true}', "no answer: the answer is not a JSON object"),
        ("[" * 5000, "no answer"),
        ('{"generalises": false, "reason": "only here"}', "does not: only here"),
    ],
)
def test_nothing_goes_up_without_a_clear_yes(
    tmp_path: Path, database: Database, clock: FakeClock, answer: str | Exception, words: str
) -> None:
    world = judged_by(tmp_path, database, clock, answer)
    (said,) = world.learnings.chain(judge=True).judged.values()
    assert said.startswith(words)
    assert everywhere(world) == []
    assert len(world.events("LearningJudged")) == 1


def test_a_yes_promotes_once_with_its_provenance(tmp_path: Path, database: Database, clock: FakeClock) -> None:
    world = judged_by(tmp_path, database, clock, YES)
    assert world.learnings.chain().judged == {}, "only when it is asked for"
    (promoted,) = world.learnings.chain(judge=True).promoted
    (risen,) = everywhere(world)
    (known,) = world.learnings.entries("project")
    assert risen.id == promoted
    assert {one.entry for one in risen.promoted_from} == {known.id}
    assert world.learnings.view(risen.id).sessions == ("s0", "s1", "s2")
    before = world.files()
    assert world.learnings.chain(judge=True).nothing
    assert world.files() == before
    world.session("s3", UV, by="operator")
    report = world.learnings.chain(judge=True)
    assert report.reinforced == (risen.id,)
    assert everywhere(world)[0].reinforced_by == ("s3",)


class Listens(Says):
    """A judge during whose time the operator has something forgotten."""

    def __init__(self, *answers: str) -> None:
        super().__init__(*answers)
        self.forget: Callable[[], object] = lambda: None

    def ask(self, question: Question, /) -> Answer | None:
        answer = super().ask(question)
        if question.purpose == JUDGE:
            self.forget()
        return answer


def listened(tmp_path: Path, database: Database, clock: FakeClock, reason: str, forgotten: str, *said: str) -> World:
    """A project that knows these things, all of which hold everywhere for this reason."""
    model = Listens(NOTHING, NOTHING, NOTHING, json.dumps({"generalises": True, "reason": reason}))
    world = World(tmp_path / "data", database, clock, model=model)
    for number in range(3):
        world.session(f"s{number}", *said, by="operator")
    model.asked.clear()
    model.forget = lambda: world.learnings.texts.erase(SearchTerms([forgotten]))
    return world


@pytest.mark.parametrize(
    ("reason", "forgotten"),
    [("it is said that we install with uv", UV), ("so says Ann", UV), ("Ann sees to it", "Ann sees to it")],
)
def test_what_a_judge_says_of_what_was_forgotten_meanwhile_is_not_written(
    tmp_path: Path, database: Database, clock: FakeClock, reason: str, forgotten: str
) -> None:
    """The entry that it speaks of is forgotten, or what it says itself: neither comes back by way of the ledger."""
    world = listened(tmp_path, database, clock, reason, forgotten, UV)
    assert world.learnings.chain(judge=True).judged == {}
    assert world.events("LearningJudged") == []
    assert everywhere(world) == []
    assert world.learnings.files._watchers == [], "the words are kept for nobody"


def test_without_a_model_the_operator_judges(world: World) -> None:
    for number in range(3):
        world.session(f"s{number}", UV, by="operator")
    (known,) = world.learnings.entries("project")
    assert world.learnings.chain(judge=True).judged == {known.id: NO_JUDGE}
    assert everywhere(world) == []
    risen = world.learnings.promote(known.id)
    assert (risen.scope, risen.text) == (LearningScope.GLOBAL, UV)
    with pytest.raises(Refusal) as again:
        world.learnings.promote(known.id)
    assert again.value.code == "already_promoted"
    with pytest.raises(Refusal) as below:
        world.learnings.promote(world.learnings.entries("team")[0].id)
    assert below.value.code == "not_promotable"
    world.learnings.retract(known.id)
    with pytest.raises(Refusal, match="is retired"):
        world.learnings.promote(known.id)


def test_a_model_that_does_not_answer_leaves_it_to_the_rules_and_is_told_of_once(
    tmp_path: Path, database: Database, clock: FakeClock
) -> None:
    model = Says(NO_MODEL)
    world = World(tmp_path / "data", database, clock, model=model)
    world.session("s1", UV, by="operator")
    assert [entry.text for entry in world.learnings.entries("team")] == [UV]
    assert len(world.faults) == 1
    assert "the rules did" in world.faults[0]
    world.learnings.catch_up()
    assert len(model.asked) == 1
    question = model.asked[0]
    assert (question.purpose, question.subject, question.workspace) == ("learnings", "s1", SHOP)


def test_claims_are_taken_in_the_form_that_was_asked_for_and_no_other() -> None:
    good = {"text": "Amounts are cents", "scope": "corrective", "about": "team", "type": "directive"}
    (one,) = read_claims(json.dumps({"learnings": [good]}), Impact())
    assert (one.confidence.value, one.phase) == (0.4, "corrective")
    assert len(read_claims(f"```json\n{json.dumps({'learnings': [good] * 9})}\n```", Impact())) == 6
    for bad in (
        "no",
        "{}",
        '{"learnings": {}}',
        json.dumps({"learnings": [good | {"scope": "global"}]}),
        json.dumps({"learnings": [good | {"about": "me"}]}),
        json.dumps({"learnings": [good | {"type": "poem"}]}),
        json.dumps({"learnings": [good | {"text": "x" * 401}]}),
        json.dumps({"learnings": [good | {"text": "the key is sk-test-0123456789abcdefghijklmnop"}]}),
        json.dumps({"learnings": [{"text": 5}]}),
    ):
        with pytest.raises(ValueError, match="the answer"):
            read_claims(bad, Impact())
    assert read_verdict("```\n" + YES + "\n```").holds is True


def test_a_session_is_told_bounded() -> None:
    record = SessionRecord(view("s1", prompt="p" * 9_000, summary="s" * 9_000, error="e" * 9_000))
    assert len(session_text(record, [])) <= 8_001
