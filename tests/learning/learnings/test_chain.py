"""The promotion chain: it promotes from sessions to their project (SPEC 6.2, 6.3) and from a project to all projects
(6.4) only once, also after a crash, a full disk or an error."""

from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.files import write_atomic
from engine.learning.learnings.chain import NO_JUDGE
from engine.model import LearningEntry, LearningScope, LearningStatus, Refusal
from engine.storage.database import Database
from engine.storage.ledger import MAX_ATTEMPTS
from engine.storage.state import read_unfinished_intents
from tests.learning.learnings.chain_world import NO_ANSWER, ChainWorld, MakeWorld, ScriptedModel, fail_with_full_disk

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
    assert world.learnings.run_chain().is_empty
    assert world.read_pages() == before


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
    assert len(read_unfinished_intents(database, "learnings")) == 1
    (fault,) = world.faults
    assert "cannot be written yet" in fault
    world.learnings.catch_up()
    assert [entry.text for entry in world.learnings.list_entries()] == [UV]
    assert read_unfinished_intents(database, "learnings") == []
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
    assert world.learnings.run_chain(judge=True).is_empty
    world.end_session("s3", UV, speaker="operator")
    assert world.learnings.run_chain(judge=True).reinforced == (promoted.id,)
    assert list_global_entries(world)[0].reinforced_by == ("s3",)


def test_without_a_model_the_operator_judges(world: ChainWorld):
    world.end_sessions(UV, speaker="operator")
    entry = world.find_project_entry()
    assert world.learnings.run_chain(judge=True).judged == {entry.id: NO_JUDGE}
    assert list_global_entries(world) == []
    promoted = world.learnings.promote(entry.id)
    assert (promoted.scope, promoted.text) == (LearningScope.GLOBAL, UV)
    with pytest.raises(Refusal, match="all projects already have"):
        world.learnings.promote(entry.id)
