"""The flow that finishes an unfinished merge, rebase, cherry-pick or revert with each side, or reports on a bisect."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from engine.execution.runners.flow import FlowResult, Job, Place, ProjectFlow
from engine.execution.runners.flows.steps import (
    LITERAL_PATHS,
    conflict_line,
    count,
    describe_check,
    join_names,
    operator_git,
    read_commit,
    recent_commits,
    reset_worktree,
)
from engine.execution.runners.flows.test_runs import try_whole_suite
from engine.git import Git
from engine.git.merges import CONFLICT, Operation, Stage, conflicted, read_operation
from engine.model import CheckResult

SIDES: tuple[tuple[Literal["ours", "theirs"], int], ...] = (("ours", 2), ("theirs", 3))

MAX_LISTED_FILES = 50
"""Maximum number of files in conflict in the transcript."""

_SUBMODULE = "160000"

_LINK = "120000"


class UnfinishedOperation(ProjectFlow):
    """Works in a copy of the tree; the operation itself stays where it is."""

    name = "unfinished_operation"
    label = "Rehearse an unfinished operation"
    place = Place.WORKTREE
    operation: Literal["merge", "rebase", "cherry-pick", "revert", "am", "bisect", "conflict"] = Field(
        default="merge", description="what is unfinished"
    )

    def describe(self) -> str:
        if self.operation == "bisect":
            return "Say what is left of the unfinished bisect"
        return f"Rehearse both sides of the unfinished {operation_label(self.operation)}"

    def run(self, job: Job) -> FlowResult:
        git = operator_git(job)
        operation = read_operation(git)
        if operation is None:
            return FlowResult("Nothing is unfinished")
        if operation.name == "bisect":
            return _report_bisect(job, operation)
        stages = conflicted(git)
        conflicts = {path: _count_conflicts(job, git, stages[path]) for path in operation.unmerged}
        _report_files(job, git, operation, conflicts)
        checks = _test_each_side(job, self.project, operation, stages)
        go_on, give_up = _next_commands(operation)
        job.say(f"To go on: {go_on}")
        job.say(f"To give up: {give_up}")
        facts = {
            "operation": operation.name,
            "conflicts": {path: conflicts[path] for path in operation.unmerged},
            "resolved": operation.resolved,
            "tests": {side: None if check is None else describe_check(check) for side, check in checks.items()},
            "go_on": go_on,
            "give_up": give_up,
        }
        if not operation.unmerged:
            check = checks["present"]
            tests = (
                f"the tests in the present state: {describe_check(check)}" if check else "its tests could not be run"
            )
            summary = f"No conflict is left in the {operation_label(operation.name)}; {tests}. To go on: {go_on}"
            return FlowResult(summary, check=check, facts=facts, full=check is not None)
        results = [
            f"{_side_name(operation, side)}: {describe_check(check)}"
            for side, check in checks.items()
            if check is not None
        ]
        tests = f"; with {'; with '.join(results)}" if results else "; its tests could not be run"
        total = sum(conflicts.values())
        where = f"{count(total, 'place')} of " if total else ""
        return FlowResult(
            f"The {operation_label(operation.name)} conflicts in {where}{join_names(operation.unmerged, 3)}{tests}",
            sound=False,
            facts=facts,
        )


def operation_label(operation: str) -> str:
    """The name of the operation in a sentence."""
    return {CONFLICT: "merge of files", "am": "`git am`"}.get(operation, operation)


def _report_files(job: Job, git: Git, operation: Operation, conflicts: dict[str, int]) -> None:
    ours = f"{operation.ours.name} “{operation.ours.subject}”"
    job.say(f"Ours: {ours}")
    if operation.theirs is not None:
        job.say(f"Theirs: {operation.theirs.name} “{operation.theirs.subject}”")
    for path in operation.files[:MAX_LISTED_FILES]:
        if path not in conflicts:
            job.say(f"resolved  {path}")
            continue
        job.say(conflict_line(path, conflicts[path]))
        for name, span in _commit_ranges(operation):
            for line in recent_commits(git, path, span):
                job.say(f"          {name}: {line}")
    if len(operation.files) > MAX_LISTED_FILES:
        job.say(f"and {len(operation.files) - MAX_LISTED_FILES} more files")
    if operation.remaining:
        job.say(f"{count(len(operation.remaining), 'commit')} to apply after this one")


def _commit_ranges(operation: Operation) -> list[tuple[str, str]]:
    """The commits of each side since they parted: name and range for git."""
    theirs = operation.theirs
    if theirs is None or not operation.base:
        return []
    ours = (operation.ours.name, f"{operation.base}..{operation.ours.commit}")
    if operation.name == "revert":
        return [ours, (f"undone by the revert of {theirs.name}", f"{theirs.commit}^!")]
    if operation.name == "merge":
        return [ours, (theirs.name, f"{operation.base}..{theirs.commit}")]
    return [ours, (operation.rebased or theirs.name, f"{theirs.commit}^!")]


def _next_commands(operation: Operation) -> tuple[str, str]:
    names = " ".join(shlex.quote(path) for path in operation.unmerged[:5])
    more = " …" if len(operation.unmerged) > 5 else ""
    before = f"fix {join_names(operation.unmerged, 3)}, `git add -- {names}{more}`, then " if operation.unmerged else ""
    return f"{before}`{operation.continue_command}`", f"`{operation.abort_command}`"


def _side_name(operation: Operation, side: str) -> str:
    """The name of a side in a sentence, with its branch where it has one."""
    if side == "ours":
        return f"ours ({operation.ours.name})"
    theirs = operation.theirs
    return f"theirs ({operation.rebased or theirs.name})" if theirs else "theirs"


def _report_bisect(job: Job, operation: Operation) -> FlowResult:
    git, (bad, good) = operator_git(job), operation.terms
    job.say(f"Checked out: {read_commit(git, operation.ours.commit)}")
    job.say(f"Known to be {bad}: {read_commit(git, operation.bad) if operation.bad else 'none yet'}")
    for sha in operation.good:
        job.say(f"Known to be {good}: {read_commit(git, sha)}")
    if not operation.good:
        job.say(f"Known to be {good}: none yet")
    commands = [f"git bisect {good}", f"git bisect {bad}", "git bisect skip", operation.abort_command]
    job.say(
        f"Test what is checked out, then `{commands[0]}` or `{commands[1]}`; `{commands[2]}` if it cannot be tested."
    )
    job.say(f"To give up: `{operation.abort_command}`")
    facts = {"operation": "bisect", "bad": operation.bad, "good": list(operation.good), "left": operation.suspects}
    if not operation.bad or not operation.good:
        missing = " and ".join(
            f"`git bisect {term} COMMIT`"
            for term, commit in ((bad, operation.bad), (good, operation.good))
            if not commit
        )
        return FlowResult(f"The bisect waits for {missing}; to give up: `{operation.abort_command}`", facts=facts)
    steps = max(0, operation.suspects.bit_length() - 1)
    abort = operation.abort_command
    summary = (
        f"The bisect has {count(operation.suspects, 'revision')} left, about {count(steps, 'step')}; test "
        f"{operation.ours.commit[:10]}, then `{commands[0]}` or `{commands[1]}`; to give up: `{abort}`"
    )
    return FlowResult(summary, facts=facts | {"commands": commands})


def _test_each_side(
    job: Job, project: str, operation: Operation, stages: dict[str, dict[int, Stage]]
) -> dict[str, CheckResult | None]:
    """The result of the tests with each side, or with the present files where there is no conflict any more."""
    start = job.git.text("rev-parse", "HEAD")
    if not operation.unmerged:
        return {"present": try_whole_suite(job, project)}
    checks: dict[str, CheckResult | None] = {}
    for side, stage in SIDES:
        reset_worktree(job, start)
        job.say(f"With all conflicts taken from {_side_name(operation, side)}:")
        for path, versions in stages.items():
            _resolve_file(job, path, versions, side, stage)
        _apply_remaining_commits(job, operation, side, stage)
        checks[side] = try_whole_suite(job, project)
        if checks[side] is None:
            return dict.fromkeys(("ours", "theirs"))  # the tests of the other side cannot run either
    reset_worktree(job, start)
    return checks


def _apply_remaining_commits(job: Job, operation: Operation, side: str, stage: int) -> None:
    """Apply the commits that a rebase, or a cherry-pick of several, would apply next."""
    if not operation.remaining or operation.name == "am":
        return
    if not operation.simple:
        job.say(
            f"{count(len(operation.remaining), 'commit')} after this one are left out: the list holds more than commits"
        )
        return
    verb = "revert" if operation.name == "revert" else "cherry-pick"
    for number, sha in enumerate(operation.remaining):
        done = job.git.run(verb, "--no-commit", "-X", side, sha, allowed=(0, 1, 128))
        unmerged = conflicted(job.git)
        if done.returncode and not unmerged:
            job.say(f"{count(len(operation.remaining) - number, 'commit')} after this one could not be applied")
            return
        for path, versions in unmerged.items():
            _resolve_file(job, path, versions, side, stage)


def _resolve_file(job: Job, path: str, versions: dict[int, Stage], side: str, stage: int) -> None:
    """Put one side's version of a file in conflict into the worktree: its lines where both sides changed the same, the
    whole file where lines cannot be compared; remove the file where that side removed it."""
    if any(mode == _SUBMODULE for mode, _ in versions.values()):
        job.say(f"{path} is a submodule and stays as it is")
        return
    version = versions.get(stage)
    if version is None:
        job.git.run("rm", "--quiet", "--force", "--ignore-unmatch", "--", path, environment=LITERAL_PATHS)
        return
    mode, oid = version
    if {2, 3} <= versions.keys() and all(kind != _LINK for kind, _ in versions.values()):
        files = _write_versions(job, job.git, versions)
        merged = job.git.run("merge-file", "-p", "--quiet", f"--{side}", *files, allowed=(*range(128), 255))
        if merged.returncode == 0:
            oid = job.git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=merged.stdout)
    job.git.run(
        "update-index", "--add", "--replace", "-z", "--index-info", stdin=f"{mode} {oid}\t".encode() + _raw_path(path)
    )
    job.git.run("checkout-index", "--force", "-z", "--stdin", stdin=_raw_path(path))


def _count_conflicts(job: Job, git: Git, versions: dict[int, Stage]) -> int:
    """The number of places in which both sides changed the same lines; 0 when the whole file is in conflict."""
    if not {2, 3} <= versions.keys() or any(mode in (_SUBMODULE, _LINK) for mode, _ in versions.values()):
        return 0
    done = git.run("merge-file", "-p", "--quiet", *_write_versions(job, git, versions), allowed=(*range(128), 255))
    return done.returncode if done.returncode < 128 else 0


def _write_versions(job: Job, git: Git, versions: dict[int, Stage]) -> Sequence[str]:
    """Write our version, the common one (empty if there is none) and theirs to files, in `git merge-file`'s order."""
    files: list[Path] = []
    for stage in (2, 1, 3):
        file = job.scratch / f"version-{stage}"
        file.write_bytes(git.output("cat-file", "blob", versions[stage][1]) if stage in versions else b"")
        files.append(file)
    return [str(file) for file in files]


def _raw_path(path: str) -> bytes:
    return path.encode(errors="surrogateescape") + b"\0"
