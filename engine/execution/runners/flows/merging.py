"""Flows about merges. They rehearse a merge, find the best order of several merges, test an unfinished one, or look at
the pull request that asks for one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, permutations
from typing import Literal

from pydantic import Field

from engine.execution.runners import Facts, Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job, Line, ProjectFlow, Revision
from engine.execution.runners.flows.git_steps import (
    REHEARSAL_AUTHOR,
    find_main_branch,
    find_unmerged_files,
    make_operator_git,
    quote_paths,
    read_commit,
    report_conflicts,
    reset_worktree,
    resolve_commit,
    try_git,
)
from engine.execution.runners.flows.suite_runs import describe_check, try_whole_suite
from engine.git import LITERAL_PATHS, GitError
from engine.git.history import is_ancestor, merge_trees, separate_objects
from engine.git.inspection import MAX_COLLIDING, MAX_TRIED_BRANCHES
from engine.git.unfinished import (
    CONFLICT_OPERATION,
    GitOperation,
    Stage,
    StagedVersions,
    read_conflicted_files,
    read_operation,
)
from engine.wording import count, join_names

MAX_REBASED_COMMITS = 200
"""Maximum number of commits of a rebase that is tried."""

MAX_LISTED_FILES = 50
"""Maximum number of resolved files in the transcript."""

_SUBMODULE = "160000"
"""The mode of an entry that is a submodule."""

_SIDE_WORDS = {Stage.OURS: "ours", Stage.THEIRS: "theirs"}
"""The sides of a conflict, as git's options and sentences name them."""


# -- merge one branch into another, and run the tests on the result


class RehearseMerge(ProjectFlow):
    """Merges in a throw-away worktree; no branch moves."""

    name = "rehearse_merge"
    label = "Rehearse a merge"
    work = "merge"
    place = Place.WORKTREE
    source: Revision = Field(description="the branch to merge")
    target: Revision = Field(description="the branch to merge into")
    rebase: bool = Field(default=False, description="also check whether a rebase of the target would be clean")

    def describe(self) -> str:
        where = f", with the tests{self.where}" if self.project else ""
        return f"Rehearse merging {self.source} into {self.target}{where}"

    def run(self, job: Job) -> FlowResult:
        target, source = resolve_commit(job, self.target), resolve_commit(job, self.source)
        facts: Facts = {"source": source, "target": target, "conflicts": []}
        if is_ancestor(job.git, source, target):
            return FlowResult(f"Nothing to merge: {self.target} already has all of {self.source}", facts=facts)
        reset_worktree(job, target)
        for name, commit in ((self.target, target), (self.source, source)):
            job.say(f"{name} is at {read_commit(job, commit)}")
        merged = try_git(job, "merge", "--no-commit", "--no-ff", "--no-verify", source)
        facts["conflicts"] = [*merged.conflicts]
        if merged.error:
            raise WorkFailed(f"git cannot merge them: {merged.error}")
        if merged.conflicts:
            report_conflicts(job, merged.conflicts)
            check, summary = None, f"Merging {self.source} into {self.target} conflicts in {merged.files}"
        else:
            job.say("The merge is clean")
            check, outcome = try_whole_suite(job, self.project, base=target)
            summary = f"{self.source} merges cleanly into {self.target}{outcome}"
        if self.rebase:
            commands = [f"git {verb} {shlex.quote(self.source)}" for verb in ("merge", "rebase")]
            rebase = self._try_rebase(job, source, target)
            job.say(f"On {self.target}: `{commands[0]}`, or `{commands[1]}`")
            summary = f"{summary}; {rebase}"
        reset_worktree(job, target, tree=merged.tree)  # the result is recorded for the state of the worktree
        return FlowResult(summary, check=check, sound=not merged.conflicts, facts=facts, full=check is not None)

    def _try_rebase(self, job: Job, source: str, target: str) -> str:
        """Try a rebase of the target. Returns its outcome in words."""
        commits = int(job.git.text("rev-list", "--count", f"{source}..{target}"))
        has_merges = job.git.text("rev-list", "--max-count=1", "--merges", f"{source}..{target}")
        if has_merges or commits > MAX_REBASED_COMMITS:
            return f"a rebase was not tried: its commits are more than {MAX_REBASED_COMMITS} or include merges"
        reset_worktree(job, target)
        rebased = try_git(job, "rebase", "--no-autosquash", source)
        outcome = rebased.stop or f"of {count(commits, 'commit')} would be clean"
        job.say(f"A rebase {outcome}")
        return f"a rebase {outcome}"


# -- find the branches that will conflict, by git's own merge without touching a file


