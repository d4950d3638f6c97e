"""The flow that reviews the commits that are not pushed, for secrets, large files and leftovers.

It also gives the steps that take secrets and unwanted files out of these commits, and out of the index. They are
sentences and git commands for a shell. A commit must be changed, because a later commit removes nothing from the
history: by a new last commit, by fixup commits, or by one commit in place of several. Here git is only asked.
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
from engine.frozen import frozen
from engine.git import LITERAL_PATHS, Git
from engine.git.history import log_commits
from engine.git.leftovers import count_kinds
from engine.git.push_problems import (
    MAX_COMMITS,
    NOTHING_UNPUSHED,
    CommitSpan,
    PushProblem,
    UnpushedWork,
    mark_edited_out,
    read_commits,
    read_since,
    read_uncommitted,
)
from engine.git.secrets import is_secret_file
from engine.git.state import GitStatus, read_status
from engine.git.unfinished import find_operation_name
from engine.text import sanitise
from engine.wording import capitalised, count, join_names

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
    return FlowResult(capitalised("; ".join(parts)) + where, has_problem=bool(serious), facts=facts)


def _is_serious(finding: PushProblem) -> bool:
    """Whether a finding must not be pushed, and not only be looked at."""
    return finding.is_secret or not finding.line


# -- the steps that take out what must not be pushed

IGNORE_FILE = ".gitignore"

_PATTERN_CHARACTER = re.compile(r"[\\*?\[]|\s$")
"""Matches what a backslash must stand before in a pattern of .gitignore."""

_ALLOW_EMPTY = "--allow-empty --allow-empty-message"


def describe_cleanup(
    git: Git, problems: Sequence[PushProblem], status: GitStatus, span: CommitSpan | None
) -> list[str]:
    """What removes the `problems`, which are secrets and unwanted files, a line each; the commands are indented. `span`
    has the unpushed commits; None without a commit. A secret must be replaced, because somebody may have copied it."""
    unwritable = dict.fromkeys(problem.path for problem in problems if not _can_be_written(problem.path))
    writable = [problem for problem in problems if problem.path not in unwritable]
    affected = {problem.sha for problem in writable if problem.sha}
    operation = find_operation_name(git.repository.git_dir, conflicted=any(file.conflicted for file in status.files))
    if affected and operation:
        steps = [f"First finish the unfinished {operation}, or abort it. Then review again."]
    elif span is None or not affected:
        steps = [*_describe_removal(git, writable, status.head)]
    else:
        steps = [*_describe_rewrite(git, writable, status, span)]
    if unwritable:
        steps.append(f"No command is given for {join_names(unwritable, 3)}: the name has unusual characters.")
    if holders := _list_other_refs(git, affected, status.branch):
        steps.append(f"These have such a commit, too, until you delete or change them: {join_names(holders, 3)}.")
    committed = [problem for problem in problems if problem.is_secret and problem.sha]
    if public := _find_remote_branches(git, committed):
        steps.append(f"Rotate the key, because it is public: {join_names(public, 3)} has it already.")
    elif committed:
        steps.append("If anybody else may have seen a key, revoke it and create a new one.")
    return steps


def _can_be_written(path: str) -> bool:
    """Whether a command can contain a path as it is: without controls or line breaks, and in valid UTF-8."""
    return sanitise(path) == path and len(path.splitlines()) == 1


def _describe_removal(git: Git, problems: Sequence[PushProblem], base: str) -> Iterator[str]:
    """The steps that take what was found out of the index, as if the commits since `base` were not made. `base` is ""
    for all commits. A file of keys that `base` does not have is taken out as a whole."""
    later_problems = read_since(git, base, (problem.path for problem in problems))
    present = [problem for problem in later_problems if _can_be_written(problem.path)]
    key_files = {problem.path for problem in present if is_secret_file(problem.path)}
    if key_files and base:
        key_files -= {*git.items("ls-tree", "-r", "-z", "--full-tree", "--name-only", base, "--", *key_files)}
    files = dict.fromkeys(problem.path for problem in present if not problem.line or problem.path in key_files)
    if lines := [path for path in dict.fromkeys(problem.path for problem in present) if path not in files]:
        yield _format_removal(lines)
        yield "Then stage the file:"
        yield f"  git add -- {quote_paths(lines)}"
    if files:
        yield "Remove it from git, but keep the file:"
        yield f"  git rm -r --cached --force -- {quote_paths(files)}"
        yield from _describe_ignoring(git, files)


def _describe_ignoring(git: Git, paths: Iterable[str]) -> Iterator[str]:
    """The steps that add to .gitignore what git does not ignore yet, after an empty line, because the file may not end
    with a line break."""
    listing = "".join(f"{path}\0" for path in (*paths, IGNORE_FILE)).encode()
    ignored = git.items("check-ignore", "--no-index", "-z", "--stdin", stdin=listing, allowed=(0, 1, 128))
    if patterns := ["/" + _PATTERN_CHARACTER.sub(r"\\\g<0>", path) for path in paths if path not in ignored]:
        yield "Have git ignore it, in the same commit:"
        yield f"  printf '%s\\n' {shlex.join(['', *patterns])} >> {IGNORE_FILE}"
        if IGNORE_FILE not in ignored:
            yield f"  git add -- {IGNORE_FILE}"


def _format_removal(paths: Iterable[str]) -> str:
    names = join_names(paths, 3)
    return f"Remove the secret from {names}, if it is still there, for example into an environment variable."


def _describe_rewrite(git: Git, problems: Sequence[PushProblem], status: GitStatus, span: CommitSpan) -> Iterator[str]:
    """The steps if commits have problems. If only the last one has, it is amended. An earlier one gets a fixup commit
    if nothing can be in its way. Otherwise one commit replaces the affected commits and all later ones, which never
    conflicts and changes no file."""
    affected = {problem.sha for problem in problems if problem.sha}
    paths = dict.fromkeys(problem.path for problem in problems)
    rewrite = _plan_rewrite(git, span, affected)
    if rewrite is None:
        yield f"Take {join_names(paths, 3)} out of the history with git filter-repo, in a fresh clone:"
        yield "commits of several pushed branches are merged between the affected ones."
        return
    if affected == {status.head}:
        yield from _describe_new_contents(git, problems, status, rewrite.base)
        yield "Change the last commit, before you push:"
        yield f"  git commit --amend --no-edit {_ALLOW_EMPTY}"
    elif _can_be_fixed_up(git, problems, status, rewrite.commits):
        yield from _describe_fixups(problems, onto=rewrite.base[:10] or "--root")
    else:
        number = git.text("rev-list", "--count", rewrite.commits)
        yield f"Make one commit of the last {number} commits, before you push. Your files stay as they are."
        if git.text("rev-list", "--max-count=1", "--min-parents=2", rewrite.commits):
            yield "The merges among them are lost, but not what they brought."
        yield f"  git reset --soft {rewrite.start[:10]}"
        yield from _describe_new_contents(git, problems, status, rewrite.base)
        yield "Commit the rest with the messages of these commits:"
        amend = "" if rewrite.base else "--amend "
        yield f"  git log --reverse --format=%B {rewrite.commits} | git commit {amend}{_ALLOW_EMPTY} -F -"


def _describe_new_contents(git: Git, problems: Sequence[PushProblem], status: GitStatus, base: str) -> Iterator[str]:
    """The steps that prepare the index for a commit in place of those since `base`; see `_describe_removal`."""
    yield from _describe_removal(git, problems, base)
    paths = {problem.path for problem in problems}
    if staged := [file.path for file in status.files if file.staged and file.path not in paths]:
        yield f"What else is staged is committed, too, unless you unstage it now: {join_names(staged, 3)}."


def _describe_fixups(problems: Sequence[PushProblem], *, onto: str) -> Iterator[str]:
    """The steps that change the affected commits by fixup commits, and a rebase `onto` this."""
    yield _format_removal(dict.fromkeys(problem.path for problem in problems))
    yield "Then put all your changes of the file into the commit with the secret, before you push:"
    for sha in sorted({problem.sha for problem in problems if problem.sha}):
        fixed = dict.fromkeys(problem.path for problem in problems if problem.sha == sha)
        yield f"  git commit -m 'fixup! {sha[:10]}' -- {quote_paths(fixed)}"
    yield f"  GIT_SEQUENCE_EDITOR=true git rebase -i --autosquash --autostash {onto}"
    yield "If git stops because a commit would become empty:"
    yield f"  git commit --amend --no-edit {_ALLOW_EMPTY}"
    yield "  git rebase --continue"


@frozen
class Rewrite:
    """The commits that are replaced, which are the affected ones and all later ones up to `head`."""

    start: str
    """The commit before them, or the first commit of all, which is then amended."""
    head: str
    is_start_affected: bool

    @property
    def base(self) -> str:
        """The commit before them; "" if there is none."""
        return "" if self.is_start_affected else self.start

    @property
    def commits(self) -> str:
        """Their range, as an argument of git."""
        return f"{self.base[:10]}..{self.head[:10]}" if self.base else self.head[:10]


def _plan_rewrite(git: Git, span: CommitSpan, affected: Set[str]) -> Rewrite | None:
    """The commits to replace; None if one commit would also replace pushed ones.

    They begin after the newest first parent without affected commits. If pushed commits were merged since, they begin
    after the newest pushed commit, if that has all other pushed ones.
    """
    later = _list_later(git, affected, [span.head])
    parents = git.lines("rev-list", "--first-parent", f"--max-count={len(later) + 1}", span.head)
    start = next((sha for sha in parents if sha not in later), parents[-1])
    rewrite = Rewrite(start, span.head, start in affected)
    excluded = [f"^{rewrite.base}"] if rewrite.base else []
    replaced, unpushed = (
        git.text("rev-list", "--count", *excluded, *revisions) for revisions in ([span.head], span.arguments)
    )
    if affected == {span.head} or replaced == unpushed:
        return rewrite
    boundary = git.lines("rev-list", "--boundary", *span.arguments)
    pushed = [line.removeprefix("-") for line in boundary if line.startswith("-")]
    newest = git.lines("merge-base", "--independent", *pushed)
    return Rewrite(newest[0], span.head, newest[0] in affected) if len(newest) == 1 else None


def _list_later(git: Git, affected: Set[str], tips: Sequence[str]) -> set[str]:
    """The affected commits, and those in the history of `tips` that have one of them in their own history."""
    later = set(affected)
    for sha in affected:
        later.update(git.lines("rev-list", "--ancestry-path", *tips, f"^{sha}"))
    return later


def _can_be_fixed_up(git: Git, problems: Sequence[PushProblem], status: GitStatus, commits: str) -> bool:
    """Whether fixup commits can be squashed into `commits` without a conflict, and without a file in their way. Then
    there is no merge, no deleted file and no other fixup, and only one commit changes each file with a secret."""
    if any(not problem.line or is_secret_file(problem.path) for problem in problems):
        return False
    if any(file.staged for file in status.files) or git.text("diff-files", "--name-only", "--diff-filter=A"):
        return False  # a rebase with --autostash would unstage it, and fails for a file of `git add --intent-to-add`
    changes = git.items("log", "--format=", "--name-status", "--no-renames", "-z", commits)
    number_of_changes = Counter(changes[1::2])
    return not (
        "D" in changes[::2]
        or any(number_of_changes[problem.path] != 1 for problem in problems if problem.sha)
        or any(len(commit.parents) > 1 or commit.is_fixup for commit in log_commits(git, commits))
    )


def _list_other_refs(git: Git, affected: Set[str], branch: str) -> list[str]:
    """The other branches, tags and stashes that have one of the affected commits."""
    if not affected:
        return []
    contains = [f"--contains={sha}" for sha in affected]
    refs = git.lines("for-each-ref", "--format=%(refname)", *contains, "refs/heads", "refs/tags")
    names = [ref.split("/", 2)[-1] for ref in refs if ref != f"refs/heads/{branch}"]
    stashes = git.lines("stash", "list", "--format=%H")
    later = _list_later(git, affected, stashes) if stashes else set()
    return names + [f"stash@{{{number}}}" for number, stash in enumerate(stashes) if stash in later]


def _find_remote_branches(git: Git, secrets: Iterable[PushProblem]) -> list[str]:
    """The remote branches that have a file with one of these secrets in a commit of their own, as after a commit was
    pushed and then amended."""
    commits = {
        git.text(
            "log", "--max-count=1", "--format=%H", f"--find-object={sha}:{path}", "--remotes", "--not", "HEAD",
            "--", path, environment=LITERAL_PATHS, allowed=(0, 128),
        )
        for sha, path in {(secret.sha, secret.path) for secret in secrets}
    }  # fmt: skip
    contains = [f"--contains={commit}" for commit in commits if commit]
    refs = git.lines("for-each-ref", "--format=%(refname:lstrip=2)", *contains, "refs/remotes") if contains else []
    return [ref for ref in refs if not ref.endswith("/HEAD")]
