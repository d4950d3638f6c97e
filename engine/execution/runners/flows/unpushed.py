"""Flows that review what only this machine has: changes that are not committed, and commits that are not pushed.

They show secrets, large files and leftovers, which must not leave it, and give the commands that make commits of your
changes. `cleanup_steps` has those that take out what must not be pushed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

from pydantic import Field

from engine.execution.runners import Facts, Place
from engine.execution.runners.flow import Flow, FlowResult, Job, Revision
from engine.execution.runners.flows.cleanup_steps import describe_cleanup
from engine.execution.runners.flows.git_steps import parse_line_count, quote_paths, resolve_commit
from engine.execution.runners.toolchains import TEST_FILE
from engine.files import read_plain_or_nothing
from engine.frozen import frozen
from engine.git.leftovers import count_kinds
from engine.git.push_problems import (
    MAX_COMMITS,
    NOTHING_UNPUSHED,
    CommitSpan,
    PushProblem,
    UnpushedWork,
    mark_edited_out,
    read_commits,
    read_uncommitted,
    read_untracked,
)
from engine.git.state import FileState, is_byproduct, read_status
from engine.model import group_pairs
from engine.wording import capitalised, count, join_names

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
        return FlowResult("; ".join(sentences), sound=not risks, facts={"next": next_step})


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


# -- what is not pushed

MAX_FINDINGS = 200
"""Maximum number of findings in the transcript and in the facts of a result."""


class ReviewUnpushed(Flow):
    """Reads every added line of every unpushed commit; secrets count even when a later commit removed them."""

    name = "review_unpushed"
    label = "Review unpushed commits"
    work = "review"
    place = Place.OPERATOR_TREE
    upstream: Revision | None = Field(
        default=None,
        description="the branch to compare with, for example origin/main; without it, all remote branches",
    )
    newest: int = Field(default=MAX_COMMITS, ge=1, le=MAX_COMMITS, description="the most commits to review")

    def describe(self) -> str:
        upstream = self.upstream or "no remote branch"
        missing = "does not have yet" if self.upstream else "has yet"
        return f"Review the commits that {upstream} {missing} for leftovers, secrets and large files"

    def run(self, job: Job) -> FlowResult:
        status = read_status(job.git)
        span, unpushed = None, NOTHING_UNPUSHED
        if status.head:
            span = CommitSpan(status.head, resolve_commit(job, self.upstream) if self.upstream else "", self.newest)
            unpushed = mark_edited_out(job.git, read_commits(job.git, span, leftovers=True), status.files)
        uncommitted = read_uncommitted(job.git, status.head, status.files)
        if span is None and not uncommitted:
            return FlowResult("Nothing to review: there is no commit yet, and nothing is staged")
        if not unpushed.commits and not uncommitted:
            return FlowResult(f"Nothing to review: {self.upstream or 'another branch'} has every commit")
        job.say(count(unpushed.commits, "unpushed commit"))
        if unpushed.unread:
            job.say(f"The lines of {count(unpushed.unread, 'commit')} were not checked for secrets: too many at once")
        findings = [*unpushed.committed, *uncommitted]
        job.say_list([finding.description_with_commit for finding in findings], MAX_FINDINGS)
        steps = describe_cleanup(job.git, list(filter(_is_serious, findings)), status, span)
        for line in steps:
            job.say(line)
        result = _make_result(unpushed, findings)
        return replace(result, facts={**result.facts, "head": status.head, "state": status.digest, "steps": steps})


def _make_result(unpushed: UnpushedWork, findings: list[PushProblem]) -> FlowResult:
    finding_facts = [
        {
            "kind": finding.kind,
            "path": finding.path,
            "line": finding.line,
            "commit": finding.sha,
            "gone": finding.is_in_history_only,
        }
        for finding in findings[:MAX_FINDINGS]
    ]
    facts: Facts = {"findings": finding_facts}
    commits = count(unpushed.commits, "unpushed commit")
    if not findings:
        unread = f", but {unpushed.unread} of them could not be read" if unpushed.unread else ""
        return FlowResult(f"{commits}, nothing that should not be pushed{unread}", facts=facts)
    serious = sorted(filter(_is_serious, findings), key=lambda finding: not finding.is_secret)
    parts = list[str]()
    if serious:
        facts["next"] = "secret" if serious[0].is_secret else "large_file"
        remainder = f", and {count(len(serious) - 1, 'other finding')}" if len(serious) > 1 else ""
        step = "push" if any(finding.sha for finding in serious) else "commit"
        parts.append(f"do not {step}: {serious[0].description}{remainder}")
    if leftovers := [finding.kind for finding in findings if not _is_serious(finding)]:
        parts.append(f"{count_kinds(leftovers)} to look at")
    where = f" (in {commits})" if unpushed.commits else ""
    return FlowResult(capitalised("; ".join(parts)) + where, sound=not serious, facts=facts)


def _is_serious(finding: PushProblem) -> bool:
    """Whether a finding must not be pushed, and not only be looked at."""
    return finding.is_secret or not finding.line
