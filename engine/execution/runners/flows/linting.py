"""Flows that run the linters and type checkers of a project, or apply their safe fixes.

For changed files, only what is new since a commit is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pydantic import Field

from engine.execution.runners import CannotRun, CommandBlocked, CommandResult, Facts, Place
from engine.execution.runners.flow import (
    FlowResult,
    Job,
    ProjectFlow,
    RepoFile,
    Revision,
    is_own_file,
    make_facts,
)
from engine.execution.runners.flows.git_steps import link_packages, resolve_commit, restore_tree, store_tree
from engine.execution.runners.flows.suite_runs import find_project, run_command
from engine.execution.runners.toolchains import LINTERS, PROGRAM_FIXES, find_first_missing, read_text
from engine.execution.runners.toolchains.detection import add_package_command
from engine.execution.runners.toolchains.project_tools import Finding, Linter
from engine.frozen import frozen
from engine.text import find_last_error_line
from engine.wording import count, join_names

MAX_SHOWN_FINDINGS = 100
"""Maximum number of findings that are kept in the facts of a result."""

_LINE_NUMBER = re.compile(r"\bline \d+")
"""The number of another line in the message of a finding."""


class _LintFlow(ProjectFlow):
    """The base class of both flows. It finds the linters, and the files that each of them reads."""

    paths: list[RepoFile] = Field(
        default=[], max_length=1000, description="files and folders; none = the whole project"
    )

    def _find_linters(self, job: Job) -> Sequence[Linter]:
        """The linters of the project. Raises `CannotRun` if it has none."""
        project = find_project(job, self.project)
        if project.linters:
            return project.linters
        needed = project.missing_tool  # the tool of some languages lints and tests
        if needed in PROGRAM_FIXES and any(row.lint_command.startswith(f"{needed} ") for row in LINTERS):
            raise CannotRun(f"no linter{self.where}: {needed} is not installed", PROGRAM_FIXES[needed])
        languages = {packages.language for packages in project.packages}
        has_python = "python" in languages or any((job.folder / self.project).glob("*.py"))
        fix = "configure a linter for the project and install it in the project's environment"
        names = [row.name for row in LINTERS if not has_python or row.language == "python"]
        raise CannotRun(
            f"no linter{self.where}: looked for {', '.join(names)}",
            add_package_command(job.workspace / self.project, job.workspace, "ruff") if has_python else fix,
        )

    def _select_targets(self, job: Job, linters: Sequence[Linter]) -> list[tuple[Linter, list[str]]]:
        """(linter, existing files of `paths` that it reads, relative to its folder). A linter that reads none of the
        files is left out."""
        paths = self.find_files(job, self.paths)
        targets = [
            (linter, [path for path in paths if linter.covers(path) and is_own_file(linter.folder, path)])
            for linter in linters
        ]
        return [(linter, files) for linter, files in targets if files or not self.paths]


class Lint(_LintFlow):
    """Runs the linters and type checkers; for changed files it reports the findings that are new since a commit."""

    name = "lint"
    label = "Lint"
    work = "lint"
    place = Place.WORKTREE
    base: Revision = Field(
        default="HEAD", description="findings that changed files had at this commit are not reported"
    )

    def describe(self) -> str:
        return f"Lint {join_names(self.paths, 3) if self.paths else f'the whole project{self.where}'}"

    def run(self, job: Job) -> FlowResult:
        linters = self._find_linters(job)
        runs: list[_LintRun] = []
        errors: list[CannotRun] = []
        with link_packages(job, linters):
            for linter, targets in self._select_targets(job, linters):
                try:
                    runs.append(_LintRun(linter, targets, _run_linter(job, linter, targets)))
                except CannotRun as error:
                    errors.append(error)
            if errors and not runs:
                raise errors[0]
            for unable in errors:
                job.say(str(unable))
            if not runs:
                return FlowResult(f"Nothing to lint: no linter of the project reads {join_names(self.paths, 3)}")
            if self.paths and any(result.findings for result in runs):
                runs = self._compare_with_base(job, runs)
        return self._make_result(job, runs, "".join(f"; {unable.message}" for unable in errors[:1]))

    def _compare_with_base(self, job: Job, runs: list[_LintRun]) -> list[_LintRun]:
        """Remove from `runs` the findings that the base has as well."""
        base, present = resolve_commit(job, self.base), store_tree(job)
        items = job.git.items("diff-tree", "-r", "-M", "--diff-filter=R", "--name-status", "-z", base, present)
        renames = [self.select_paths_inside(pair) for pair in zip(items[1::3], items[2::3], strict=True)]
        old_names = {after: before for before, after in (pair for pair in renames if len(pair) == 2)}
        keys = [_make_finding_keys(run.linter.folder, run.findings, {}) for run in runs]
        job.say(f"Linting the same files at {base[:10]}, to see what is new")
        try:
            restore_tree(job, base)
            return [
                _remove_known_findings(job, run, run_keys, old_names) for run, run_keys in zip(runs, keys, strict=True)
            ]
        finally:
            restore_tree(job, present)

    def _make_result(self, job: Job, runs: list[_LintRun], unable: str) -> FlowResult:
        """The result of all linters. `unable` is a clause about a linter that could not run, "" for none."""
        prefix = self.path_prefix
        findings = [replace(finding, path=f"{prefix}{finding.path}") for run in runs for finding in run.findings]
        rules = _count_by_rule(findings)
        for rule, number in rules.items():
            job.say(f"{number:>5}  {rule}")
        tools = join_names(run.linter.name for run in runs)
        facts: Facts = {
            "rules": rules,
            "findings": make_facts(findings[:MAX_SHOWN_FINDINGS], "path", "line", "rule", "message"),
        }
        if not findings:
            linted = {path for run in runs for path in run.targets}
            scope = count(len(linted), "file") if linted else "the project"
            new = " new" if any(run.is_compared for run in runs) else ""
            return FlowResult(f"{tools} found nothing{new} in {scope}{unable}", facts=facts)
        failed = [run for run in runs if run.findings]
        can_fix = any(run.linter.make_fix_commands((), job.scratch) for run in failed)
        facts["next"] = "fix_lint" if can_fix else "let_agent_fix"
        are_new = self.paths and all(run.is_compared for run in failed)
        novelty = f" {'is' if len(findings) == 1 else 'are'} new" if are_new else ""
        total = f"{count(len(findings), 'finding')} in {count(len({finding.path for finding in findings}), 'file')}"
        return FlowResult(f"{tools}: {total}{novelty} ({_name_rules(findings)}){unable}", has_problem=True, facts=facts)


@frozen
class _LintRun:
    """The result of one linter."""

    linter: Linter
    targets: list[str]
    findings: list[Finding]
    is_compared: bool = False
    """Whether findings that the base has as well are left out."""


def _run_linter(job: Job, linter: Linter, targets: list[str]) -> list[Finding]:
    """The findings of a linter in `targets`, with paths relative to its folder. Raises `CannotRun`."""
    command = linter.lint_command(targets, job.scratch)
    result = run_command(job, command, linter.folder)
    findings = linter.parse(result.output, result.exit_code)
    if result.exit_code not in command.exit_codes or (result.exit_code != 0 and not findings):
        raise _make_linter_error(linter, result)
    return findings


def _count_by_rule(findings: Sequence[Finding]) -> dict[str, int]:
    """The number of findings of each rule, the most frequent first."""
    numbers = Counter(finding.rule for finding in findings)
    return dict(sorted(numbers.items(), key=lambda pair: (-pair[1], pair[0])))


def _name_rules(findings: Sequence[Finding]) -> str:
    """The three most frequent rules with their numbers: `F401 2, E501 1`."""
    return ", ".join(f"{rule} {number}" for rule, number in islice(_count_by_rule(findings).items(), 3))


def _find_what_is_left(job: Job, linter: Linter, targets: list[str]) -> list[Finding]:
    """The findings after the fixes; [] with a line in the transcript if the linter cannot run. The fixes count then,
    too."""
    try:
        return _run_linter(job, linter, targets)
    except (CannotRun, CommandBlocked) as error:
        job.say(f"{error.message}: what it would still find is not known")
        return []


def _make_linter_error(linter: Linter, result: CommandResult) -> CannotRun:
    """The error of a linter that could not do its work, with a fix where one is known."""
    missing = find_first_missing(result.output, linter.is_really_missing)
    if missing is not None:
        return CannotRun(f"{linter.name} cannot run: {missing.sentence}", linter.find_fix(missing))
    return CannotRun(
        f"{linter.name} ended with exit code {result.exit_code} without naming a line: "
        f"{find_last_error_line(result.output)}",
        "run it in a terminal to see why",
    )


def _remove_known_findings(job: Job, run: _LintRun, keys: list[tuple[str, ...]], old_names: dict[str, str]) -> _LintRun:
    """Remove from `run` the findings that its linter also has in the files of the base. `keys` are those of the
    findings of the run. `old_names` has the names that renamed files have in the base."""
    old_paths = [old_names.get(path, path) for path in run.targets]
    old_paths = [path for path in old_paths if is_own_file(run.linter.folder, path)]
    if not run.findings or not old_paths:
        return replace(run, is_compared=True)
    try:
        old = _run_linter(job, run.linter, old_paths)
    except CannotRun as error:
        job.say(f"{error.message}: old findings cannot be told apart from new ones")
        return replace(run, findings=[finding for finding in run.findings if finding.path in run.targets])
    new_names = {before: after for after, before in old_names.items()}
    old_numbers = Counter(_make_finding_keys(run.linter.folder, old, new_names))
    new: list[Finding] = []
    for finding, key in zip(run.findings, keys, strict=True):
        if old_numbers[key]:
            old_numbers[key] -= 1
        else:
            new.append(finding)
    return replace(run, findings=new, is_compared=True)


def _make_finding_keys(folder: Path, findings: list[Finding], names: dict[str, str]) -> list[tuple[str, ...]]:
    """A key for each finding, which is the same in two states of the files. It has the text of the line, because the
    number of the line may change. `names` has the present names of files that were renamed."""
    lines_by_path: dict[str, list[str]] = {}
    keys: list[tuple[str, ...]] = []
    for finding in findings:
        if finding.path not in lines_by_path:
            lines_by_path[finding.path] = read_text(folder / finding.path).splitlines()
        lines = lines_by_path[finding.path]
        line = lines[finding.line - 1].strip() if 0 < finding.line <= len(lines) else ""
        message = _LINE_NUMBER.sub("line", finding.message)
        keys.append((names.get(finding.path, finding.path), finding.rule, message, line))
    return keys


class FixLint(_LintFlow):
    """Applies the formatter and safe fixes; the result is a change set."""

    name = "fix_lint"
    label = "Fix lint"
    work = "lint"
    place = Place.CHANGE_SET

    def describe(self) -> str:
        everything = f"Format the project{self.where} and apply its linter's safe fixes"
        return f"Format and fix {join_names(self.paths, 3)}" if self.paths else everything

    def run(self, job: Job) -> FlowResult:
        before = store_tree(job)
        linters = self._find_linters(job)
        used_commands: list[str] = []
        left: list[Finding] = []
        with link_packages(job, linters):
            for linter, targets in self._select_targets(job, linters):
                commands = linter.make_fix_commands(targets, job.scratch)
                for command in commands:
                    result = run_command(job, command, linter.folder)
                    if result.exit_code not in command.exit_codes:
                        raise _make_linter_error(linter, result)
                    used_commands.append(" ".join([Path(command.argv[0]).name, *command.argv[1:2]]))
                left += _find_what_is_left(job, linter, targets) if commands else []
        changed = job.git.items("diff-tree", "-r", "-z", "--name-only", "--diff-filter=d", before, store_tree(job))
        tools = join_names(dict.fromkeys(used_commands))
        if not used_commands:
            names = join_names(self.paths, 3) or "this project"
            return FlowResult(f"Nothing to fix: no linter of the project fixes {names}")
        rest = f"; {count(len(left), 'finding')} left, which no safe fix removes ({_name_rules(left)})" if left else ""
        if not changed:
            return FlowResult(f"Nothing to fix: {tools} changed nothing{rest}")
        summary = f"{tools} changed {count(len(changed), 'file')}: {join_names(changed, 4)}{rest}"
        return FlowResult(summary, facts={"changed": changed})
