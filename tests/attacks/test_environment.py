"""Variables in the engine's environment do not reach a session: secrets, and those that control tools (SPEC 3.8)."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement, Sandbox
from engine.execution.sandbox.host_paths import make_session_environment
from engine.execution.sandbox.ladder import NoSandbox
from tests.attacks.victim import Victim, folder_outside_tmp, make_canary
from tests.support.helpers import read_table

TABLE = read_table(__file__)

VARIABLES = TABLE["variables"]

CANARIES = {name: make_canary() for name in VARIABLES}


@functools.cache
def run_env(rung: Sandbox) -> str:
    """The environment of a session while each variable of the engine's contains its canary."""
    with folder_outside_tmp() as root:
        victim = Victim(root, rung)
        return victim.run(["env"], inherited=victim.environment | CANARIES)


@pytest.mark.attack("environment")
@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_of_the_engine_does_not_reach_a_session(rung: Sandbox, name: str) -> None:
    output = run_env(rung)
    assert "PATH=" in output
    assert CANARIES[name] not in output


def test_a_session_gets_the_variables_that_the_operator_names(tmp_path: Path) -> None:
    confinement = Confinement(tmp_path / "folder", tmp_path / "scratch", tmp_path / "caches")
    inherited = {"PATH": "/usr/bin", "CFLAGS": "-O2", "MAKEFLAGS": "-j4", "URL": "https://a:b@c.org/"}
    named = replace(confinement, variables=("CFLAGS", "URL"))
    assert "CFLAGS" not in make_session_environment(confinement, NoSandbox(), "s", inherited)
    environment = make_session_environment(named, NoSandbox(), "s", inherited)
    assert (environment["CFLAGS"], "MAKEFLAGS" in environment, "URL" in environment) == ("-O2", False, False)
