"""What a card of an installation says, and what it accepts: its command, network and changes to your tree (SPEC
3.5)."""

import pytest

from engine.execution.runners.toolchains.installing import find_installations, find_lock_updates
from engine.execution.runners.toolchains.projects import find_packages
from engine.model import ALWAYS_ASKED
from tests.execution.flow_world import FlowWorld
from tests.execution.toolchains.installations import GO_PROJECT, NPM_PROJECT, commit_project


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


def test_an_installation_into_the_cache_leaves_the_tree_alone(world: FlowWorld):
    top = commit_project(world, GO_PROJECT)

    [installation] = find_installations(top, find_packages(top))

    assert installation.created == installation.updated == ()
    assert installation.cache == "go-mod"
    assert "your tree is not touched" in installation.summary


@pytest.mark.parametrize(
    "lock, command",
    [
        ("package-lock.json", "npm install --package-lock-only --ignore-scripts"),
        ("pnpm-lock.yaml", "pnpm install --lockfile-only --ignore-scripts --no-frozen-lockfile"),
    ],
)
def test_a_lock_file_is_updated_by_the_tool_that_made_it(world: FlowWorld, lock: str, command: str):
    top = commit_project(world, {"web/package.json": {"name": "web", "dependencies": {"ms": "2"}}, f"web/{lock}": "{}"})

    [update] = find_lock_updates(top, find_packages(top), "web")

    assert (update.command, update.packages.folder, update.packages.lock) == (command, "web", f"web/{lock}")
    assert update.summary.endswith(f"the diff of web/{lock} waits for you")


def test_only_the_install_command_of_the_project_is_accepted(world: FlowWorld):
    commit_project(world, NPM_PROJECT)

    info = world.sessions.check(world.assign("prepare_environment", command=["npm install evil"]))

    assert not info.available
    assert "`npm install evil` is not the command that installs the packages" in info.reason
    assert "`npm ci`" in info.reason
    assert not world.sessions.check(world.assign("prepare_environment", command=[])).available
    assert not world.sessions.check(world.assign("update_lock", command=["npm ci"])).available


def test_an_installation_never_starts_by_itself():
    assert {"prepare_environment", "update_lock"} <= ALWAYS_ASKED, "the gate asks about these"
