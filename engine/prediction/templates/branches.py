"""Cards about branches, commits and the state of the repository: merges, work that may get lost, pull requests.

Each template looks for one reason in what git says (`engine.git.inspection`): two branches change the same lines, a
stash is old, a rebase is unfinished. Their flows show or rehearse; only that of `lost_commits` makes a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from engine.git.github import PullRequest, Wait, WaitsFor
from engine.git.inspection import MAX_COLLIDING, MAX_TRIED_BRANCHES, Collision
from engine.git.state import STALE_BRANCH, Branch
from engine.git.unfinished import CONFLICT_OPERATION, GitOperation
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.offers import (
    Offer,
    count_others,
    describe_branch,
    find_earliest,
    find_project_parameter,
    is_usable,
    template,
)
from engine.text import plain
from engine.wording import count, join_names, join_shortened, moment


@template
def rehearse_merge(context: WorkspaceContext) -> Iterator[Offer]:
    """The branch has commits of its own, and lacks commits of its base or of its upstream.

    Another commit of the operator is not new evidence, so the facts name the tip of the other side only.
    """
    git = context.repository
    merge = next((merge for merge in context.inspection.merges if is_usable(merge.source)), None)
    if merge is None or not is_usable(git.branch):
        return
    target, source = plain(git.branch, 40), plain(merge.source, 40)
    missing = f"{source} has {count(merge.behind, 'commit')} that {target} lacks"
    if merge.files:
        them = "it" if merge.behind == 1 else "them"
        reason = f"{missing}; merging {them} conflicts in {join_shortened(merge.files, 3)}."
    elif merge.files is None:
        reason = f"{missing}; {target} has {count(merge.ahead, 'commit')} of its own."
    else:
        reason = f"{missing}; it still merges cleanly."
    yield Offer(
        f"Rehearse merging {source} into {target}",
        reason,
        subject=f"{merge.source} into {git.branch}",
        facts={
            "source": merge.source,
            "source_tip": merge.tip,
            "target": git.branch,
            "conflicts": bool(merge.files),
        },
        parameters={
            "source": merge.source,
            "target": git.branch,
            "rebase": True,
            **find_project_parameter(context, merge.files or git.own_files),
        },
        evidence_at=next((branch.at for branch in git.branches if branch.tip == merge.tip), None),
    )


@template
def forecast_conflicts(context: WorkspaceContext) -> Iterator[Offer]:
    """Open branches change the same lines. The card names the newest such pair, and branches that collide with it."""
    git = context.repository
    collisions = [
        collision
        for collision in context.inspection.collisions
        if is_usable(collision.first.name) and is_usable(collision.second.name)
    ]
    if not collisions or not is_usable(git.base):
        return
    group = _group_colliding_branches(collisions)
    within = [collision for collision in collisions if _map_branches(collision).keys() <= group.keys()]
    files = sorted({name for collision in within for name in collision.files})
    names = list(group)
    others = len({name for collision in collisions for name in _map_branches(collision)}) - len(names)
    remark = f" {count(others, 'other branch')} also {'collides' if others == 1 else 'collide'}." if others else ""
    if len(git.open_branches) > MAX_TRIED_BRANCHES:
        remark += f" Only {MAX_TRIED_BRANCHES} of {len(git.open_branches)} open branches were compared."
    yield Offer(
        f"Find the order of merging {join_shortened(names, 4)} with the least conflict",
        f"{join_shortened(names, 4)} change the same lines of {join_shortened(files, 3)}.{remark}",
        subject=" and ".join(sorted(names)),
        facts={"branches": sorted((branch.name, branch.tip) for branch in group.values())},
        parameters={"base": git.base, "branches": names},
        evidence_at=max(branch.at for branch in group.values()),
    )


def _group_colliding_branches(collisions: Sequence[Collision]) -> dict[str, Branch]:
    """The branches of the newest collision by name, and those that collide with one of them, up to `MAX_COLLIDING`."""
    group = _map_branches(collisions[0])
    for pair in map(_map_branches, collisions):
        if pair.keys() & group.keys() and len(pair.keys() | group.keys()) <= MAX_COLLIDING:
            group |= pair
    return group


def _map_branches(collision: Collision) -> dict[str, Branch]:
    """The two branches of a collision, by name."""
    return {branch.name: branch for branch in (collision.first, collision.second)}


def find_untidy_branches(context: WorkspaceContext) -> tuple[list[Branch], list[Branch]]:
    """Local branches that are merged, and those without a commit for 30 days. The base, branches that are checked out
    in any worktree, and new ones at the tip of the base are left out."""
    git = context.repository
    candidates = [
        branch
        for branch in git.branches
        if not branch.remote and not branch.has_worktree and branch.name not in (git.branch, git.base_name)
    ]
    old = [branch for branch in candidates if context.now - branch.at >= STALE_BRANCH]
    merged = [branch for branch in candidates if branch.merged and (branch in old or branch.tip != git.base_tip)]
    stale = [branch for branch in old if not branch.merged]
    return merged, stale


@template
def report_branches(context: WorkspaceContext) -> Iterator[Offer]:
    """There are branches that could be tidied up."""
    merged, stale = find_untidy_branches(context)
    if not merged and not stale:
        return
    days = STALE_BRANCH.days
    groups = [(merged, "merged branch", "merged"), (stale, "stale branch", f"without a commit for {days} days")]
    counts = " and ".join(count(len(branches), noun) for branches, noun, _ in groups if branches)
    reasons = (
        f"{join_shortened(branch.name for branch in branches)}: {reason}" for branches, _, reason in groups if branches
    )
    yield Offer(
        f"List {counts}, with the commands that delete them",
        f"{'; '.join(reasons)}.",
        subject="local branches",
        facts={"branches": sorted((branch.name, branch.tip) for branch in [*merged, *stale])},
        parameters={"days": days},
        evidence_at=find_earliest(branch.at for branch in [*merged, *stale]),
    )


@template
def lost_commits(context: WorkspaceContext) -> Iterator[Offer]:
    """There are commits that no branch, remote branch or tag holds. One card offers to keep all of them."""
    if not context.inspection.lost:
        return
    first, number = context.inspection.lost[0], sum(line.number for line in context.inspection.lost)
    subject, others = plain(first.subject, 60), count_others(range(number), ", and ", "more commit")
    if first.is_checked_out:
        commits = f"“{subject}” is" if first.number == 1 else f"{count(first.number, 'commit')} up to “{subject}” are"
        reason = f"HEAD is detached: {commits} on no branch, and the next checkout leaves them behind."
    else:
        reason = f"“{subject}” is on no branch any more, left {moment(first.left_at, context.local)}{others}."
    yield Offer(
        f"Make a branch for {count(number, 'commit')} that no branch holds",
        reason,
        subject=first.tip[:10],
        facts={"tips": sorted(line.tip for line in context.inspection.lost)},
        parameters={"commits": [line.tip for line in context.inspection.lost]},
        evidence_at=min(first.left_at, context.now),
    )


@template
def autosquash(context: WorkspaceContext) -> Iterator[Offer]:
    """There are fixup commits, and neither they nor the commits that they fix are pushed yet."""
    git, fixups = context.repository, context.inspection.fixups
    if fixups is None:
        return
    number = len(fixups.subjects)
    targets = join_names([f"“{plain(target, 40)}”" for target in fixups.targets], 2)
    verb = "is" if number == 1 else f"and {number - 1} more are"
    yield Offer(
        f"Rehearse squashing {count(number, 'fixup commit')} into {targets}",
        f"“{plain(fixups.subjects[0], 60)}” {verb} not pushed yet, and neither are the commits that they fix.",
        subject=describe_branch(git),
        facts={"head": git.head, "onto": fixups.onto},
        parameters={"onto": fixups.onto or None, **find_project_parameter(context, git.own_files)},
        evidence_at=fixups.at,
    )


MIN_STASH_AGE = timedelta(days=14)
"""A stash that is older gets a card."""

MAX_STASHES = 10
"""Maximum number of stashes in one card. The oldest are taken."""


@template
def old_stash(context: WorkspaceContext) -> Iterator[Offer]:
    """There are stashes older than two weeks. One card is about all of them."""
    old_stashes = [stash for stash in context.inspection.stashes if context.now - stash.at > MIN_STASH_AGE][
        -MAX_STASHES:
    ]
    if not old_stashes:
        return
    oldest = old_stashes[-1]
    holds = f" with {join_shortened(oldest.files)}" if oldest.files else ""
    others = count_others(old_stashes, ", and ")
    beside = f"{others} older than two weeks" if others else ""
    where = f" made on {plain(oldest.branch, 40)}" if oldest.branch else ""
    yield Offer(
        "Look at the old stash: what is in it, and does it still apply?"
        if len(old_stashes) == 1
        else f"Look at {len(old_stashes)} old stashes: what is in them, and do they still apply?",
        f"“{plain(oldest.message, 60)}”{where}{holds} has been waiting since "
        f"{moment(oldest.at, context.local)}{beside}.",
        subject="old stashes",
        facts={"stashes": sorted(stash.commit for stash in old_stashes)},
        parameters={"stashes": [stash.commit for stash in old_stashes]},
        evidence_at=oldest.at,
    )


_OPERATION_NAMES = {CONFLICT_OPERATION: "merge of files", "am": "git am"}
"""The names of operations whose command does not say what they are."""


@template
def unfinished_operation(context: WorkspaceContext) -> Iterator[Offer]:
    """A merge, rebase or the like is unfinished.

    With conflicts, the card offers to rehearse both sides; without, to test the files as they are. For a bisect, it
    offers to say how much is left.
    """
    git, operation = context.repository, context.inspection.unfinished
    if operation is None:
        return
    name = _OPERATION_NAMES.get(operation.name, operation.name)
    if operation.name == "bisect":
        prompt = "Say what is left of the unfinished bisect"
    elif operation.unmerged:
        prompt = f"Rehearse both sides of the unfinished {name}"
    else:
        prompt = f"Test the unfinished {name} as it stands"
    begun = operation.begun_at
    yield Offer(
        prompt,
        _explain_operation(operation),
        subject=_make_operation_subject(operation, describe_branch(git)),
        facts={
            "operation": operation.name,
            "theirs": operation.theirs.commit if operation.theirs else "",
            "files": list(map(plain, operation.files[:50])),
            "settled": not operation.unmerged,
            "bisect": [operation.bad, *operation.good],
        },
        parameters={"operation": operation.name, **find_project_parameter(context, operation.files)},
        evidence_at=min(begun, context.now) if begun else None,
    )


def _make_operation_subject(operation: GitOperation, branch: str) -> str:
    """The name of the operation: `merge of tax on main`. A rebase keeps its name while it applies commits."""
    if operation.name == "rebase":
        return f"rebase of {plain(operation.rebased, 200) or branch} onto {plain(operation.ours.name, 200)}"
    merged_branch = f" of {plain(operation.theirs.name, 200)}" if operation.theirs else ""
    return f"{operation.name}{merged_branch} on {branch}"


def _explain_operation(operation: GitOperation) -> str:
    """What was begun, and where it stopped."""
    if operation.name == "bisect":
        return _explain_bisect(operation)
    theirs = operation.theirs
    commit = f"“{plain(theirs.subject, 50)}”" if theirs and theirs.subject else ""
    begun = _describe_beginning(operation, commit)
    is_at_commit = operation.name == "rebase" and commit != ""
    stopped = f"stopped at {commit}" if is_at_commit else "stopped"
    if not operation.unmerged:
        return f"{begun} {stopped if is_at_commit else 'was begun'} and is not finished."
    files = f"{count(len(operation.unmerged), 'file')} in conflict: {join_shortened(operation.unmerged, 3)}"
    return f"{begun} {stopped} with {files}."


def _describe_beginning(operation: GitOperation, commit: str) -> str:
    """What was begun, as `Rebasing tax onto main`. `commit` is the quoted subject of their commit, "" for none."""
    ours = plain(operation.ours.name, 40)
    if operation.name == "merge":
        merged = f"{plain(operation.theirs.name, 40)} ({commit})" if operation.theirs and commit else "commits"
        return f"Merging {merged} into {ours}"
    if operation.name == "rebase":
        return f"Rebasing {plain(operation.rebased, 40) or 'HEAD'} onto {ours}"
    return f"A {_OPERATION_NAMES.get(operation.name, operation.name)}{commit and f' of {commit}'} on {ours}"


def _explain_bisect(operation: GitOperation) -> str:
    bad, good = operation.terms
    if not operation.bad or not operation.good:
        missing = " or ".join(term for term, revision in ((bad, operation.bad), (good, operation.good)) if not revision)
        return f"A bisect was begun, and no {plain(missing, 40)} revision is named yet."
    if operation.suspects == 1:
        return f"A bisect is over and was not ended: {operation.bad[:10]} is the first {plain(bad, 20)} revision."
    return (
        f"A bisect is under way: {count(operation.suspects, 'revision')} left between {plain(good, 20)} "
        f"{operation.good[0][:10]} and {plain(bad, 20)} {operation.bad[:10]}; {operation.ours.name} is checked out."
    )


MAX_PULL_REQUESTS = 3
"""Maximum number of pull requests that get a card."""

_WAIT_ORDER = (WaitsFor.CHANGES, WaitsFor.REVIEW, WaitsFor.ANSWER)
"""What somebody waits for, the most urgent first."""

_WAIT_WORDS = {
    WaitsFor.REVIEW: "asks you for a review of",
    WaitsFor.CHANGES: "asked for changes in your",
    WaitsFor.ANSWER: "commented on your",
}
"""What they did, in words before a pull request."""


@template
def pull_request(context: WorkspaceContext) -> Iterator[Offer]:
    """You are asked for a review, or somebody waits for you to change or answer something in your own pull request."""
    requests = context.github.pull_requests if context.github else ()
    waiting = [(request.wait, request) for request in requests if request.wait]
    waiting.sort(key=lambda pair: (_WAIT_ORDER.index(pair[0].step), pair[1].number))
    return (_make_pull_request_offer(context, request, wait) for wait, request in waiting[:MAX_PULL_REQUESTS])


def _make_pull_request_offer(context: WorkspaceContext, request: PullRequest, wait: Wait) -> Offer:
    title, name = plain(request.title, 50), plain(wait.by, 40) or "Somebody"
    since = f" ({moment(wait.since, context.local)})" if wait.since else ""
    reason = f"{name} {_WAIT_WORDS[wait.step]} pull request #{request.number}{since}"
    return Offer(
        f"Look at pull request #{request.number} “{title}”",
        f"{reason}.",
        subject=f"pull request {request.number}",
        facts={"number": request.number, "waits": wait.step.value, "by": wait.by, "since": str(wait.since or "")},
        parameters={
            "number": request.number,
            "title": title,
            "url": request.url if is_usable(request.url) else "",
            "branch": request.branch if is_usable(request.branch) else "",
            "waits": f"{reason}.",
        },
        evidence_at=wait.since,
    )