class ForecastConflicts(Flow):
    """Tries each branch with the base, the newest with each other, and branches that conflict in every order."""

    name = "forecast_conflicts"
    label = "Forecast conflicts"
    work = "merge"
    place = Place.OPERATOR_TREE
    base: Revision = Field(description="the branch that they will be merged into")
    branches: list[Revision] = Field(min_length=1, max_length=40, description="the branches to try")

    def describe(self) -> str:
        names = join_names(self.branches, 3)
        return f"Find the order of merging {names} into {self.base} with the least conflict"

    def run(self, job: Job) -> FlowResult:
        tips = {name: resolve_commit(job, name) for name in dict.fromkeys([self.base, *self.branches])}
        times = {name: int(job.git.text("show", "--no-patch", "--format=%ct", tips[name])) for name in self.branches}
        newest = sorted(times, key=lambda name: -times[name])[:MAX_TRIED_BRANCHES]
        pairs = [(branch, self.base) for branch in times] + list(combinations(newest, 2))
        conflicts = {pair: _find_conflicting_files(job, tips[pair[1]], tips[pair[0]]) for pair in pairs}
        _report_pairs(job, conflicts)
        tried = count(len(pairs), "merge")
        conflicting = [pair for pair in pairs if conflicts[pair]]
        if not conflicting:
            return FlowResult(f"No conflicts ahead in {tried}")
        colliding = [name for name in newest if any(name in pair for pair in conflicting)][:MAX_COLLIDING]
        if len(colliding) < 2:
            names = [f"{name} with {into} ({count(len(conflicts[name, into]), 'file')})" for name, into in conflicting]
            summary = f"{len(conflicting)} of {tried} would conflict: {join_names(names, 3)}"
            return FlowResult(summary, sound=False)
        oldest_first = sorted(colliding, key=lambda name: times[name])
        tips_of_colliding = {name: tips[name] for name in oldest_first}
        return FlowResult(self._describe_best_order(job, tips[self.base], tips_of_colliding), sound=False)

    def _describe_best_order(self, job: Job, target: str, tips: dict[str, str]) -> str:
        """A sentence about the order of merging the branches that has the fewest conflicts. If several orders have
        equally few, the one that begins with the oldest branch is taken. A file that conflicts at two merges counts
        twice, because it is solved twice."""
        orders = _try_orders(job, target, tips)
        costs = {names: sum(map(len, files)) for names, files in orders.items()}
        best = min(costs, key=lambda names: costs[names])
        fewest, most = costs[best], max(costs.values())
        for number, (name, files) in enumerate(zip(best, orders[best], strict=True), 1):
            outcome = f"conflicts in {join_names(files, 4)}" if files else "clean"
            job.say(f"{number}. {name} into {self.base}: {outcome}")
        comparison = f"{count(fewest, 'conflict')} in any order, so the oldest goes first"
        if fewest < most:
            conflicts = count(fewest, "conflict") if fewest else "no conflicts in this order"
            comparison = f"{conflicts}; the worst order has {most}"
        return f"Merge {', then '.join(best)}: {comparison}"


def _report_pairs(job: Job, conflicts: Mapping[tuple[str, str], Sequence[str]]) -> None:
    """Show which files conflict for each pair of a branch and that into which it is merged."""
    titles = {pair: " → ".join(pair) for pair in conflicts}
    width = max(map(len, titles.values()))
    for pair, files in conflicts.items():
        job.say(f"{titles[pair]:<{width}}  {f'✗ {join_names(files, 4)}' if files else '✓ clean'}")


