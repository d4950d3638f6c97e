"""Which branches will conflict, asked of git's own merge without touching a file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import Parameters, Revision, clean, count, listed, objects_aside, resolve

PAIRWISE = 5
"""The newest so many branches are also tried with each other: at most ten pairs."""


class ForecastConflictsParameters(Parameters):
    """Which branches, against what."""

    base: Revision = Field(description="the branch they will be merged into")
    branches: list[Revision] = Field(min_length=1, max_length=40, description="the branches to try")


@dataclass(frozen=True, slots=True)
class Forecast:
    """One merge that was tried; no files means that it is clean."""

    one: str
    other: str
    files: tuple[str, ...]


class ForecastConflicts:
    """`git merge-tree` of each branch into the base, and of the newest with each other."""

    name: ClassVar = "forecast_conflicts"
    title: ClassVar = "Forecast conflicts"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = ForecastConflictsParameters

    def describe(self, parameters: ForecastConflictsParameters) -> str:
        names = listed(parameters.branches, 3)
        return f"Forecast the conflicts of {count(len(parameters.branches), 'branch', 'branches')} ({names}) with {clean(parameters.base)}"  # noqa: E501

    def run(self, job: Job) -> FlowResult:
        base = clean(job.parameters.base)
        tips = {clean(name): resolve(job, name) for name in dict.fromkeys([*job.parameters.branches])}
        target = resolve(job, job.parameters.base)
        environment = objects_aside(job)
        tried = [Forecast(name, base, _merge(job, target, sha, environment)) for name, sha in tips.items()]
        ages = {name: int(job.git.text("show", "--no-patch", "--format=%ct", sha)) for name, sha in tips.items()}
        newest = sorted(ages, key=lambda name: -ages[name])[:PAIRWISE]
        for one, other in combinations(newest, 2):
            tried.append(Forecast(one, other, _merge(job, tips[other], tips[one], environment)))
        width = max(len(f"{each.one} → {each.other}") for each in tried)
        for each in tried:
            words = f"✗ {listed(each.files, 4)}" if each.files else "✓ clean"
            job.say(f"{f'{each.one} → {each.other}':<{width}}  {words}")
        bad = [each for each in tried if each.files]
        facts = {"merges": [{"from": each.one, "into": each.other, "conflicts": list(each.files)} for each in tried]}
        if not bad:
            return FlowResult(f"No conflicts ahead in {count(len(tried), 'merge')}", facts=facts)
        words = listed([f"{each.one} with {each.other} ({count(len(each.files), 'file')})" for each in bad], 3)
        return FlowResult(f"{len(bad)} of {count(len(tried), 'merge')} would conflict: {words}", facts=facts)


def _merge(job: Job, target: str, source: str, environment: dict[str, str]) -> tuple[str, ...]:
    done = job.git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", target, source,
        environment=environment, allowed=(0, 1, 128),
    )  # fmt: skip
    if done.returncode == 128:
        reason = clean(done.stderr.decode(errors="replace"))
        raise FlowUnable(f"git cannot merge {source[:10]} into {target[:10]}: {reason[-300:]}")
    if done.returncode == 0:
        return ()
    names = done.stdout.decode(errors="replace").split("\0")[1:]
    return tuple(dict.fromkeys(clean(name) for name in names if name))
