"""The flow that reviews the commits that you have not pushed, and what is staged.

It shows secrets, large files and leftovers, and gives the commands that take secrets and unwanted files out: out of the
index, or out of the history, by a new last commit, by fixup commits, or by one commit in place of several.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from pydantic import Field

from engine.execution.runners import Facts, Place
from engine.execution.runners.flow import Flow, FlowResult, Job, Revision
from engine.execution.runners.flows.git_steps import quote_paths, resolve_commit
from engine.git import LITERAL_PATHS
from engine.git.history import log_commits
from engine.git.leftovers import count_kinds, is_secret_file
from engine.git.state import Status, read_status
from engine.git.unfinished import find_operation_name
from engine.git.unpushed import (
    MAX_COMMITS,
    NOTHING_UNPUSHED,
    CommitSpan,
    UnpushedProblem,
    UnpushedWork,
    mark_edited_out,
    read_commits,
    read_since,
    read_uncommitted,
)
from engine.text import sanitise
from engine.wording import capitalised, count, join_names

MAX_FINDINGS = 200
"""Maximum number of findings in the transcript and in the facts of a result."""

IGNORE_FILE = ".gitignore"

_PATTERN_CHARACTER = re.compile(r"[\\*?\[]|\s$")
"""Matches what a backslash must stand before in a pattern of .gitignore."""

_ALLOW_EMPTY = "--allow-empty --allow-empty-message"


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
        steps = _describe_cleanup(job, findings, status, span)
        for line in steps:
            job.say(line)
        result = _make_result(unpushed, findings)
        return replace(result, facts={**result.facts, "head": status.head, "state": status.digest, "steps": steps})


def _make_result(unpushed: UnpushedWork, findings: list[UnpushedProblem]) -> FlowResult:
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


def _is_serious(finding: UnpushedProblem) -> bool:
    """Whether a finding must not be pushed, and not only be looked at."""
    return finding.is_secret or not finding.line


def _describe_cleanup(
    job: Job, findings: Sequence[UnpushedProblem], status: Status, span: CommitSpan | None
) -> list[str]:
    """What removes the secrets and the unwanted files, a line each; the commands are indented.

    A commit must be changed, because a later commit removes nothing from the history. A secret must be replaced,
    because somebody may have copied it.
    """
    serious = list(filter(_is_serious, findings))
    unwritable = dict.fromkeys(finding.path for finding in serious if not _can_be_written(finding.path))
    writable_findings = [finding for finding in serious if finding.path not in unwritable]
    affected = {finding.sha for finding in writable_findings if finding.sha}
    operation = find_operation_name(
        job.git.repository.git_dir, conflicted=any(file.conflicted for file in status.files)
    )
    if affected and operation:
        steps = [f"First finish the unfinished {operation}, or abort it. Then review again."]
    elif span is None or not affected:
        steps = [*_describe_removal(job, writable_findings, status.head)]
    else:
        steps = [*_describe_rewrite(job, writable_findings, status, span)]
    if unwritable:
        steps.append(f"No command is given for {join_names(unwritable, 3)}: the name has unusual characters.")
    if holders := _list_other_refs(job, affected, status.branch):
        steps.append(f"These have such a commit, too, until you delete or change them: {join_names(holders, 3)}.")
    committed = [finding for finding in serious if finding.is_secret and finding.sha]
    if public := _find_remote_branches(job, committed):
        steps.append(f"Rotate the key, because it is public: {join_names(public, 3)} has it already.")
    elif committed:
        steps.append("If anybody else may have seen a key, revoke it and create a new one.")
    return steps


def _can_be_written(path: str) -> bool:
    """Whether a command can contain a path as it is: without controls or line breaks, and in valid UTF-8."""
    return sanitise(path) == path and len(path.splitlines()) == 1


def _describe_removal(job: Job, findings: Sequence[UnpushedProblem], base: str) -> Iterator[str]:
    """The steps that take what was found out of the index, as if the commits since `base` were not made. `base` is ""
    for all commits. A file of keys that `base` does not have is taken out as a whole."""
    later_findings = read_since(job.git, base, (finding.path for finding in findings))
    present = [finding for finding in later_findings if _can_be_written(finding.path)]
    key_files = {finding.path for finding in present if is_secret_file(finding.path)}
    if key_files and base:
        key_files -= {*job.git.items("ls-tree", "-r", "-z", "--full-tree", "--name-only", base, "--", *key_files)}
    files = dict.fromkeys(finding.path for finding in present if not finding.line or finding.path in key_files)
    if lines := [path for path in dict.fromkeys(finding.path for finding in present) if path not in files]:
        yield _format_removal(lines)
        yield "Then stage the file:"
        yield f"  git add -- {quote_paths(lines)}"
    if files:
        yield "Remove it from git, but keep the file:"
        yield f"  git rm -r --cached --force -- {quote_paths(files)}"
        yield from _describe_ignoring(job, files)


def _describe_ignoring(job: Job, paths: Iterable[str]) -> Iterator[str]:
    """The steps that add to .gitignore what git does not ignore yet, after an empty line, because the file may not end
    with a line break."""
    listing = "".join(f"{path}\0" for path in (*paths, IGNORE_FILE)).encode()
    ignored = job.git.items("check-ignore", "--no-index", "-z", "--stdin", stdin=listing, allowed=(0, 1, 128))
    if patterns := ["/" + _PATTERN_CHARACTER.sub(r"\\\g<0>", path) for path in paths if path not in ignored]:
        yield "Have git ignore it, in the same commit:"
        yield f"  printf '%s\\n' {shlex.join(['', *patterns])} >> {IGNORE_FILE}"
        if IGNORE_FILE not in ignored:
            yield f"  git add -- {IGNORE_FILE}"


def _format_removal(paths: Iterable[str]) -> str:
    names = join_names(paths, 3)
    return f"Remove the secret from {names}, if it is still there, for example into an environment variable."


def _describe_rewrite(job: Job, findings: Sequence[UnpushedProblem], status: Status, span: CommitSpan) -> Iterator[str]:
    """The steps if commits have findings. If only the last one has, it is amended. An earlier one gets a fixup commit
    if nothing can be in its way. Otherwise one commit replaces the affected commits and all later ones, which never
    conflicts and changes no file."""
    affected = {finding.sha for finding in findings if finding.sha}
    paths = dict.fromkeys(finding.path for finding in findings)
    start = _find_start(job, span, affected)
    if not start:
        yield f"Take {join_names(paths, 3)} out of the history with git filter-repo, in a fresh clone:"
        yield "commits of several pushed branches are merged between the affected ones."
        return
    is_first = start in affected  # there is no commit before it, so it is amended
    commits = status.head[:10] if is_first else f"{start[:10]}..{status.head[:10]}"
    if affected == {status.head}:
        yield from _describe_new_contents(job, findings, status, "" if is_first else start)
        yield "Change the last commit, before you push:"
        yield f"  git commit --amend --no-edit {_ALLOW_EMPTY}"
    elif _can_be_fixed_up(job, findings, status, commits):
        yield from _describe_fixups(findings, onto="--root" if is_first else start[:10])
    else:
        number = job.git.text("rev-list", "--count", commits)
        yield f"Make one commit of the last {number} commits, before you push. Your files stay as they are."
        if job.git.text("rev-list", "--max-count=1", "--min-parents=2", commits):
            yield "The merges among them are lost, but not what they brought."
        yield f"  git reset --soft {start[:10]}"
        yield from _describe_new_contents(job, findings, status, "" if is_first else start)
        yield "Commit the rest with the messages of these commits:"
        amend = "--amend " if is_first else ""
        yield f"  git log --reverse --format=%B {commits} | git commit {amend}{_ALLOW_EMPTY} -F -"


def _describe_new_contents(job: Job, findings: Sequence[UnpushedProblem], status: Status, base: str) -> Iterator[str]:
    """The steps that prepare the index for a commit in place of those since `base`; see `_describe_removal`."""
    yield from _describe_removal(job, findings, base)
    paths = {finding.path for finding in findings}
    if staged := [file.path for file in status.files if file.staged and file.path not in paths]:
        yield f"What else is staged is committed, too, unless you unstage it now: {join_names(staged, 3)}."


def _describe_fixups(findings: Sequence[UnpushedProblem], *, onto: str) -> Iterator[str]:
    """The steps that change the affected commits by fixup commits, and a rebase `onto` this."""
    yield _format_removal(dict.fromkeys(finding.path for finding in findings))
    yield "Then put all your changes of the file into the commit with the secret, before you push:"
    for sha in sorted({finding.sha for finding in findings if finding.sha}):
        fixed = dict.fromkeys(finding.path for finding in findings if finding.sha == sha)
        yield f"  git commit -m 'fixup! {sha[:10]}' -- {quote_paths(fixed)}"
    yield f"  GIT_SEQUENCE_EDITOR=true git rebase -i --autosquash --autostash {onto}"
    yield "If git stops because a commit would become empty:"
    yield f"  git commit --amend --no-edit {_ALLOW_EMPTY}"
    yield "  git rebase --continue"


def _find_start(job: Job, span: CommitSpan, affected: Set[str]) -> str:
    """The commit after which the affected commits and all later ones are replaced. It is the first commit of all if
    that is affected, and "" if one commit would also replace pushed ones.

    It is the newest first parent without affected commits. If pushed commits were merged since, it is the newest pushed
    commit, if that has all other pushed ones.
    """
    later = _list_later(job, affected, [span.head])
    parents = job.git.lines("rev-list", "--first-parent", f"--max-count={len(later) + 1}", span.head)
    start = next((sha for sha in parents if sha not in later), parents[-1])
    excluded = [] if start in affected else [f"^{start}"]
    replaced, unpushed = (
        job.git.text("rev-list", "--count", *excluded, *revisions) for revisions in ([span.head], span.arguments)
    )
    if affected == {span.head} or replaced == unpushed:
        return start
    boundary = job.git.lines("rev-list", "--boundary", *span.arguments)
    pushed = [line.removeprefix("-") for line in boundary if line.startswith("-")]
    newest = job.git.lines("merge-base", "--independent", *pushed)
    return newest[0] if len(newest) == 1 else ""


def _list_later(job: Job, affected: Set[str], tips: Sequence[str]) -> set[str]:
    """The affected commits, and those in the history of `tips` that have one of them in their own history."""
    later = set(affected)
    for sha in affected:
        later.update(job.git.lines("rev-list", "--ancestry-path", *tips, f"^{sha}"))
    return later


def _can_be_fixed_up(job: Job, findings: Sequence[UnpushedProblem], status: Status, commits: str) -> bool:
    """Whether fixup commits can be squashed into `commits` without a conflict, and without a file in their way. Then
    there is no merge, no deleted file and no other fixup, and only one commit changes each file with a secret."""
    if any(not finding.line or is_secret_file(finding.path) for finding in findings):
        return False
    if any(file.staged for file in status.files) or job.git.text("diff-files", "--name-only", "--diff-filter=A"):
        return False  # a rebase with --autostash would unstage it, and fails for a file of `git add --intent-to-add`
    changes = job.git.items("log", "--format=", "--name-status", "--no-renames", "-z", commits)
    number_of_changes = Counter(changes[1::2])
    return not (
        "D" in changes[::2]
        or any(number_of_changes[finding.path] != 1 for finding in findings if finding.sha)
        or any(len(commit.parents) > 1 or commit.is_fixup for commit in log_commits(job.git, commits))
    )


def _list_other_refs(job: Job, affected: Set[str], branch: str) -> list[str]:
    """The other branches, tags and stashes that have one of the affected commits."""
    if not affected:
        return []
    contains = [f"--contains={sha}" for sha in affected]
    refs = job.git.lines("for-each-ref", "--format=%(refname)", *contains, "refs/heads", "refs/tags")
    names = [ref.split("/", 2)[-1] for ref in refs if ref != f"refs/heads/{branch}"]
    stashes = job.git.lines("stash", "list", "--format=%H")
    later = _list_later(job, affected, stashes) if stashes else set()
    return names + [f"stash@{{{number}}}" for number, stash in enumerate(stashes) if stash in later]


def _find_remote_branches(job: Job, secrets: Iterable[UnpushedProblem]) -> list[str]:
    """The remote branches that have a file with one of these secrets in a commit of their own, as after a commit was
    pushed and then amended."""
    commits = {
        job.git.text(
            "log", "--max-count=1", "--format=%H", f"--find-object={sha}:{path}", "--remotes", "--not", "HEAD",
            "--", path, environment=LITERAL_PATHS, allowed=(0, 128),
        )
        for sha, path in {(secret.sha, secret.path) for secret in secrets}
    }  # fmt: skip
    contains = [f"--contains={commit}" for commit in commits if commit]
    refs = job.git.lines("for-each-ref", "--format=%(refname:lstrip=2)", *contains, "refs/remotes") if contains else []
    return [ref for ref in refs if not ref.endswith("/HEAD")]
