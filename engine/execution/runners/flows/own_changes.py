"""Flows about what your own changes left behind: debugging and conflict markers in your files and commits,
documentation that names what they renamed or removed, and a file that usually changes with yours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import dropwhile

from pydantic import AwareDatetime, Field

from engine.execution.runners import CannotRun, Facts, Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job, RepoFile, RepoPath, make_facts
from engine.execution.runners.flows.git_steps import (
    link_packages,
    make_operator_git,
    parse_line_count,
    read_own_changes,
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
from engine.files import read_plain
from engine.frozen import frozen
from engine.git import Git
from engine.git.habits import is_group
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
from engine.git.stale_mentions import Mention
from engine.model import CheckResult, group_pairs
from engine.text import sanitise
from engine.wording import count, join_names

# -- leftovers

CONTEXT_LINES = 2
"""Number of lines shown before and after."""

MAX_FILE_BYTES = 5_000_000
"""Maximum size of a source file or document that is changed."""


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
        can_remove = False
        for path, file_findings in group_pairs((finding.path, finding) for finding in findings).items():
            text = read_working_file(job.git, path)
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
        places = join_names([finding.place for finding in findings], 3)
        summary = f"{count_kinds(finding.kind for finding in findings)}: {places}"
        return FlowResult(summary, sound=False, facts=facts)


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


class LookAtMentions(Flow):
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
            job.say(f"      {finding.excerpt}")
        renamed = [finding for finding in mentions if finding.new]
        if len(renamed) < len(mentions):
            job.say("Reword what is gone and has no new name.")
        names = join_names(dict.fromkeys(finding.old for finding in mentions), 3)
        files = count(len({finding.path for finding in mentions}), "file")
        summary = f"{count(len(mentions), 'line')} in {files} of documentation with outdated names: {names}"
        return FlowResult(summary, sound=False, facts={"next": "update_docs"} if renamed else {})


class UpdateDocs(Flow):
    """Replaces old names with new ones on the lines that `LookAtMentions` lists."""

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
        if unnamed := sum(not mention.new for mention in mentions):
            summary += f"; {count(unnamed, 'line')} left for you: the name is gone and has no new one"
        return FlowResult(summary)

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


# -- a file that usually changes with yours

MAX_SHOWN_COMMITS = 3
"""Maximum number of commits in the transcript in which both files changed."""

MAX_SHOWN_LINES = 12
"""Maximum number of the partner's changed lines in the transcript, of the newest of these commits."""

MAX_SEARCHED_COMMITS = 2_000
"""Maximum number of commits of each file that are searched."""


class FindJointChanges(Flow):
    """Shows the last commits in which both files changed."""

    name = "look_together"
    label = "Look at what changed together"
    work = "review"
    place = Place.OPERATOR_TREE
    path: RepoPath = Field(description="the file that changed, or `folder/*.ending` for files that lie together")
    partner: RepoPath = Field(description="the file that usually changes with it")

    def describe(self) -> str:
        return f"Show how {self.partner} changed with {self.path}"

    def run(self, job: Job) -> FlowResult:
        git = make_operator_git(job)
        path, partner = self.path, self.partner
        log = ("log", "--no-merges", f"-n{MAX_SEARCHED_COMMITS}", "--format=%H", "HEAD", "--")
        partner_commits = set(git.lines(*log, _make_pathspec(partner)))
        commits = [sha for sha in git.lines(*log, _make_pathspec(path)) if sha in partner_commits]
        if not commits:
            raise WorkFailed(f"no commit changed both {path} and {partner}")
        changes = [_read_joint_change(git, sha, partner) for sha in commits[:MAX_SHOWN_COMMITS]]
        for commit in changes:
            job.say(f"{commit.date}  {commit.sha[:10]}  {commit.subject}  (+{commit.added} −{commit.deleted})")
        newest = changes[0]
        job.say("")
        job.say(f"{partner} in {newest.sha[:10]}:")
        job.say_list(_read_changed_lines(git, newest.sha, partner), MAX_SHOWN_LINES)
        lines = count(parse_line_count(newest.added) + parse_line_count(newest.deleted), "line")
        last = f"the last on {newest.date}: “{newest.subject}”, {lines} of {partner}"
        return FlowResult(f"{count(len(commits), 'commit')} changed both {path} and {partner}, {last}")


@frozen
class JointChange:
    """A commit that changed both files."""

    sha: str
    date: str
    subject: str
    added: str
    """The number of the partner's added lines, "-" for a binary file."""
    deleted: str
    """The number of its deleted lines, in the same form."""


def _make_pathspec(path: str) -> str:
    """The path for git: a group of files as a pattern, any other name as it stands."""
    return f":(top,glob){path}" if is_group(path) else f":(top,literal){path}"


def _read_joint_change(git: Git, sha: str, partner: str) -> JointChange:
    form = "--format=%H%x00%cs%x00%s%x00"
    output = git.text("show", "--no-renames", "--numstat", "-z", form, sha, "--", _make_pathspec(partner))
    commit, date, subject, numbers = output.split("\0", 3)
    added, deleted = numbers.lstrip("\0\n").split("\t")[:2]
    return JointChange(commit, date, subject, added, deleted)


def _read_changed_lines(git: Git, sha: str, partner: str) -> list[str]:
    """The lines of the partner that the commit changed, without the header of the patch."""
    patch = git.lines("show", "--no-renames", "--unified=0", "--format=", sha, "--", _make_pathspec(partner))
    hunks = dropwhile(lambda line: not line.startswith("@@"), patch)
    return [_format_patch_line(line, partner) for line in hunks if line[:1] in ("+", "-")]


def _format_patch_line(line: str, partner: str) -> str:
    """A line of a patch for the transcript. Its white space stays, and a line with a likely secret is replaced."""
    if any(hit.is_secret for hit in scan_line(partner, line[1:])):
        return f"{line[:1]} (a likely secret, not shown)"
    return line[:1] + sanitise(line[1:].replace("\t", "    "))[:200]
