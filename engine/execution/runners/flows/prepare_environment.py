"""Install a project's packages, so that its tests can run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Line, ProjectParameters, clean, in_project, sentence
from engine.execution.runners.toolchains.installing import Installation, chosen, failure, installations
from engine.execution.runners.toolchains.projects import all_packages


class InstallParameters(ProjectParameters):
    """Which project, and the exact commands that the operator approved."""

    command: list[Line] = Field(
        min_length=1, max_length=8, description="the project's own command, one line each, for example [`uv sync`]"
    )


class PrepareEnvironment:
    """Runs the project's own install command with its registries' network alone.

    Packages that belong into the tree are put there when all went well; see `Installation`.
    """

    name: ClassVar = "prepare_environment"
    title: ClassVar = "Install packages"
    place: ClassVar = Place.INSTALL
    parameters: ClassVar[type[BaseModel]] = InstallParameters

    def describe(self, parameters: InstallParameters) -> str:
        return f"Install the packages{in_project(parameters.project)}: {' && '.join(parameters.command)}"

    def installation(self, parameters: InstallParameters, workspace: Path) -> Installation:
        """What would be done. Raises `FlowUnable` when the command is not the project's own."""
        found = installations(workspace, all_packages(workspace), parameters.project)
        return chosen(found, parameters.command, f"installs the packages of {parameters.project or 'this project'}")

    def run(self, job: Job) -> FlowResult:
        installation = self.installation(job.parameters, job.workspace)
        seconds = run_all(job, installation)
        done = f"Installed the packages{in_project(job.parameters.project)} with `{clean(installation.command)}`"
        return FlowResult(
            sentence(f"{done} in {seconds:.0f} s; {installation.done}"),
            facts={
                "next": "run_tests",
                "project": job.parameters.project,
                "command": installation.lines,
                "hosts": list(installation.hosts),
                "folders": [*installation.made, *installation.updated],
            },
        )


def run_all(job: Job, installation: Installation) -> float:
    """Run the commands one after the other; returns the seconds they took together. Raises `CannotRun` when a host was
    not reached, `FlowUnable` when a command failed."""
    seconds = 0.0
    for command in installation.commands:
        done = job.run(command, cwd=job.folder / installation.folder, env=installation.environment)
        seconds += done.seconds
        if not done.ok:
            raise failure(command, done, installation.hosts)
    return seconds
