"""Merges that nobody sees: one with its tests, and the order of several with the least conflict."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

from pydantic import Field

from engine.execution.runners.flow import CannotRun, Flow, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import (
    IDENTITY,
    ProjectFlow,
    Revision,
    clean,
    combined,
    commit,
    count,
    in_project,
    in_words,
    listed,
    reddest,
    resolve,
    run_plan,
    run_tests,
    sentence,
    show_tree,
    tidy,
    toolchains,
    touched,
)
from engine.execution.runners.toolchains.bound import Toolchain, borrowed
from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.merges import MAX_COLLIDING, merge_trees, objects_aside
from engine.model import CheckResult
from engine.plain_files import read_plain

# -- Merge one branch into another where nobody sees it, and run the tests on what comes out ----------------------

LARGEST = 50_000_000
"""Bytes of a file in conflict; nobody counts the places in a larger one."""

MOST_REBASED = 200
"""A rebase of more commits than this is not tried."""

BLAME_LIMIT = 50
"""With more failing tests than this nobody asks each side on its own."""


class RehearseMerge(ProjectFlow):
    """The merge happens in a throw-away worktree; no branch moves."""

    name = "rehearse_merge"
    label = "Rehearse a merge"
    place = Place.WORKTREE
    source: Revision = Field(description="the branch to merge")
    target: Revision = Field(description="the branch to merge into")
    rebase: bool = Field(default=False, description="also check whether a rebase of the target would be clean")

    def describe(self) -> str:
        into = f"{clean(self.source)} into {clean(self.target)}"
        where = in_project(self.project)
        return f"Rehearse merging {into}{f', with the tests{where}' if where else ''}"

    def run(self, job: Job) -> FlowResult:
        names = clean(self.source), clean(self.target)
        source, target = resolve(job, self.source), resolve(job, self.target)
        facts: dict[str, object] = {"source": source, "target": target, "conflicts": []}
        if job.git.run("merge-base", "--is-ancestor", source, target, allowed=(0, 1)).returncode == 0:
            return FlowResult(f"Nothing to merge: {names[1]} already has all of {names[0]}", facts=facts)
        tidy(job, target)
        job.say(f"{names[1]} is at {commit(job.git, target)}")
        job.say(f"{names[0]} is at {commit(job.git, source)}")
        done = job.git.run(*IDENTITY, "merge", "--no-commit", "--no-ff", "--no-verify", source, allowed=(0, 1, 2, 128))
        conflicts = unmerged(job.git)
        if conflicts:
            result = self._conflicted(job, names, conflicts, facts)
            return self._with_rebase(job, names, source, target, result)
        if done.returncode:
            raise FlowUnable(f"git cannot merge them: {clean(done.stderr.decode(errors='replace'))[-300:]}")
        changed = job.git.text("diff", "--cached", "--name-only", "-z", target).count("\0")
        job.say(f"The merge is clean: {count(changed, 'file')} changed")
        merged = job.git.text("write-tree")
        result = self._with_rebase(job, names, source, target, self._tested(job, names, source, target, facts))
        tidy(job, target)
        show_tree(job, merged)  # the result is the merged tree's: that is the state it is recorded with
        return result

    def _conflicted(
        self, job: Job, names: tuple[str, str], conflicts: list[tuple[str, int]], facts: dict[str, object]
    ) -> FlowResult:
        tips = str(facts["source"]), str(facts["target"])
        base = job.git.text("merge-base", *tips, allowed=(0, 1)).partition("\n")[0]
        for path, places in conflicts:
            job.say(f"conflict  {clean(path)}" + (f"  ({count(places, 'place')})" if places else "  (whole file)"))
            for name, tip in zip(names, tips, strict=True):
                for line in touched(job.git, path, f"{base}..{tip}" if base else tip):
                    job.say(f"          {name}: {line}")
        summary = f"Merging {names[0]} into {names[1]} conflicts in {count(len(conflicts), 'file')}: " + listed(
            [path for path, _ in conflicts], 4
        )
        return FlowResult(summary, facts=facts | {"conflicts": [clean(path) for path, _ in conflicts]})

    def _tested(
        self, job: Job, names: tuple[str, str], source: str, target: str, facts: dict[str, object]
    ) -> FlowResult:
        try:
            tools = toolchains(job, self.project)
            with borrowed(tools, job.folder, job.workspace):
                done = run_plan(job, [(tool, []) for tool in tools])
        except CannotRun as error:  # a merge that is clean is worth knowing even where nothing can be tested
            job.say(str(error))
            summary = f"{names[0]} merges cleanly into {names[1]}; its tests could not be run: {error.message}"
            return FlowResult(summary, facts=facts)
        with borrowed(tools, job.folder, job.workspace):
            check = combined([check for _, check in done])
            if check.green:
                summary = f"{names[0]} merges cleanly into {names[1]}, {in_words(check)}"
                return FlowResult(summary, check=check, facts=facts, full=True)
            blame = self._blame(job, *reddest(done), {names[0]: source, names[1]: target})
        summary = f"{names[0]} merges cleanly into {names[1]}, but {in_words(check)}"
        only = [test for test, sides in blame.items() if not sides]
        if only:
            summary += f"; {len(only)} of them fail only when merged"
        return FlowResult(summary, check=check, facts=facts | {"red_before": blame}, full=True)

    def _with_rebase(
        self, job: Job, names: tuple[str, str], source: str, target: str, merged: FlowResult
    ) -> FlowResult:
        """The result of the merge, and, where it was asked for, whether a rebase of the target onto the source would be
        clean, and the commands of both."""
        if not self.rebase:
            return merged
        told, clear = self._rebased(job, source, target)
        job.say(sentence(told))
        commands = [f"git {verb} {shlex.quote(names[0])}" for verb in ("merge", "rebase")]
        job.say(f"On {names[1]}: `{commands[0]}`, or `{commands[1]}`")
        summary = merged.summary if clear is None else f"{merged.summary}; {told}"
        return replace(merged, summary=summary, facts={**merged.facts, "rebase": told, "commands": commands})

    def _rebased(self, job: Job, source: str, target: str) -> tuple[str, bool | None]:
        """What a rebase would say, and whether it is clean; None when it was not tried."""
        own = int(job.git.text("rev-list", "--count", f"{source}..{target}"))
        if own > MOST_REBASED:
            return f"a rebase of {own} commits was not tried", None
        if job.git.text("rev-list", "--count", "--merges", f"{source}..{target}") != "0":
            return "a rebase was not tried: the commits include merges", None
        tidy(job, target)
        done = job.git.run(*IDENTITY, "rebase", "--no-autosquash", source, allowed=(0, 1, 128))
        if done.returncode == 0:
            return f"a rebase of {count(own, 'commit')} would be clean", True
        conflicts = [path for path, _ in unmerged(job.git)]
        stopped = job.git.text("log", "-1", "--no-show-signature", "--format=%h “%s”", "REBASE_HEAD", allowed=(0, 128))
        job.git.run("rebase", "--abort", allowed=(0, 1, 128))
        return f"a rebase stops at {clean(stopped)}" + (f" in {listed(conflicts, 3)}" if conflicts else ""), False

    def _blame(self, job: Job, tool: Toolchain, check: CheckResult, sides: dict[str, str]) -> dict[str, list[str]]:
        """For each failing test the sides on which it fails without the merge; {} when that cannot be asked."""
        failing = [test for test in check.failing if not test.startswith("-")]
        if not tool.exact or check.errors or not failing or len(failing) > BLAME_LIMIT:
            return {}
        red: dict[str, list[str]] = {test: [] for test in failing}
        for name, sha in sides.items():
            tidy(job, sha)
            there = tool.present(failing)
            if not there:
                continue
            job.say(f"Running the same {count(len(failing), 'test')} on {name} alone")
            try:
                alone = run_tests(job, tool, there)
            except CannotRun as error:
                job.say(error.message)
                return {}
            for test in failing:
                if test in alone.failing:
                    red[test].append(name)
        _tell(job, red)
        return red


def _tell(job: Job, red: dict[str, list[str]]) -> None:
    for test, sides in red.items():
        job.say(f"{test}: " + (f"already failing on {listed(sides)}" if sides else "fails only when merged"))


def unmerged(git: Git) -> list[tuple[str, int]]:
    """The files in conflict, each with its number of marked places (0 when the whole file is in dispute)."""
    entries = git.text("ls-files", "--unmerged", "-z").split("\0")
    paths = {entry.partition("\t")[2] for entry in entries if entry}
    return [(path, _places(git, path)) for path in sorted(paths)]


def _places(git: Git, path: str) -> int:
    try:
        lines: Sequence[bytes] = read_plain(git.folder / path, LARGEST, follow=False).splitlines()
    except (OSError, ValueError):
        return 0
    return sum(line.startswith(b"<<<<<<< ") for line in lines)


# -- Which branches will conflict, asked of git's own merge without touching a file -------------------------------

PAIRWISE = 5
"""The newest so many branches are also tried with each other: at most ten pairs."""

_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "rehearsal"), ("EMAIL", "rehearsal@localhost"))
}


@frozen
class Forecast:
    """One merge that was tried; no files means that it is clean."""

    one: str
    other: str
    files: tuple[str, ...]


class ForecastConflicts(Flow):
    """`git merge-tree` of each branch into the base, of the newest with each other, and of those that collide in every
    order."""

    name = "forecast_conflicts"
    label = "Forecast conflicts"
    place = Place.OPERATOR_TREE
    base: Revision = Field(description="the branch that they will be merged into")
    branches: list[Revision] = Field(min_length=1, max_length=40, description="the branches to try")

    def describe(self) -> str:
        names = listed(self.branches, 3)
        return f"Find the order of merging {names} into {clean(self.base)} with the least conflict"

    def run(self, job: Job) -> FlowResult:
        base = clean(self.base)
        tips = {clean(name): resolve(job, name) for name in dict.fromkeys([*self.branches])}
        target = resolve(job, self.base)
        tried = [Forecast(name, base, _conflicts(job, target, sha)) for name, sha in tips.items()]
        ages = {name: int(job.git.text("show", "--no-patch", "--format=%ct", sha)) for name, sha in tips.items()}
        newest = sorted(ages, key=lambda name: -ages[name])[:PAIRWISE]
        for branch, other in combinations(newest, 2):
            tried.append(Forecast(branch, other, _conflicts(job, tips[other], tips[branch])))
        width = max(len(f"{each.one} → {each.other}") for each in tried)
        for each in tried:
            words = f"✗ {listed(each.files, 4)}" if each.files else "✓ clean"
            job.say(f"{f'{each.one} → {each.other}':<{width}}  {words}")
        bad = [each for each in tried if each.files]
        facts = {"merges": [{"from": each.one, "into": each.other, "conflicts": list(each.files)} for each in tried]}
        if not bad:
            return FlowResult(f"No conflicts ahead in {count(len(tried), 'merge')}", facts=facts)
        colliding = [name for name in newest if any(name in (each.one, each.other) for each in bad)][:MAX_COLLIDING]
        if len(colliding) < 2:
            words = listed([f"{each.one} with {each.other} ({count(len(each.files), 'file')})" for each in bad], 3)
            return FlowResult(f"{len(bad)} of {count(len(tried), 'merge')} would conflict: {words}", facts=facts)
        order = _best(job, target, {name: tips[name] for name in colliding}, ages)
        return FlowResult(_advice(job, base, order), facts=facts | {"order": list(order.names)})


@frozen
class Order:
    """One order of merging: for each branch the files in conflict when its turn comes."""

    names: tuple[str, ...]
    conflicts: tuple[tuple[str, ...], ...]
    others: int = 0
    """In how many files the worst other order conflicts."""

    @property
    def cost(self) -> int:
        return sum(map(len, self.conflicts))


def _best(job: Job, target: str, tips: dict[str, str], ages: dict[str, int]) -> Order:
    """Of all orders the one with the fewest files in conflict; of equal ones that which merges the oldest first.

    A file in conflict is merged on with git's marks in it: who changes the same lines later conflicts again.
    """
    aside = objects_aside(job.git, job.scratch) | _IDENTITY
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
        orders.append(Order(names, tuple(merged[names[:end]][1] for end in range(1, len(names) + 1))))
    best = min(orders, key=lambda order: order.cost)  # the first of equal ones
    return replace(best, others=max(order.cost for order in orders))


def _advice(job: Job, base: str, order: Order) -> str:
    for place, (name, files) in enumerate(zip(order.names, order.conflicts, strict=True), 1):
        words = f"conflicts in {listed(files, 4)}" if files else "clean"
        job.say(f"{place}. {name} into {base}: {words}")
    told = f"Merge {', then '.join(order.names)}"
    left = f"{count(order.cost, 'file')} in conflict"
    if not order.cost:
        return f"{told}: no conflicts in this order, but in another {count(order.others, 'file')}"
    if order.cost < order.others:
        return f"{told}: {left}; the worst order has {order.others}"
    return f"{told}: {left} in any order, so the oldest goes first"


def _conflicts(job: Job, target: str, source: str) -> tuple[str, ...]:
    try:
        names = merge_trees(job.git, target, source, objects_aside(job.git, job.scratch))[1]
    except GitError as error:
        raise FlowUnable(f"git cannot merge {source[:10]} into {target[:10]}: {clean(error.stderr)[-300:]}") from error
    return tuple(dict.fromkeys(map(clean, names)))
