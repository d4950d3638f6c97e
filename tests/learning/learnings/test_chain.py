"""The promotion chain: it promotes from sessions to their project (SPEC 6.2, 6.3) and from a project to all projects
(6.4) only once, also after a crash, a full disk or an error."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import SessionStarted
from engine.files import write_atomic
from engine.learning.learnings.chain import NO_JUDGE
from engine.learning.learnings.findings import SessionRecord
from engine.learning.learnings.questions import JUDGE
from engine.model import Answer, LearningEntry, LearningScope, LearningStatus, Question, Refusal
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from engine.storage.ledger import MAX_ATTEMPTS
from engine.storage.state import unfinished_intents
from tests.learning.learnings.chain_world import (
    NO_ANSWER,
    SHOP,
    ChainWorld,
    MakeWorld,
    ScriptedModel,
    fail_with_full_disk,
    make_ledger_entry,
    make_view,
)
from tests.support.helpers import make_session_ended

UV = "We install with uv"
"""A decision that sessions state."""

NO_CLAIMS = '{"learnings": []}'
"""The answer of a model to which a session taught nothing."""

WRITE_ATOMIC = "engine.learning.learnings.store.write_atomic"
"""The function that writes a page."""


def list_project_texts(world: ChainWorld) -> list[str]:
    """The texts of the entries of the project."""
    return [entry.text for entry in world.learnings.list_entries("project")]


def assert_nothing_changes(world: ChainWorld):
    """Running the chain again changes no byte."""
    before = world.read_pages()
    assert world.learnings.run_chain().nothing
    assert world.read_pages() == before


def test_running_it_again_changes_no_byte_and_counts_nothing_twice(world: ChainWorld):
    world.end_sessions(UV, count=5, speaker="operator")
    entry = world.find_project_entry()
    assert entry.reinforcement_count == 2
    assert entry.reinforced_by == ("s3", "s4")
    events = len(world.read_events("LearningReinforced"))
    world.clock.advance(timedelta(days=1))
    assert_nothing_changes(world)
    world.record(make_session_ended("s4", workspace=SHOP))  # the same event again, as after a crash
    assert_nothing_changes(world)
    assert len(world.read_events("LearningReinforced")) == events


def test_a_quote_is_reinforced_once_the_operator_kept_it(world: ChainWorld):
    world.end_sessions(UV)
    quote = world.find_project_entry()
    world.end_session("s3", UV)
    assert world.find_project_entry().reinforced_by == ()
    assert world.learnings.keep(quote.id).may_guide
    world.end_session("s4", UV)
    assert world.find_project_entry().reinforced_by == ("s3", "s4")


def test_an_entry_that_the_operator_retired_does_not_come_back(world: ChainWorld):
    world.end_sessions(UV)
    world.learnings.retract(world.find_project_entry().id, "we use pip")
    world.end_sessions(UV, count=7)
    entry = world.find_project_entry()
    assert (entry.status, entry.reinforcement_count) == (LearningStatus.RETIRED, 0)


def test_a_bad_page_is_reported_once_and_the_others_are_read(world: ChainWorld):
    page = world.data / "learnings/global/institutional.md"
    page.parent.mkdir(parents=True)
    page.write_text("---\nid: lrn_x\ntype: poem\n---\nRoses\n")
    world.end_sessions(UV)
    assert len(list_project_texts(world)) == 1
    for _ in range(2):
        (fault,) = world.learnings.run_chain().faults
    assert "learnings/global/institutional.md line 3: type is 'poem'" in fault
    assert len(world.faults) == 1
    assert page.read_text().startswith("---\nid: lrn_x\ntype: poem")
    global_scope = world.learnings.list_scopes()[0]
    assert (global_scope.scope, global_scope.faults) == (LearningScope.GLOBAL, (fault,))


def test_sessions_that_continue_each_other_are_one_piece_of_work(world: ChainWorld):
    world.end_session("s1", UV)
    world.end_session("s2", UV, continues="s1")
    world.end_session("s3", UV, continues="s1")
    assert list_project_texts(world) == []
    world.end_session("s4", UV)
    world.end_session("s5", UV)
    entry = world.find_project_entry()
    world.end_session("s6", UV, continues="s1")
    view = world.learnings.view(entry.id)
    assert view.entry.reinforced_by == ()
    assert view.sessions == ("s1", "s2", "s3", "s4", "s5")
    assert_nothing_changes(world)


def test_no_secret_is_written(world: ChainWorld):
    world.end_session("s1", "The key is sk-test-0123456789abcdefghijklmnop for good")
    assert all(b"sk-test" not in data for data in world.read_pages().values())
    assert "[secret cut]" in world.learnings.list_entries()[0].text


def test_after_a_crash_at_any_page_the_next_start_finishes_the_promotion(
    tmp_path: Path, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    """The third session writes two pages. It crashes before the first, or before the second."""
    undisturbed = ChainWorld(tmp_path / "undisturbed", database, clock)
    for number in range(3):
        undisturbed.end_session(f"u{number}", UV)
    sources_by_page = [data.count(b"@u") for data in undisturbed.read_pages().values()]
    pages_left = 0

    def write_or_crash(path: Path, data: bytes):
        nonlocal pages_left
        if not pages_left:
            raise KeyboardInterrupt
        pages_left -= 1
        write_atomic(path, data)

    for pages_before_crash in range(2):
        folder, session = tmp_path / f"data{pages_before_crash}", f"s{pages_before_crash}"
        world = ChainWorld(folder, database, clock)
        for number in range(2):
            world.end_session(f"{session}{number}", UV)
        pages_left = pages_before_crash
        with monkeypatch.context() as patch:
            patch.setattr(WRITE_ATOMIC, write_or_crash)
            with pytest.raises(KeyboardInterrupt):
                world.end_session(f"{session}2", UV)
        restarted = ChainWorld(folder, database, clock)
        restarted.sessions.records |= world.sessions.records
        assert restarted.learnings.recover() == []
        restarted.learnings.catch_up()
        assert list_project_texts(restarted) == [UV]
        assert [data.count(b"@s") for data in restarted.read_pages().values()] == sources_by_page
        promotions = restarted.read_events("LearningPromoted")
        assert len([event for event in promotions if f"{session}2" in event.payload["sessions"]]) == 1
        assert_nothing_changes(restarted)


def test_no_model_is_asked_about_sessions_that_ended_long_ago_and_no_risks_are_written(
    make_world: MakeWorld, clock: FakeClock
):
    """A new engine reads a home with years of sessions."""
    model = ScriptedModel(NO_CLAIMS)
    world = make_world(model)
    healed = make_ledger_entry("ValidationHealed", "s0", failing=["tests/a.py::test_b"], attempts=1, cost=0)
    for session in ("s0", "s1", "s2"):
        world.sessions.records[session] = SessionRecord(make_view(session), "backend_lead", entries=(healed,))
        world.record(SessionStarted(subject=session, workspace=SHOP, prediction_id="p", sandbox="none"))
        world.record(make_session_ended(session, workspace=SHOP))
    clock.advance(timedelta(days=2))
    world.learnings.catch_up()
    assert model.questions == []
    assert {entry.phase for entry in world.learnings.list_entries()} == {"corrective"}
    assert len(list_project_texts(world)) == 1
    world.end_session("s9", UV)
    assert len(model.questions) == 1


def test_gates_that_fail_are_reported_and_checked_again_with_the_next_ledger_entry(
    world: ChainWorld, monkeypatch: pytest.MonkeyPatch
):
    world.end_session("s1", UV)
    world.end_session("s2", UV)
    with monkeypatch.context() as patch:
        patch.setattr("engine.learning.learnings.chain.plan_project", lambda *_: 1 / 0)
        world.end_session("s3", UV)
        world.learnings.catch_up()
    assert list_project_texts(world) == []
    (fault,) = world.faults
    assert "could not be checked; they will be tried again: division by zero" in fault
    world.learnings.catch_up()
    assert list_project_texts(world) == [UV]


def test_entries_that_cannot_be_written_wait_and_the_model_is_not_asked_again(
    make_world: MakeWorld, database: Database, monkeypatch: pytest.MonkeyPatch
):
    model = ScriptedModel(NO_CLAIMS)
    world = make_world(model)

    with monkeypatch.context() as patch:
        patch.setattr(WRITE_ATOMIC, fail_with_full_disk)
        world.end_session("s1", UV)
        for _ in range(2 * MAX_ATTEMPTS):
            world.learnings.catch_up()
    assert len(model.questions) == 1
    assert len(unfinished_intents(database, "learnings")) == 1
    (fault,) = world.faults
    assert "cannot be written yet" in fault
    world.learnings.catch_up()
    assert [entry.text for entry in world.learnings.list_entries()] == [UV]
    assert unfinished_intents(database, "learnings") == []
    assert len(world.read_events("LearningsExtracted")) == 1
    assert len(model.questions) == 1, "its entries are written"


# From a project to all projects (SPEC 6.4)

YES = '{"generalises": true, "reason": "it always helps"}'


def make_world_with_judge(make_world: MakeWorld, *answers: str | Exception) -> ChainWorld:
    """A project with one learning, and a judge that gives these answers."""
    world = make_world(ScriptedModel(*[NO_CLAIMS] * 3, *answers))
    world.end_sessions(UV, speaker="operator")
    return world


def list_global_entries(world: ChainWorld) -> list[LearningEntry]:
    """The entries of all projects."""
    return world.learnings.list_entries("global")


class ForgettingJudge(ScriptedModel):
    """A judge during whose answer the operator forgets something."""

    forget: Callable[[], object] = staticmethod(lambda: None)

    def ask(self, question: Question, /) -> Answer | None:
        answer = super().ask(question)
        if question.purpose == JUDGE:
            self.forget()
        return answer


@pytest.mark.parametrize(
    "answer, verdict",
    [
        (NO_ANSWER, "no answer: no answer: the model did not answer within 30 s"),
        ("yes", "no answer: the answer is not the JSON object"),
        ('{"generalises": false, "reason": "only here"}', "does not: only here"),
    ],
    ids=["no answer", "no JSON", "no"],
)
def test_nothing_is_promoted_without_a_clear_yes(make_world: MakeWorld, answer: str | Exception, verdict: str):
    world = make_world_with_judge(make_world, answer)
    (judged,) = world.learnings.run_chain(judge=True).judged.values()
    assert judged.startswith(verdict)
    assert list_global_entries(world) == []
    assert len(world.read_events("LearningJudged")) == 1


def test_a_yes_promotes_once_with_its_provenance(make_world: MakeWorld):
    world = make_world_with_judge(make_world, YES)
    assert world.learnings.run_chain().judged == {}, "without `judge` nothing is judged"
    (promoted_id,) = world.learnings.run_chain(judge=True).promoted
    (promoted,) = list_global_entries(world)
    assert promoted.id == promoted_id
    assert {source.entry for source in promoted.promoted_from} == {world.find_project_entry().id}
    assert world.learnings.view(promoted.id).sessions == ("s0", "s1", "s2")
    assert world.learnings.run_chain(judge=True).nothing
    world.end_session("s3", UV, speaker="operator")
    assert world.learnings.run_chain(judge=True).reinforced == (promoted.id,)
    assert list_global_entries(world)[0].reinforced_by == ("s3",)


def test_a_verdict_is_in_the_report_also_if_the_disk_is_full(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch):
    world = make_world_with_judge(make_world, YES)
    with monkeypatch.context() as patch:
        patch.setattr(WRITE_ATOMIC, fail_with_full_disk)
        report = world.learnings.run_chain(judge=True)
    assert [*report.judged.values()] == ["generalises: it always helps"]
    assert report.faults


@pytest.mark.parametrize(
    "reason, forgotten",
    [("it is said that we install with uv", UV), ("so says Ann", UV), ("Ann sees to it", "Ann sees to it")],
    ids=["the reason quotes the entry", "the entry", "the reason"],
)
def test_a_verdict_about_forgotten_words_is_not_written(make_world: MakeWorld, reason: str, forgotten: str):
    model = ForgettingJudge(*[NO_CLAIMS] * 3, json.dumps({"generalises": True, "reason": reason}))
    world = make_world(model)
    world.end_sessions(UV, speaker="operator")
    model.forget = lambda: world.learnings.texts.erase(SearchTerms([forgotten]))
    assert world.learnings.run_chain(judge=True).judged == {}
    assert world.read_events("LearningJudged") == []
    assert list_global_entries(world) == []


def test_without_a_model_the_operator_judges(world: ChainWorld):
    world.end_sessions(UV, speaker="operator")
    entry = world.find_project_entry()
    assert world.learnings.run_chain(judge=True).judged == {entry.id: NO_JUDGE}
    assert list_global_entries(world) == []
    promoted = world.learnings.promote(entry.id)
    assert (promoted.scope, promoted.text) == (LearningScope.GLOBAL, UV)
    for id, code in ((entry.id, "already_promoted"), (world.learnings.list_entries("team")[0].id, "not_promotable")):
        with pytest.raises(Refusal) as refusal:
            world.learnings.promote(id)
        assert refusal.value.code == code
    world.learnings.retract(entry.id)
    with pytest.raises(Refusal, match="was retracted"):
        world.learnings.promote(entry.id)


def test_a_model_that_does_not_answer_is_reported_once_and_the_rules_count(make_world: MakeWorld):
    model = ScriptedModel(NO_ANSWER)
    world = make_world(model)
    world.end_session("s1", UV, speaker="operator")
    assert [entry.text for entry in world.learnings.list_entries("team")] == [UV]
    (fault,) = world.faults
    assert "the rules did" in fault
    world.learnings.catch_up()
    (question,) = model.questions
    assert (question.purpose, question.subject, question.workspace) == ("learnings", "s1", SHOP)


def test_an_entry_that_the_operator_misspelled_is_not_promoted_a_second_time(world: ChainWorld):
    world.end_sessions("Amounts are whole cents.", speaker="operator")
    page = world.data / world.find_project_entry().path
    page.write_text(page.read_text().replace("status: active", "status: retried"))
    before = page.read_bytes()
    world.end_session("s9", "Amounts are whole cents.", speaker="operator")
    world.learnings.run_chain()
    assert page.read_bytes() == before
    assert world.learnings.list_entries("project") == []


def test_sessions_make_an_entry_by_hand_more_certain_and_its_count_stays(world: ChainWorld):
    world.end_session("s0", "Something else was decided.")
    page = next((world.data / "learnings/projects").iterdir()) / "institutional.md"
    page.write_text("---\nid: lrn_mine\ntype: directive\nreinforcement_count: 12\n---\nAmounts are whole cents.\n")
    for number in range(1, 4):
        world.end_session(f"s{number}", "Amounts are whole cents.", speaker="operator")
    entry = world.find_project_entry()
    assert (entry.confidence, entry.reinforcement_count) == (0.75, 15)
    assert entry.reasons == ("it was observed repeatedly (3 times)",)


def test_a_page_that_cannot_be_written_is_in_the_report_of_a_run(world: ChainWorld, monkeypatch: pytest.MonkeyPatch):
    world.end_sessions("Amounts are whole cents.", speaker="operator")
    page = world.data / "learnings/global/institutional.md"
    page.parent.mkdir(parents=True)
    page.write_text("---\nid: a\n---\nThe same words.\n\n---\nid: b\n---\nThe same words.\n")
    monkeypatch.setattr("engine.learning.learnings.store.write_atomic", fail_with_full_disk)
    [fault] = world.learnings.run_chain().faults
    assert "No space left on device" in fault


def test_a_retraction_names_what_waits_for_another_reason_too(world: ChainWorld):
    world.end_sessions("Amounts are whole cents.")
    [quote] = [entry for entry in world.learnings.files.read_entries() if entry.scope is LearningScope.PROJECT]
    source = world.learnings.view(quote.id).promoted_from[0]
    assert world.learnings.retract(source.id).queued == (quote.id,)
    assert world.learnings.view(quote.id).entry.review == quote.review


def test_the_copy_in_a_team_is_valid_again_with_its_entry_but_is_not_approved(world: ChainWorld):
    healed = make_ledger_entry("ValidationHealed", "s0", failing=["a name that is a sentence"], attempts=1, cost=0)
    world.end_session("s0", entries=(healed,))
    [above] = [entry for entry in world.learnings.files.read_entries() if entry.promoted_from]
    world.learnings.retract(above.id)
    assert world.learnings.keep(above.id).approved_by == "operator"
    [copy] = world.learnings.view(above.id).promoted_from
    assert (copy.active, copy.approved_by) == (True, "")
