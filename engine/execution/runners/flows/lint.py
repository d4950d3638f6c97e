"""Lint changed files with the project's own linter; mend what is safe to mend."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, CommandResult, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import (
    Parameters,
    RepoPath,
    clean,
    count,
    last_line,
    listed,
    run_command,
    staged,
    toolchains,
)
from engine.execution.runners.toolchain import Linter, LintResult, Toolchain, borrowed, linters
from engine.execution.runners.toolchains.missing import first_missing
from engine.execution.runners.toolchains.python import adding_command

LOOKED_FOR = (
    "ruff or flake8 (configured, or in the project's environment), eslint or prettier in node_modules, "
    "cargo clippy, go vet, a target `lint` in the Makefile"
)
SHOWN_FINDINGS = 100


class LintParameters(Parameters):
    """Which files."""

    paths: list[RepoPath] = Field(default=[], max_length=1000, description="changed files; none = the whole project")


def _linters(job: Job) -> list[Linter]:
    found = linters(job.folder, job.workspace)
    if found:
        return found
    python = any(job.folder.glob("*.py")) or (job.folder / "pyproject.toml").exists()
    fix = (
        adding_command(job.workspace, "ruff") if python else "install the project's linter where it looks for its tools"
    )
    raise CannotRun(f"no linter: looked for {LOOKED_FOR}", fix)


def _targets(job: Job, linter: Linter) -> list[str]:
    """The given files that are still there and that this linter reads."""
    return [path for path in job.parameters.paths if linter.takes(path) and is_own_file(job.folder, path)]


def is_own_file(folder: Path, path: str) -> bool:
    """Whether a path is an ordinary file below `folder`, not a link that leads out of it."""
    file = folder / path
    real = Path(os.path.realpath(file))
    return file.is_file() and real.is_relative_to(folder.resolve())


def _borrowing(job: Job) -> list[Toolchain]:
    """Tools whose folders the linters need in a worktree; a project without tests may still have some."""
    try:
        return toolchains(job)
    except FlowUnable:
        return []


def _broken(linter: Linter, done: CommandResult) -> CannotRun:
    """Why a linter could not do its work, and what mends that where it is known."""
    if (missing := first_missing(done.output, linter.believes)) is not None:
        return CannotRun(f"{linter.name} cannot run: {missing.sentence}", linter.fix(missing))
    return CannotRun(
        f"{linter.name} ended with exit code {done.exit_code} and named no line: {last_line(done.output)}",
        "run it in a terminal to see why",
    )


class Lint:
    """Runs the linter and counts by rule."""

    name: ClassVar = "lint"
    title: ClassVar = "Lint"
    place: ClassVar = Place.CHECK
    parameters: ClassVar[type[BaseModel]] = LintParameters

    def place_in(self, workspace: Path) -> Place:
        """Where it works: a script that lints may write, and what it wrote then waits as a diff (SPEC 2.12)."""
        return self.place if all(one.only_looks for one in linters(workspace)) else Place.CHANGE_SET

    def describe(self, parameters: LintParameters) -> str:
        if not parameters.paths:
            return "Lint the whole project"
        return f"Lint {count(len(parameters.paths), 'changed file')}: {listed(parameters.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        results: list[LintResult] = []
        looked_at = 0
        with borrowed(_borrowing(job), job.folder, job.workspace):
            for linter in _linters(job):
                targets = _targets(job, linter)
                if job.parameters.paths and not targets:
                    continue
                looked_at += len(targets)
                results.append(self._one(job, linter, targets))
        if not results:
            return FlowResult("Nothing to lint: no given file is one that the project's linters read")
        return self._told(job, results, looked_at)

    def _one(self, job: Job, linter: Linter, targets: list[str]) -> LintResult:
        command = linter.lint(targets, job.scratch)
        done = run_command(job, command)
        found = linter.parse(done.output, done.exit_code)
        if done.exit_code not in command.codes or (done.exit_code != 0 and not found.findings):
            raise _broken(linter, done)
        return found

    def _told(self, job: Job, results: list[LintResult], looked_at: int) -> FlowResult:
        rules: Counter[str] = Counter()
        findings = [finding for result in results for finding in result.findings]
        for result in results:
            rules.update(dict(result.rules))
        for rule, number in rules.most_common():
            job.say(f"{number:>5}  {clean(rule)}")
        tools = listed(result.tool for result in results)
        scope = count(looked_at, "file") if looked_at else "the project"
        files = len({finding.path for finding in findings})
        if findings:
            top = ", ".join(f"{rule} {number}" for rule, number in rules.most_common(3))
            summary = f"{tools}: {count(len(findings), 'finding')} in {count(files, 'file')} ({top})"
        else:
            summary = f"{tools} found nothing in {scope}"
        facts = {
            "rules": dict(rules.most_common()),
            "findings": [
                {"path": clean(one.path), "line": one.line, "rule": one.rule, "message": clean(one.message)}
                for one in findings[:SHOWN_FINDINGS]
            ],
        }
        return FlowResult(summary, facts=facts)


class FixLint:
    """Formatter and safe fixes, as a change set to look at."""

    name: ClassVar = "fix_lint"
    title: ClassVar = "Fix lint"
    place: ClassVar = Place.CHANGE_SET
    parameters: ClassVar[type[BaseModel]] = LintParameters

    def describe(self, parameters: LintParameters) -> str:
        if not parameters.paths:
            return "Format the project and apply its linter's safe fixes"
        return f"Format and fix {count(len(parameters.paths), 'changed file')}: {listed(parameters.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        before = _state(job)
        used: list[str] = []
        with borrowed(_borrowing(job), job.folder, job.workspace):
            for linter in _linters(job):
                targets = _targets(job, linter)
                if job.parameters.paths and not targets:
                    continue
                for command in linter.fixes(targets):
                    done = run_command(job, command)
                    if done.exit_code not in command.codes:
                        raise _broken(linter, done)
                    used.append(" ".join([Path(command.argv[0]).name, *command.argv[1:2]]))
        changed = sorted(path for path, state in _state(job).items() if before.get(path) != state)
        tools = listed(dict.fromkeys(used))
        if not used:
            return FlowResult("Nothing to fix: the project's linters mend none of these files")
        if not changed:
            return FlowResult(f"Nothing to fix: {tools} changed nothing", facts={"changed": []})
        return FlowResult(
            f"{tools} changed {count(len(changed), 'file')}: {listed(changed, 4)}", facts={"changed": changed}
        )


def _state(job: Job) -> dict[str, str]:
    """Mode and blob id of every file as it is now."""
    entries = job.git.text("ls-files", "--stage", "-z", environment=staged(job)).split("\0")
    return {clean(path): state for state, _, path in (entry.partition("\t") for entry in entries if entry)}
