"""Flows about your own changes: what is not committed and which commits to make of it, the debugging and conflict
markers that your files and commits still have, and the documentation of what they renamed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.execution.runners.flow import CannotRun, Facts, Flow, FlowResult, Job, Line, Place, RepoFile, make_facts
from engine.execution.runners.flows.git_steps import (
    link_packages,
    make_operator_git,
    quote_paths,
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
from engine.execution.runners.toolchains.projects import find_innermost_project, find_projects
from engine.execution.runners.toolchains.tool_table import TEST_FILE
from engine.files import read_plain
from engine.frozen import frozen
from engine.git.leftovers import CONFLICT_MARKER, TODO_KINDS, count_kinds, find_removable_lines, remove_lines, scan_line
from engine.git.own_changes import LocatedLeftover, Mention, OwnChanges, find_own_changes, read_text
from engine.git.reader import GitReader
from engine.git.state import FileState, is_byproduct, read_status
from engine.git.unpushed import read_uncommitted
from engine.model import CheckResult
from engine.model.text import count, join_names

# -- uncommitted files, and the commits to make of them

MAX_COUNTED_BYTES = 1_000_000
"""Maximum size of an untracked file whose lines are counted."""

MAX_GROUPS = 8
"""Maximum number of suggested commits in the transcript."""

FILES_PER_COMMAND = 20
"""Maximum number of files in a suggested command. More files get several commands."""

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
        risks = read_uncommitted(job.git, head, status.files)
        for risk in risks:
            job.say(f"Do not commit: {risk.description_with_commit}")
        sentences = [f"{count(len(changes), 'file')} not committed"]
        sentences.append(f"could be {count(len(groups), 'commit')}: {join_names(groups, 3)}")
        if risks:
            sentences.append(f"do not commit: {risks[0].description}")
        facts = {
            "groups": {topic: [change.file.path for change in members] for topic, members in groups.items()},
            "next": "secret" if any(risk.is_secret for risk in risks) else "run_tests",
        }
        return FlowResult("; ".join(sentences), sound=not risks, facts=facts)


def _report_groups(job: Job, groups: Mapping[str, list[UncommittedFile]]) -> None:
    """Show the first groups, each with its files and the command that commits them."""
    for number, (topic, members) in enumerate(islice(groups.items(), MAX_GROUPS), 1):
        lines = f"+{sum(change.added for change in members)} -{sum(change.removed for change in members)}"
        job.say(f"{number}. {topic}: {count(len(members), 'file')}, {lines}")
        for change in members:
            job.say(f"   {change.letter} {change.file.path}  +{change.added} -{change.removed}")
        paths = [change.file.path for change in members]
        commands = [
            f"git add -- {quote_paths(paths[start : start + FILES_PER_COMMAND])}"
            for start in range(0, len(paths), FILES_PER_COMMAND)
        ]
        job.say_list([*commands[:-1], f"{commands[-1]} && git commit"], len(commands), indent="   ")
    if len(groups) > MAX_GROUPS:
        job.say(f"and {len(groups) - MAX_GROUPS} more")


def _read_changes(job: Job, head: str, files: Iterable[FileState]) -> list[UncommittedFile]:
    """The uncommitted files with their numbers of lines, without byproducts of tools."""
    numbers = {}
    for field in job.git.items("diff-index", "--numstat", "-z", "--no-renames", head):
        added, removed, path = field.split("\t", 2)
        numbers[path] = (int(added), int(removed)) if added != "-" else (0, 0)
    changes = []
    for file in files:
        if not file.untracked:
            changes.append(UncommittedFile(file, *numbers.get(file.path, (0, 0))))
        elif not is_byproduct(file.path):
            changes.append(UncommittedFile(file, _count_lines(job, file), 0))
    return changes


def _count_lines(job: Job, file: FileState) -> int:
    try:
        data = read_plain(job.folder / file.path, MAX_COUNTED_BYTES, follow=False)
    except (OSError, ValueError):
        return 0  # a folder, a pipe, or too large
    return 0 if b"\0" in data else len(data.splitlines())


def _group_by_topic(changes: Sequence[UncommittedFile]) -> Mapping[str, list[UncommittedFile]]:
    """The changes by topic, the topic with the most files first. A topic is a folder together with the tests of its
    files, documentation, or settings."""
    sources = [change.file.path for change in changes if _is_code(change.file.path)]
    folders = {_find_file_topic(path): _find_topic_folder(path) for path in sources}
    groups: dict[str, list[UncommittedFile]] = defaultdict(list)
    for change in changes:
        path = change.file.path
        if _is_code(path):
            topic = _find_topic_folder(path)
        elif _SOURCE_FILE.search(path):  # a test
            topic = folders.get(_find_file_topic(path), "tests")
        elif _PROSE_FILE.search(path):
            topic = "documentation"
        else:
            topic = "settings" if _SETTINGS_FILE.search(path) else _find_topic_folder(path)
        groups[topic].append(change)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _find_file_topic(path: str) -> str:
    """The topic of a file: `cart` for `cart.py`, `tests/test_cart.py` and `cart.spec.ts`."""
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
"""Number of lines shown before and after."""

MAX_FILE_BYTES = 5_000_000
"""Maximum size of a source file or document that is changed."""


def _check_instant(text: str) -> str:
    """Return `text`, if it is a time with a zone in ISO 8601. Raises `ValueError`."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("needs a time zone")
    return text


