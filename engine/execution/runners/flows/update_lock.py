"""Bring a lock file in step with its manifest; the diff waits to be landed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import clean, in_project, listed
from engine.execution.runners.flows.prepare_environment import InstallParameters, run_all
from engine.execution.runners.toolchains.installing import Installation, chosen, lock_updates
from engine.execution.runners.toolchains.projects import all_packages
from engine.git.locks import locks_out_of_step


class UpdateLock:
    """Runs the lock command of the project's own tool in a worktree, with its registries' network alone."""

    name: ClassVar = "update_lock"
    title: ClassVar = "Update the lock file"
    place: ClassVar = Place.CHANGE_SET
    parameters: ClassVar[type[BaseModel]] = InstallParameters

    def describe(self, parameters: InstallParameters) -> str:
        return f"Update the lock file{in_project(parameters.project)}: {' && '.join(parameters.command)}"

    def installation(self, parameters: InstallParameters, workspace: Path) -> Installation:
        """What would be done. Raises `FlowUnable` when the command is not that of the project's own tool."""
        found = lock_updates(workspace, all_packages(workspace), parameters.project)
        return chosen(found, parameters.command, f"updates a lock file of {parameters.project or 'this project'}")

    def run(self, job: Job) -> FlowResult:
        installation = self.installation(job.parameters, job.workspace)
        lock = job.folder / installation.lock
        before = lock.read_bytes() if lock.is_file() else b""
        run_all(job, installation)
        changed = not lock.is_file() or lock.read_bytes() != before
        left = [
            one for one in locks_out_of_step(job.folder, [installation.folder]) if one.lock_path == installation.lock
        ]
        for difference in (text for one in left for text in one.differences):
            job.say(difference)
        name, command = clean(installation.lock), f"`{clean(installation.command)}`"
        facts = {"project": job.parameters.project, "lock": installation.lock, "command": installation.lines}
        if left:
            told = f"{name} is still out of step after {command}: {listed(left[0].differences, 1)}"
            return FlowResult(told, sound=False, facts=facts)
        if not changed:
            return FlowResult(f"{command} changed nothing: {name} is up to date", facts=facts)
        return FlowResult(f"{command} updated {name}", facts={**facts, "next": "prepare_environment"})
