"""Flows that lint files with the project's own linters and type checkers, and that apply their safe fixes."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from engine.execution.runners.flow import (
    CannotRun,
    CommandResult,
    FlowResult,
    Job,
    Place,
    ProjectFlow,
    RepoPath,
    Revision,
)
from engine.execution.runners.flows.steps import (
    as_facts,
    count,
    in_project,
    join_names,
    last_line,
    resolve_commit,
    restore_tree,
    stage_all_files,
    store_tree,
)
from engine.execution.runners.flows.test_runs import find_project, run_command
from engine.execution.runners.toolchains.detection import ProjectFolder, add_package_command
from engine.execution.runners.toolchains.installing import linked_packages
from engine.execution.runners.toolchains.project_tools import Linter, first_missing
from engine.execution.runners.toolchains.python_projects import is_python_project
from engine.execution.runners.toolchains.tool_table import LINTERS, Finding, read_text
from engine.frozen import frozen

MAX_SHOWN_FINDINGS = 100

_PLACE_IN_MESSAGE = re.compile(r"\bline \d+")


def is_own_file(folder: Path, path: str) -> bool:
    """Whether a path is an ordinary file below `folder`, not a link that leads out of it."""
    file = folder / path
    real = Path(os.path.realpath(file))
    return file.is_file() and real.is_relative_to(folder.resolve())


def _linter_failure(linter: Linter, result: CommandResult) -> CannotRun:
    """The error of a linter that could not do its work, with a fix where one is known."""
    missing = first_missing(result.output, linter.is_missing)
    if missing is not None:
        return CannotRun(f"{linter.name} cannot run: {missing.sentence}", linter.fix_for(missing))
    return CannotRun(
        f"{linter.name} ended with exit code {result.exit_code} without naming a line: {last_line(result.output)}",
        "run it in a terminal to see why",
    )


def _run_linter(job: Job, linter: Linter, targets: list[str]) -> list[Finding]:
    """The findings of a linter in `targets`, with paths relative to its folder. Raises `CannotRun`."""
    command = linter.lint_command(targets, job.scratch)
    result = run_command(job, command, linter.folder)
    findings = linter.parse(result.output, result.exit_code)
    if result.exit_code not in command.exit_codes or (result.exit_code != 0 and not findings):
        raise _linter_failure(linter, result)
    return findings


def _finding_keys(folder: Path, findings: list[Finding], names: dict[str, str]) -> list[tuple[str, ...]]:
    """The identity of each finding across two states of the files: not the number of its line, but the line's text.
    `names` has the present name of a file that was renamed since."""
    texts: dict[str, list[str]] = {}
    keys: list[tuple[str, ...]] = []
    for finding in findings:
        lines = texts.setdefault(finding.path, read_text(folder / finding.path).splitlines())
        text = lines[finding.line - 1].strip() if 0 < finding.line <= len(lines) else ""
        message = _PLACE_IN_MESSAGE.sub("line", finding.message)
        keys.append((names.get(finding.path, finding.path), finding.rule, message, text))
    return keys


@frozen
class _LintRun:
    """The result of one linter."""

    linter: Linter
    targets: list[str]
    findings: list[Finding]
    known_count: int = 0
    """The number of findings that the base has as well, which are left out."""
    compared: bool = True
    """False when the base could not be linted."""


class _LintFlow(ProjectFlow):
    """The base class of both flows: finds the linters, and the files that each reads."""

    paths: list[RepoPath] = Field(default=[], max_length=1000, description="changed files; none = the whole project")

    def _find_linters(self, job: Job) -> list[Linter]:
        """The linters of the project. Raises `CannotRun` when it has none."""
        linters = list(find_project(job, self.project).linters)
        if linters:
            return linters
        folder = job.folder / self.project
        python = is_python_project(folder) or any(folder.glob("*.py"))
        fix = "configure a linter for the project and install it in the project's environment"
        names = ", ".join(row.name for row in LINTERS)
        raise CannotRun(
            f"no linter{in_project(self.project)}: looked for {names}",
            add_package_command(ProjectFolder.of_operator(job.workspace / self.project, job.workspace), "ruff")
            if python
            else fix,
        )

    def _select_targets(self, linters: list[Linter]) -> list[tuple[Linter, list[str]]]:
        """Each linter with the existing files of `paths` that it reads, relative to its folder; without linters that
        read none of them."""
        inside = self.paths_inside(self.paths)
        every = [
            (linter, [path for path in inside if linter.covers(path) and is_own_file(linter.folder, path)])
            for linter in linters
        ]
        return [pair for pair in every if pair[1] or not self.paths]

    def _describe_scope(self, everything: str, files: str) -> str:
        """The files to lint, in words."""
        where = in_project(self.project)
        if not self.paths:
            return everything.format(where=where)
        return f"{files} {count(len(self.paths), 'changed file')}{where}: {join_names(self.paths, 3)}"


class Lint(_LintFlow):
    """Runs the linters and type checkers; for changed files it reports the findings that are new since a commit."""

    name = "lint"
    label = "Lint"
    place = Place.WORKTREE
    base: Revision = Field(
        default="HEAD", description="findings that changed files had at this commit are not reported"
    )

    def describe(self) -> str:
        return self._describe_scope("Lint the whole project{where}", "Lint")

    def run(self, job: Job) -> FlowResult:
        every = self._find_linters(job)
        runs: list[_LintRun] = []
        errors: list[CannotRun] = []
        with linked_packages(job, every):
            for linter, targets in self._select_targets(every):
                try:
                    runs.append(_LintRun(linter, targets, _run_linter(job, linter, targets)))
                except CannotRun as error:
                    errors.append(error)
            if errors and not runs:
                raise errors[0]
            for unable in errors:
                job.say(str(unable))
            if not runs:
                return FlowResult("Nothing to lint: the project's linters read none of these files")
            if self.paths and any(result.findings for result in runs):
                runs = self._compare_with_base(job, runs)
        return self._make_result(job, runs, [unable.message for unable in errors])

    def _compare_with_base(self, job: Job, runs: list[_LintRun]) -> list[_LintRun]:
        """`runs` without the findings that the base has as well."""
        base = resolve_commit(job, self.base)
        now = store_tree(job)
        pairs = map(self.paths_inside, _renamed_files(job, base, now))
        new_names = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
        keys = [_finding_keys(run.linter.folder, run.findings, {}) for run in runs]
        job.say(f"Linting the same files at {base[:10]}, to see what is new")
        try:
            restore_tree(job, base)
            return [self._without_known_findings(job, *pair, new_names) for pair in zip(runs, keys, strict=True)]
        finally:
            restore_tree(job, now)

    def _without_known_findings(
        self, job: Job, run: _LintRun, keys: list[tuple[str, ...]], new_names: dict[str, str]
    ) -> _LintRun:
        """`run` without what its linter finds in the files of the base. `keys` identify its findings; `new_names` has
        the present names of renamed files."""
        if not run.findings:
            return run
        old_names = {after: before for before, after in new_names.items()}
        old_paths = [old_names.get(path, path) for path in run.targets]
        old_paths = [path for path in old_paths if is_own_file(run.linter.folder, path)]
        if not old_paths:
            return run
        try:
            findings = _run_linter(job, run.linter, old_paths)
        except CannotRun as error:
            job.say(f"{error.message}: old findings cannot be told apart from new ones")
            remaining = [finding for finding in run.findings if finding.path in run.targets]
            return replace(run, findings=remaining, compared=False)
        known_keys = Counter(_finding_keys(run.linter.folder, findings, new_names))
        new: list[Finding] = []
        for finding, key in zip(run.findings, keys, strict=True):
            if known_keys[key]:
                known_keys[key] -= 1
            else:
                new.append(finding)
        return replace(run, findings=new, known_count=len(run.findings) - len(new))

    def _make_result(self, job: Job, runs: list[_LintRun], errors: list[str]) -> FlowResult:
        findings = [
            replace(finding, path=f"{self.path_prefix}{finding.path}") for result in runs for finding in result.findings
        ]
        rules = Counter(finding.rule for finding in findings)
        ordered = sorted(rules.items(), key=lambda pair: (-pair[1], pair[0]))
        for rule, number in ordered:
            job.say(f"{number:>5}  {rule}")
        tools = join_names(result.linter.name for result in runs)
        linted = len({path for result in runs for path in result.targets})
        scope = count(linted, "file") if linted else "the project"
        compared = bool(self.paths) and all(result.compared for result in runs)
        files = len({finding.path for finding in findings})
        known_count = sum(result.known_count for result in runs)
        if findings:
            top_rules = ", ".join(f"{rule} {number}" for rule, number in ordered[:3])
            verb = "is" if len(findings) == 1 else "are"
            new = f" {verb} new" if compared else ""
            summary = f"{tools}: {count(len(findings), 'finding')} in {count(files, 'file')}{new} ({top_rules})"
        else:
            summary = f"{tools} found nothing{' new' if known_count else ''} in {scope}"
        if errors:
            summary += f"; {errors[0]}"
        can_fix = any(result.linter.fix_commands_for((), job.scratch) and result.findings for result in runs)
        facts: dict[str, object] = {
            "rules": dict(ordered),
            "findings": as_facts(findings[:MAX_SHOWN_FINDINGS], "path", "line", "rule", "message"),
            "known": known_count,
        }
        if findings:
            facts["next"] = "fix_lint" if can_fix else "let_agent_fix"
        return FlowResult(summary, sound=not findings, facts=facts)


def _renamed_files(job: Job, base: str, tree: str) -> Iterable[tuple[str, str]]:
    """Files that the base has under another name: old name and present name."""
    items = job.git.items("diff-tree", "-r", "-M", "--diff-filter=R", "--name-status", "-z", base, tree)
    return zip(items[1::3], items[2::3], strict=True)


class FixLint(_LintFlow):
    """Applies the formatter and safe fixes; the result is a change set."""

    name = "fix_lint"
    label = "Fix lint"
    place = Place.CHANGE_SET

    def describe(self) -> str:
        return self._describe_scope("Format the project{where} and apply its linter's safe fixes", "Format and fix")

    def run(self, job: Job) -> FlowResult:
        before = _file_states(job)
        used: list[str] = []
        every = self._find_linters(job)
        with linked_packages(job, every):
            for linter, targets in self._select_targets(every):
                for command in linter.fix_commands_for(targets, job.scratch):
                    done = run_command(job, command, linter.folder)
                    if done.exit_code not in command.exit_codes:
                        raise _linter_failure(linter, done)
                    used.append(" ".join([Path(command.argv[0]).name, *command.argv[1:2]]))
        changed = sorted(path for path, state in _file_states(job).items() if before.get(path) != state)
        tools = join_names(dict.fromkeys(used))
        if not used:
            return FlowResult("Nothing to fix: the project's linters fix none of these files")
        if not changed:
            return FlowResult(f"Nothing to fix: {tools} changed nothing", facts={"changed": []})
        return FlowResult(
            f"{tools} changed {count(len(changed), 'file')}: {join_names(changed, 4)}", facts={"changed": changed}
        )


def _file_states(job: Job) -> dict[str, str]:
    """Mode and blob id of every file as it is now."""
    entries = job.git.items("ls-files", "--stage", "-z", environment=stage_all_files(job))
    return {path: state for state, _, path in (entry.partition("\t") for entry in entries)}
