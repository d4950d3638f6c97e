"""Packages are installed with the real tools, as the card said: with the network of their registries alone (SPEC
3.8)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.execution.runners.toolchains.installing import (
    find_installations,
    find_lock_updates,
)
from engine.execution.runners.toolchains.projects import find_packages
from engine.model import SessionState
from tests.execution.flow_world import FlowWorld
from tests.execution.toolchains.installations import (
    NPM,
    PYPI,
    UV_PROJECT,
    commit_project,
    describe_outcome,
    find_command_lines,
    make_npm_project,
    run_successfully,
)
from tests.support.helpers import needs


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
