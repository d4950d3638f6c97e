"""The gates from sessions to their project, once and no more (SPEC 6.2, 6.3), and compaction (SPEC 6.6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import SessionEnded, SessionStarted
from engine.files import write_atomic
from engine.learning.learnings.chain import NO_JUDGE
from engine.learning.learnings.questions import JUDGE, read_claims, read_verdict
from engine.learning.learnings.rules import Impact, SessionRecord
from engine.model import Answer, LearningEntry, LearningScope, LearningStatus, Question, Refusal
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from engine.storage.ledger import MAX_ATTEMPTS
from engine.storage.state import unfinished_intents
from tests.learning.learnings.world import NO_MODEL, SHOP, Says, World, fact, view

UV = "We install with uv"


def project(world: World) -> list[str]:
    return [one.text for one in world.learnings.entries("project")]


def test_running_it_again_changes_no_byte_and_counts_nothing_twice(world: World) -> None:
    for number in range(5):
        world.session(f"s{number}", UV, by="operator")
    (known,) = world.learnings.entries("project")
    assert known.reinforcement_count == 2
    assert known.reinforced_by == ("s3", "s4")
    before, events = world.files(), len(world.events("LearningReinforced"))
    world.clock.advance(timedelta(days=1))
    assert world.learnings.chain().nothing
    again = SessionEnded(subject="s4", workspace=SHOP, prediction_id="p", state="succeeded", summary="", cost=0)
    world.record(again)  # the same fact again, as after a crash
    assert world.learnings.chain().nothing
    assert world.files() == before
    assert len(world.events("LearningReinforced")) == events


def test_a_quote_counts_again_once_the_operator_kept_it(world: World) -> None:
    for number in range(3):
        world.session(f"s{number}", UV)
    (known,) = world.learnings.entries("project")
    world.session("s3", UV)
    assert world.learnings.entries("project")[0].reinforced_by == ()
    assert world.learnings.keep(known.id).may_guide
    world.session("s4", UV)
    (kept,) = world.learnings.entries("project")
    assert kept.reinforced_by == ("s3", "s4")


def test_what_the_operator_retired_in_the_project_does_not_come_back(world: World) -> None:
    for number in range(3):
        world.session(f"s{number}", UV)
    world.learnings.retract(world.learnings.entries("project")[0].id, "we use pip")
    for number in range(3, 7):
        world.session(f"s{number}", UV)
    (known,) = world.learnings.entries("project")
    assert known.status is LearningStatus.RETIRED
    assert known.reinforcement_count == 0


def test_a_bad_page_is_named_once_and_the_others_go_on(world: World) -> None:
    bad = world.data / "learnings/global/institutional.md"
    bad.parent.mkdir(parents=True)
    bad.write_text("---\nid: lrn_x\ntype: poem\n---\nRoses\n")
    for number in range(3):
        world.session(f"s{number}", UV)
    assert len(project(world)) == 1
    for _ in range(2):
        (fault,) = world.learnings.chain().faults
    assert "learnings/global/institutional.md line 3: type is 'poem'" in fault
    assert len(world.faults) == 1
    assert bad.read_text().startswith("---\nid: lrn_x\ntype: poem")
    state = world.learnings.scopes()[0]
    assert (state.scope, state.faults) == (LearningScope.GLOBAL, (fault,))


def test_sessions_that_go_on_with_each_other_are_one_piece_of_work(world: World) -> None:
    world.session("s1", UV)
    world.session("s2", UV, continues="s1")
    world.session("s3", UV, continues="s1")
    assert project(world) == []
    world.session("s4", UV)
    world.session("s5", UV)
    (known,) = world.learnings.entries("project")
    world.session("s6", UV, continues="s1")
    assert world.learnings.view(known.id).entry.reinforced_by == ()
    assert world.learnings.view(known.id).sessions == ("s1", "s2", "s3", "s4", "s5")
    before = world.files()
    assert world.learnings.chain().nothing
    assert world.files() == before


def test_no_secret_is_written(world: World) -> None:
    world.session("s1", "The key is sk-test-0123456789abcdefghijklmnop for good")
    assert all(b"sk-test" not in data for data in world.files().values())
    assert "[secret cut]" in world.learnings.entries()[0].text


def test_whenever_it_dies_the_next_start_comes_to_the_same(
    tmp_path: Path, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the n-th page that the third session writes, and before the intent is taken away."""
    whole = World(tmp_path / "whole", database, clock)
    for number in range(3):
        whole.session(f"w{number}", UV)
    wanted = [data.replace(b"@w", b"@s").count(b"@s") for data in whole.files().values()]

    for died_at in range(1, 5):
        folder = tmp_path / f"data{died_at}"
        world = World(folder, database, clock)
        for number in range(2):
            world.session(f"s{died_at}{number}", UV)
        left = died_at

        def dying(path: Path, data: bytes) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            write_atomic(path, data)

        with monkeypatch.context() as patched:
            patched.setattr("engine.learning.learnings.store.write_atomic", dying)
            try:
                world.session(f"s{died_at}2", UV)
                survived = True
            except KeyboardInterrupt:
                survived = False
        again = World(folder, database, clock)
        again.told.records |= world.told.records
        assert again.learnings.recover() == []
        again.learnings.catch_up()
        assert project(again) == [UV]
        assert [data.count(b"@s") for data in again.files().values()] == wanted
        promoted = [event for event in again.events("LearningPromoted") if f"s{died_at}2" in event.payload["sessions"]]
        assert len(promoted) == 1, "told once"
        before = again.files()
        assert again.learnings.chain().nothing
        assert again.files() == before
    assert survived, "the last of them did not die any more"


