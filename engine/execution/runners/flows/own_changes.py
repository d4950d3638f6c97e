"""Flows that look at your own changes before others see them: they suggest commits of what is not committed, and show
or remove the debugging that was left in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath

from pydantic import AwareDatetime, Field

from engine.execution.runners import CannotRun, Facts, Place
from engine.execution.runners.flow import Flow, FlowResult, Job, RepoFile, make_facts
from engine.execution.runners.flows.git_steps import (
    link_packages,
    parse_line_count,
    quote_paths,
    read_own_changes,
    resolve_commit,
    store_tree,
)
from engine.execution.runners.flows.suite_runs import (
    PlannedTests,
    collect_tests,
    combine_checks,
    compare_with_base,
    describe_compared,
    run_test_plan,
)
from engine.execution.runners.toolchains import TEST_FILE
from engine.execution.runners.toolchains.projects import find_innermost_project, find_projects
from engine.files import read_plain, read_plain_or_nothing
from engine.frozen import frozen, group_pairs
from engine.git.leftovers import (
    CONFLICT_MARKER,
    TODO_KINDS,
    Leftover,
    count_kinds,
    find_removable_lines,
    read_working_file,
    remove_lines,
    scan_line,
)
from engine.git.push_problems import read_uncommitted, read_untracked
from engine.git.state import FileState, is_byproduct, read_status
from engine.model import CheckResult
from engine.wording import count, join_names

# -- what is not committed

MAX_COUNTED_BYTES = 1_000_000
"""Maximum size of an untracked file whose lines are counted."""

MAX_GROUPS = 8
"""Maximum number of suggested commits in the transcript."""

_TEST_STEM = re.compile(r"^(?:test[_-])?(.+?)(?:[._-](?:test|tests|spec))?$", re.I)
"""The name of a test file without its ending; the group is the name of what it tests."""

_PROSE_FILE = re.compile(r"\.(?:md|rst|adoc|txt)$|(?:^|/)docs?/", re.I)

_SETTINGS_FILE = re.compile(
    r"\.(?:toml|ya?ml|cfg|ini|lock|mod|sum|gradle|properties)$|(?:^|/)(?:package(?:-lock)?\.json|\.[^/]+)$"
)

_SOURCE_FILE = re.compile(
    r"\.(?:py|js|jsx|ts|tsx|mjs|cjs|go|rs|java|kt|rb|php|ex|exs|cs|c|cc|cpp|h|hpp|swift|scala|vue|svelte)$"
)


@frozen
class UncommittedFile:
    """One uncommitted file with its numbers of lines, which are 0 for a file that is not text."""

    file: FileState
    added: int
    removed: int

    @property
    def letter(self) -> str:
        """The letter of its state: ? for an untracked file, D for a deleted one, M for any other."""
        if self.file.untracked:
            return "?"
        return "D" if self.file.deleted else "M"


class LookAtChanges(Flow):
    """Reads the differences from HEAD; nothing is run, staged or written."""

    name = "look_at_changes"
    label = "Look at uncommitted changes"
    work = "review"
    place = Place.OPERATOR_TREE

    def describe(self) -> str:
        return "Look at what is not committed yet and suggest commits"

    def run(self, job: Job) -> FlowResult:
        head = resolve_commit(job, "HEAD")
        status = read_status(job.git)
        changes = _read_changes(job, head, status.files)
        if not changes:
            return FlowResult("Nothing to commit: everything is committed")
        groups = _group_by_topic(changes)
        _report_groups(job, groups)
        untracked = [change.file.path for change in changes if change.file.untracked]
        risks = (*read_uncommitted(job.git, head, status.files), *read_untracked(job.git, untracked))
        for risk in risks:
            job.say(f"Do not commit: {risk.description_with_commit}")
        sentences = [f"{count(len(changes), 'file')} not committed"]
        sentences.append(f"could be {count(len(groups), 'commit')}: {join_names(groups, 3)}")
        if risks:
            sentences.append(f"do not commit: {risks[0].description}")
        next_step = "secret" if any(risk.is_secret for risk in risks) else "run_tests"
        return FlowResult("; ".join(sentences), has_problem=bool(risks), facts={"next": next_step})


def _report_groups(job: Job, groups: Mapping[str, list[UncommittedFile]]) -> None:
    """Show the first groups, each with its files and the command that commits them."""
    for number, (topic, members) in enumerate(islice(groups.items(), MAX_GROUPS), 1):
        lines = f"+{sum(change.added for change in members)} -{sum(change.removed for change in members)}"
        job.say(f"{number}. {topic}: {count(len(members), 'file')}, {lines}")
        for change in members:
            job.say(f"   {change.letter} {change.file.path}  +{change.added} -{change.removed}")
        job.say(f"   git add -- {quote_paths(change.file.path for change in members)} && git commit")
    if len(groups) > MAX_GROUPS:
        job.say(f"and {len(groups) - MAX_GROUPS} more")


def _read_changes(job: Job, head: str, files: Iterable[FileState]) -> list[UncommittedFile]:
    """The uncommitted files with their numbers of lines, without byproducts of tools."""
    numbers = {}
    for field in job.git.items("diff-index", "--numstat", "-z", "--no-renames", head):
        added, removed, path = field.split("\t", 2)
        numbers[path] = parse_line_count(added), parse_line_count(removed)
    changes = []
    for file in files:
        if not file.untracked:
            changes.append(UncommittedFile(file, *numbers.get(file.path, (0, 0))))
        elif not is_byproduct(file.path):
            data = read_plain_or_nothing(job.folder / file.path, MAX_COUNTED_BYTES, follow=False)
            changes.append(UncommittedFile(file, 0 if b"\0" in data else len(data.splitlines()), 0))
    return changes


def _group_by_topic(changes: Sequence[UncommittedFile]) -> Mapping[str, list[UncommittedFile]]:
    """The changes by topic, the topic with the most files first. A topic is a folder together with the tests of its
    files, documentation, or settings."""
    sources = [change.file.path for change in changes if _is_code(change.file.path)]
    folders = {_find_subject(path): _find_topic_folder(path) for path in sources}
    groups = group_pairs((_find_topic(change.file.path, folders), change) for change in changes)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _find_topic(path: str, folders: Mapping[str, str]) -> str:
    """The topic of a changed file. `folders` are those of the changed sources, by what each is about."""
    if _is_code(path):
        return _find_topic_folder(path)
    if _SOURCE_FILE.search(path):  # a test
        return folders.get(_find_subject(path), "tests")
    if _PROSE_FILE.search(path):
        return "documentation"
    return "settings" if _SETTINGS_FILE.search(path) else _find_topic_folder(path)


def _find_subject(path: str) -> str:
    """What a file is about: `cart` for `cart.py`, `tests/test_cart.py` and `cart.spec.ts`."""
    name = PurePosixPath(path).stem.lower()
    match = _TEST_STEM.match(name)
    return (match[1] if match else name).removesuffix("test")


def _is_code(path: str) -> bool:
    """Whether a path is a source file and not a test."""
    return bool(_SOURCE_FILE.search(path)) and not TEST_FILE.search(path)


def _find_topic_folder(path: str) -> str:
    folders = PurePosixPath(path).parts[:-1]
    return "/".join(folders[:3]) if folders else PurePosixPath(path).stem


# -- leftovers

CONTEXT_LINES = 2
"""Number of lines that are shown before and after a leftover."""

MAX_SOURCE_BYTES = 5_000_000
"""Maximum size of a source file that is changed."""


class LookForLeftovers(Flow):
    """Shows each leftover with the lines around it, but no line that may hold a secret."""

    name = "look_for_leftovers"
    label = "Look for leftovers"
    work = "debugging"
    place = Place.OPERATOR_TREE
    today: AwareDatetime | None = Field(
        default=None, description="a time with its zone (ISO 8601); TODOs count only if they were added later"
    )

    def describe(self) -> str:
        return "Show the debugging and conflict markers that your changes left in"

    def run(self, job: Job) -> FlowResult:
        findings = read_own_changes(job, self.today).leftovers
        if not findings:
            return FlowResult("No leftovers")
        findings_by_path = group_pairs((finding.path, finding) for finding in findings)
        texts = {path: read_working_file(job.git, path) for path in findings_by_path}
        for path, file_findings in findings_by_path.items():
            for finding in file_findings:
                _show_leftover(job, finding, texts[path])
        conflict = next((finding for finding in findings if finding.kind == CONFLICT_MARKER), None)
        if conflict is not None:
            job.say(f"Next: resolve {conflict.place} in your editor; it contains both sides.")
        facts: Facts = {"findings": make_facts(findings, "kind", "path", "line")}
        if any(_has_removable_debugging(path, texts[path], found) for path, found in findings_by_path.items()):
            facts["next"] = "remove_leftovers"
        places = join_names([finding.place for finding in findings], 3)
        summary = f"{count_kinds(finding.kind for finding in findings)}: {places}"
        return FlowResult(summary, has_problem=True, facts=facts)


def _has_removable_debugging(path: str, text: str, findings: Sequence[Leftover]) -> bool:
    """Whether `RemoveLeftovers` would remove one of the findings from a file with this `text`."""
    debugging = [finding.line for finding in findings if finding.kind not in (CONFLICT_MARKER, *TODO_KINDS)]
    return bool(find_removable_lines(path, text, debugging))


def _show_leftover(job: Job, finding: Leftover, text: str) -> None:
    """Show a leftover with the lines around it. `text` is that of its file."""
    job.say(f"{finding.place}  {finding.kind}")
    rows = text.split("\n")
    for number in range(max(1, finding.line - CONTEXT_LINES), min(len(rows), finding.line + CONTEXT_LINES) + 1):
        row = rows[number - 1]
        is_secret = any(hit.is_secret for hit in scan_line(finding.path, row))
        content = "(not shown: it may hold a secret)" if is_secret else row[:200].rstrip()
        job.say(f"  {'>' if number == finding.line else ' '} {number:>4}  {content}")


class RemoveLeftovers(Flow):
    """Removes debugging that you added on lines of its own, and runs the tests of these files."""

    name = "remove_leftovers"
    label = "Remove debugging"
    work = "debugging"
    place = Place.CHANGE_SET
    paths: list[RepoFile] = Field(min_length=1, max_length=200, description="files with debugging left in")

    def describe(self) -> str:
        return f"Remove the debugging from {join_names(self.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        self.check_requirements(job.folder)
        findings = [finding for finding in read_own_changes(job).leftovers if finding.kind != CONFLICT_MARKER]
        base = store_tree(job)
        findings_by_path = group_pairs((finding.path, finding) for finding in findings)
        removed = {path: self._remove_from_file(job, path, findings_by_path.get(path, [])) for path in self.paths}
        remaining = [item for item in findings if item.path in removed and item.line not in removed[item.path]]
        for finding in remaining:
            job.say(f"left: {finding.place}  {finding.kind}, not a statement on a line of its own")
        changed = [path for path, lines in removed.items() if lines]
        if not changed:
            return FlowResult("Nothing removed: no debugging statement has a line of its own")
        summary = f"{count(sum(map(len, removed.values())), 'line')} removed from {join_names(changed, 3)}"
        summary += f", {len(remaining)} left for you" if remaining else ""
        check = self._run_tests_of(job, changed, base)
        outcome = "no tests ran" if check is None else describe_compared(check)
        return FlowResult(f"{summary}; {outcome}", check=check)

    def _remove_from_file(self, job: Job, path: str, findings: Sequence[Leftover]) -> list[int]:
        """Remove statements from one file of the worktree. Returns the numbers of the removed lines."""
        try:
            before = read_plain(job.folder / path, MAX_SOURCE_BYTES, follow=False).decode()
            removed = find_removable_lines(path, before, [finding.line for finding in findings])
            after = remove_lines(path, before, removed)
        except (OSError, ValueError, SyntaxError) as error:
            job.say(f"{path} was not changed: {error!s}")
            return []
        if removed:
            (job.folder / path).write_bytes(after.encode())
            job.say(f"{path}: removed line {', '.join(map(str, removed))}")
        return removed

    def _run_tests_of(self, job: Job, paths: list[str], base: str) -> CheckResult | None:
        """Run the tests of the changed files. Returns their result, compared with the tree `base`; None if no tool can
        run them."""
        projects = find_projects(job.folder, job.workspace, git=job.git)
        plan: list[PlannedTests] = []
        for project in projects:
            inside = [
                project.path_inside(path) or path for path in paths if find_innermost_project(projects, path) is project
            ]
            for tool in project.tools:
                if covered := [path for path in inside if tool.covers(path)]:
                    plan.append(PlannedTests(tool, collect_tests(tool.find_tests_for(covered))))
        if not plan:
            return None
        try:
            with link_packages(job, [tool for tool, _ in plan]):
                results = run_test_plan(job, plan)
        except CannotRun as error:
            job.say(str(error))
            return None
        return combine_checks(compare_with_base(job, base, results))
