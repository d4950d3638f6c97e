"""Packages are installed in sessions, as their cards say, or leave your tree as it is (SPEC 2.12, 3.5, 3.8).

A test whose tool or registry is not there is skipped.
"""

import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import cast

import pytest

from engine.config.settings import Settings, WorkspaceSettings
from engine.execution.live_session import LiveSession
from engine.execution.runners import CommandResult, Place, RetryLater
from engine.execution.runners.flow import FlowResult, Job
from engine.execution.runners.toolchains.detection import PackageSetup
from engine.execution.runners.toolchains.installing import (
    Installation,
    _make_temporary_path,
    _put_in_place,
    _restore_old_folder,
    install_into_tree,
    make_installation_error,
)
from engine.execution.sandbox import Sandbox
from engine.execution.session_folders import SessionFolder
from engine.model import SessionState
from tests.execution.agent_world import AgentWorld
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import MakeWorld
from tests.execution.toolchains.installations import (
    NPM,
    NPM_PROJECT,
    PYPI,
    UV_PROJECT,
    commit_project,
    describe_outcome,
    find_command_lines,
    make_npm_project,
    run_successfully,
)
from tests.support.programs import needs
from tests.support.repository import Repository

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
def test_cargo_updates_the_lock_file_of_the_workspace(world: FlowWorld):
    needs("cargo")
    files = {
        "Cargo.toml": '[package]\nname = "shop"\nversion = "0.2.0"\nedition = "2021"\n',
        "Cargo.lock": 'version = 3\n\n[[package]]\nname = "shop"\nversion = "0.1.0"\n',
        "src/main.rs": "fn main() {}\n",
    }
    commit_project(world, files)

    view = run_successfully(world, "update_lock", ["cargo update --workspace"])
    assert view.summary == "`cargo update --workspace` updated Cargo.lock"
    [change] = world.changes.list_newest()
    assert [file.path for file in world.changes.get(change.id).files] == ["Cargo.lock"]


# The worktree of an agent


@pytest.fixture
def agent_world(make_world: MakeWorld, repository: Repository, gated_sandbox: Sandbox) -> AgentWorld:
    return make_world(AgentWorld, repository=repository, sandbox=gated_sandbox)


@pytest.mark.long
def test_the_worktree_of_an_agent_gets_packages_where_the_settings_allow_it(agent_world: AgentWorld):
    needs("python3", host=PYPI)
    top = commit_project(agent_world, {"requirements.txt": "iniconfig==2.0.0\n", "test_shop.py": ""}, "")
    agent_world.settings.current = Settings(workspaces={str(top): WorkspaceSettings(prepare=True)})
    found = []

    def import_package(live: LiveSession, folder: SessionFolder):
        script = "import sys, iniconfig; print(sys.prefix)"
        found.append(live.execute(["python3", "-c", script], cwd=folder.path).output)

    agent_world.agent.work = import_package
    view = agent_world.wait(agent_world.begin_prose(), 300)

    transcript = "\n".join(agent_world.read_lines(view, ()))
    assert f"worktrees/{view.id}/.venv" in found[0], transcript
    assert "network: pypi.org, files.pythonhosted.org" in transcript
    assert agent_world.changes.list_newest() == []  # what was installed is no part of its diff


# Cards


def test_a_card_names_the_command_the_network_and_the_changes_to_the_tree(world: FlowWorld):
    top = commit_project(world, NPM_PROJECT)

    info = world.sessions.check(world.assign("prepare_environment", command=["npm ci"]))

    assert info.available
    assert info.learned_commands == "`npm ci`; network: registry.npmjs.org; creates node_modules in your tree"
    assert info.undo_note == "creates node_modules in your tree; to undo: rm -r node_modules"
    assert info.sandbox.endswith("network only to registry.npmjs.org")
    assert not info.check_only
    (top / "node_modules").mkdir()
    info = world.sessions.check(world.assign("prepare_environment", command=["npm ci"]))
    assert info.learned_commands.endswith("updates your node_modules")


def test_only_the_install_command_of_the_project_is_accepted(world: FlowWorld):
    commit_project(world, NPM_PROJECT)

    info = world.sessions.check(world.assign("prepare_environment", command=["npm install evil"]))

    assert not info.available
    assert "`npm install evil` is not the command that installs the packages" in info.reason
    assert "`npm ci`" in info.reason
    assert not world.sessions.check(world.assign("prepare_environment", command=[])).available
    assert not world.sessions.check(world.assign("update_lock", command=["npm ci"])).available


# What cannot be installed


