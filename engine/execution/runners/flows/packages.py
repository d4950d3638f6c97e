"""Flows that run the package manager of a project. They install its packages, so that its tests can run, and update its
lock file."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from engine.execution.runners import CannotRun, Place
from engine.execution.runners.flow import CommandLine, FlowResult, Job, ProjectFlow
from engine.execution.runners.toolchains.installing import (
    Installation,
    choose_installation,
    find_installations,
    find_lock_updates,
    make_installation_error,
)
from engine.execution.runners.toolchains.lock_files import find_mismatches
from engine.execution.runners.toolchains.projects import find_packages
from engine.wording import join_names


class PackageManagerFlow(ProjectFlow):
    """A flow that needs the network of the registries. It runs exactly the `command` that the operator approved."""

    command: list[CommandLine] = Field(
        min_length=1, max_length=8, description="the project's own command, one line each, for example [`uv sync`]"
    )

    def find_installation(self, workspace: Path) -> Installation:
        """The installation of `command`. Raises `WorkFailed` if the command is not the project's own, or would change
        the environment from which this program runs."""
        raise NotImplementedError

    def _run_all(self, job: Job, installation: Installation) -> float:
        """Run the commands in order. Returns the seconds that they took. Raises `CannotRun` if a host was not reached,
        and `WorkFailed` if a command failed."""
        seconds = 0.0
        for command in installation.commands:
            result = job.run(command, cwd=job.folder / installation.packages.folder, env=installation.environment)
            seconds += result.seconds
            if not result.ok:
                raise make_installation_error(command, result, installation.packages.hosts)
        return seconds


class PrepareEnvironment(PackageManagerFlow):
    """Runs the project's own install command with the network of its registries alone.

    After a success, packages that belong into the tree are put there; see `Installation`.
    """

    name = "prepare_environment"
    label = "Install packages"
    work = "packages"
    place = Place.INSTALL

    def describe(self) -> str:
        return f"Install the packages{self.where}: {' && '.join(self.command)}"

    def find_installation(self, workspace: Path) -> Installation:
        available = find_installations(workspace, find_packages(workspace), self.project)
        installation = choose_installation(
            available, self.command, f"installs the packages of {self.project or 'this project'}"
        )
        if environment := installation.find_own_environment(workspace):
            raise CannotRun(
                f"Clawpy itself runs from {environment}, which cannot be replaced meanwhile",
                f"quit Clawpy, then run `{installation.command}` in a terminal",
            )
        return installation

    def run(self, job: Job) -> FlowResult:
        installation = self.find_installation(job.workspace)
        seconds = self._run_all(job, installation)
        summary = f"Installed the packages{self.where} with `{installation.command}`"
        return FlowResult(f"{summary} in {seconds:.0f} s; {installation.outcome}", facts={"next": "run_tests"})


class UpdateLock(PackageManagerFlow):
    """Runs the lock command of the project's own tool in a worktree, with the network of its registries alone."""

    name = "update_lock"
    label = "Update the lock file"
    work = "packages"
    place = Place.CHANGE_SET

    def describe(self) -> str:
        return f"Update the lock file{self.where}: {' && '.join(self.command)}"

    def find_installation(self, workspace: Path) -> Installation:
        available = find_lock_updates(workspace, find_packages(workspace), self.project)
        return choose_installation(available, self.command, f"updates a lock file of {self.project or 'this project'}")

    def run(self, job: Job) -> FlowResult:
        installation = self.find_installation(job.workspace)
        name, command = installation.packages.lock, f"`{installation.command}`"
        lock = job.folder / name
        before = _read_lock(lock)
        self._run_all(job, installation)
        after = _read_lock(lock)
        if after is None:
            return FlowResult(f"{command} {'left no' if before is None else 'removed'} {name}")
        mismatches = find_mismatches(job.folder, [installation.packages.folder])
        differences = [text for stale in mismatches if stale.lock_path == name for text in stale.differences]
        job.say_list(differences, len(differences))
        if differences:
            summary = f"{name} is still out of step after {command}: {join_names(differences, 1)}"
            return FlowResult(summary, has_problem=True)
        if after == before:
            return FlowResult(f"{command} changed nothing: {name} is up to date")
        return FlowResult(f"{command} updated {name}", facts={"next": "prepare_environment"})


def _read_lock(file: Path) -> bytes | None:
    """The content of a lock file; None if it does not exist."""
    return file.read_bytes() if file.is_file() else None