def read_own_changes(job: Job, today: str = "") -> OwnChanges:
    """The operator's own changes, with TODOs that were added since `today`."""
    since = datetime.fromisoformat(today or "9000-01-01T00:00:00+00:00")
    return find_own_changes(make_operator_git(job), GitReader().read(job.workspace), since)


class LookForLeftovers(Flow):
    """Shows each leftover with the lines around it, but no line that may hold a secret."""

    name = "look_for_leftovers"
    label = "Look for leftovers"
    work = "debugging"
    place = Place.OPERATOR_TREE
    today: Annotated[Line, AfterValidator(_check_instant)] = Field(
        default="", description="a time with its zone (ISO 8601); TODOs count only if they were added later"
    )

    def describe(self) -> str:
        return "Show the debugging and conflict markers that your changes left in"

    def run(self, job: Job) -> FlowResult:
        findings = read_own_changes(job, self.today).leftovers
        if not findings:
            return FlowResult("No leftovers: no debugging, no conflict markers, no TODOs of today")
        can_remove = False
        for path, file_findings in _group_by_path(findings).items():
            text = read_text(job.git, path)
            for finding in file_findings:
                _show_leftover(job, finding, text)
            debugging = [
                finding.line for finding in file_findings if finding.kind not in (CONFLICT_MARKER, *TODO_KINDS)
            ]
            can_remove |= bool(find_removable_lines(path, text, debugging))
        conflict = next((finding for finding in findings if finding.kind == CONFLICT_MARKER), None)
        if conflict is not None:
            job.say(f"Next: resolve {conflict.place} in your editor; it contains both sides.")
        facts: Facts = {"findings": make_facts(findings, "kind", "path", "line")}
        if can_remove:
            facts["next"] = "remove_leftovers"
        return FlowResult(_summarise_leftovers(findings), sound=False, facts=facts)


def _group_by_path(findings: Iterable[LocatedLeftover]) -> dict[str, list[LocatedLeftover]]:
    groups: dict[str, list[LocatedLeftover]] = {}
    for finding in findings:
        groups.setdefault(finding.path, []).append(finding)
    return groups


def _show_leftover(job: Job, finding: LocatedLeftover, text: str) -> None:
    """Show a leftover with the lines around it. `text` is that of its file."""
    job.say(f"{finding.place}  {finding.kind}")
    rows = text.split("\n")
    for number in range(max(1, finding.line - CONTEXT_LINES), min(len(rows), finding.line + CONTEXT_LINES) + 1):
        row = rows[number - 1]
        is_secret = any(hit.is_secret for hit in scan_line(finding.path, row))
        content = "(not shown: it may hold a secret)" if is_secret else row[:200].rstrip()
        job.say(f"  {'>' if number == finding.line else ' '} {number:>4}  {content}")


