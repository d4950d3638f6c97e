"""npm, pip and uv install packages and update lock files in sessions, as their cards say, also for an agent (SPEC 3.8).

A test whose tool or registry is not there is skipped.
"""

import pytest

from engine.config import Settings, WorkspaceSettings
from engine.execution.live_session import LiveSession
from engine.execution.sandbox import Sandbox
from engine.execution.session_folders import SessionFolder
from tests.conftest import Repository
from tests.execution.agent_world import AgentWorld
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import MakeWorld
from tests.execution.toolchains.installations import (
    NPM,
    PYPI,
    UV_PROJECT,
    commit_project,
    find_command_lines,
    make_npm_project,
    run_successfully,
)
from tests.support.helpers import needs

LEFT_PAD = make_npm_project(
    "left-pad",
    "1.3.0",
    resolved="https://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz",
    integrity="sha512-XI5MPzVNApjAyhQzphX8BkmKsKUxD4LdyK24iZeQGinBN9yTQT3bFlCBy/aVx2HrNcqQGsdot8ghrjyrvMCoEA==",
)


@pytest.mark.long
def test_npm_installs_into_the_tree(world: FlowWorld):
    needs("npm", "node", host=NPM)
    test = "const pad = require('left-pad');\nrequire('node:test')('pads', () => pad('a', 3));\n"
    top = commit_project(world, LEFT_PAD | {"shop.test.js": test})

    view = run_successfully(world, "prepare_environment", find_command_lines(top))
    assert world.read_transcript(view).startswith(
        "Install packages · sandbox: bubblewrap, network only to registry.npmjs.org\n`npm ci`; network: "
    )
    assert (top / "node_modules/left-pad/package.json").is_file()
    assert (top / "node_modules/.gitignore").read_text() == "*\n"
    assert world.ended[-1].facts["next"] == "run_tests"
    assert world.repository.git("status", "--porcelain") == ""
    tests = world.run_flow("run_tests")
    assert (tests.check.passed, tests.check.failed) == (1, 0)


@pytest.mark.long
def test_uv_updates_the_lock_file_and_installs(world: FlowWorld):
    needs("uv", host=PYPI)
    top = commit_project(world, {**UV_PROJECT, "uv.lock": "version = 1\nrequires-python = '>=3.9'\n"})

    run_successfully(world, "update_lock", ["uv lock"])
    [change] = world.changes.list()
    assert [file.path for file in world.changes.get(change.id).files] == ["uv.lock"]
    assert "iniconfig" not in (top / "uv.lock").read_text()  # it waits to be landed
    world.changes.land(change.id)
    run_successfully(world, "prepare_environment", find_command_lines(top))
    assert list((top / ".venv").glob("lib/python3*/site-packages/iniconfig"))


# The worktree of an agent


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
