"""npm, pip, uv, go and cargo install packages and update lock files in sessions, as their cards say (SPEC 3.8).

A test whose tool or registry is not there is skipped.
"""

import pytest

from tests.execution.flow_world import FlowWorld
from tests.execution.toolchains.installations import (
    GO_PROJECT,
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
def test_npm_replaces_the_folder_by_what_the_lock_file_names(world: FlowWorld):
    needs("npm", host=NPM)
    top = commit_project(world, LEFT_PAD)
    (top / "node_modules").mkdir()
    (top / "node_modules/stranger.js").write_text("x")

    run_successfully(world, "prepare_environment", find_command_lines(top))

    assert not (top / "node_modules/stranger.js").exists()
    assert (top / "node_modules/left-pad/package.json").is_file()
    assert [path.name for path in top.iterdir() if "clawpy" in path.name] == []


@pytest.mark.long
def test_pip_installs_into_a_new_environment(world: FlowWorld):
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


@pytest.mark.long
def test_go_modules_are_installed_into_the_cache(world: FlowWorld):
    needs("go")
    commit_project(world, GO_PROJECT)
    run_successfully(world, "prepare_environment", ["go mod download"])
    assert list((world.home.cache / "build").glob("*/*/files/go-mod"))


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
    [change] = world.changes.list()
    assert [file.path for file in world.changes.get(change.id).files] == ["Cargo.lock"]
