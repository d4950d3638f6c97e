"""Flows about changes that are not committed or not pushed: what must not be pushed, and how to commit the changes."""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

from pydantic import Field

from engine.execution.runners.flow import Facts, Flow, FlowResult, Job, Line, Place, Revision
from engine.execution.runners.flows.git_steps import resolve_commit
from engine.execution.runners.toolchains.tool_table import TEST_FILE
from engine.files import read_plain
from engine.frozen import frozen
from engine.git.leftovers import SECRET, count_kinds
from engine.git.state import FileState, Status, is_byproduct, read_status
from engine.git.unpushed import (
    MAX_COMMITS,
    NOTHING_UNPUSHED,
    Span,
    Unpushed,
    UnpushedProblem,
    mark_edited_out,
    read_commits,
    read_uncommitted,
)
from engine.model.text import article, capitalised, count, join_names, sanitise

MAX_FINDINGS = 200
"""Maximum number of findings in the transcript and in the facts of a result."""

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
            unpushed = mark_edited_out(job.git, read_commits(job.git, span, leftovers=True), status.files)
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
        steps = _cleanup_steps(job, findings, status)
        for line in [*self.broken, *steps]:
            job.say(line)
        result = _make_result(unpushed, findings, self.broken)
        return replace(result, facts={**result.facts, "head": status.head, "state": status.digest, "steps": steps})


def _describe_finding(finding: UnpushedProblem) -> str:
    """A finding in one line, with its position."""
    where = f"in {finding.sha[:10]}" if finding.sha else "not committed yet"
    note = "  (the file has it no more, but the history does)" if finding.is_in_history_only else ""
    return f"{_finding_place(finding)}  {finding.kind}{_size_note(finding)}  {where}{note}"


def _finding_place(finding: UnpushedProblem) -> str:
    """The position of a finding, such as `config.py:12` or `data/dump.bin`."""
    return f"{finding.path}:{finding.line}" if finding.line else finding.path


def _size_note(finding: UnpushedProblem) -> str:
    """The size of a large file, such as `, 60 MB`; "" if the size is not the problem."""
    decimals = 0 if finding.size >= 10_000_000 else 1
    return f", {finding.size / 1_000_000:.{decimals}f} MB" if finding.size and not finding.is_folder else ""


def _cleanup_steps(job: Job, findings: Sequence[UnpushedProblem], status: Status) -> list[str]:
    """What removes the secrets and the unwanted files, a line each; the commands are indented.

    A commit must be changed, because a later commit removes nothing from the history. A secret must be replaced,
    because somebody may have copied it.
    """
    serious = [finding for finding in findings if finding.is_secret or not finding.line]
    unwritable = dict.fromkeys(finding.path for finding in serious if not _can_be_written(finding.path))
    written = [finding for finding in serious if finding.path not in unwritable]
    committed = [finding for finding in written if finding.sha]
    steps = [*_uncommitted_steps([finding for finding in written if not finding.sha])]
    if committed:
        is_last = {finding.sha for finding in committed} == {status.head}
        steps += _amend_steps(committed, status) if is_last else _rebase_steps(job, committed, status)
    if unwritable:
        steps.append(f"No command is given for {join_names(unwritable, 3)}: the name has unusual characters.")
    if any(finding.is_secret and finding.sha for finding in serious):
        steps.append("If anybody else may have seen a key, revoke it and create a new one.")
    return steps


def _can_be_written(path: str) -> bool:
    """Whether a command can contain a path as it is: without controls or line breaks, in valid UTF-8, and without the
    colon at its beginning with which git's patterns begin."""
    return sanitise(path) == path and len(path.splitlines()) == 1 and not path.startswith(":")


def _uncommitted_steps(findings: Sequence[UnpushedProblem]) -> Iterator[str]:
    lines, files = _paths_of(findings)
    if lines:
        yield f"Remove the secret from {join_names(lines, 3)}, for example into an environment variable."
        yield "If the file is staged, stage it again:"
        yield f"  git add -- {_quote(lines)}"
    if files:
        yield "Remove it from git, but keep the file:"
        yield f"  git rm -r --cached -- {_quote(files)}"


