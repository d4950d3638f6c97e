"""Flows as sessions run them: in their places, with what is stored and discarded (SPEC 3.8, 3.9)."""

import sys
from dataclasses import replace

import pytest

from engine.config.settings import Settings, WorkspaceSettings
from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import FlowResult, Job
from engine.execution.runners.flows import LearnedFlow, make_learned_flow
from engine.execution.sandbox.ladder import NoSandbox
from engine.model import CheckResult, Refusal, SessionState, Verdict
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import MakeWorld
from tests.support.repository import Repository

CHECK = CheckResult("pytest", passed=2, failed=1, failing=("t::a",), durations=(("t::a", 1.5),))


@pytest.fixture
def world(make_world: MakeWorld, repository: Repository) -> FlowWorld:
    repository.commit("begin", {"cart.py": "total = 1\n", ".gitignore": ".venv\n"})
    return make_world(FlowWorld, repository=repository)


def write_by_command(job: Job, name: str, text: str = "x\n"):
    """Write a file as a command of the flow."""
    job.run([sys.executable, "-c", f"open({name!r}, 'w').write({text!r})"])


def test_a_check_runs_in_the_operators_tree(world: FlowWorld):
    def perform(job: Job) -> FlowResult:
        (job.scratch / "report").write_text("here")
        assert job.run(["cat", str(job.scratch / "report")]).output == "here\n"
        assert job.folder == job.workspace == world.repository.path
        return FlowResult("fine", check=CHECK, full=True)

    view = world.run_scripted(Place.CHECK, perform)
    assert (view.state, view.summary, view.check) == (SessionState.SUCCEEDED, "fine", CHECK)
    run = world.get_only_run()
    assert run.head == world.repository.git("rev-parse", "HEAD")
    assert run.tree == world.repository.git("rev-parse", "HEAD^{tree}")
    assert (run.clean, run.full, run.check) == (True, True, CHECK)
    assert world.changes.list_newest() == []


def test_a_check_of_a_tree_that_changed_meanwhile_is_recorded_for_no_state(world: FlowWorld):
    def perform(job: Job) -> FlowResult:
        world.repository.write("cart.py", "total = 3\n")
        return FlowResult("fine", check=CHECK, full=True)

    world.run_scripted(Place.CHECK, perform)
    run = world.get_only_run()
    assert (run.tree, run.clean) == ("", False)


def test_a_worktree_has_the_present_files_and_is_removed(world: FlowWorld):
    world.repository.write("draft.py", "draft\n")
    before = world.repository.git("status", "--porcelain")
    folders = []

    def perform(job: Job) -> FlowResult:
        folders.append(job.folder)
        assert (job.folder / "draft.py").read_text() == "draft\n"
        write_by_command(job, "made.py")
        return FlowResult("fine", check=CHECK)

    view = world.run_scripted(Place.WORKTREE, perform)
    assert view.state is SessionState.SUCCEEDED, view.summary
    assert view.cwd == str(folders[0]) != str(world.repository.path)
    assert not folders[0].exists()
    assert world.repository.git("status", "--porcelain") == before
    assert world.repository.git("for-each-ref", "refs/clawpy") == ""
    assert not world.get_only_run().clean


@pytest.mark.long
@pytest.mark.parametrize("place", [Place.WORKTREE, Place.CHANGE_SET])
def test_a_flow_that_fails_leaves_nothing(world: FlowWorld, place: Place):
    def perform(job: Job) -> FlowResult:
        write_by_command(job, "half.py")
        raise WorkFailed("no tool", "install one")

    view = world.run_scripted(place, perform)
    assert (view.state, view.summary) == (SessionState.FAILED, "no tool (install one)")
    assert world.changes.list_newest() == [*world.home.worktrees.iterdir()] == []
    assert world.repository.git("for-each-ref", "refs/clawpy") == ""


@pytest.mark.long
def test_the_setup_command_prepares_the_worktree(world: FlowWorld):
    def make_settings(setup: str) -> Settings:
        return Settings(workspaces={str(world.repository.path): WorkspaceSettings(setup=setup)})

    world.settings.current = make_settings("echo ready > prepared.txt; echo prepared it")
    view = world.run_scripted(Place.WORKTREE, lambda job: FlowResult((job.folder / "prepared.txt").read_text()))
    assert view.summary == "ready"
    assert "prepared it" in world.read_transcript(view)
    world.settings.current = make_settings("exit 3")
    view = world.run_scripted(Place.WORKTREE, lambda job: FlowResult("not reached"))
    assert view.state is SessionState.CANNOT_RUN
    assert "setup command ended with exit code 3" in view.summary


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


def test_packages_are_installed_only_over_an_overlay(unconfined: FlowWorld):
    view = unconfined.run_scripted(Place.INSTALL, lambda job: FlowResult("not reached"))
    assert view.state is SessionState.CANNOT_RUN
    assert view.summary.startswith("only a sandbox with an overlay may install packages into your tree")


# What the operator allowed once


ECHO = ("echo", "a")


class Repeated(LearnedFlow):
    """Runs each command twice."""

    name, label, workspace, commands = "repeated", "Repeat", "", (ECHO,)

    def run(self, job: Job) -> FlowResult:
        super().run(job)
        return super().run(job)


@pytest.mark.parametrize(
    "flow, prompt, state",
    [
        (make_learned_flow("twice", "Twice", (ECHO, ECHO), ""), "", SessionState.SUCCEEDED),
        (Repeated, "", SessionState.BLOCKED),
        (make_learned_flow("other", "Other", (ECHO,), ""), "Run echo b", SessionState.BLOCKED),
    ],
    ids=["as often", "more often", "another prompt"],
)
def test_a_forbidden_command_runs_as_often_as_the_allowed_assignment_names_it(
    make_world: MakeWorld, repository: Repository, flow: type[LearnedFlow], prompt: str, state: SessionState
):
    repository.commit("begin", {"cart.py": "total = 1\n"})
    rails = {"verdict": lambda command: Verdict.BLOCK, "is_allowed_once": lambda permit_id: True}
    world = make_world(FlowWorld, repository=repository, **rails)
    world.flows[flow.name] = flow
    view = world.wait(world.begin(replace(world.assign(flow.name), prompt=prompt or flow().describe())))
    assert view.state is state
