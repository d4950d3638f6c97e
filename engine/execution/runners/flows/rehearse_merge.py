"""Merge one branch into another where nobody sees it, and run the tests on what comes out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import (
    IDENTITY,
    ProjectParameters,
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
from engine.git import Git
from engine.model import CheckResult
from engine.plain_files import read_plain

LARGEST = 50_000_000
"""Bytes of a file in conflict; nobody counts the places in a larger one."""

MOST_REBASED = 200
"""A rebase of more commits than this is not tried."""

BLAME_LIMIT = 50
"""With more failing tests than this nobody asks each side on its own."""


class RehearseMergeParameters(ProjectParameters):
    """Which branch into which."""

    source: Revision = Field(description="the branch to merge")
    target: Revision = Field(description="the branch to merge into")
    rebase: bool = Field(default=False, description="also check whether a rebase of the target would be clean")


class RehearseMerge:
    """The merge happens in a throw-away worktree; no branch moves."""

    name: ClassVar = "rehearse_merge"
    title: ClassVar = "Rehearse a merge"
    place: ClassVar = Place.WORKTREE
    parameters: ClassVar[type[BaseModel]] = RehearseMergeParameters

    def describe(self, parameters: RehearseMergeParameters) -> str:
        into = f"{clean(parameters.source)} into {clean(parameters.target)}"
        where = in_project(parameters.project)
        return f"Rehearse merging {into}{f', with the tests{where}' if where else ''}"

    def run(self, job: Job) -> FlowResult:
        names = clean(job.parameters.source), clean(job.parameters.target)
        source, target = resolve(job, job.parameters.source), resolve(job, job.parameters.target)
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
                for one in touched(job.git, path, f"{base}..{tip}" if base else tip):
                    job.say(f"          {name}: {one}")
        summary = f"Merging {names[0]} into {names[1]} conflicts in {count(len(conflicts), 'file')}: " + listed(
            [path for path, _ in conflicts], 4
        )
        return FlowResult(summary, facts=facts | {"conflicts": [clean(path) for path, _ in conflicts]})

    def _tested(
        self, job: Job, names: tuple[str, str], source: str, target: str, facts: dict[str, object]
    ) -> FlowResult:
        try:
            tools = toolchains(job)
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
        if not job.parameters.rebase:
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
