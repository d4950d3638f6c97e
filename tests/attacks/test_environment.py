"""Variables in the engine's environment do not reach a session: secrets, and those that control tools (SPEC 3.8)."""

import functools

import pytest

from engine.execution.sandbox import Sandbox
from tests.attacks.victim import Victim, folder_outside_tmp, make_canary
from tests.support.helpers import read_table

VARIABLES = read_table(__file__)["variables"]
"""Secrets, and variables that control tools."""

CANARIES = {name: make_canary() for name in VARIABLES}


@functools.cache
def run_env(rung: Sandbox) -> str:
    """The environment of a session while each variable of the engine's contains its canary."""
    with folder_outside_tmp() as root:
        victim = Victim(root, rung)
        victim.environment |= CANARIES
        return victim.run(["env"])


@pytest.mark.attack("environment")
@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_of_the_engine_does_not_reach_a_session(rung: Sandbox, name: str):
    output = run_env(rung)
    assert "PATH=" in output
    assert CANARIES[name] not in output
