"""The place in which a session works, and what is left of it: files over the operator's tree, and changes that a
session made before it was stopped (SPEC 3.8, 3.9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import FlowResult, Job, Place, RetryLater
from engine.execution.sandbox.ladder import NoSandbox, find_best_sandbox
from engine.execution.session_folders import SessionFolder
from engine.model import Refusal, SessionState
from tests.conftest import Repository
from tests.execution.agent_world import AgentWorld
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import MakeWorld
from tests.support.helpers import wait_until


@pytest.fixture
def agents(make_world: MakeWorld, repository: Repository) -> AgentWorld:
    """A world with an agent that writes `half.txt`."""
    repository.commit("one", {"a.txt": "a\n"})
    world = make_world(AgentWorld, repository=repository)
    world.agent.work = write_half
    return world


def write_half(live: LiveSession, folder: SessionFolder) -> None:
    (folder.path / "half.txt").write_text("half\n")


@pytest.fixture
def unconfined(make_world: MakeWorld, repository: Repository) -> FlowWorld:
    """A world of flows without a sandbox."""
    repository.commit("one", {"a.txt": "a\n"})
    return make_world(FlowWorld, repository=repository, sandbox=NoSandbox())


def test_a_check_without_an_overlay_works_in_a_copy_and_no_change_set_lands_meanwhile(unconfined: FlowWorld) -> None:
    def perform(job: Job) -> FlowResult:
        assert job.folder != job.workspace
        with pytest.raises(Refusal, match="runs without a sandbox"), unconfined.worktrees.locks.hold_exclusively("/"):
            pass
        return FlowResult("looked at a copy")

    assert unconfined.run_scripted(Place.CHECK, perform).summary == "looked at a copy"
    with unconfined.worktrees.locks.hold_exclusively(str(unconfined.workspace)):
        pass


def test_a_flow_of_the_engine_itself_lets_change_sets_land(unconfined: FlowWorld) -> None:
    def perform(job: Job) -> FlowResult:
        with unconfined.worktrees.locks.hold_exclusively(str(unconfined.workspace)):
            return FlowResult(f"in {job.folder.name}")

    assert unconfined.run_scripted(Place.ENGINE, perform).summary == f"in {unconfined.workspace.name}"


def test_packages_are_installed_only_over_an_overlay(unconfined: FlowWorld) -> None:
    view = unconfined.run_scripted(Place.INSTALL, lambda job: FlowResult("not reached"))
    assert view.state is SessionState.CANNOT_RUN
    assert view.summary.startswith("only a sandbox with an overlay may install packages into your tree")


def test_files_that_a_check_writes_over_the_tree_are_named_and_discarded(
    make_world: MakeWorld, repository: Repository
) -> None:
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


def test_changes_that_cannot_be_saved_at_a_stop_are_saved_by_the_next_start(
    agents: AgentWorld, make_world: MakeWorld, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_and_wait(live: LiveSession, folder: SessionFolder) -> None:
        write_half(live, folder)
        live.say("half is written")
        wait_until(lambda: live.stop_requested)
        live.check_running()

    def fail(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    agents.agent.work = write_and_wait
    view = agents.begin_prose()
    wait_until(lambda: "half is written" in agents.read_lines(view, ("note",)))
    with monkeypatch.context() as patch:
        patch.setattr(agents.changes, "capture", fail)
        agents.sessions.stop(view.id, "stopped by you")
        assert agents.wait(view).change_set_id is None
        wait_until(lambda: any("the next start tries again" in line for line in agents.read_lines(view, ("error",))))
    assert make_world(AgentWorld, repository=repository).sessions.recover()[-1].endswith(f"1 file ({view.id})")


def test_an_agent_that_may_succeed_later_leaves_nothing(agents: AgentWorld) -> None:
    def give_up(live: LiveSession, folder: SessionFolder) -> None:
        write_half(live, folder)
        raise RetryLater("the provider is busy")

    agents.agent.work = give_up
    view = agents.wait(agents.begin_prose())
    assert (view.state, view.not_begun, view.change_set_id) == (SessionState.CANNOT_RUN, True, None)
    assert not agents.worktrees.folder_of(view.id).exists()


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (lambda changes, id: None, "The files hold what you changed"),
        (lambda changes, id: changes.land(id), "The files hold what you changed"),
        (lambda changes, id: changes.discard(id), "was discarded and may not be in the files"),
    ],
    ids=["waiting", "landed", "discarded"],
)
def test_a_model_that_continues_is_told_whether_its_changes_are_there(
    agents: AgentWorld, decide: Callable[..., object], words: str
) -> None:
    view = agents.wait(agents.begin_prose())
    decide(agents.changes, view.change_set_id)
    assert words in agents.folders.describe_carried(view.id)
    assert "nothing that you changed" in agents.folders.describe_carried("sess_other")