def _try_orders(job: Job, target: str, tips: dict[str, str]) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """For each order of merging the branches, the files that conflict at each of its merges.

    A file in conflict stays in the merged tree with its markers, so a later change of these lines conflicts again.
    """
    environment = separate_objects(job.git, job.scratch) | REHEARSAL_AUTHOR

    @cache
    def merge(names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """(commit with all branches merged in this order, files that conflict at the last merge)."""
        if not names:
            return target, ()
        onto, theirs = merge(names[:-1])[0], tips[names[-1]]
        tree, files = merge_trees(job.git, onto, theirs, environment)
        parents = ("-p", onto, "-p", theirs)
        return job.git.text("commit-tree", tree, *parents, "-m", "tried", environment=environment), files

    return {names: [merge(names[:end])[1] for end in range(1, len(names) + 1)] for names in permutations(tips)}


def _find_conflicting_files(job: Job, target: str, source: str) -> tuple[str, ...]:
    try:
        return merge_trees(job.git, target, source, separate_objects(job.git, job.scratch))[1]
    except GitError as error:
        raise WorkFailed(f"git cannot merge {source[:10]} into {target[:10]}: {error.stderr[-300:]}") from error


# -- finish an unfinished merge, rebase, cherry-pick or revert with each side, or report on a bisect


class UnfinishedOperation(ProjectFlow):
    """Works in a copy of the tree; the operation itself stays where it is."""

    name = "unfinished_operation"
    label = "Rehearse an unfinished operation"
    work = "merge"
    place = Place.WORKTREE
    operation: Literal["merge", "rebase", "cherry-pick", "revert", "am", "bisect", "conflict"] = Field(
        default="merge", description="what is unfinished"
    )

    def describe(self) -> str:
        if self.operation == "bisect":
            return "Say what is left of the unfinished bisect"
        return f"Rehearse both sides of the unfinished {_describe_operation(self.operation)}"

    def run(self, job: Job) -> FlowResult:
        git = make_operator_git(job)
        operation = read_operation(git)
        if operation is None:
            return FlowResult("Nothing is unfinished")
        if operation.name == "bisect":
            return _report_bisect(job, operation)
        conflicts = find_unmerged_files(git)
        _report_files(job, operation, conflicts)
        next_steps = _describe_next_steps(operation)
        label = _describe_operation(operation.name)
        if not conflicts:
            check, outcome = try_whole_suite(job, self.project)
            tests = f"; the tests in the present state: {describe_check(check)}" if check else outcome
            summary = f"No conflict is left in the {label}{tests}. {next_steps}"
            return FlowResult(summary, check=check, full=check is not None)
        tests = self._test_each_side(job, operation, read_conflicted_files(git))
        places = sum(conflicts.values())
        where = f"{count(places, 'place')} of " if places else ""
        summary = f"The {label} conflicts in {where}{join_names(operation.unmerged, 3)}{tests}. {next_steps}"
        return FlowResult(summary, sound=False)

    def _test_each_side(self, job: Job, operation: GitOperation, stages: dict[str, StagedVersions]) -> str:
        """Run the tests with all conflicts resolved to each side. Returns the outcomes as the rest of a sentence."""
        outcomes = ""
        theirs = operation.rebased or (operation.theirs.name if operation.theirs else "")
        for side, name in ((Stage.OURS, operation.ours.name), (Stage.THEIRS, theirs)):
            reset_worktree(job)
            side_label = f"{_SIDE_WORDS[side]} ({name})" if name else _SIDE_WORDS[side]
            job.say(f"With all conflicts taken from {side_label}:")
            for path, versions in stages.items():
                _resolve_file(job, path, versions, side)
            check, outcome = try_whole_suite(job, self.project)
            if check is None:
                return outcome  # the tests of the other side cannot run either
            outcomes += f"; with {side_label}: {describe_check(check)}"
        reset_worktree(job)
        return outcomes


def _describe_operation(operation: str) -> str:
    """The name of the operation in a sentence."""
    return {CONFLICT_OPERATION: "merge of files", "am": "`git am`"}.get(operation, operation)


def _report_files(job: Job, operation: GitOperation, conflicts: dict[str, int]) -> None:
    job.say(f"Ours: {operation.ours.name} “{operation.ours.subject}”")
    if operation.theirs is not None:
        job.say(f"Theirs: {operation.theirs.name} “{operation.theirs.subject}”")
    report_conflicts(job, conflicts)
    job.say_list([f"resolved  {path}" for path in operation.resolved], MAX_LISTED_FILES)


def _describe_next_steps(operation: GitOperation) -> str:
    """How to continue or abort an unfinished operation, as sentences."""
    next_step = f"`{operation.continue_command}`"
    if operation.unmerged:
        names = quote_paths(operation.unmerged[:5])
        ellipsis = " …" if len(operation.unmerged) > 5 else ""
        next_step = f"fix {join_names(operation.unmerged, 3)}, `git add -- {names}{ellipsis}`, then {next_step}"
    return f"To go on: {next_step}. To give up: `{operation.abort_command}`"


def _report_bisect(job: Job, operation: GitOperation) -> FlowResult:
    bad, good = operation.terms
    abort = f"`{operation.abort_command}`"
    job.say(f"Checked out: {read_commit(job, operation.ours.commit)}")
    for term, commits in ((bad, [operation.bad] if operation.bad else []), (good, operation.good)):
        for commit in [str(read_commit(job, sha)) for sha in commits] or ["none yet"]:
            job.say(f"Known to be {term}: {commit}")
    missing = [
        f"`git bisect {term} COMMIT`" for term, commit in ((bad, operation.bad), (good, operation.good)) if not commit
    ]
    if missing:
        return FlowResult(f"The bisect waits for {' and '.join(missing)}; to give up: {abort}")
    if operation.suspects == 1:
        summary = f"The bisect is over: {read_commit(job, operation.bad)} is the first {bad} commit"
        return FlowResult(f"{summary}; to end it: {abort}")
    steps = max(0, operation.suspects.bit_length() - 1)
    return FlowResult(
        f"The bisect has {count(operation.suspects, 'revision')} left, about {count(steps, 'step')}; test "
        f"{operation.ours.commit[:10]}, then `git bisect {good}` or `git bisect {bad}`, or `git bisect skip` if it "
        f"cannot be tested; to give up: {abort}"
    )


def _resolve_file(job: Job, path: str, versions: StagedVersions, side: Stage) -> None:
    """Resolve a file in conflict to one side in the worktree. The file is removed if that side removed it.

    Only lines that both sides changed are taken from that side, if both have the file and its lines can be compared.
    Otherwise its whole file is taken.
    """
    version = versions.get(side)
    if version is None:
        job.git.run("rm", "--quiet", "--force", "--ignore-unmatch", "--", path, environment=LITERAL_PATHS)
        return
    if version.mode == _SUBMODULE:
        job.say(f"{path} is a submodule and stays as it is")
        return
    blob = version.blob
    are_alike = {Stage.OURS, Stage.THEIRS} <= versions.keys() and len({each.mode for each in versions.values()}) == 1
    if are_alike and (merged := _merge_lines(job, versions, side)) is not None:
        blob = job.git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=merged)
    entry = f"{version.mode} {blob}\t".encode() + _encode_path(path)
    job.git.run("update-index", "--add", "--replace", "-z", "--index-info", stdin=entry)
    job.git.run("checkout-index", "--force", "-z", "--stdin", stdin=_encode_path(path))


