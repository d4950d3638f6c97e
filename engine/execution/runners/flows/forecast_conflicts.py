"""Which branches will conflict, asked of git's own merge without touching a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import Parameters, Revision, clean, count, listed, resolve
from engine.git import GitError
from engine.git.merges import MOST_COLLIDING, merge_trees, objects_aside

PAIRWISE = 5
"""The newest so many branches are also tried with each other: at most ten pairs."""

_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "rehearsal"), ("EMAIL", "rehearsal@localhost"))
}


class ForecastConflictsParameters(Parameters):
    """Which branches, against what."""

    base: Revision = Field(description="the branch that they will be merged into")
    branches: list[Revision] = Field(min_length=1, max_length=40, description="the branches to try")


@dataclass(frozen=True, slots=True)
class Forecast:
    """One merge that was tried; no files means that it is clean."""

    one: str
    other: str
    files: tuple[str, ...]


class ForecastConflicts:
    """`git merge-tree` of each branch into the base, of the newest with each other, and of those that collide in every
    order."""

    name: ClassVar = "forecast_conflicts"
    title: ClassVar = "Forecast conflicts"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = ForecastConflictsParameters

    def describe(self, parameters: ForecastConflictsParameters) -> str:
        names = listed(parameters.branches, 3)
        return f"Find the order of merging {names} into {clean(parameters.base)} with the least conflict"

    def run(self, job: Job) -> FlowResult:
        base = clean(job.parameters.base)
        tips = {clean(name): resolve(job, name) for name in dict.fromkeys([*job.parameters.branches])}
        target = resolve(job, job.parameters.base)
        tried = [Forecast(name, base, _conflicts(job, target, sha)) for name, sha in tips.items()]
        ages = {name: int(job.git.text("show", "--no-patch", "--format=%ct", sha)) for name, sha in tips.items()}
        newest = sorted(ages, key=lambda name: -ages[name])[:PAIRWISE]
        for one, other in combinations(newest, 2):
            tried.append(Forecast(one, other, _conflicts(job, tips[other], tips[one])))
        width = max(len(f"{each.one} → {each.other}") for each in tried)
        for each in tried:
            words = f"✗ {listed(each.files, 4)}" if each.files else "✓ clean"
            job.say(f"{f'{each.one} → {each.other}':<{width}}  {words}")
        bad = [each for each in tried if each.files]
        facts = {"merges": [{"from": each.one, "into": each.other, "conflicts": list(each.files)} for each in tried]}
        if not bad:
            return FlowResult(f"No conflicts ahead in {count(len(tried), 'merge')}", facts=facts)
        colliding = [name for name in newest if any(name in (each.one, each.other) for each in bad)][:MOST_COLLIDING]
        if len(colliding) < 2:
            words = listed([f"{each.one} with {each.other} ({count(len(each.files), 'file')})" for each in bad], 3)
            return FlowResult(f"{len(bad)} of {count(len(tried), 'merge')} would conflict: {words}", facts=facts)
        order = _best(job, target, {name: tips[name] for name in colliding}, ages)
        return FlowResult(_advice(job, base, order), facts=facts | {"order": list(order.names)})


@dataclass(frozen=True, slots=True)
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