def _amend_steps(findings: Sequence[UnpushedProblem], status: Status) -> Iterator[str]:
    """The steps if only the last commit has findings."""
    lines, files = _paths_of(findings)
    if any(not finding.is_edited_out for finding in findings if finding.line):
        yield f"Remove the secret from {join_names(lines, 3)}, for example into an environment variable."
    yield "Then change the last commit, before you push:"
    if lines:
        yield f"  git commit --amend --no-edit --allow-empty -- {_quote(lines)}"
    if files:
        yield f"  git rm -r --cached -- {_quote(files)}"
        yield "  git commit --amend --no-edit --allow-empty"
        if staged := [file.path for file in status.files if file.staged]:
            yield f"That commits what else is staged, too: {join_names(staged, 3)}."


def _rebase_steps(job: Job, committed: Sequence[UnpushedProblem], status: Status) -> Iterator[str]:
    """The steps if an earlier commit has findings: a rebase that stops at each of these commits, or if you took all of
    them out of your files already, one that puts this where it belongs. A file that a rebase would lose or commit again
    is left to the operator."""
    head = status.head
    changed = {file.path for file in status.files if not file.untracked}
    committed = _with_whole_files(job, committed, head)
    by_hand: dict[str, list[str]] = {}
    for finding in committed:
        if not finding.line:
            commits = _list_later_changes(job, finding, head)
            if commits or _files_of(finding, changed):
                by_hand[finding.path] = commits
    yield from _manual_steps(by_hand)
    findings = [finding for finding in committed if finding.path not in by_hand]
    if not findings:
        return
    start, affected, merges = _plan_rebase(job, {finding.sha for finding in findings}, head)
    rebase = f"--autostash --empty=drop{' --rebase-merges' if merges else ''} {start}"
    paths = {finding.path for finding in findings}
    is_in_one_commit = len({(finding.path, finding.sha) for finding in findings}) == len(paths)
    is_edited_out = all(finding.is_edited_out for finding in findings)
    if is_edited_out and is_in_one_commit and merges.isdisjoint(affected):
        yield "Put your removal of the secret into the history, before you push:"
        for sha in affected:
            lines, _ = _paths_of([finding for finding in findings if finding.sha == sha])
            yield f"  git commit --fixup={sha[:10]} -- {_quote(lines)}"
        yield f"  GIT_SEQUENCE_EDITOR=true git rebase -i --autosquash {rebase}"
        yield "If git stops because a commit would become empty:"
        yield "  git commit --amend --no-edit --allow-empty"
        yield "  git rebase --continue"
        yield from _conflict_steps()
        return
    if unfinished := sorted(paths & changed):
        yield f"First commit your changes of {join_names(unfinished, 3)}, or undo them. Then review again."
        return
    kept = [path for path in dict.fromkeys(finding.path for finding in findings) if _is_kept_untracked(job, head, path)]
    if kept:
        yield "Move what git no longer has out of the way:"
        yield from (f"  mv -- {shlex.quote(path)} {shlex.quote(path + '.kept')}" for path in kept)
    yield "Change the history, before you push:"
    yield f"  git rebase -i {rebase}"
    if edited := [sha[:7] for sha in affected if sha not in merges]:
        yield f"In the list that opens, write edit in place of pick before {join_names(edited, 5)}; save and close it."
    for sha in affected:
        if sha in merges:
            yield f"In the list that opens, add a line that says break below “merge -C {sha[:7]}”; save and close it."
    if merges and len(affected) > 1:
        yield "Git may stop at these commits in another order:"
    for sha in affected:
        lines, files = _paths_of([finding for finding in findings if finding.sha == sha])
        yield f"When git stops at {sha[:7]}:"
        if lines:
            yield f"remove the secret from {join_names(lines, 3)}, then:"
            yield f"  git commit --amend --no-edit --allow-empty -- {_quote(lines)}"
        for file in files:
            yield f"  git rm -r {'' if file in kept else '--cached '}-- {shlex.quote(file)}"
        if files:
            yield "  git commit --amend --no-edit --allow-empty"
        yield "  git rebase --continue"
    yield from _conflict_steps()
    if kept:
        yield "At the end, move back what you moved:"
        yield from (f"  mv -n -- {shlex.quote(path + '.kept')} {shlex.quote(path)}" for path in kept)


