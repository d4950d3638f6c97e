"""Flows about changes that are not committed or not pushed: what must not be pushed, and how to commit the changes."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

from pydantic import Field

from engine.execution.runners.flow import Facts, Flow, FlowResult, Job, Line, Place, Revision
from engine.execution.runners.flows.git_steps import resolve_commit
from engine.execution.runners.toolchains.tool_table import TEST_FILE
from engine.files import read_plain
from engine.frozen import frozen
from engine.git.leftovers import SECRET, count_kinds, is_secret_file
from engine.git.operations import operation_name
from engine.git.state import FileState, Status, is_byproduct, read_status
from engine.git.unpushed import (
    MAX_COMMITS,
    NOTHING_UNPUSHED,
    Span,
    Unpushed,
    UnpushedProblem,
    mark_edited_out,
    read_commits,
    read_since,
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
        steps = _cleanup_steps(job, findings, status, span)
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


def _cleanup_steps(job: Job, findings: Sequence[UnpushedProblem], status: Status, span: Span | None) -> list[str]:
    """What removes the secrets and the unwanted files, a line each; the commands are indented.

    A commit must be changed, because a later commit removes nothing from the history. A secret must be replaced,
    because somebody may have copied it.
    """
    serious = [finding for finding in findings if finding.is_secret or not finding.line]
    unwritable = dict.fromkeys(finding.path for finding in serious if not _can_be_written(finding.path))
    written = [finding for finding in serious if finding.path not in unwritable]
    affected = {finding.sha for finding in written if finding.sha}
    operation = operation_name(job.git.repository.git_dir, conflicted=any(file.conflicted for file in status.files))
    if affected and operation:
        steps = [f"First finish the unfinished {operation}, or abort it. Then review again."]
    elif span is None or not affected:
        steps = [*_removal_steps(job, written, status.head)]
    elif affected == {status.head}:
        steps = [*_amend_steps(job, written, status)]
    else:
        steps = [*_rewrite_steps(job, written, status, span)]
    if unwritable:
        steps.append(f"No command is given for {join_names(unwritable, 3)}: the name has unusual characters.")
    if holders := _list_other_refs(job, affected, status.branch):
        steps.append(f"These have such a commit, too, until you delete or change them: {join_names(holders, 3)}.")
    if any(finding.is_secret and finding.sha for finding in serious):
        steps.append("If anybody else may have seen a key, revoke it and create a new one.")
    return steps


def _can_be_written(path: str) -> bool:
    """Whether a command can contain a path as it is: without controls or line breaks, and in valid UTF-8."""
    return sanitise(path) == path and len(path.splitlines()) == 1


def _removal_steps(job: Job, findings: Sequence[UnpushedProblem], base: str) -> Iterator[str]:
    """The steps that take findings out of the index. A file of keys that `base` does not have is taken out as a
    whole. `base` is "" for no commit."""
    key_files = {finding.path for finding in findings if is_secret_file(finding.path)}
    if key_files and base:
        key_files -= {*job.git.items("ls-tree", "-r", "-z", "--full-tree", "--name-only", base, "--", *key_files)}
    files = dict.fromkeys(finding.path for finding in findings if not finding.line or finding.path in key_files)
    lines = dict.fromkeys(finding.path for finding in findings if finding.path not in files)
    if lines:
        yield _describe_removal(lines)
        yield "Then stage the file:"
        yield f"  git add -- {_quote(lines)}"
    if files:
        yield "Remove it from git, but keep the file; add it to .gitignore, too:"
        yield f"  git rm -r --cached --force -- {_quote(files)}"


def _describe_removal(paths: Iterable[str]) -> str:
    names = join_names(paths, 3)
    return f"Remove the secret from {names}, if it is still there, for example into an environment variable."


def _amend_steps(job: Job, findings: Sequence[UnpushedProblem], status: Status) -> Iterator[str]:
    """The steps if only the last commit has findings."""
    parent = job.git.text("rev-parse", "--verify", "--quiet", f"{status.head}^1", allowed=(0, 1))
    paths = {finding.path for finding in findings}
    present = [problem for problem in read_since(job.git, parent, paths) if problem.path in paths]
    yield from _removal_steps(job, present, parent)
    yield from _describe_staged(findings, status)
    yield "Change the last commit, before you push:"
    yield "  git commit --amend --no-edit --allow-empty"


def _rewrite_steps(job: Job, findings: Sequence[UnpushedProblem], status: Status, span: Span) -> Iterator[str]:
    """The steps if an earlier commit has findings: fixup commits if nothing can be in their way. Otherwise one commit
    replaces the affected commits and all later ones, which never conflicts and changes no file."""
    affected = {finding.sha for finding in findings if finding.sha}
    start, oldest = _find_start(job, span, affected)
    paths = dict.fromkeys(finding.path for finding in findings)
    if not start and not oldest:
        yield f"Take {join_names(paths, 3)} out of the history with git filter-repo, in a fresh clone:"
        yield "commits of several pushed branches are merged between the affected ones."
        return
    commits = f"{start[:10]}..{status.head[:10]}" if start else status.head[:10]
    if _can_be_fixed_up(job, findings, status, commits):
        yield _describe_removal(paths)
        yield "Then put all your changes of the file into the commit with the secret, before you push:"
        for sha in sorted(affected):
            fixed = dict.fromkeys(finding.path for finding in findings if finding.sha == sha)
            yield f"  git commit -m 'fixup! {sha[:10]}' -- {_quote(fixed)}"
        rebase = "GIT_SEQUENCE_EDITOR=true git rebase -i --autosquash --autostash"
        yield f"  {rebase} {start[:10] if start else '--root'}"
        yield "If git stops because a commit would become empty:"
        yield "  git commit --amend --no-edit --allow-empty"
        yield "  git rebase --continue"
        return
    number = job.git.text("rev-list", "--count", commits)
    yield f"Make one commit of the last {number} commits, before you push. Your files stay as they are."
    yield f"  git reset --soft {(start or oldest)[:10]}"
    present = [problem for problem in read_since(job.git, start, paths) if _can_be_written(problem.path)]
    yield from _removal_steps(job, present, start)
    yield from _describe_staged(findings, status)
    yield "Commit the rest with the messages of these commits:"
    amend = "" if start else "--amend "
    yield f"  git log --reverse --format=%B {commits} | git commit {amend}--allow-empty -F -"


def _describe_staged(findings: Sequence[UnpushedProblem], status: Status) -> Iterator[str]:
    paths = {finding.path for finding in findings}
    if staged := [file.path for file in status.files if file.staged and file.path not in paths]:
        yield f"What else is staged is committed, too, unless you unstage it now: {join_names(staged, 3)}."


def _find_start(job: Job, span: Span, affected: Iterable[str]) -> tuple[str, str]:
    """Returns (start, oldest): the commit after which the affected commits and all later ones are replaced by one, and
    the oldest commit that is replaced. `start` is "" if that is the first commit of all. Both are "" if one commit
    would also replace pushed ones.

    It is the newest first parent without affected commits. If pushed commits were merged since, it is the newest pushed
    commit, if that has all other pushed ones.
    """
    listing = job.git.lines("rev-list", "--parents", *span.arguments)
    commits = {sha: parents for sha, *parents in map(str.split, listing)}
    changed, known = set(affected), 0
    while known < len(changed):  # once, unless clocks were wrong
        known = len(changed)
        for sha in reversed(commits):
            if not changed.isdisjoint(commits[sha]):
                changed.add(sha)
    start, oldest = span.head, ""
    while start in changed:
        oldest, start = start, next(iter(commits.get(start, ())), "")
    replaced = job.git.text("rev-list", span.head, *([f"^{start}"] if start else [])).split()
    if commits.keys() >= set(replaced):
        return start, oldest
    pushed = {parent for parents in commits.values() for parent in parents} - commits.keys()
    newest = job.git.lines("merge-base", "--independent", *pushed)
    return (newest[0] if len(newest) == 1 else ""), ""


def _can_be_fixed_up(job: Job, findings: Sequence[UnpushedProblem], status: Status, commits: str) -> bool:
    """Whether fixup commits can be squashed into `commits` without a conflict, and without a file in their way. Then
    there is no merge, no deleted file and no other fixup, and only one commit changes each file with a secret."""
    if any(not finding.line or is_secret_file(finding.path) for finding in findings):
        return False
    if any(file.staged for file in status.files):
        return False  # a rebase with --autostash would unstage it
    names = Counter(job.git.items("log", "--format=", "--name-only", "--no-renames", "-z", commits))
    if any(names[finding.path] != 1 for finding in findings if finding.sha):
        return False
    return not (
        job.git.text("rev-list", "--max-count=1", "--min-parents=2", commits)
        or job.git.text("log", "--max-count=1", "--format=%H", "--no-renames", "--diff-filter=D", commits)
        or job.git.text("rev-list", "--max-count=1", "-E", "--grep=^(fixup|squash|amend)! ", commits)
    )


def _list_other_refs(job: Job, affected: Iterable[str], branch: str) -> list[str]:
    """The other branches, tags and stashes that have one of the affected commits."""
    contains = [f"--contains={sha}" for sha in affected]
    kinds = ("refs/heads", "refs/tags", "refs/stash")
    refs = job.git.lines("for-each-ref", "--format=%(refname)", *contains, *kinds) if contains else []
    return [ref.split("/", 2)[-1] for ref in refs if ref != f"refs/heads/{branch}"]


def _quote(paths: Iterable[str]) -> str:
    """Paths as arguments of a command for a shell, which git takes literally."""
    return " ".join(shlex.quote(f":(literal){path}" if re.search(r"^:|[*?\[\\]", path) else path) for path in paths)


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