def _summarise_leftovers(findings: tuple[LocatedLeftover, ...]) -> str:
    places = join_names([finding.place for finding in findings], 3)
    return f"{count_kinds(finding.kind for finding in findings)}: {places}"


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
        self.require_present(job.folder)
        findings = [finding for finding in read_own_changes(job).leftovers if finding.kind != CONFLICT_MARKER]
        base = store_tree(job)
        findings_by_path = _group_by_path(findings)
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
        return FlowResult(f"{summary}; {outcome}", check=check, facts={"changed": changed})

    def _remove_from_file(self, job: Job, path: str, findings: Sequence[LocatedLeftover]) -> list[int]:
        """Remove statements from one file of the worktree. Returns the numbers of the removed lines."""
        try:
            before = read_plain(job.folder / path, MAX_FILE_BYTES, follow=False).decode()
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


# -- documentation with names that your changes renamed or removed


class FindOutdatedDocs(Flow):
    """Lists each line of documentation with a name that is gone, and the new name where there is one."""

    name = "look_at_mentions"
    label = "Look at the documentation"
    work = "docs"
    place = Place.OPERATOR_TREE

    def describe(self) -> str:
        return "Show the documentation that names what your changes renamed or removed"

    def run(self, job: Job) -> FlowResult:
        mentions = read_own_changes(job).mentions
        if not mentions:
            return FlowResult("The documentation names nothing that your changes renamed or removed")
        for finding in mentions:
            replacement = f"now {finding.new}" if finding.new else "gone"
            job.say(f"{finding.path}:{finding.line}  {finding.old} ({replacement})")
            job.say(f"      {finding.text}")
        renamed = [finding for finding in mentions if finding.new]
        if len(renamed) < len(mentions):
            job.say("Reword what is gone and has no new name.")
        names = join_names(dict.fromkeys(finding.old for finding in mentions), 3)
        files = count(len({finding.path for finding in mentions}), "file")
        verb = "name" if len(mentions) > 1 else "names"
        facts: Facts = {"mentions": make_facts(mentions, "path", "line", "old", "new")}
        if renamed:
            facts["next"] = "update_docs"
        summary = f"{count(len(mentions), 'line')} in {files} of documentation still {verb} {names}"
        return FlowResult(summary, sound=False, facts=facts)


class UpdateDocs(Flow):
    """Replaces old names with new ones on the lines that `FindOutdatedDocs` lists."""

    name = "update_docs"
    label = "Update the documentation"
    work = "docs"
    place = Place.CHANGE_SET
    paths: list[RepoFile] = Field(min_length=1, max_length=100, description="documents that contain renamed names")

    def describe(self) -> str:
        return f"Put the new names into {join_names(self.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        mentions = read_own_changes(job).mentions
        changed: dict[str, int] = {}
        for path in self.paths:
            renamed = [mention for mention in mentions if mention.path == path and mention.new]
            if renamed and self._rename_in_file(job, path, renamed):
                changed[path] = len(renamed)
        if not changed:
            return FlowResult("Nothing to update: no document contains a name with a clear replacement")
        summary = f"{count(sum(changed.values()), 'name')} updated in {join_names(changed, 3)}"
        unnamed = sum(not mention.new for mention in mentions)
        if unnamed:
            verb = "names" if unnamed == 1 else "name"
            summary += f"; {count(unnamed, 'line')} {verb} something that is gone and must be reworded"
        return FlowResult(summary, facts={"changed": list(changed)})

    def _rename_in_file(self, job: Job, path: str, mentions: Sequence[Mention]) -> bool:
        """Replace the names that a document mentions, longer names first. Returns False if the file cannot be read."""
        try:
            rows = read_plain(job.folder / path, MAX_FILE_BYTES, follow=False).decode().split("\n")
        except (OSError, ValueError) as error:
            job.say(f"{path} was not changed: {error!s}")
            return False
        for mention in sorted(mentions, key=lambda mention: -len(mention.old)):
            name = re.compile(rf"(?<![\w-]){re.escape(mention.old)}(?![\w-])")
            rows[mention.line - 1] = name.sub(mention.new.replace("\\", "\\\\"), rows[mention.line - 1])
            job.say(f"{path}:{mention.line}  {mention.old} → {mention.new}")
        (job.folder / path).write_bytes("\n".join(rows).encode())
        return True
