"""A world of flows that install packages, in a sandbox that limits commands to the hosts of their registries."""

import pytest

from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import find_best_sandbox
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import MakeWorld
from tests.support.repository import Repository


@pytest.fixture
def gated_sandbox() -> Sandbox:
    """The best sandbox of this machine. Skips the test if it cannot limit commands to some hosts."""
    sandbox = find_best_sandbox()
    if not sandbox.can_filter_hosts:
        pytest.skip("no sandbox here limits commands to some hosts")
    return sandbox


@pytest.fixture
def world(make_world: MakeWorld, repository: Repository, gated_sandbox: Sandbox) -> FlowWorld:
    return make_world(FlowWorld, repository=repository)