def test_of_what_is_long_past_no_model_is_asked_and_nothing_is_feared(
    tmp_path: Path, database: Database, clock: FakeClock
) -> None:
    """A home with years of sessions meets the chain for the first time."""
    model = Says('{"learnings": []}')
    world = World(tmp_path / "data", database, clock, model=model)
    healed = fact("ValidationHealed", "s0", failing=["tests/a.py::test_b"], attempts=1, cost=0)
    for number in range(3):
        session = f"s{number}"
        world.told.records[session] = SessionRecord(view(session), "backend_lead", entries=(healed,))
        world.record(SessionStarted(subject=session, workspace=SHOP, prediction_id="p", sandbox="none"))
        ended = SessionEnded(subject=session, workspace=SHOP, prediction_id="p", state="succeeded", summary="", cost=0)
        world.record(ended)
    clock.advance(timedelta(days=2))
    world.learnings.catch_up()
    assert model.asked == []
    assert {one.phase for one in world.learnings.entries()} == {"corrective"}
    assert len(world.learnings.entries("project")) == 1
    world.session("s9", UV)
    assert len(model.asked) == 1


def test_gates_that_fail_are_told_of_and_gone_through_with_the_next_fact(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.session("s1", UV)
    world.session("s2", UV)
    with monkeypatch.context() as patched:
        patched.setattr("engine.learning.learnings.chain.plan_project", lambda *_: 1 / 0)
        world.session("s3", UV)
        world.learnings.catch_up()
    assert project(world) == []
    (fault,) = world.faults
    assert "could not be checked; they will be tried again: division by zero" in fault
    world.learnings.catch_up()
    assert project(world) == [UV]


def test_what_cannot_be_written_waits_and_is_neither_lost_nor_asked_of_a_model_again(
    tmp_path: Path, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Says('{"learnings": []}')
    world = World(tmp_path / "data", database, clock, model=model)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("engine.learning.learnings.store.write_atomic", full)
        world.session("s1", UV)
        for _ in range(2 * MAX_ATTEMPTS):
            world.learnings.catch_up()
    asked = len(model.asked)
    assert asked == 1
    assert len(unfinished_intents(database, "learnings")) == 1, "nothing piles up"
    (fault,) = world.faults
    assert "cannot be written yet" in fault
    world.learnings.catch_up()
    assert [one.text for one in world.learnings.entries()] == [UV]
    assert unfinished_intents(database, "learnings") == []
    assert len(world.events("LearningsExtracted")) == 1


# From a project to all of them: only at a clear yes (SPEC 6.4). And what a model says of a session (SPEC 6.6).


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
        ("yes", "no answer: the answer is not the JSON object"),
        ("", "no answer"),
        ("[true]", "no answer: the answer is not the JSON object"),
        ('{"generalises": "true"}', "no answer: the answer is not the JSON object"),
        ('{"generalises": 1, "reason": "x"}', "no answer: the answer is not the JSON object"),
        ('{"generalises": null}', "no answer: the answer is not the JSON object"),
        ('I think so: {"generalises": true}', "no answer: the answer is not the JSON object"),
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