def _conflict_steps() -> Iterator[str]:
    yield "If git reports a conflict, remove it there as well, then:"
    yield "  git add -u"
    yield "  git rebase --continue"


def _manual_steps(by_hand: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The steps for files as a whole, with the later commits that change each."""
    for path, commits in by_hand.items():
        name = join_names([path])
        cause = f"later commits change it: {join_names([sha[:7] for sha in commits], 5)}" if commits else ""
        yield f"{name} must be taken out of the history by hand: {cause or 'it has changes that are not committed'}."
        yield "Copy it out of the repository, and remove it from a fresh clone with git filter-repo."


def _files_of(finding: UnpushedProblem, paths: Iterable[str]) -> set[str]:
    """Those of `paths` that are the file of a finding, or in its folder."""
    return {path for path in paths if path == finding.path or path.startswith(f"{finding.path}/")}


def _with_whole_files(job: Job, findings: Sequence[UnpushedProblem], head: str) -> list[UnpushedProblem]:
    """The findings, where a file that HEAD no longer has is removed from its commit as a whole. If only its lines were
    changed there, the commit that removes it would conflict, and could make git track it again."""
    present = {*job.git.items("ls-tree", "-z", "--name-only", head, "--", *{finding.path for finding in findings})}
    return [
        replace(finding, line=0)
        if finding.path not in present
        and (os.path.lexists(job.folder / finding.path) or not _list_later_changes(job, finding, head))
        else finding
        for finding in findings
    ]


def _list_later_changes(job: Job, finding: UnpushedProblem, head: str) -> list[str]:
    """The commits after a finding that change its files other than by deleting them, newest first."""
    path = f":(top,literal){finding.path}"
    later = job.git.text("rev-list", "--full-history", "--no-merges", f"{finding.sha}..{head}", "--", path).split()
    return [sha for sha in later if not _only_deletes(job, finding, sha)]


def _only_deletes(job: Job, finding: UnpushedProblem, sha: str) -> bool:
    """Whether a commit does nothing with the files of a finding but delete them. It does not rename them either."""
    fields = job.git.items("diff-tree", "-r", "-z", "--find-renames", "--no-commit-id", "--name-status", sha)
    states: dict[str, str] = {}
    status = ""
    for field in fields:
        if re.fullmatch(r"[A-Z]\d*", field) and not status:
            status, missing = field, 2 if field[0] in "RC" else 1
        else:
            states[field] = status[:1]
            missing -= 1
            status = status if missing else ""
    return all(states[path] == "D" for path in _files_of(finding, states))


def _paths_of(findings: Iterable[UnpushedProblem]) -> tuple[list[str], list[str]]:
    """Returns (lines, files): the files with findings on some lines, and those that are findings as a whole."""
    lines: dict[str, None] = {}
    files: dict[str, None] = {}
    for finding in findings:
        paths = lines if finding.line else files
        paths[finding.path] = None
    return list(lines), list(files)


def _quote(paths: Iterable[str]) -> str:
    """Paths as arguments of a command for a shell."""
    return " ".join(map(shlex.quote, paths))


def _is_kept_untracked(job: Job, head: str, path: str) -> bool:
    """Whether a file exists that the last commit does not have. It would be in the way of a rebase."""
    return os.path.lexists(job.folder / path) and not job.git.output("ls-tree", "-z", head, "--", path)


def _plan_rebase(job: Job, affected: Container[str], head: str) -> tuple[str, list[str], set[str]]:
    """Returns (start, commits, merges): the argument of a rebase that includes all affected commits, these commits with
    the oldest first, and the merges among all commits that it changes."""
    listing = job.git.text("rev-list", "--topo-order", "--parents", f"--max-count={MAX_COMMITS}", head).splitlines()
    commits = [line.split() for line in listing]
    last = max((index for index, (sha, *_) in enumerate(commits) if sha in affected), default=0)
    merges = {sha for sha, *parents in commits[: last + 1] if len(parents) > 1}
    sha, *parents = commits[last]
    ordered = [sha for sha, *_ in reversed(commits) if sha in affected]
    return (f"{sha[:10]}~1" if parents else "--root"), ordered, merges


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
        "gone": finding.is_in_history_only,
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
