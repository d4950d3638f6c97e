"""What a card of an installation says, and what it accepts: its command, network and changes to your tree (SPEC
3.5)."""

from tests.execution.flow_world import FlowWorld
from tests.execution.toolchains.installations import NPM_PROJECT, commit_project


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