@pytest.mark.long
def test_another_registry_is_not_reached_and_the_tree_is_unchanged(world: FlowWorld):
    needs("npm")
    files = make_npm_project("ms", "2.1.3", resolved="https://registry.invalid/ms/-/ms-2.1.3.tgz")
    top = commit_project(world, files | {".npmrc": "fetch-retries=0\nreplace-registry-host=never\n"})
    (top / "node_modules/mine").mkdir(parents=True)

    view = world.run_flow("prepare_environment", command=["npm ci"])

    assert view.state is SessionState.CANNOT_RUN, describe_outcome(world, view)
    assert "asked for registry.invalid, which is not one of its registries (registry.npmjs.org)" in view.summary
    assert [path.name for path in (top / "node_modules").iterdir()] == ["mine"]


def test_an_environment_that_is_a_link_is_left_alone(world: FlowWorld, tmp_path: Path):
    top = commit_project(world, NPM_PROJECT, ignored="node_modules\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (top / "node_modules").symlink_to(elsewhere)

    view = world.run_flow("prepare_environment", command=["npm ci"])

    assert view.state is SessionState.CANNOT_RUN, describe_outcome(world, view)
    assert "node_modules is a link" in view.summary
    assert (top / "node_modules").is_symlink()


def test_without_network_the_card_is_offered_again():
    output = "npm error\nnetwork: registry.npmjs.org:443 cannot be reached: Network is unreachable"

    error = make_installation_error(["npm", "ci"], CommandResult(1, output, 1.0), [NPM])

    assert isinstance(error, RetryLater)
    assert error.message == "registry.npmjs.org cannot be reached: Network is unreachable"


def test_a_command_that_installs_nothing_changes_nothing(world: FlowWorld):
    top = commit_project(world, {"package.json": {"name": "a"}})
    (top / "node_modules/mine").mkdir(parents=True)
    packages = PackageSetup("npm", "node", folder="", lock="", commands=(), hosts=())
    installation = Installation(packages, (("true",),), updated_folders=("node_modules",))

    def install(job: Job) -> FlowResult:
        with install_into_tree(cast(LiveSession, job.session), installation, top):
            job.run(["true"])
        return FlowResult("fine")

    view = world.run_scripted(Place.INSTALL, install)
    assert "`true` put nothing into node_modules, so nothing was changed" in view.summary
    assert (top / "node_modules/mine").is_dir()


def test_the_environment_that_clawpy_runs_from_is_not_replaced(world: FlowWorld, monkeypatch: pytest.MonkeyPatch):
    top = commit_project(world, UV_PROJECT)
    (top / ".venv/bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(top / ".venv"))

    info = world.sessions.check(world.assign("prepare_environment", command=find_command_lines(top)))

    assert not info.available
    assert info.reason.startswith("Clawpy itself runs from .venv, which cannot be replaced meanwhile (quit Clawpy, ")


@pytest.mark.long
def test_files_that_a_package_writes_elsewhere_are_discarded(world: FlowWorld):
    needs("npm", "node")
    script = (
        "node -e \"require('fs').writeFileSync('cart.js', 'evil'); require('fs').writeFileSync('.git/hooks/x', '')\""
    )
    lock = {"name": "a", "lockfileVersion": 3, "packages": {"": {"name": "a", "dependencies": {}}}}
    manifest = {"name": "a", "version": "1.0.0", "devDependencies": {}, "scripts": {"postinstall": script}}
    top = commit_project(world, {"package.json": manifest, "package-lock.json": lock, "cart.js": "mine"})

    world.run_flow("prepare_environment", command=["npm ci"])

    assert (top / "cart.js").read_text() == "mine"
    assert not (top / ".git/hooks/x").exists()


@pytest.mark.parametrize("disk", [None, Path("/dev/shm")], ids=["same disk", "another disk"])
def test_an_installed_folder_replaces_the_old_one(tmp_path: Path, disk: Path | None):
    if disk and not os.access(disk, os.W_OK):
        pytest.skip("there is no other disk here")
    fresh = Path(tempfile.mkdtemp(dir=disk or tmp_path))
    (fresh / "tool").write_text("new")
    (fresh / "tool").chmod(0o4755)
    (fresh / "link").symlink_to("tool")
    target = tmp_path / "tree/.venv"
    (target / "old").mkdir(parents=True)

    _put_in_place(fresh, target)

    assert sorted(path.name for path in target.iterdir()) == ["link", "tool"]
    assert stat.S_IMODE((target / "tool").stat().st_mode) == 0o755
    assert list((tmp_path / "tree").iterdir()) == [target]
    target.rename(_make_temporary_path(target, "old"))  # as a crash leaves it
    _restore_old_folder(target)
    assert (target / "tool").read_text() == "new"
