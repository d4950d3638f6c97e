"""The worktree of an agent gets packages where the settings allow it, and tests run with them (SPEC 3.8)."""

from pathlib import Path
from typing import cast

import pytest

from engine.config import Settings, WorkspaceSettings
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.toolchains.projects import read_project
from engine.execution.sandbox import Sandbox
from engine.execution.session_folders import SessionFolder
from engine.model import SessionState
from tests.conftest import Repository
from tests.execution.agent_world import AgentWorld, do_nothing
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import MakeWorld
from tests.execution.toolchains.installations import NPM_PROJECT, PYPI, commit_project, run_program
from tests.support.helpers import needs


@pytest.fixture
def agent_world(make_world: MakeWorld, repository: Repository, gated_sandbox: Sandbox) -> AgentWorld:
    return make_world(AgentWorld, repository=repository, sandbox=gated_sandbox)


@pytest.mark.long
def test_the_worktree_of_an_agent_gets_packages_where_the_settings_allow_it(agent_world: AgentWorld):
    needs("python3", host=PYPI)
    top = commit_project(
        agent_world, {"requirements.txt": "iniconfig==2.0.0\n", "test_shop.py": "def test_it():\n    pass\n"}, ""
    )
    (top / ".venv/bin").mkdir(parents=True)
    (top / ".venv/.gitignore").write_text("*\n")
    (top / ".venv/bin/python").symlink_to("/usr/bin/false")  # the operator's own is not the worktree's
    agent_world.settings.current = Settings(workspaces={str(top): WorkspaceSettings(prepare=True)})

    found = []

    def import_package(live: LiveSession, folder: SessionFolder):
        script = "import sys, iniconfig; print(sys.prefix, iniconfig.__file__)"
        found.append(live.execute(["python3", "-c", script], cwd=folder.path).output)

    agent_world.agent.work = import_package
    view = agent_world.wait(agent_world.begin_prose(), 300)

    transcript = "\n".join(agent_world.read_lines(view, ()))
    assert f"worktrees/{view.id}/.venv" in found[0], transcript
    assert "prepare: python3 -m venv .venv && .venv/bin/pip install" in transcript
    assert "network: pypi.org, files.pythonhosted.org" in transcript
    assert agent_world.changes.list() == []  # what was installed is no part of its diff


@pytest.mark.long
def test_an_agent_works_without_packages_that_cannot_be_installed(agent_world: AgentWorld):
    needs("npm")
    top = commit_project(agent_world, NPM_PROJECT)
    agent_world.settings.current = Settings(workspaces={str(top): WorkspaceSettings(prepare=True)})

    agent_world.agent.work = do_nothing
    view = agent_world.wait(agent_world.begin_prose(), 300)

    assert view.state is SessionState.SUCCEEDED
    assert "not prepared: `npm ci` ended with exit code 1" in "\n".join(agent_world.read_lines(view, ()))


def test_the_tests_of_a_prepared_worktree_run_with_its_own_packages(world: FlowWorld, tmp_path: Path):
    needs("python3", host=PYPI)
    top = commit_project(
        world, {"requirements.txt": "iniconfig==2.0.0\n", "test_shop.py": "def test_it():\n    pass\n"}
    )
    run_program(top, "git", "worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    run_program(tmp_path / "tree", "python3", "-m", "venv", "--without-pip", ".venv")
    [packages] = (tmp_path / "tree/.venv").glob("lib/python3*/site-packages")
    (packages / "pytest").mkdir()
    (packages / "pytest/__init__.py").touch()

    tool = read_project(tmp_path / "tree", top).tool

    assert tool.interpreter == str(tmp_path / "tree/.venv/bin/python")


@pytest.mark.long
def test_go_and_cargo_use_the_cached_packages(world: FlowWorld):
    def show_caches(job: Job) -> FlowResult:
        caches = cast(LiveSession, job.session).confinement.caches
        before = job.run(["sh", "-c", "echo $GOMODCACHE,$CARGO_HOME"]).output.strip()
        (caches / "go-mod").mkdir()
        after = job.run(["sh", "-c", "echo $GOMODCACHE,$CARGO_HOME"]).output.strip()
        return FlowResult(f"{before} {after.removeprefix(str(caches))}")

    commit_project(world, {"a": "1"})
    assert world.run_scripted(Place.CHECK, show_caches).summary == ", /go-mod,"
