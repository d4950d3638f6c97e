"""Flows that try merges in a worktree: one merge with its tests, and several in the order with the fewest conflicts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

from pydantic import Field

from engine.execution.runners.flow import CannotRun, Flow, FlowError, FlowResult, Job, Place, ProjectFlow, Revision
from engine.execution.runners.flows.steps import (
    REHEARSAL_AUTHOR,
    abort_rebase,
    capitalised,
    conflict_line,
    count,
    describe_check,
    in_project,
    join_names,
    read_commit,
    recent_commits,
    reset_worktree,
    resolve_commit,
    restore_tree,
)
from engine.execution.runners.flows.test_runs import (
    combine_checks,
    find_toolchains,
    first_failing,
    run_tests,
    run_whole_suite,
)
from engine.execution.runners.toolchains.installing import linked_packages
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.files import read_plain
from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.commits import is_ancestor
from engine.git.merges import MAX_COLLIDING, conflicted, merge_trees, separate_objects
from engine.model import CheckResult

# -- Merge one branch into another in a worktree, and run the tests on the result ---------------------------------

MAX_CONFLICT_FILE_BYTES = 50_000_000
"""Maximum size of a file in conflict whose places are counted."""

MAX_REBASED_COMMITS = 200
"""A rebase of more commits than this is not tried."""

MAX_BLAMED_TESTS = 50
"""With more failing tests than this they are not run on each side alone."""


class RehearseMerge(ProjectFlow):
    """Merges in a throw-away worktree; no branch moves."""

    name = "rehearse_merge"
    label = "Rehearse a merge"
    place = Place.WORKTREE
    source: Revision = Field(description="the branch to merge")
    target: Revision = Field(description="the branch to merge into")
    rebase: bool = Field(default=False, description="also check whether a rebase of the target would be clean")

    def describe(self) -> str:
        into = f"{self.source} into {self.target}"
        where = in_project(self.project)
        return f"Rehearse merging {into}{f', with the tests{where}' if where else ''}"

    def run(self, job: Job) -> FlowResult:
        names = self.source, self.target
        source, target = resolve_commit(job, self.source), resolve_commit(job, self.target)
        facts: dict[str, object] = {"source": source, "target": target, "conflicts": []}
        if is_ancestor(job.git, source, target):
            return FlowResult(f"Nothing to merge: {names[1]} already has all of {names[0]}", facts=facts)
        reset_worktree(job, target)
        job.say(f"{names[1]} is at {read_commit(job.git, target)}")
        job.say(f"{names[0]} is at {read_commit(job.git, source)}")
        arguments = ("merge", "--no-commit", "--no-ff", "--no-verify", source)
        done = job.git.run(*arguments, environment=REHEARSAL_AUTHOR, allowed=(0, 1, 2, 128))
        conflicts = unmerged_files(job.git)
        if conflicts:
            result = self._report_conflicts(job, names, conflicts, facts)
            return self._add_rebase(job, names, source, target, result)
        if done.returncode:
            raise FlowError(f"git cannot merge them: {done.stderr.decode(errors='replace')[-300:]}")
        changed = job.git.text("diff", "--cached", "--name-only", "-z", target).count("\0")
        job.say(f"The merge is clean: {count(changed, 'file')} changed")
        merged = job.git.text("write-tree")
        result = self._add_rebase(job, names, source, target, self._test_merge(job, names, source, target, facts))
        reset_worktree(job, target)
        restore_tree(job, merged)  # the result is recorded for the state of the worktree
        return result

    def _report_conflicts(
        self, job: Job, names: tuple[str, str], conflicts: list[tuple[str, int]], facts: dict[str, object]
    ) -> FlowResult:
        tips = str(facts["source"]), str(facts["target"])
        base = job.git.text("merge-base", *tips, allowed=(0, 1))
        for path, markers in conflicts:
            job.say(conflict_line(path, markers))
            for name, tip in zip(names, tips, strict=True):
                for line in recent_commits(job.git, path, f"{base}..{tip}" if base else tip):
                    job.say(f"          {name}: {line}")
        files = f"{count(len(conflicts), 'file')}: {join_names([path for path, _ in conflicts], 4)}"
        facts = facts | {"conflicts": [path for path, _ in conflicts]}
        summary = f"Merging {names[0]} into {names[1]} conflicts in {files}"
        return FlowResult(summary, sound=False, facts=facts)

    def _test_merge(
        self, job: Job, names: tuple[str, str], source: str, target: str, facts: dict[str, object]
    ) -> FlowResult:
        try:
            tools = find_toolchains(job, self.project)
            with linked_packages(job, tools):
                done = run_whole_suite(job, tools)
        except CannotRun as error:  # that the merge is clean is worth reporting without tests, too
            job.say(str(error))
            summary = f"{names[0]} merges cleanly into {names[1]}; its tests could not be run: {error.message}"
            return FlowResult(summary, facts=facts)
        with linked_packages(job, tools):
            check = combine_checks(done)
            if check.green:
                summary = f"{names[0]} merges cleanly into {names[1]}, {describe_check(check)}"
                return FlowResult(summary, check=check, facts=facts, full=True)
            blame = self._find_failing_sides(job, *first_failing(done), {names[0]: source, names[1]: target})
        summary = f"{names[0]} merges cleanly into {names[1]}, but {describe_check(check)}"
        only = [test for test, sides in blame.items() if not sides]
        if only:
            summary += f"; {len(only)} of them fail only when merged"
        return FlowResult(summary, check=check, facts=facts | {"red_before": blame}, full=True)

    def _add_rebase(self, job: Job, names: tuple[str, str], source: str, target: str, merged: FlowResult) -> FlowResult:
        """The result of the merge. With `rebase` also whether a rebase of the target onto the source would be clean,
        and the commands of both."""
        if not self.rebase:
            return merged
        rebase, is_clean = self._try_rebase(job, source, target)
        job.say(capitalised(rebase))
        commands = [f"git {verb} {shlex.quote(names[0])}" for verb in ("merge", "rebase")]
        job.say(f"On {names[1]}: `{commands[0]}`, or `{commands[1]}`")
        summary = merged.summary if is_clean is None else f"{merged.summary}; {rebase}"
        return replace(merged, summary=summary, facts={**merged.facts, "rebase": rebase, "commands": commands})

    def _try_rebase(self, job: Job, source: str, target: str) -> tuple[str, bool | None]:
        """The outcome of a rebase in words, and whether it is clean; None when it was not tried."""
        own = int(job.git.text("rev-list", "--count", f"{source}..{target}"))
        if own > MAX_REBASED_COMMITS:
            return f"a rebase of {own} commits was not tried", None
        if job.git.text("rev-list", "--count", "--merges", f"{source}..{target}") != "0":
            return "a rebase was not tried: the commits include merges", None
        reset_worktree(job, target)
        done = job.git.run("rebase", "--no-autosquash", source, environment=REHEARSAL_AUTHOR, allowed=(0, 1, 128))
        if done.returncode == 0:
            return f"a rebase of {count(own, 'commit')} would be clean", True
        return f"a rebase {abort_rebase(job)[0]}", False

    def _find_failing_sides(
        self, job: Job, tool: Toolchain, check: CheckResult, sides: dict[str, str]
    ) -> dict[str, list[str]]:
        """The sides on which each failing test fails without the merge; {} when the tests cannot run there."""
        failing = [test for test in check.failing if not test.startswith("-")]
        if not tool.runs_single_tests or check.errors or not failing or len(failing) > MAX_BLAMED_TESTS:
            return {}
        red: dict[str, list[str]] = {test: [] for test in failing}
        for name, sha in sides.items():
            reset_worktree(job, sha)
            present = tool.existing_tests(failing)
            if not present:
                continue
            job.say(f"Running the same {count(len(failing), 'test')} on {name} alone")
            try:
                alone = run_tests(job, tool, present)
            except CannotRun as error:
                job.say(error.message)
                return {}
            for test in failing:
                if test in alone.failing:
                    red[test].append(name)
        _report_blame(job, red)
        return red


def _report_blame(job: Job, red: dict[str, list[str]]) -> None:
    for test, sides in red.items():
        job.say(f"{test}: " + (f"already failing on {join_names(sides)}" if sides else "fails only when merged"))


def unmerged_files(git: Git) -> list[tuple[str, int]]:
    """The files in conflict, each with its number of marked places (0 when the whole file is in dispute)."""
    return [(path, _count_conflict_markers(git, path)) for path in conflicted(git)]


def _count_conflict_markers(git: Git, path: str) -> int:
    try:
        lines: Sequence[bytes] = read_plain(git.folder / path, MAX_CONFLICT_FILE_BYTES, follow=False).splitlines()
    except (OSError, ValueError):
        return 0
    return sum(line.startswith(b"<<<<<<< ") for line in lines)


# -- Find the branches that will conflict, by git's own merge without touching a file -----------------------------

MAX_PAIRED_BRANCHES = 5
"""Number of newest branches that are also tried with each other: ten pairs."""


@frozen
class MergeTrial:
    """One merge that was tried."""

    source: str
    target: str
    files: tuple[str, ...]
    """The files in conflict."""

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


class ForecastConflicts(Flow):
    """Tries each branch with the base, the newest with each other, and branches that conflict in every order."""

    name = "forecast_conflicts"
    label = "Forecast conflicts"
    place = Place.OPERATOR_TREE
    base: Revision = Field(description="the branch that they will be merged into")
    branches: list[Revision] = Field(min_length=1, max_length=40, description="the branches to try")

    def describe(self) -> str:
        names = join_names(self.branches, 3)
        return f"Find the order of merging {names} into {self.base} with the least conflict"

    def run(self, job: Job) -> FlowResult:
        base = self.base
        tips = {name: resolve_commit(job, name) for name in dict.fromkeys([*self.branches])}
        target = resolve_commit(job, self.base)
        tried = [MergeTrial(name, base, _conflicting_files(job, target, sha)) for name, sha in tips.items()]
        ages = {name: int(job.git.text("show", "--no-patch", "--format=%ct", sha)) for name, sha in tips.items()}
        newest = sorted(ages, key=lambda name: -ages[name])[:MAX_PAIRED_BRANCHES]
        for branch, other in combinations(newest, 2):
            tried.append(MergeTrial(branch, other, _conflicting_files(job, tips[other], tips[branch])))
        width = max(len(str(merge)) for merge in tried)
        for merge in tried:
            outcome = f"✗ {join_names(merge.files, 4)}" if merge.files else "✓ clean"
            job.say(f"{merge!s:<{width}}  {outcome}")
        conflicting = [merge for merge in tried if merge.files]
        facts = {
            "merges": [{"from": merge.source, "into": merge.target, "conflicts": list(merge.files)} for merge in tried]
        }
        if not conflicting:
            return FlowResult(f"No conflicts ahead in {count(len(tried), 'merge')}", facts=facts)
        in_conflict = {name for merge in conflicting for name in (merge.source, merge.target)}
        colliding = [name for name in newest if name in in_conflict][:MAX_COLLIDING]
        if len(colliding) < 2:
            names = [f"{merge.source} with {merge.target} ({count(len(merge.files), 'file')})" for merge in conflicting]
            summary = f"{len(conflicting)} of {count(len(tried), 'merge')} would conflict: {join_names(names, 3)}"
            return FlowResult(summary, sound=False, facts=facts)
        order = _best_order(job, target, {name: tips[name] for name in colliding}, ages)
        summary = _describe_order(job, base, order)
        return FlowResult(summary, sound=False, facts=facts | {"order": list(order.names)})


@frozen
class MergeOrder:
    """One order of merging branches."""

    names: tuple[str, ...]
    conflicts: tuple[tuple[str, ...], ...]
    """The files in conflict for each branch, when its turn comes."""
    worst_cost: int = 0
    """The cost of the worst order."""

    @property
    def cost(self) -> int:
        """The number of files in conflict."""
        return sum(map(len, self.conflicts))


def _best_order(job: Job, target: str, tips: dict[str, str], ages: dict[str, int]) -> MergeOrder:
    """The order with the fewest files in conflict; among equals the one that merges the oldest branch first.

    A file in conflict stays in the merged tree with its marks, so a later change to these lines conflicts again.
    """
    aside = separate_objects(job.git, job.scratch) | REHEARSAL_AUTHOR
    merged: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {(): (target, ())}
    orders = []
    for names in permutations(sorted(tips, key=lambda name: ages[name])):
        for end in range(1, len(names) + 1):
            done = names[:end]
            if done in merged:
                continue
            onto, theirs = merged[done[:-1]][0], tips[done[-1]]
            tree, files = merge_trees(job.git, onto, theirs, aside)
            parents = ("-p", onto, "-p", theirs)
            merged[done] = job.git.text("commit-tree", tree, *parents, "-m", "tried", environment=aside), files
        orders.append(MergeOrder(names, tuple(merged[names[:end]][1] for end in range(1, len(names) + 1))))
    best = min(orders, key=lambda order: order.cost)  # the first among equals
    return replace(best, worst_cost=max(order.cost for order in orders))


def _describe_order(job: Job, base: str, order: MergeOrder) -> str:
    for place, (name, files) in enumerate(zip(order.names, order.conflicts, strict=True), 1):
        words = f"conflicts in {join_names(files, 4)}" if files else "clean"
        job.say(f"{place}. {name} into {base}: {words}")
    advice = f"Merge {', then '.join(order.names)}"
    conflicts = f"{count(order.cost, 'file')} in conflict"
    if not order.cost:
        return f"{advice}: no conflicts in this order, but in another {count(order.worst_cost, 'file')}"
    if order.cost < order.worst_cost:
        return f"{advice}: {conflicts}; the worst order has {order.worst_cost}"
    return f"{advice}: {conflicts} in any order, so the oldest goes first"


def _conflicting_files(job: Job, target: str, source: str) -> tuple[str, ...]:
    try:
        names = merge_trees(job.git, target, source, separate_objects(job.git, job.scratch))[1]
    except GitError as error:
        raise FlowError(f"git cannot merge {source[:10]} into {target[:10]}: {error.stderr[-300:]}") from error
    return names
