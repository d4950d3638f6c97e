"""Flows that try a change of git in a worktree: a revert, an autosquash, a fix, stashes; and one that keeps commits."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from engine.execution.runners.flow import (
    CannotRun,
    Flow,
    FlowError,
    FlowResult,
    Job,
    Line,
    Place,
    ProjectFlow,
    Revision,
    TestId,
)
from engine.execution.runners.flows.merges import unmerged_files
from engine.execution.runners.flows.steps import (
    REHEARSAL_AUTHOR,
    abort_rebase,
    conflict_line,
    count,
    describe_check,
    in_project,
    join_names,
    last_line,
    operator_git,
    read_commit,
    reset_worktree,
    resolve_commit,
    restore_tree,
    show_diff,
)
from engine.execution.runners.flows.test_runs import (
    combine_checks,
    find_toolchains,
    run_tests,
    run_whole_suite,
    toolchain_for,
    try_whole_suite,
)
from engine.execution.runners.toolchains.installing import linked_packages
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.trees import create_branch
from engine.git import Git
from engine.git.commits import is_ancestor
from engine.git.lost_commits import Stash, is_reachable, read_stashes
from engine.git.merges import conflicted
from engine.model import CheckResult
from engine.model.adaptation import MAX_PATCH

# -- Revert one commit in a worktree, and run the tests on the result ---------------------------------------------


class RehearseRevert(ProjectFlow):
    """Reverts a commit. The result is a change set; no commit is made, no branch moves."""

    name = "rehearse_revert"
    label = "Rehearse a revert"
    place = Place.CHANGE_SET
    commit: Revision = Field(description="the commit to revert")
    test: TestId | None = Field(default=None, description="a test that fails because of it, as its tool names it")

    def describe(self) -> str:
        test = f"`{self.test}` and " if self.test else ""
        return f"Revert {self.commit[:10]} in a worktree and run {test}the whole suite" + in_project(self.project)

    def run(self, job: Job) -> FlowResult:
        culprit, head = resolve_commit(job, self.commit), resolve_commit(job, "HEAD")
        culprit_commit = read_commit(job.git, culprit)
        facts: dict[str, object] = {"commit": culprit, "test": self.test, "conflicts": []}
        if not is_ancestor(job.git, culprit, head):
            raise FlowError(f"HEAD does not contain {culprit[:10]}", "name a commit in the history of HEAD")
        for line in (culprit, f"{culprit_commit.author}, {culprit_commit.date}", culprit_commit.subject):
            job.say(line)
        show_diff(job, culprit)
        start = job.git.text("rev-parse", "HEAD")
        parents = job.git.text("rev-list", "--parents", "--no-walk", culprit).split()[1:]
        mainline = ("--mainline", "1") if len(parents) > 1 else ()
        done = job.git.run("revert", "--no-commit", *mainline, culprit, allowed=(0, 1, 128))
        conflicts = unmerged_files(job.git)
        if conflicts:
            for path, markers in conflicts:
                job.say(conflict_line(path, markers))
            reset_worktree(job, start)  # files with markers in them are nothing to land
            job.say(f"Next: run git revert {culprit[:10]} and resolve these by hand")
            names = [path for path, _ in conflicts]
            summary = f"Reverting {culprit_commit} conflicts in {count(len(names), 'file')}: {join_names(names, 4)}"
            return FlowResult(summary, sound=False, facts=facts | {"conflicts": names})
        if done.returncode:
            raise FlowError(f"git cannot revert it: {done.stderr.decode(errors='replace')[-300:]}")
        reverted = job.git.text("write-tree")
        if reverted == job.git.text("rev-parse", f"{start}^{{tree}}"):
            return FlowResult(f"Nothing to revert: no changes of {culprit_commit} are left", facts=facts)
        job.say("The revert is clean")
        result = self._run_tests_of_revert(job, str(culprit_commit), facts)
        reset_worktree(job, start)
        restore_tree(job, reverted)  # without the files that the tests wrote
        return result

    def _run_tests_of_revert(self, job: Job, name: str, facts: dict[str, object]) -> FlowResult:
        """Run the test that broke, then the whole suite."""
        test = self.test
        try:
            tools = find_toolchains(job, self.project)
            with linked_packages(job, tools):
                alone = _run_single_test(job, toolchain_for(tools, [test]), test) if test else None
                check = combine_checks(run_whole_suite(job, tools))
        except CannotRun as error:
            job.say(str(error))
            return FlowResult(f"{name} reverts cleanly; its tests could not be run: {error.message}", facts=facts)
        if test and (test in check.failing or (alone is not None and not alone.green)):
            summary = f"{name} reverts cleanly, but `{test}` still fails: {describe_check(check)}"
            return FlowResult(summary, check=check, facts=facts, full=True)
        fixes = f" and `{test}` then passes" if test else ""
        joint = "; " if check.green else "; but "
        return FlowResult(
            f"{name} reverts cleanly{fixes}{joint}{describe_check(check)}", check=check, facts=facts, full=True
        )


def _run_single_test(job: Job, tool: Toolchain, test: str) -> CheckResult | None:
    """Run one test; None where its tool cannot run it alone, or the revert removed it."""
    if not tool.runs_single_tests or not tool.existing_tests([test]):
        return None
    check = run_tests(job, tool, [test])
    job.say(f"{test}: {describe_check(check)}")
    return check


# -- Squash the `fixup!` commits in a worktree --------------------------------------------------------------------

MAX_LISTED_COMMITS = 50
"""Maximum number of resulting commits in the transcript."""

_NO_EDITOR = {"GIT_SEQUENCE_EDITOR": ":", "GIT_EDITOR": ":"}
"""git starts no program for an editor of this name."""


class RehearseAutosquash(ProjectFlow):
    """Runs `git rebase --autosquash` in a throw-away worktree; no branch moves."""

    name = "rehearse_autosquash"
    label = "Rehearse an autosquash"
    place = Place.WORKTREE
    onto: Revision | None = Field(
        default=None, description="the parent of the oldest commit that changes; without it, the whole history"
    )

    def describe(self) -> str:
        since = f"since {self.onto[:10]}" if self.onto else "of the whole history"
        return f"Rehearse squashing the fixup commits {since}"

    def run(self, job: Job) -> FlowResult:
        head = operator_git(job).text("rev-parse", "HEAD")
        onto = resolve_commit(job, self.onto) if self.onto else ""
        start = onto or "--root"
        command = f"git -c sequence.editor=: rebase -i --autosquash {onto[:10] or start}"
        reset_worktree(job, head)
        before = _commits_since(job, onto)
        done = job.git.run(
            "rebase", "--interactive", "--autosquash", "--no-verify", start,
            environment=_NO_EDITOR | REHEARSAL_AUTHOR, allowed=(0, 1, 128),
        )  # fmt: skip
        facts: dict[str, object] = {"head": head, "onto": onto, "before": len(before)}
        if done.returncode:
            stop, files = abort_rebase(job)
            for path in files:
                job.say(f"conflict  {path}")
            if not files:
                job.say(done.stderr.decode(errors="replace")[-300:])
            facts["conflicts"] = files
            return FlowResult(f"The autosquash {stop}", sound=False, facts=facts)
        after = _commits_since(job, onto)
        became = f"{count(len(before), 'commit')} would become {len(after)}"
        job.say(f"{became}:")
        _list_commits(job, job.git, after, MAX_LISTED_COMMITS)
        same = job.git.text("rev-parse", "HEAD^{tree}") == job.git.text("rev-parse", f"{head}^{{tree}}")
        facts |= {"after": after, "same_files": same}
        if not same:
            summary = f"The autosquash changes the files: {became}, but the result differs from HEAD"
            return FlowResult(summary, sound=False, facts=facts)
        check = try_whole_suite(job, self.project)
        job.say(f"To do it: `{command}`")
        tested = f", {describe_check(check)}" if check else ""
        summary = f"The autosquash is clean: {became}, with the same files at the end{tested}; to do it: `{command}`"
        return FlowResult(summary, check=check, facts=facts | {"command": command}, full=check is not None)


def _list_commits(job: Job, git: Git, commits: Sequence[str], limit: int) -> None:
    lines = [str(read_commit(git, sha)) for sha in commits[:limit]]
    job.say_list([*lines, *commits[limit:]], limit, indent="  ")


def _commits_since(job: Job, onto: str) -> list[str]:
    return job.git.text("rev-list", "HEAD", *(["--not", onto] if onto else [])).split()


# -- Apply a fix that worked before in a worktree, and run the tests that show it ---------------------------------

NEXT_AFTER_FAILED_FIX = "still_red"
"""The flow that follows a fix that did not help."""


class ApplyFix(ProjectFlow):
    """Applies a fix as a three-way merge, so that it also fits code that moved. The result is a change set. A fix that
    conflicts, or with which the tests still fail, leaves nothing and is a failure."""

    name = "apply_fix"
    label = "Apply a fix that worked before"
    place = Place.CHANGE_SET
    fix: Line = Field(description="id of the fix, as `clawpy candidates` lists it")
    tests: list[TestId] = Field(min_length=1, max_length=20, description="ids of tests that must pass with it")
    patch: str = Field(min_length=1, max_length=MAX_PATCH, description="the fix as a diff of git")

    def describe(self) -> str:
        return f"Apply the fix {self.fix} in a worktree and run {join_names(self.tests, 2)}" + in_project(self.project)

    def run(self, job: Job) -> FlowResult:
        tests = self.tests
        facts = {"fix": self.fix, "tests": tests}
        failed = facts | {"next": NEXT_AFTER_FAILED_FIX}
        start = job.git.text("rev-parse", "HEAD")
        file = job.scratch / "fix.patch"
        file.write_text(self.patch, encoding="utf-8", newline="")
        for line in self.patch.splitlines():
            job.say(line)
        done = job.git.run("apply", "--3way", "--whitespace=nowarn", str(file), allowed=(0, 1, 128))
        if done.returncode:
            conflicts = [path for path, _ in unmerged_files(job.git)]
            reset_worktree(job, start)  # files with markers in them are nothing to land
            why = last_line(done.stderr.decode(errors="replace"))
            if conflicts:
                why = f"it conflicts in {join_names(conflicts, 4)}"
            return FlowResult(f"The fix does not apply: {why}", sound=False, facts=failed)
        fixed = job.git.text("write-tree")
        if fixed == job.git.text("rev-parse", f"{start}^{{tree}}"):
            summary = "The files already have this fix, so the failure has another cause"
            return FlowResult(summary, sound=False, facts=failed)
        job.say("The fix applies")
        tool = toolchain_for(find_toolchains(job, self.project), tests)
        check = run_tests(job, tool, tests if tool.runs_single_tests else ())
        reset_worktree(job, start)
        if set(tests) & set(check.failing) or not check.passed:
            outcome = f"The fix applies, but {join_names(tests, 2)} still fails, so the fix is discarded"
            return FlowResult(f"{outcome}: {describe_check(check)}", sound=False, facts=failed)
        restore_tree(job, fixed)  # without the files that the tests wrote
        return FlowResult(
            f"The fix applies and {join_names(tests, 2)} passes: {describe_check(check)}", check=check, facts=facts
        )


# -- Show the contents of stashes, and whether they still apply ---------------------------------------------------

MAX_STASH_FILES = 20
"""Maximum number of files of a stash in the transcript."""


class LookAtStash(Flow):
    """Applies each stash to HEAD in a throw-away worktree; the stashes stay as they are."""

    name = "look_at_stash"
    label = "Look at stashes"
    place = Place.WORKTREE
    stashes: list[Revision] = Field(min_length=1, max_length=10, description="the stashes, as ids of their commits")

    def describe(self) -> str:
        return f"Look at {count(len(self.stashes), 'old stash', 'old stashes')}: does it still apply?"

    def run(self, job: Job) -> FlowResult:
        git = operator_git(job)
        commits = dict.fromkeys(self.stashes)
        stashes = [stash for stash in read_stashes(git) if stash.commit in commits]
        head = git.text("rev-parse", "HEAD")
        if not stashes:
            return FlowResult("None of these stashes exists any more")
        states = {stash.name: self._try_stash(job, stash, head) for stash in stashes}
        reset_worktree(job, head)
        gone = [stash for stash in stashes if states[stash.name] == "already in HEAD"]
        if gone:
            # Dropping one renumbers those above it: the highest number goes first.
            commands = " && ".join(f"git stash drop {stash.name}" for stash in reversed(gone))
            job.say(f"To drop the stashes that are already in HEAD: `{commands}`")
        summary = "; ".join(f"{stash.name} ({stash.words[:40]}): {states[stash.name]}" for stash in stashes)
        return FlowResult(summary, facts={"stashes": states})

    def _try_stash(self, job: Job, stash: Stash, head: str) -> str:
        where = f"on {stash.branch}" if stash.branch else "on a detached HEAD"
        job.say(f"{stash.name} of {stash.at:%F}, {where}: {stash.words}")
        job.say_list(stash.files, MAX_STASH_FILES, indent="  ")
        reset_worktree(job, head)
        # As a commit on what it was made on: `git stash apply` itself would look into nested repositories.
        job.git.run(
            "cherry-pick", "--no-commit", "--mainline", "1", stash.commit,
            environment=REHEARSAL_AUTHOR, allowed=(0, 1),
        )  # fmt: skip
        conflicts = list(conflicted(job.git))
        existing, added = self._compare_untracked(job, stash, head)
        if conflicts:
            state = f"conflicts in {join_names(conflicts, 3)}"
        elif existing:
            state = f"does not apply: {join_names(existing, 3)} already {'exists' if len(existing) == 1 else 'exist'}"
        elif not added and not job.git.text("status", "--porcelain"):
            state = "already in HEAD"
        else:
            state = "still applies"
        job.say(f"  {state}")
        job.say(f"  To apply: `git stash apply {stash.name}`; to drop: `git stash drop {stash.name}`")
        return state

    def _compare_untracked(self, job: Job, stash: Stash, head: str) -> tuple[list[str], list[str]]:
        """The untracked files in a stash that HEAD has with other contents, and those that it does not have."""
        existing, added = [], []
        for entry in job.git.items("ls-tree", "-r", "-z", f"{stash.commit}^3", allowed=(0, 128)):
            about, _, path = entry.partition("\t")
            present = job.git.text("rev-parse", "--verify", "--quiet", f"{head}:{path}", allowed=(0, 1))
            if not present:
                added.append(path)
            elif present != about.split()[2]:
                existing.append(path)
        return existing, added


# -- Make branches for commits that are on no branch, before git deletes them -------------------------------------

MAX_KEPT_COMMITS = 20
"""Maximum number of commits of a branch in the transcript."""


class KeepCommits(Flow):
    """Makes `rescued-…` branches and changes nothing else."""

    name = "keep_commits"
    label = "Keep commits"
    place = Place.BRANCH
    commits: list[Revision] = Field(min_length=1, max_length=5, description="the newest commit of each line to keep")

    def describe(self) -> str:
        return f"Make a branch for the commits that are on no branch: {join_names(sha[:10] for sha in self.commits)}"

    def run(self, job: Job) -> FlowResult:
        git = operator_git(job)
        branches: dict[str, int] = {}
        for revision in dict.fromkeys(self.commits):
            tip = resolve_commit(job, revision)
            if is_reachable(git, tip):
                job.say(f"A branch or tag has {read_commit(git, tip)} already")
                continue
            unreachable = git.text("rev-list", tip, "--not", "--branches", "--remotes", "--tags").split()
            name = f"rescued-{tip[:10]}"
            create_branch(git, name, tip)
            branches[name] = len(unreachable)
            job.say(f"{name} keeps {count(len(unreachable), 'commit')}:")
            _list_commits(job, git, unreachable, MAX_KEPT_COMMITS)
            job.say(f"To work on them: `git switch {name}`. To bring them here: `git merge {name}`.")
            job.say(f"To remove the branch: `git branch -D {name}`")
        facts = {"branches": branches, "undo": [f"git branch -D {name}" for name in branches]}
        if not branches:
            return FlowResult("Nothing to keep: all of them are already on a branch or tag", facts=facts)
        names = " and ".join(f"{name} ({count(number, 'commit')})" for name, number in branches.items())
        undo = f"git branch -D {' '.join(branches)}"
        return FlowResult(f"Made {names}; to remove it: `{undo}`", facts=facts)
