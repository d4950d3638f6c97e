"""Flows that try a change of git in a worktree and run the tests on it: a merge, several merges in the best order, a
revert, an autosquash, a fix that helped before, stashes; and one that keeps commits."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import combinations, permutations

from pydantic import Field

from engine.execution.runners.flow import (
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
from engine.execution.runners.flows.steps import (
    REHEARSAL_AUTHOR,
    conflict_line,
    count,
    describe_check,
    in_project,
    join_names,
    last_line,
    operator_git,
    read_commit,
    recent_commits,
    reset_worktree,
    resolve_commit,
    restore_tree,
    show_diff,
    try_git,
)
from engine.execution.runners.flows.test_runs import find_toolchains, run_tests, toolchain_for, try_whole_suite
from engine.execution.trees import create_branch
from engine.git import Git, GitError
from engine.git.commits import is_ancestor
from engine.git.lost_commits import Stash, is_reachable, read_stashes
from engine.git.merges import MAX_COLLIDING, merge_trees, separate_objects
from engine.model.adaptation import MAX_PATCH

# -- Merge one branch into another, and run the tests on the result -----------------------------------------------

MAX_REBASED_COMMITS = 200
"""A rebase of more commits than this is not tried."""


class RehearseMerge(ProjectFlow):
    """Merges in a throw-away worktree; no branch moves."""

    name = "rehearse_merge"
    label = "Rehearse a merge"
    place = Place.WORKTREE
    source: Revision = Field(description="the branch to merge")
    target: Revision = Field(description="the branch to merge into")
    rebase: bool = Field(default=False, description="also check whether a rebase of the target would be clean")

    def describe(self) -> str:
        where = f", with the tests{in_project(self.project)}" if self.project else ""
        return f"Rehearse merging {self.source} into {self.target}{where}"

    def run(self, job: Job) -> FlowResult:
        sides = {self.target: resolve_commit(job, self.target), self.source: resolve_commit(job, self.source)}
        target, source = sides[self.target], sides[self.source]
        facts: dict[str, object] = {"source": source, "target": target, "conflicts": []}
        if is_ancestor(job.git, source, target):
            return FlowResult(f"Nothing to merge: {self.target} already has all of {self.source}", facts=facts)
        reset_worktree(job, target)
        for name, commit in sides.items():
            job.say(f"{name} is at {read_commit(job.git, commit)}")
        merged = try_git(job, "merge", "--no-commit", "--no-ff", "--no-verify", source)
        check = None
        if merged.conflicts:
            base = job.git.text("merge-base", source, target, allowed=(0, 1))
            for path, places in merged.conflicts.items():
                job.say(conflict_line(path, places))
                for name, tip in sides.items():
                    for line in recent_commits(job.git, path, f"{base}..{tip}" if base else tip):
                        job.say(f"          {name}: {line}")
            facts["conflicts"] = [*merged.conflicts]
            summary = f"Merging {self.source} into {self.target} conflicts in {merged.files}"
        elif merged.error:
            raise FlowError(f"git cannot merge them: {merged.error}")
        else:
            job.say("The merge is clean")
            check, outcome = try_whole_suite(job, self.project)
            summary = f"{self.source} merges cleanly into {self.target}{outcome}"
        if self.rebase:
            facts["rebase"] = rebase = self._try_rebase(job, source, target)
            facts["commands"] = commands = [f"git {verb} {shlex.quote(self.source)}" for verb in ("merge", "rebase")]
            job.say(f"On {self.target}: `{commands[0]}`, or `{commands[1]}`")
            summary = f"{summary}; {rebase}"
        reset_worktree(job, target)
        if merged.tree:
            restore_tree(job, merged.tree)  # the result is recorded for the state of the worktree
        return FlowResult(summary, check=check, sound=not merged.conflicts, facts=facts, full=check is not None)

    def _try_rebase(self, job: Job, source: str, target: str) -> str:
        """The outcome of a rebase of the target, in words."""
        own = int(job.git.text("rev-list", "--count", f"{source}..{target}"))
        merges = job.git.text("rev-list", "--count", "--merges", f"{source}..{target}")
        if own > MAX_REBASED_COMMITS or merges != "0":
            return "a rebase was not tried: " + ("the commits include merges" if merges != "0" else f"{own} commits")
        reset_worktree(job, target)
        rebased = try_git(job, "rebase", "--no-autosquash", source)
        outcome = rebased.stop or f"of {count(own, 'commit')} would be clean"
        job.say(f"A rebase {outcome}")
        return f"a rebase {outcome}"


# -- Find the branches that will conflict, by git's own merge without touching a file -----------------------------

MAX_PAIRED_BRANCHES = 5
"""Number of newest branches that are also tried with each other: ten pairs."""


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
        tips = {name: resolve_commit(job, name) for name in dict.fromkeys([self.base, *self.branches])}
        age = {name: int(job.git.text("show", "--no-patch", "--format=%ct", tips[name])) for name in self.branches}
        newest = sorted(age, key=lambda name: -age[name])[:MAX_PAIRED_BRANCHES]
        pairs = [(branch, self.base) for branch in age] + list(combinations(newest, 2))
        tried = {pair: _conflicting_files(job, tips[pair[1]], tips[pair[0]]) for pair in pairs}
        width = max(len(f"{branch} → {into}") for branch, into in tried)
        for (branch, into), files in tried.items():
            job.say(f"{f'{branch} → {into}':<{width}}  " + (f"✗ {join_names(files, 4)}" if files else "✓ clean"))
        merges = [{"from": source, "into": into, "conflicts": list(files)} for (source, into), files in tried.items()]
        facts: dict[str, object] = {"merges": merges}
        conflicting = {pair: files for pair, files in tried.items() if files}
        if not conflicting:
            return FlowResult(f"No conflicts ahead in {count(len(tried), 'merge')}", facts=facts)
        colliding = [name for name in newest if any(name in pair for pair in conflicting)][:MAX_COLLIDING]
        if len(colliding) < 2:
            names = [
                f"{source} with {into} ({count(len(files), 'file')})" for (source, into), files in conflicting.items()
            ]
            summary = f"{len(conflicting)} of {count(len(tried), 'merge')} would conflict: {join_names(names, 3)}"
            return FlowResult(summary, sound=False, facts=facts)
        oldest_first = sorted(colliding, key=lambda name: age[name])
        orders = _try_orders(job, tips[self.base], {name: tips[name] for name in oldest_first})
        costs = {names: sum(map(len, conflicts)) for names, conflicts in orders.items()}
        best = min(costs, key=lambda names: costs[names])  # the first among equals merges the oldest branch first
        for place, (name, files) in enumerate(zip(best, orders[best], strict=True), 1):
            job.say(
                f"{place}. {name} into {self.base}: " + (f"conflicts in {join_names(files, 4)}" if files else "clean")
            )
        summary = f"Merge {', then '.join(best)}: {count(costs[best], 'file')} in conflict"
        worst = max(costs.values())
        summary += (
            f"; the worst order has {worst}" if worst > costs[best] else " in any order, so the oldest goes first"
        )
        return FlowResult(summary, sound=False, facts=facts | {"order": list(best)})


def _try_orders(job: Job, target: str, tips: dict[str, str]) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """For each order of merging the branches, the files in conflict when each branch's turn comes.

    A file in conflict stays in the merged tree with its marks, so a later change to these lines conflicts again.
    """
    aside = separate_objects(job.git, job.scratch) | REHEARSAL_AUTHOR
    merged: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {(): (target, ())}
    orders = {}
    for names in permutations(tips):
        begins = [names[:end] for end in range(1, len(names) + 1)]
        for done in begins:
            if done not in merged:
                onto, theirs = merged[done[:-1]][0], tips[done[-1]]
                tree, files = merge_trees(job.git, onto, theirs, aside)
                parents = ("-p", onto, "-p", theirs)
                merged[done] = job.git.text("commit-tree", tree, *parents, "-m", "tried", environment=aside), files
        orders[names] = [merged[done][1] for done in begins]
    return orders


def _conflicting_files(job: Job, target: str, source: str) -> tuple[str, ...]:
    try:
        return merge_trees(job.git, target, source, separate_objects(job.git, job.scratch))[1]
    except GitError as error:
        raise FlowError(f"git cannot merge {source[:10]} into {target[:10]}: {error.stderr[-300:]}") from error


# -- Revert one commit, and run the tests on the result -----------------------------------------------------------


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
        name = str(read_commit(job.git, culprit))
        facts: dict[str, object] = {"commit": culprit, "test": self.test, "conflicts": []}
        if not is_ancestor(job.git, culprit, head):
            raise FlowError(f"HEAD does not contain {culprit[:10]}", "name a commit in the history of HEAD")
        show_diff(job, culprit)
        start = job.git.text("rev-parse", "HEAD")
        parents = job.git.text("rev-list", "--parents", "--no-walk", culprit).split()[1:]
        mainline = ("--mainline", "1") if len(parents) > 1 else ()
        reverted = try_git(job, "revert", "--no-commit", *mainline, culprit)
        if reverted.conflicts:
            for path, places in reverted.conflicts.items():
                job.say(conflict_line(path, places))
            reset_worktree(job, start)  # files with markers in them are nothing to land
            job.say(f"Next: run git revert {culprit[:10]} and resolve these by hand")
            facts["conflicts"] = [*reverted.conflicts]
            return FlowResult(f"Reverting {name} conflicts in {reverted.files}", sound=False, facts=facts)
        if reverted.error:
            raise FlowError(f"git cannot revert it: {reverted.error}")
        if reverted.tree == job.git.text("rev-parse", f"{start}^{{tree}}"):
            return FlowResult(f"Nothing to revert: no changes of {name} are left", facts=facts)
        job.say("The revert is clean")
        check, outcome = try_whole_suite(job, self.project)
        if self.test and check is not None:
            failed = self.test in check.failing
            outcome = (
                f"{', but' if failed else ' and'} `{self.test}` {'still fails' if failed else 'then passes'}{outcome}"
            )
        reset_worktree(job, start)
        restore_tree(job, reverted.tree)  # without the files that the tests wrote
        return FlowResult(f"{name} reverts cleanly{outcome}", check=check, facts=facts, full=check is not None)


# -- Squash the `fixup!` commits ----------------------------------------------------------------------------------

MAX_LISTED_COMMITS = 50
"""Maximum number of commits in the transcript."""

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
        command = f"git -c sequence.editor=: rebase -i --autosquash {onto[:10] or '--root'}"
        reset_worktree(job, head)
        before = _commits_since(job, onto)
        facts: dict[str, object] = {"head": head, "onto": onto, "before": len(before)}
        squashed = try_git(
            job, "rebase", "--interactive", "--autosquash", "--no-verify", onto or "--root", environment=_NO_EDITOR
        )
        if squashed.stop:
            for path in squashed.conflicts:
                job.say(f"conflict  {path}")
            job.say(squashed.error)
            return FlowResult(
                f"The autosquash {squashed.stop}", sound=False, facts=facts | {"conflicts": [*squashed.conflicts]}
            )
        after = _commits_since(job, onto)
        became = f"{count(len(before), 'commit')} would become {len(after)}"
        job.say(f"{became}:")
        _list_commits(job, job.git, after)
        same = job.git.text("rev-parse", "HEAD^{tree}") == job.git.text("rev-parse", f"{head}^{{tree}}")
        facts |= {"after": after, "same_files": same}
        if not same:
            summary = f"The autosquash changes the files: {became}, but the result differs from HEAD"
            return FlowResult(summary, sound=False, facts=facts)
        check, outcome = try_whole_suite(job, self.project)
        summary = f"The autosquash is clean: {became}, with the same files at the end{outcome}; to do it: `{command}`"
        return FlowResult(summary, check=check, facts=facts | {"command": command}, full=check is not None)


def _list_commits(job: Job, git: Git, commits: Sequence[str]) -> None:
    lines = [str(read_commit(git, sha)) for sha in commits[:MAX_LISTED_COMMITS]]
    job.say_list([*lines, *commits[MAX_LISTED_COMMITS:]], MAX_LISTED_COMMITS, indent="  ")


def _commits_since(job: Job, onto: str) -> list[str]:
    return job.git.text("rev-list", "HEAD", *(["--not", onto] if onto else [])).split()


# -- Apply a fix that worked before, and run the tests that show it -----------------------------------------------

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
        facts = {"fix": self.fix, "tests": self.tests}
        failed = facts | {"next": NEXT_AFTER_FAILED_FIX}
        start = job.git.text("rev-parse", "HEAD")
        file = job.scratch / "fix.patch"
        file.write_text(self.patch, encoding="utf-8", newline="")
        for line in self.patch.splitlines():
            job.say(line)
        applied = try_git(job, "apply", "--3way", "--whitespace=nowarn", str(file))
        if not applied.tree:
            reset_worktree(job, start)  # files with markers in them are nothing to land
            why = f"it conflicts in {applied.files}" if applied.conflicts else last_line(applied.error)
            return FlowResult(f"The fix does not apply: {why}", sound=False, facts=failed)
        if applied.tree == job.git.text("rev-parse", f"{start}^{{tree}}"):
            summary = "The files already have this fix, so the failure has another cause"
            return FlowResult(summary, sound=False, facts=failed)
        job.say("The fix applies")
        tool = toolchain_for(find_toolchains(job, self.project), self.tests)
        check = run_tests(job, tool, self.tests if tool.runs_single_tests else ())
        reset_worktree(job, start)
        names = join_names(self.tests, 2)
        if set(self.tests) & set(check.failing) or not check.passed:
            outcome = f"The fix applies, but {names} still fails, so the fix is discarded"
            return FlowResult(f"{outcome}: {describe_check(check)}", sound=False, facts=failed)
        restore_tree(job, applied.tree)  # without the files that the tests wrote
        return FlowResult(f"The fix applies and {names} passes: {describe_check(check)}", check=check, facts=facts)


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
        head = git.text("rev-parse", "HEAD")
        stashes = [stash for stash in read_stashes(git) if stash.commit in self.stashes]
        if not stashes:
            return FlowResult("None of these stashes exists any more")
        states = {stash.name: self._try_stash(job, stash, head) for stash in stashes}
        reset_worktree(job, head)
        # Dropping one renumbers those above it: the highest number goes first.
        gone = [name for name, state in reversed(states.items()) if state == "already in HEAD"]
        if gone:
            commands = " && ".join(f"git stash drop {name}" for name in gone)
            job.say(f"To drop the stashes that are already in HEAD: `{commands}`")
        summary = "; ".join(f"{stash.name} ({stash.words[:40]}): {states[stash.name]}" for stash in stashes)
        return FlowResult(summary, facts={"stashes": states})

    def _try_stash(self, job: Job, stash: Stash, head: str) -> str:
        where = f"on {stash.branch}" if stash.branch else "on a detached HEAD"
        job.say(f"{stash.name} of {stash.at:%F}, {where}: {stash.words}")
        job.say_list(stash.files, MAX_STASH_FILES, indent="  ")
        reset_worktree(job, head)
        # As a commit on what it was made on: `git stash apply` itself would look into nested repositories.
        applied = try_git(job, "cherry-pick", "--no-commit", "--mainline", "1", stash.commit)
        if applied.error:
            raise FlowError(f"git cannot try {stash.name}: {last_line(applied.error)}")
        untracked = {}  # whether HEAD has each with these contents; None for a file that it does not have
        for entry in job.git.items("ls-tree", "-r", "-z", f"{stash.commit}^3", allowed=(0, 128)):
            about, _, path = entry.partition("\t")
            present = job.git.text("rev-parse", "--verify", "--quiet", f"{head}:{path}", allowed=(0, 1))
            untracked[path] = present == about.split()[2] if present else None
        existing = [path for path, same in untracked.items() if same is False]
        if applied.conflicts:
            state = f"conflicts in {join_names(applied.conflicts, 3)}"
        elif existing:
            state = f"does not apply: {join_names(existing, 3)} already {'exists' if len(existing) == 1 else 'exist'}"
        elif None not in untracked.values() and not job.git.text("status", "--porcelain"):
            state = "already in HEAD"
        else:
            state = "still applies"
        job.say(f"  {state}")
        job.say(f"  To apply: `git stash apply {stash.name}`; to drop: `git stash drop {stash.name}`")
        return state


# -- Make branches for commits that are on no branch, before git deletes them -------------------------------------


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
        for tip in dict.fromkeys(resolve_commit(job, revision) for revision in self.commits):
            if is_reachable(git, tip):
                job.say(f"A branch or tag has {read_commit(git, tip)} already")
                continue
            unreachable = git.text("rev-list", tip, "--not", "--branches", "--remotes", "--tags").split()
            name = f"rescued-{tip[:10]}"
            create_branch(git, name, tip)
            branches[name] = len(unreachable)
            job.say(f"{name} keeps {count(len(unreachable), 'commit')}:")
            _list_commits(job, git, unreachable)
            job.say(f"To work on them: `git switch {name}`. To bring them here: `git merge {name}`.")
            job.say(f"To remove the branch: `git branch -D {name}`")
        facts = {"branches": branches, "undo": [f"git branch -D {name}" for name in branches]}
        if not branches:
            return FlowResult("Nothing to keep: all of them are already on a branch or tag", facts=facts)
        names = " and ".join(f"{name} ({count(number, 'commit')})" for name, number in branches.items())
        return FlowResult(f"Made {names}; to remove it: `git branch -D {' '.join(branches)}`", facts=facts)
