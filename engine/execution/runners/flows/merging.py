"""Flows that rehearse merges and rebases, and find the best order of several merges."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, permutations

from pydantic import Field

from engine.execution.runners import Facts, Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job, ProjectFlow, Revision
from engine.execution.runners.flows.git_steps import (
    REHEARSAL_AUTHOR,
    list_commits,
    make_operator_git,
    read_commit,
    report_conflicts,
    reset_worktree,
    resolve_commit,
    try_git,
)
from engine.execution.runners.flows.suite_runs import try_whole_suite
from engine.git import GitError
from engine.git.history import is_ancestor, merge_trees, separate_objects
from engine.git.inspection import MAX_COLLIDING, MAX_TRIED_BRANCHES
from engine.wording import count, join_names

_NO_EDITOR = {"GIT_SEQUENCE_EDITOR": ":", "GIT_EDITOR": ":"}
"""Environment in which git starts no editor: for the name `:` it runs no program."""

MAX_REBASED_COMMITS = 200
"""Maximum number of commits of a rebase that is tried."""

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
        check = None
        summary = f"Merging {self.source} into {self.target} conflicts in {merged.conflicts_in_words}"
        report_conflicts(job, merged.conflicts)
        if not merged.conflicts:
            job.say("The merge is clean")
            check, outcome = try_whole_suite(job, self.project, base=target)
            summary = f"{self.source} merges cleanly into {self.target}{outcome}"
        if self.rebase:
            commands = [f"git {verb} {shlex.quote(self.source)}" for verb in ("merge", "rebase")]
            rebase = self._try_rebase(job, source, target)
            job.say(f"On {self.target}: `{commands[0]}`, or `{commands[1]}`")
            summary = f"{summary}; {rebase}"
        reset_worktree(job, target, tree=merged.tree)  # the result is recorded for the state of the worktree
        return FlowResult(summary, check=check, has_problem=bool(merged.conflicts), facts=facts, full=check is not None)

    def _try_rebase(self, job: Job, source: str, target: str) -> str:
        """Try a rebase of the target. Returns its outcome in words."""
        commits = int(job.git.text("rev-list", "--count", f"{source}..{target}"))
        has_merges = job.git.text("rev-list", "--max-count=1", "--merges", f"{source}..{target}")
        if has_merges or commits > MAX_REBASED_COMMITS:
            return f"a rebase was not tried: its commits are more than {MAX_REBASED_COMMITS} or include merges"
        reset_worktree(job, target)
        rebased = try_git(job, "rebase", "--no-autosquash", source)
        outcome = rebased.stop_in_words or f"of {count(commits, 'commit')} would be clean"
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
            return FlowResult(summary, has_problem=True)
        oldest_first = sorted(colliding, key=lambda name: times[name])
        tips_of_colliding = {name: tips[name] for name in oldest_first}
        return FlowResult(self._describe_best_order(job, tips[self.base], tips_of_colliding), has_problem=True)

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


# -- squash fixup commits into the commits that they fix


class RehearseAutosquash(ProjectFlow):
    """Runs `git rebase --autosquash` in a throw-away worktree; no branch moves."""

    name = "rehearse_autosquash"
    label = "Rehearse an autosquash"
    work = "rebase"
    place = Place.WORKTREE
    onto: Revision | None = Field(
        default=None, description="the parent of the oldest commit that changes; without it, the whole history"
    )

    def describe(self) -> str:
        since = f"since {self.onto[:10]}" if self.onto else "of the whole history"
        return f"Rehearse squashing the fixup commits {since}"

    def run(self, job: Job) -> FlowResult:
        head = make_operator_git(job).text("rev-parse", "HEAD")
        onto = resolve_commit(job, self.onto) if self.onto else ""
        command = f"git -c sequence.editor=: rebase -i --autosquash {onto[:10] or '--root'}"
        reset_worktree(job, head)
        before = _read_commits_since(job, onto)
        squashed = try_git(
            job, "rebase", "--interactive", "--autosquash", "--no-verify", onto or "--root", environment=_NO_EDITOR
        )
        if squashed.stop_in_words:
            report_conflicts(job, squashed.conflicts)
            job.say(squashed.error)
            return FlowResult(f"The autosquash {squashed.stop_in_words}", has_problem=True)
        after = _read_commits_since(job, onto)
        if len(after) == len(before):
            return FlowResult(f"Nothing to fold: no fixup of another among {count(len(before), 'commit')}")
        effect = f"{count(len(before), 'commit')} would become {len(after)}"
        job.say(f"{effect}:")
        list_commits(job, after)
        has_same_files = job.git.text("rev-parse", "HEAD^{tree}") == job.git.text("rev-parse", f"{head}^{{tree}}")
        if not has_same_files:
            summary = f"The autosquash changes the files: {effect}, but the result differs from HEAD"
            return FlowResult(summary, has_problem=True)
        check, outcome = try_whole_suite(job, self.project)
        summary = f"The autosquash is clean: {effect}, with the same files at the end{outcome}; to do it: `{command}`"
        return FlowResult(summary, check=check, full=check is not None)


def _read_commits_since(job: Job, onto: str) -> list[str]:
    return job.git.lines("rev-list", "HEAD", *(["--not", onto] if onto else []))
