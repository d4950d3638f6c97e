"""Prepares the places of sessions: their first confinement, the project's packages, the setup command of the workspace
(SPEC 3.8)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.config import Settings
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import CannotRun, FlowError
from engine.execution.runners.toolchains.installing import (
    Installation,
    find_installations,
    installation_failure,
    keep_out_of_git,
)
from engine.execution.runners.toolchains.projects import find_packages
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import find_secret_places, link_tools
from engine.home import Home


def make_initial_confinement(scratch: Path, workspace: str, settings: Settings, home: Home) -> Confinement:
    """The confinement of a session before it has a worktree. It may read the operator's tree, and has folders of its
    own below `scratch`, which are made here. Raises OSError."""
    workspace_settings = settings.workspace(workspace)
    confinement = Confinement(
        folder=Path(workspace),
        scratch=scratch,
        caches=scratch / "caches",
        tree=Path(workspace),
        readable=tuple(Path(place).expanduser() for place in workspace_settings.readable),
        hidden=find_secret_places(home),
        network=workspace_settings.network,
        hosts=workspace_settings.hosts,
        variables=workspace_settings.environment,
    )
    confinement.make()
    link_tools(confinement.home)
    return confinement


def prepare_packages(live: LiveSession, folder: Path) -> None:
    """Install the project's packages into the worktree `folder` of an agent. A failure is noted and is not fatal,
    because the agent may need none of them."""
    packages = find_packages(folder)
    needed = [installation for path in packages for installation in find_installations(folder, packages, path)]
    for installation in dict.fromkeys(needed):  # members of a workspace are installed with it
        live.note(f"prepare: {installation.command}; network: {', '.join(installation.packages.hosts)}")
        try:
            with live.network_access(installation.packages.hosts):
                _run_installation(live, installation, folder)
        except FlowError as error:
            live.note(f"not prepared: {error}", error=True)
    if (folder / ".venv" / "bin" / "python").exists():
        live.confinement = replace(live.confinement, prepared=True)


def _run_installation(live: LiveSession, installation: Installation, folder: Path) -> None:
    """Run the commands of an installation in a worktree. Raises `FlowError` when one of them failed."""
    if installation.cache:
        (live.confinement.caches / installation.cache).mkdir(parents=True, exist_ok=True)
    for command in installation.commands:
        result = live.execute(command, cwd=folder / installation.packages.folder, env=installation.environment)
        if not result.ok:
            raise installation_failure(command, result, installation.packages.hosts)
    for place in installation.created:
        keep_out_of_git(folder, place)


def run_setup_command(live: LiveSession, folder: Path, command: str) -> None:
    """Run the `setup` command of the workspace in the worktree `folder`. Raises `CannotRun` when it fails."""
    result = live.execute(["sh", "-c", command], cwd=folder)
    if not result.ok:
        raise CannotRun(
            f"the workspace's setup command ended with exit code {result.exit_code}",
            "fix `setup` of this workspace in config.toml; it has no network unless `network = true`",
        )
