"""Attempts to reach a session by variables of the engine's environment: secrets in them, and what steers tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement, NoSandbox, Sandbox, session_environment
from tests.attacks.victim import Victim, canary, outside_folder, removed

VARIABLES = [
    "MAKEFLAGS", "GOFLAGS", "CFLAGS", "CXXFLAGS", "LDFLAGS", "RUSTFLAGS", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT",
    "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "NODE_PATH", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JDK_JAVA_OPTIONS",
    "BASH_ENV", "ENV", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_DIR", "PIP_INDEX_URL", "UV_INDEX_URL",
    "CARGO_REGISTRY_TOKEN", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "HF_TOKEN", "DATABASE_URL",
    "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "XDG_RUNTIME_DIR", "DISPLAY", "TMUX", "KUBECONFIG",
    "VAULT_TOKEN", "NPM_TOKEN", "CC", "PKG_CONFIG_PATH", "DJANGO_SETTINGS_MODULE", "PROMPT_COMMAND", "GPG_AGENT_INFO",
]  # fmt: skip

_seen: dict[str, tuple[dict[str, str], str]] = {}


def printed(rung: Sandbox) -> tuple[dict[str, str], str]:
    """The words that were in the engine's environment, and what a command says is in its own."""
    if rung.name not in _seen:
        root = outside_folder()
        try:
            victim = Victim(root, rung)
            words = {name: canary() for name in VARIABLES}
            _seen[rung.name] = words, victim.run(["env"], inherited=victim.environment | words)
        finally:
            removed(root)
    return _seen[rung.name]


@pytest.mark.attack("environment")
@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_of_the_engines(rung: Sandbox, name: str) -> None:
    words, output = printed(rung)
    assert "PATH=" in output
    assert words[name] not in output


def test_the_operator_names_what_is_passed(tmp_path: Path) -> None:
    confinement = Confinement(tmp_path / "folder", tmp_path / "scratch", tmp_path / "caches")
    inherited = {"PATH": "/usr/bin", "CFLAGS": "-O2", "MAKEFLAGS": "-j4", "URL": "https://a:b@c.org/"}
    named = replace(confinement, variables=("CFLAGS", "URL"))
    assert "CFLAGS" not in session_environment(confinement, NoSandbox(), "s", inherited)
    environment = session_environment(named, NoSandbox(), "s", inherited)
    assert (environment["CFLAGS"], "MAKEFLAGS" in environment, "URL" in environment) == ("-O2", False, False)
