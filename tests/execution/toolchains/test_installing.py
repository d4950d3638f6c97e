"""Packages are installed as the card said: with the registries' network alone, and into the tree only at the end."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest

from engine.config import Settings, WorkspaceSettings
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import CommandResult, FlowResult, Job, Place, RetryLater
from engine.execution.runners.toolchains.detection import PackageSetup
from engine.execution.runners.toolchains.installing import (
    Installation,
    _make_temporary_path,
    _put_in_place,
    _restore_old_folder,
    find_installations,
    find_lock_updates,
    install_into_tree,
    make_installation_error,
)
from engine.execution.runners.toolchains.projects import find_packages, read_project
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.execution.session_workspace import SessionWorkspace
from engine.model import ALWAYS_ASKED, SessionState, SessionView
from tests.conftest import Repository
from tests.execution.session_world import MakeWorld, SessionWorld
from tests.execution.test_flow_runner import FlowWorld
from tests.execution.test_session_workspace import AgentWorld, do_nothing
from tests.execution.toolchains.test_lock_files import run_program
from tests.support.helpers import needs

PYPI, NPM = "pypi.org", "registry.npmjs.org"
UV_PROJECT = {
    "pyproject.toml": '[project]\nname = "shop"\nversion = "0.1.0"\nrequires-python = ">=3.9"\n'
    'dependencies = ["iniconfig>=2"]\n[tool.uv]\npackage = false\n',
    "test_shop.py": "import iniconfig\n\ndef test_it():\n    assert iniconfig\n",
}
NPM_PROJECT = {"package.json": {"name": "a", "dependencies": {"ms": "2"}}, "package-lock.json": "{}"}


@pytest.fixture
def world(make_world: MakeWorld, repository: Repository) -> FlowWorld:
    return make_world(FlowWorld, repository=repository)


@pytest.fixture(autouse=True)
def _needs_a_sandbox_with_a_gate() -> None:
    if not find_best_sandbox().can_filter_hosts:
        pytest.skip("no sandbox here limits commands to some hosts")


def commit_project(world: SessionWorld, files: dict[str, Any], ignored: str = "node_modules\n.venv\n") -> Path:
    """Commit files, of which those that are no texts are JSON, and return the folder of the repository."""
    texts = {name: text if isinstance(text, str) else json.dumps(text) for name, text in files.items()}
    world.repository.commit("begin", {".gitignore": ignored, **texts})
    return world.repository.path


def find_command_lines(top: Path, path: str = "") -> list[str]:
    """The lines of the command that installs the packages of a project."""
    [installation] = find_installations(top, find_packages(top), path)
    return installation.lines


def run_successfully(world: FlowWorld, flow: str, command: list[str]) -> SessionView:
    view = world.run_flow(flow, command=command)
    assert view.state is SessionState.SUCCEEDED, describe_outcome(world, view)
    return view


def describe_outcome(world: FlowWorld, view: SessionView) -> str:
    return f"{view.state} {view.summary}\n{world.read_transcript(view)}"


# What a card says


def test_a_card_names_the_command_the_network_and_the_changes_to_the_tree(world: FlowWorld) -> None:
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


def test_only_the_install_command_of_the_project_is_accepted(world: FlowWorld) -> None:
    commit_project(world, NPM_PROJECT)

    info = world.sessions.check(world.assign("prepare_environment", command=["npm install evil"]))

    assert not info.available
    assert "`npm install evil` is not the command that installs the packages" in info.reason
    assert "`npm ci`" in info.reason
    assert not world.sessions.check(world.assign("prepare_environment", command=[])).available
    assert not world.sessions.check(world.assign("update_lock", command=["npm ci"])).available


def test_an_installation_never_starts_by_itself() -> None:
    assert {"prepare_environment", "update_lock"} <= ALWAYS_ASKED, "the gate asks about these"


# With real registries


def make_npm_project(name: str, version: str, **package: str) -> dict[str, Any]:
    """A project that needs one package, which the lock file describes with the fields of `package`."""
    manifest = {"name": "shop", "version": "1.0.0", "dependencies": {name: version}}
    packages = {"": manifest, f"node_modules/{name}": {"version": version, **package}}
    lock = {"name": "shop", "version": "1.0.0", "lockfileVersion": 3, "packages": packages}
    return {"package.json": manifest | {"scripts": {"test": "node --test"}}, "package-lock.json": lock}


@pytest.mark.long
def test_npm_installs_into_the_tree(world: FlowWorld) -> None:
    needs("npm", "node", host=NPM)
    files = make_npm_project(
        "left-pad",
        "1.3.0",
        resolved="https://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz",
        integrity="sha512-XI5MPzVNApjAyhQzphX8BkmKsKUxD4LdyK24iZeQGinBN9yTQT3bFlCBy/aVx2HrNcqQGsdot8ghrjyrvMCoEA==",
    )
    test = "const pad = require('left-pad');\nrequire('node:test')('pads', () => pad('a', 3));\n"
    top = commit_project(world, files | {"shop.test.js": test})

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
    # A second time: the folder is replaced by what the lock file names.
    (top / "node_modules/stranger.js").write_text("x")
    view = run_successfully(world, "prepare_environment", find_command_lines(top))
    assert not (top / "node_modules/stranger.js").exists()
    assert (top / "node_modules/left-pad/package.json").is_file()
    assert [path.name for path in top.iterdir() if "clawpy" in path.name] == []


@pytest.mark.long
def test_pip_installs_into_a_new_environment(world: FlowWorld) -> None:
    needs("python3", host=PYPI)
    top = commit_project(
        world,
        {"requirements.txt": "iniconfig==2.0.0\n", "test_shop.py": UV_PROJECT["test_shop.py"]},
        ignored="",
    )
    command = find_command_lines(top)
    assert command[0] == "python3 -m venv .venv"

    run_successfully(world, "prepare_environment", command)
    assert world.repository.git("status", "--porcelain") == ""  # though the project does not ignore .venv
    tests = world.run_flow("run_tests")
    assert (tests.check.passed, tests.check.failed, tests.check.errors) == (1, 0, 0)


def test_uv_updates_the_lock_file_and_installs(world: FlowWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = shutil.which("uv") or os.environ.get("UV", "")
    if not uv:
        pytest.skip("uv is not installed here")
    needs(host=PYPI)
    monkeypatch.setenv("PATH", f"{Path(uv).parent}{os.pathsep}{os.environ['PATH']}")
    top = commit_project(world, {**UV_PROJECT, "uv.lock": "version = 1\nrequires-python = '>=3.9'\n"})

    run_successfully(world, "update_lock", ["uv lock"])
    [change] = world.changes.list()
    assert [file.path for file in world.changes.get(change.id).files] == ["uv.lock"]
    assert "iniconfig" not in (top / "uv.lock").read_text()  # it waits to be landed
    world.changes.land(change.id)
    run_successfully(world, "prepare_environment", find_command_lines(top))
    assert list((top / ".venv").glob("lib/python3*/site-packages/iniconfig"))


@pytest.fixture
def agent_world(make_world: MakeWorld, repository: Repository) -> AgentWorld:
    return make_world(AgentWorld, repository=repository, sandbox=find_best_sandbox())


@pytest.mark.long
def test_the_worktree_of_an_agent_gets_packages_where_the_settings_allow_it(agent_world: AgentWorld) -> None:
    needs("python3", host=PYPI)
    top = commit_project(
        agent_world, {"requirements.txt": "iniconfig==2.0.0\n", "test_shop.py": "def test_it():\n    pass\n"}, ""
    )
    (top / ".venv/bin").mkdir(parents=True)
    (top / ".venv/.gitignore").write_text("*\n")
    (top / ".venv/bin/python").symlink_to("/usr/bin/false")  # the operator's own is not the worktree's
    agent_world.settings.current = Settings(workspaces={str(top): WorkspaceSettings(prepare=True)})

    found: list[str] = []

    def import_package(live: LiveSession, workspace: SessionWorkspace) -> None:
        script = "import sys, iniconfig; print(sys.prefix, iniconfig.__file__)"
        found.append(live.execute(["python3", "-c", script], cwd=workspace.folder).output)

    agent_world.agent.work = import_package
    view = agent_world.wait(agent_world.begin_prose(), 300)

    transcript = "\n".join(agent_world.texts(view, ()))
    assert f"worktrees/{view.id}/.venv" in found[0], transcript
    assert "prepare: python3 -m venv .venv && .venv/bin/pip install" in transcript
    assert "network: pypi.org, files.pythonhosted.org" in transcript
    assert agent_world.changes.list() == []  # what was installed is no part of its diff


@pytest.mark.long
def test_an_agent_works_without_packages_that_cannot_be_installed(agent_world: AgentWorld) -> None:
    needs("npm")
    top = commit_project(agent_world, NPM_PROJECT)
    agent_world.settings.current = Settings(workspaces={str(top): WorkspaceSettings(prepare=True)})

    agent_world.agent.work = do_nothing
    view = agent_world.wait(agent_world.begin_prose(), 300)

    assert view.state is SessionState.SUCCEEDED
    assert "not prepared: `npm ci` ended with exit code 1" in "\n".join(agent_world.texts(view, ()))


def test_the_tests_of_a_prepared_worktree_run_with_its_own_packages(world: FlowWorld, tmp_path: Path) -> None:
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
def test_go_and_cargo_use_the_cached_packages(world: FlowWorld) -> None:
    def show_caches(job: Job) -> FlowResult:
        caches = cast(LiveSession, job.session).confinement.caches
        before = job.run(["sh", "-c", "echo $GOMODCACHE,$CARGO_HOME"]).output.strip()
        (caches / "go-mod").mkdir()
        after = job.run(["sh", "-c", "echo $GOMODCACHE,$CARGO_HOME"]).output.strip()
        return FlowResult(f"{before} {after.removeprefix(str(caches))}")

    commit_project(world, {"a": "1"})
    assert world.run_scripted(Place.CHECK, show_caches).summary == ", /go-mod,"


# When the packages cannot be installed


@pytest.mark.long
def test_another_registry_is_not_reached_and_the_tree_is_unchanged(world: FlowWorld) -> None:
    needs("npm")
    files = make_npm_project("ms", "2.1.3", resolved="https://registry.invalid/ms/-/ms-2.1.3.tgz")
    top = commit_project(world, files | {".npmrc": "fetch-retries=0\nreplace-registry-host=never\n"})
    (top / "node_modules/mine").mkdir(parents=True)

    view = world.run_flow("prepare_environment", command=["npm ci"])

    assert view.state is SessionState.CANNOT_RUN, describe_outcome(world, view)
    assert "asked for registry.invalid, which is not one of its registries (registry.npmjs.org)" in view.summary
    assert [path.name for path in (top / "node_modules").iterdir()] == ["mine"]


def test_without_network_the_card_is_offered_again() -> None:
    output = "npm error\nnetwork: registry.npmjs.org:443 cannot be reached: Network is unreachable"

    error = make_installation_error(["npm", "ci"], CommandResult(1, output, 1.0), [NPM])

    assert isinstance(error, RetryLater)
    assert error.message == "registry.npmjs.org cannot be reached: Network is unreachable"


def test_an_environment_that_is_a_link_is_left_alone(world: FlowWorld, tmp_path: Path) -> None:
    top = commit_project(world, NPM_PROJECT, ignored="node_modules\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (top / "node_modules").symlink_to(elsewhere)

    view = world.run_flow("prepare_environment", command=["npm ci"])

    assert view.state is SessionState.CANNOT_RUN, describe_outcome(world, view)
    assert "node_modules is a link" in view.summary
    assert (top / "node_modules").is_symlink()


@pytest.mark.long
def test_the_environment_that_clawpy_runs_from_is_not_replaced(world: FlowWorld, tmp_path: Path) -> None:
    top = commit_project(world, UV_PROJECT)
    home, python = tmp_path / "a home", top / ".venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", top / ".venv"], check=True)
    folders = [path for path in (*sys.path, str(Path(__file__).parents[3])) if path]
    next((top / ".venv").glob("lib/python*/site-packages")).joinpath("clawpy.pth").write_text("\n".join(folders))

    [command] = find_command_lines(top)
    files = sorted((path, path.stat().st_ino) for path in (top / ".venv").rglob("*"))

    proposal = ["propose", f"prepare_environment command={json.dumps([command])}"]
    clawpy = [python, "-m", "clawpy_console", "--home", home, "--workspace", top, *proposal]
    proposed = subprocess.run(clawpy, cwd=tmp_path, capture_output=True, text=True, check=False)

    reason = f"Clawpy itself runs from .venv, which cannot be replaced meanwhile (quit Clawpy, then run `{command}`"
    assert reason in proposed.stderr, proposed
    assert sorted((path, path.stat().st_ino) for path in (top / ".venv").rglob("*")) == files


@pytest.mark.long
def test_files_that_a_package_writes_elsewhere_are_discarded(world: FlowWorld) -> None:
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


def test_a_command_that_installs_nothing_changes_nothing(world: FlowWorld) -> None:
    top = commit_project(world, {"package.json": {"name": "a"}})
    (top / "node_modules/mine").mkdir(parents=True)
    packages = PackageSetup("npm", "node", folder="", lock="", commands=(), hosts=())
    installation = Installation(packages, (("true",),), updated=("node_modules",))

    def install(job: Job) -> FlowResult:
        with install_into_tree(cast(LiveSession, job.session), installation, top):
            job.run(["true"])
            job.run(["touch", ".pnp.cjs"])
        return FlowResult("fine")

    view = world.run_scripted(Place.INSTALL, install)

    assert view.state is SessionState.CANNOT_RUN, describe_outcome(world, view)
    assert "`true` put nothing into node_modules, so nothing was changed" in view.summary
    assert (top / "node_modules/mine").is_dir()
    assert not (top / ".pnp.cjs").exists()


@pytest.mark.parametrize("disk", [None, Path("/dev/shm")], ids=["same disk", "another disk"])
def test_an_installed_folder_replaces_the_old_one(tmp_path: Path, disk: Path | None) -> None:
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
    assert (target / "link").readlink() == Path("tool")
    assert stat.S_IMODE((target / "tool").stat().st_mode) == 0o755
    assert list((tmp_path / "tree").iterdir()) == [target]
    assert not fresh.exists()
    target.rename(_make_temporary_path(target, "old"))  # as a crash leaves it
    _restore_old_folder(target)
    assert (target / "tool").read_text() == "new"


# What each tool does


def test_go_modules_are_installed_into_the_cache(world: FlowWorld) -> None:
    top = commit_project(world, {"go.mod": "module example.org/shop\n\ngo 1.19\n", "go.sum": ""})

    [installation] = find_installations(top, find_packages(top))

    assert installation.command == "go mod download"
    assert installation.created == installation.updated == ()
    assert installation.cache == "go-mod"
    assert "your tree is not touched" in installation.summary
    if shutil.which("go"):
        view = world.run_flow("prepare_environment", command=["go mod download"])
        assert view.state is SessionState.SUCCEEDED, describe_outcome(world, view)
        assert list((world.home.cache / "build").glob("*/*/files/go-mod"))


@pytest.mark.parametrize(
    ("lock", "command"),
    [
        ("package-lock.json", "npm install --package-lock-only --ignore-scripts"),
        ("pnpm-lock.yaml", "pnpm install --lockfile-only --ignore-scripts --no-frozen-lockfile"),
    ],
)
def test_the_lock_file_is_updated_by_the_tool_that_made_it(world: FlowWorld, lock: str, command: str) -> None:
    top = commit_project(world, {"web/package.json": {"name": "web", "dependencies": {"ms": "2"}}, f"web/{lock}": "{}"})

    [update] = find_lock_updates(top, find_packages(top), "web")

    assert (update.command, update.packages.folder, update.packages.lock) == (command, "web", f"web/{lock}")
    assert update.summary.endswith(f"the diff of web/{lock} waits for you")


@pytest.mark.long
def test_cargo_updates_the_lock_file_of_the_workspace(world: FlowWorld) -> None:
    needs("cargo")
    files = {
        "Cargo.toml": '[package]\nname = "shop"\nversion = "0.2.0"\nedition = "2021"\n',
        "Cargo.lock": 'version = 3\n\n[[package]]\nname = "shop"\nversion = "0.1.0"\n',
        "src/main.rs": "fn main() {}\n",
    }
    commit_project(world, files)

    view = run_successfully(world, "update_lock", ["cargo update --workspace"])
    assert view.summary == "`cargo update --workspace` updated Cargo.lock"
    [change] = world.changes.list()
    assert [file.path for file in world.changes.get(change.id).files] == ["Cargo.lock"]
