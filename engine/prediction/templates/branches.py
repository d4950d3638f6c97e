"""What branches ask for: rehearse a merge, foresee conflicts, tidy up."""

from __future__ import annotations

from engine.git.merges import MOST_COLLIDING
from engine.git.state import STALE_BRANCH, Branch
from engine.model.words import count, listing, plain
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import (
    Offer,
    oldest,
    project_of,
    template,
    usable,
)


@template
def rehearse_merge(context: WorkspaceContext) -> Offer | None:
    """The branch lacks commits of the base, or has parted from its own upstream, and has commits of its own.

    A new commit of the operator's is not new evidence: facts hold where the other side stands.
    """
    git = context.git
    merge = next((one for one in context.looks.merges if usable(one.source)), None)
    if git is None or merge is None or not usable(git.branch):
        return None
    here, there = plain(git.branch, 40), plain(merge.source, 40)
    has = f"{there} has {count(merge.lacking, 'commit')} that {here} lacks"
    if merge.files:
        why = f"{has}; merging {'it' if merge.lacking == 1 else 'them'} conflicts in {listing(merge.files, 3)}."
    elif merge.files is None:
        why = f"{has}; {here} has {count(merge.own, 'commit')} of its own."
    else:
        why = f"{has}; it still merges cleanly."
    return Offer(
        f"Rehearse merging {there} into {here}",
        why,
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
            **project_of(context, merge.files or git.own_files),
        },
        evidence_at=next((branch.at for branch in git.branches if branch.tip == merge.tip), None),
        about=f"{git.branch} {merge.source}",
    )


@template
def forecast_conflicts(context: WorkspaceContext) -> Offer | None:
    """Open branches change the same lines: the newest pair, and those that collide with one of the two."""
    git = context.git
    found = [one for one in context.looks.collisions if usable(one.one.name) and usable(one.other.name)]
    if git is None or not found or not usable(git.base):
        return None
    group = {found[0].one.name: found[0].one, found[0].other.name: found[0].other}
    for pair in found:
        both = {pair.one.name: pair.one, pair.other.name: pair.other}
        if both.keys() & group.keys() and len(both.keys() | group.keys()) <= MOST_COLLIDING:
            group |= both
    files = sorted({name for pair in found if {pair.one.name, pair.other.name} <= group.keys() for name in pair.files})
    names = list(group)
    return Offer(
        f"Find the order of merging {listing(names, 4)} with the least conflict",
        f"{listing(names, 4)} change the same lines of {listing(files, 3)}.",
        subject=" and ".join(sorted(names)),
        facts={"branches": sorted((branch.name, branch.tip) for branch in group.values())},
        parameters={"base": git.base, "branches": names},
        evidence_at=max(branch.at for branch in group.values()),
        about=" ".join([*names, *files]),
    )


def untidy_branches(context: WorkspaceContext) -> tuple[list[Branch], list[Branch]]:
    """Local branches that are merged, and those without a commit for 30 days; neither the base nor one
    that is checked out anywhere."""
    git = context.seen
    others = [
        branch
        for branch in git.branches
        if not branch.remote and not branch.taken and branch.name not in (git.branch, git.base_name)
    ]
    merged = [branch for branch in others if branch.merged]
    stale = [branch for branch in others if not branch.merged and context.now - branch.at > STALE_BRANCH]
    return merged, stale


@template
def report_branches(context: WorkspaceContext) -> Offer | None:
    """There are branches that could be tidied up."""
    merged, stale = untidy_branches(context)
    if not merged and not stale:
        return None
    parts = [count(len(merged), "merged branch")] if merged else []
    parts += [count(len(stale), "stale branch")] if stale else []
    words = " and ".join(parts)
    days = STALE_BRANCH.days
    return Offer(
        f"List {words}, with the commands that delete them",
        f"{listing(branch.name for branch in [*merged, *stale])}: merged, or without a commit for {days} days.",
        subject="local branches",
        facts={"branches": sorted((branch.name, branch.tip) for branch in [*merged, *stale])},
        parameters={"days": days},
        evidence_at=oldest(branch.at for branch in [*merged, *stale]),
        about=" ".join(branch.name for branch in [*merged, *stale][:10]),
    )