def _merge_lines(job: Job, versions: StagedVersions, side: Stage) -> bytes | None:
    """The lines of a file, of which those that both sides changed are those of one side. None if its lines cannot be
    compared, as those of a binary file."""
    files: list[str] = []
    for stage in (Stage.OURS, Stage.COMMON, Stage.THEIRS):
        file = job.scratch / f"version-{stage}"
        file.write_bytes(job.git.output("cat-file", "blob", versions[stage].blob) if stage in versions else b"")
        files.append(str(file))
    merged = job.git.run("merge-file", "-p", "--quiet", f"--{_SIDE_WORDS[side]}", *files, allowed=range(256))
    return None if merged.returncode else merged.stdout


def _encode_path(path: str) -> bytes:
    return path.encode(errors="surrogateescape") + b"\0"


# -- a pull request

MAX_SHOWN_ROWS = 30
"""Maximum number of commits, and of files, of a pull request in the transcript."""


class LookAtPullRequest(Flow):
    """Says who waits for what, what its branch changes if it is here, and the commands that show the rest."""

    name = "look_at_pull_request"
    label = "Look at a pull request"
    work = "review"
    place = Place.OPERATOR_TREE
    number: int = Field(ge=1, description="its number")
    title: Line = Field(default="", description="its title")
    url: Line = Field(default="", description="where it is")
    branch: Line = Field(default="", description="the branch to be merged")
    waits: Line = Field(default="", description="who is waiting for what, and since when")

    def describe(self) -> str:
        return f"Look at pull request #{self.number} “{self.title}”"

    def run(self, job: Job) -> FlowResult:
        for line in (f"#{self.number} {self.title}", self.url, self.waits):
            if line.strip():
                job.say(line)
        changed = self._describe_branch(job)
        job.say(f"Next: gh pr view {self.number} --comments")
        job.say(f"      gh pr diff {self.number}")
        job.say(f"      gh pr checkout {self.number}")
        state = self.waits.rstrip(".") or f"Pull request #{self.number}"
        return FlowResult(f"{state}; {changed or 'its branch is not here'}")

    def _describe_branch(self, job: Job) -> str:
        """The changes of the branch against the main branch in words; "" if the repository does not have the branch."""
        git, base, branch = make_operator_git(job), find_main_branch(job), self.branch
        of_remote = re.compile(rf"refs/remotes/[^/]+/{re.escape(branch)}")
        refs = git.lines("for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes")
        ref = next((name for name in refs if name == f"refs/heads/{branch}" or of_remote.fullmatch(name)), "")
        if not ref or base is None or ref == f"refs/heads/{base}":
            return ""
        start = git.text("merge-base", f"refs/heads/{base}", ref, allowed=(0, 1))
        if not start:
            return ""
        commits = git.lines("log", "--no-show-signature", "--format=%h %an: %s", f"{start}..{ref}")
        files = git.lines("diff", "--stat", "--no-color", start, ref)
        job.say_list(commits, MAX_SHOWN_ROWS)
        job.say_list(files, MAX_SHOWN_ROWS)
        return f"{count(len(commits), 'commit')}, {count(max(len(files) - 1, 0), 'file')} changed against {base}"
