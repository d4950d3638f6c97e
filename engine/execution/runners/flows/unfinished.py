"""Flows about work that you left unfinished: a merge, a rebase or another operation of git, and old stashes.

They try in a copy how it ends, and say how to go on. The operation and the stashes stay as they are.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job, ProjectFlow, Revision
from engine.execution.runners.flows.git_steps import (
    find_unmerged_files,
    make_operator_git,
    quote_paths,
    read_commit,
    report_conflicts,
    reset_worktree,
    try_git,
)
from engine.execution.runners.flows.suite_runs import describe_check, try_whole_suite
from engine.frozen import frozen
from engine.git import LITERAL_PATHS
from engine.git.history import Stash, read_stashes
from engine.git.unfinished import (
    CONFLICT_OPERATION,
    GitOperation,
    IndexStage,
    StagedVersions,
    read_conflicted_files,
    read_operation,
)
from engine.text import find_last_error_line
from engine.wording import count, join_names

# -- an operation of git

MAX_LISTED_FILES = 50
"""Maximum number of resolved files in the transcript."""

_SUBMODULE = "160000"
"""The mode of an entry that is a submodule."""

_SIDE_WORDS = {IndexStage.OURS: "ours", IndexStage.THEIRS: "theirs"}
"""The sides of a conflict, as git's options and sentences name them."""


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
        return FlowResult(summary, has_problem=True)

    def _test_each_side(self, job: Job, operation: GitOperation, stages: dict[str, StagedVersions]) -> str:
        """Run the tests with all conflicts resolved to each side. Returns the outcomes as the rest of a sentence."""
        outcomes = ""
        theirs = operation.rebased or (operation.theirs.name if operation.theirs else "")
        for side, name in ((IndexStage.OURS, operation.ours.name), (IndexStage.THEIRS, theirs)):
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


def _resolve_file(job: Job, path: str, versions: StagedVersions, side: IndexStage) -> None:
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
    both_have_it = {IndexStage.OURS, IndexStage.THEIRS} <= versions.keys()
    have_one_mode = len({each.mode for each in versions.values()}) == 1
    merged = _merge_lines(job, versions, side) if both_have_it and have_one_mode else None
    if merged is not None:
        blob = job.git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=merged)
    entry = f"{version.mode} {blob}\t".encode() + _encode_path(path)
    job.git.run("update-index", "--add", "--replace", "-z", "--index-info", stdin=entry)
    job.git.run("checkout-index", "--force", "-z", "--stdin", stdin=_encode_path(path))


def _merge_lines(job: Job, versions: StagedVersions, side: IndexStage) -> bytes | None:
    """The lines of a file, of which those that both sides changed are those of one side. None if its lines cannot be
    compared, as those of a binary file."""
    files: list[str] = []
    for stage in (IndexStage.OURS, IndexStage.COMMON, IndexStage.THEIRS):
        file = job.scratch / f"version-{stage}"
        file.write_bytes(job.git.output("cat-file", "blob", versions[stage].blob) if stage in versions else b"")
        files.append(str(file))
    merged = job.git.run("merge-file", "-p", "--quiet", f"--{_SIDE_WORDS[side]}", *files, allowed=range(256))
    return None if merged.returncode else merged.stdout


def _encode_path(path: str) -> bytes:
    return path.encode(errors="surrogateescape") + b"\0"


# -- old stashes

MAX_STASH_FILES = 20
"""Maximum number of files of a stash in the transcript."""


class LookAtStash(Flow):
    """Applies each stash to HEAD in a throw-away worktree; the stashes stay as they are."""

    name = "look_at_stash"
    label = "Look at stashes"
    work = "review"
    place = Place.WORKTREE
    stashes: list[Revision] = Field(min_length=1, max_length=10, description="the stashes, as ids of their commits")

    def describe(self) -> str:
        return f"Look at {count(len(self.stashes), 'old stash')}: does it still apply?"

    def run(self, job: Job) -> FlowResult:
        git = make_operator_git(job)
        head = git.text("rev-parse", "HEAD")
        stashes = [stash for stash in read_stashes(git) if stash.commit in self.stashes]
        if not stashes:
            return FlowResult("None of these stashes exists any more")
        trials: dict[str, StashTrial] = {}
        for stash in stashes:
            where = f"on {stash.branch}" if stash.branch else "on a detached HEAD"
            job.say(f"{stash.name} of {stash.at:%F}, {where}: {stash.message}")
            job.say_list(stash.files, MAX_STASH_FILES, indent="  ")
            trials[stash.name] = trial = _try_stash(job, stash, head)
            job.say(f"  {trial.outcome}")
            job.say(f"  To apply: `git stash apply {stash.name}`; to drop: `git stash drop {stash.name}`")
        reset_worktree(job, head)
        # Dropping a stash renumbers those with higher numbers, so the highest number is dropped first.
        needless = [name for name, trial in reversed(trials.items()) if trial.is_in_head]
        if needless:
            commands = " && ".join(f"git stash drop {name}" for name in needless)
            job.say(f"To drop the stashes that are already in HEAD: `{commands}`")
        outcomes = {name: trial.outcome for name, trial in trials.items()}
        summary = "; ".join(f"{stash.name} ({stash.message[:40]}): {outcomes[stash.name]}" for stash in stashes)
        return FlowResult(summary)


@frozen
class StashTrial:
    """What came of applying a stash."""

    outcome: str
    """In words."""
    is_in_head: bool = False
    """Whether HEAD has all of it, so that it can be dropped."""


def _try_stash(job: Job, stash: Stash, head: str) -> StashTrial:
    """Apply a stash to `head` in the worktree."""
    reset_worktree(job, head)
    # The stash is picked like a commit, because `git stash apply` would look into nested repositories.
    applied = try_git(job, "cherry-pick", "--no-commit", "--mainline", "1", stash.commit)
    if applied.error:
        raise WorkFailed(f"git cannot try {stash.name}: {find_last_error_line(applied.error)}")
    if applied.conflicts:
        return StashTrial(f"conflicts in {join_names(applied.conflicts, 3)}")
    untracked = _read_untracked(job, stash)
    in_head = {
        path: job.git.text("rev-parse", "--verify", "--quiet", f"{head}:{path}", allowed=(0, 1)) for path in untracked
    }
    different = [path for path, blob in untracked.items() if in_head[path] not in ("", blob)]
    if different:
        return StashTrial(f"does not apply: already there: {join_names(different, 3)}")
    if untracked == in_head and not job.git.text("status", "--porcelain"):
        return StashTrial("already in HEAD", is_in_head=True)
    return StashTrial("still applies")


def _read_untracked(job: Job, stash: Stash) -> dict[str, str]:
    """The untracked files of a stash: the ids of their contents by path."""
    blobs = {}
    for entry in job.git.items("ls-tree", "-r", "-z", f"{stash.commit}^3", allowed=(0, 128)):
        fields, _, path = entry.partition("\t")
        blobs[path] = fields.split()[2]
    return blobs
