"""What a session works on by the place that its flow asks for, and what it leaves there (SPEC 3.8, 3.9)."""

import pytest

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.sandbox.ladder import NoSandbox, find_best_sandbox
from engine.model import Refusal, SessionState
from tests.conftest import Repository
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import MakeWorld


@pytest.fixture
def unconfined(make_world: MakeWorld, repository: Repository) -> FlowWorld:
    """A world of flows without a sandbox."""
    repository.commit("one", {"a.txt": "a\n"})
    return make_world(FlowWorld, repository=repository, sandbox=NoSandbox())


def test_a_check_without_an_overlay_works_in_a_copy_and_no_change_set_lands_meanwhile(unconfined: FlowWorld):
    def perform(job: Job) -> FlowResult:
        assert job.folder != job.workspace
        with pytest.raises(Refusal, match="runs without a sandbox"), unconfined.worktrees.locks.hold_exclusively("/"):
            pass
        return FlowResult("looked at a copy")

    assert unconfined.run_scripted(Place.CHECK, perform).summary == "looked at a copy"
    with unconfined.worktrees.locks.hold_exclusively(str(unconfined.workspace)):
        pass


def test_a_flow_of_the_engine_itself_lets_change_sets_land(unconfined: FlowWorld):
    def perform(job: Job) -> FlowResult:
        with unconfined.worktrees.locks.hold_exclusively(str(unconfined.workspace)):
            return FlowResult(f"in {job.folder.name}")

    assert unconfined.run_scripted(Place.ENGINE, perform).summary == f"in {unconfined.workspace.name}"


def test_packages_are_installed_only_over_an_overlay(unconfined: FlowWorld):
    view = unconfined.run_scripted(Place.INSTALL, lambda job: FlowResult("not reached"))
    assert view.state is SessionState.CANNOT_RUN
    assert view.summary.startswith("only a sandbox with an overlay may install packages into your tree")


def test_files_that_a_check_writes_over_the_tree_are_named_and_discarded(make_world: MakeWorld, repository: Repository):
    if find_best_sandbox().name != "bubblewrap":
        pytest.skip("only bubblewrap has an overlay")
    repository.commit("one", {"a.txt": "a\n"})
    world = make_world(FlowWorld, repository=repository)

    def perform(job: Job) -> FlowResult:
        job.run(["touch", "report.xml"])
        return FlowResult("tested")

    view = world.run_scripted(Place.CHECK, perform)
    assert view.summary == "tested · wrote 1 file, discarded"
    assert "discarded: report.xml" in world.read_lines(view, ("note",))
    assert not (world.workspace / "report.xml").exists()
