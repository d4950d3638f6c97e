"""Flows about changes that are not committed or not pushed: what must not be pushed, and how to commit the changes."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath

from pydantic import Field

from engine.execution.runners.flow import Facts, Flow, FlowResult, Job, Line, Place, Revision
from engine.execution.runners.flows.git_steps import resolve_commit
from engine.execution.runners.toolchains.tool_table import TEST_FILE
from engine.files import read_plain
from engine.frozen import frozen
from engine.git.leftovers import SECRET, count_kinds
from engine.git.state import FileState, is_byproduct, read_status
from engine.git.unpushed import (
    MAX_COMMITS,
    NOTHING_UNPUSHED,
    Span,
    Unpushed,
    UnpushedProblem,
    read_commits,
    read_uncommitted,
)
from engine.model.text import article, capitalised, count, join_names

MAX_FINDINGS = 200


class ReviewUnpushed(Flow):
    """Reads every added line of every unpushed commit; secrets count even when a later commit removed them."""

    name = "review_unpushed"
    label = "Review unpushed commits"
    place = Place.OPERATOR_TREE
    upstream: Revision | None = Field(
        default=None,
        description="the branch to compare with, for example origin/main; without it, all remote branches",
    )
    newest: int = Field(default=MAX_COMMITS, ge=1, le=MAX_COMMITS, description="the most commits to review")
    broken: list[Line] = Field(default=[], max_length=20, description="known problems of the branch, one line each")

    def describe(self) -> str:
        upstream = self.upstream if self.upstream else "no remote branch"
        missing = "does not have yet" if self.upstream else "has yet"
        return f"Review the commits that {upstream} {missing} for leftovers, secrets and large files"

    def run(self, job: Job) -> FlowResult:
        status = read_status(job.git)
        span, unpushed = None, NOTHING_UNPUSHED
        if status.head:
            span = Span(status.head, resolve_commit(job, self.upstream) if self.upstream else "", self.newest)
            unpushed = read_commits(job.git, span, leftovers=True)
        uncommitted = read_uncommitted(job.git, status.head, status.files)
        if span is None and not uncommitted:
            return FlowResult("Nothing to review: there is no commit yet, and nothing is staged")
        if not unpushed.commits and not uncommitted:
            upstream = self.upstream if self.upstream else "another branch"
            return FlowResult(f"Nothing to review: {upstream} has every commit")
        job.say(count(unpushed.commits, "unpushed commit"))
        if unpushed.unread:
            job.say(f"The lines of {count(unpushed.unread, 'commit')} were not checked for secrets: too many at once")
        findings = [*unpushed.committed, *uncommitted]
        job.say_list([_describe_finding(finding) for finding in findings], MAX_FINDINGS)
        rebase_start = _rebase_start(job, span, findings, self.upstream) if span else ""
        for line in [*self.broken, *_cleanup_steps(findings, status.head, rebase_start)]:
            job.say(line)
        return _make_result(unpushed, findings, self.broken)


def _describe_finding(finding: UnpushedProblem) -> str:
    """A finding in one line, with its position."""
    where = f"in {finding.sha[:10]}" if finding.sha else "not committed yet"
    note = "  (removed again by a later commit, but still in the history)" if finding.is_removed_later else ""
    return f"{_finding_place(finding)}  {finding.kind}{_size_note(finding)}  {where}{note}"


def _finding_place(finding: UnpushedProblem) -> str:
    """The position of a finding, such as `config.py:12` or `data/dump.bin`."""
    return f"{finding.path}:{finding.line}" if finding.line else finding.path


def _size_note(finding: UnpushedProblem) -> str:
    """The size of a large file, such as `, 60 MB`; "" if the size is not the problem."""
    decimals = 0 if finding.size >= 10_000_000 else 1
    return f", {finding.size / 1_000_000:.{decimals}f} MB" if finding.size and not finding.is_folder else ""


def _cleanup_steps(findings: list[UnpushedProblem], head: str, rebase_start: str) -> list[str]:
    """The next steps for findings. `rebase_start` is the argument of `git rebase -i`.

    A commit must be changed, because a later commit removes nothing from the history. A secret must be replaced,
    because somebody may have copied it.
    """
    serious = [finding for finding in findings if finding.is_secret or not finding.line]
    return [*_file_steps(serious), *_history_steps(serious, head, rebase_start)]


def _file_steps(serious: list[UnpushedProblem]) -> list[str]:
    """The steps that remove the findings from the present files."""
    present = [finding for finding in serious if not finding.is_removed_later]
    steps = [
        f"Next: remove it from git but keep the file: git rm -r --cached {shlex.quote(path)}"
        for path in dict.fromkeys(finding.path for finding in present if not finding.line)
    ]
    if any(finding.line for finding in present):
        steps.append("Next: move the secret out of the file, for example into an environment variable")
    return steps


def _history_steps(serious: list[UnpushedProblem], head: str, rebase_start: str) -> list[str]:
    """The steps that remove the findings from the history."""
    committed = [finding for finding in serious if finding.sha]
    commits = list(dict.fromkeys(finding.sha for finding in committed))
    steps = []
    if commits == [head]:
        steps.append("Then, before you push: git commit --amend")
    elif commits:
        names = ", ".join(sha[:10] for sha in commits[:5])
        steps.append(f"Then, before you push, edit {names} to remove it from the history: git rebase -i {rebase_start}")
    if any(finding.is_secret for finding in committed):
        steps.append("If anybody else may have seen a key, revoke it and create a new one.")
    return steps


def _rebase_start(job: Job, span: Span, findings: list[UnpushedProblem], upstream: str | None) -> str:
    """The argument of a rebase that includes all commits with findings."""
    if upstream:
        return shlex.quote(upstream)
    affected = {finding.sha for finding in findings}
    lines = job.git.text("rev-list", "--topo-order", "--parents", *span.arguments).splitlines()
    oldest = next((line.split() for line in reversed(lines) if line.split()[0] in affected), [])
    return f"{oldest[0][:10]}^" if len(oldest) > 1 else "--root"


def _make_result(unpushed: Unpushed, findings: list[UnpushedProblem], branch_problems: list[str]) -> FlowResult:
    facts: Facts = {"commits": unpushed.commits, "findings": list(map(_finding_facts, findings[:MAX_FINDINGS]))}
    commits = count(unpushed.commits, "unpushed commit")
    if not findings and not branch_problems:
        unread = f", but {unpushed.unread} of them could not be read" if unpushed.unread else ""
        return FlowResult(f"{commits}, nothing that should not be pushed{unread}", facts=facts)
    secrets = [finding for finding in findings if finding.is_secret]
    files = [finding for finding in findings if not finding.is_secret and not finding.line]
    if secrets or files:
        facts["next"] = "secret" if secrets else "large_file"
    parts = [*_describe_serious(secrets, files), *branch_problems, *_describe_leftovers(findings)]
    where = f" (in {commits})" if unpushed.commits else ""
    is_sound = not secrets and not files and not branch_problems
    return FlowResult(capitalised("; ".join(parts)) + where, sound=is_sound, facts=facts)


def _finding_facts(finding: UnpushedProblem) -> Facts:
    facts = {
        "kind": finding.kind,
        "path": finding.path,
        "line": finding.line,
        "commit": finding.sha,
        "gone": finding.is_removed_later,
    }
    return facts | {"size": finding.size} if finding.size else facts


def _describe_serious(secrets: list[UnpushedProblem], files: list[UnpushedProblem]) -> list[str]:
    """Sentences about what must not be pushed, without full stops."""
    first_of_several = ", the first" if len(secrets) > 1 else ""
    parts = [f"{count(len(secrets), SECRET)}{first_of_several} in {_finding_place(secrets[0])}"] if secrets else []
    if files:
        first = files[0]
        more = f", and {count(len(files) - 1, 'other file')}" if len(files) > 1 else ""
        verb = "holds" if first.is_folder else f"is {article(first.kind)}"
        parts.append(f"{_finding_place(first)} {verb} {first.kind}{_size_note(first)}{more}")
    if parts:
        are_committed = any(finding.sha for finding in (*secrets, *files))
        parts[0] = f"do not {'push' if are_committed else 'commit'}: {parts[0]}"
    return parts


def _describe_leftovers(findings: list[UnpushedProblem]) -> list[str]:
    """A sentence with the numbers of the leftovers among the findings, if there are any."""
    kinds = [finding.kind for finding in findings if not finding.is_secret and finding.line]
    return [f"{count_kinds(kinds)} to look at"] if kinds else []


MAX_COUNTED_BYTES = 1_000_000

MAX_GROUPS = 8

_TEST_STEM = re.compile(r"^(?:test[_-])?(.+?)(?:[._-](?:test|tests|spec))?$", re.I)

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
            job.say(f"Do not commit: {_describe_finding(risk)}")
        sentences = [f"{count(len(changes), 'file')} not committed"]
        sentences.append(f"could be {count(len(groups), 'commit')}: {join_names(groups, 3)}")
        if risks:
            sentences.append(f"do not commit {risks[0].path}: {risks[0].kind}")
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
        names = " ".join(shlex.quote(change.file.path) for change in members[:20])
        job.say(f"   git add -- {names} && git commit")
    if len(groups) > MAX_GROUPS:
        job.say(f"and {len(groups) - MAX_GROUPS} more")


def _read_changes(job: Job, head: str, files: Iterable[FileState]) -> list[UncommittedFile]:
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
    folders = {_topic_of_file(path): _topic_folder(path) for path in sources}
    groups: dict[str, list[UncommittedFile]] = defaultdict(list)
    for change in changes:
        path = change.file.path
        if _is_code(path):
            topic = _topic_folder(path)
        elif _SOURCE_FILE.search(path):  # a test
            topic = folders.get(_topic_of_file(path), "tests")
        elif _PROSE_FILE.search(path):
            topic = "documentation"
        else:
            topic = "settings" if _SETTINGS_FILE.search(path) else _topic_folder(path)
        groups[topic].append(change)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _topic_of_file(path: str) -> str:
    """The topic of a file: `cart` for `cart.py`, `tests/test_cart.py` and `cart.spec.ts`."""
    name = PurePosixPath(path).stem.lower()
    match = _TEST_STEM.match(name)
    return (match[1] if match else name).removesuffix("test")


def _is_code(path: str) -> bool:
    """Whether a path is a source file and not a test."""
    return bool(_SOURCE_FILE.search(path)) and not TEST_FILE.search(path)


def _topic_folder(path: str) -> str:
    folders = PurePosixPath(path).parts[:-1]
    return "/".join(folders[:3]) if folders else PurePosixPath(path).stem
