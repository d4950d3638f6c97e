"""What branches ask for: rehearse a merge, foresee conflicts, tidy up."""

from __future__ import annotations

from datetime import timedelta

from engine.inspection.state import STALE_BRANCH, Branch, bare_name_of
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import offer, oldest, usable
from engine.prediction.words import count, listing, plain
from engine.values import Proposal

ALIVE = timedelta(days=90)
"""A branch counts as being worked on when its last commit is at most so much older than the newest of any branch."""

COMPARED = 8  # branches that one forecast looks at


def rehearse_merge(context: WorkspaceContext) -> list[Proposal]:
    """The branch lacks commits of the base, or has parted from its own upstream.

    A new commit of the operator's is not new evidence: facts hold where the other side stands.
    """
    git = context.git
    if git is None or not git.branch or git.operation or not usable(git.branch):
        return []
    if git.behind_base and git.ahead_of_base and git.base and bare_name_of(git.base) != git.branch:
        source, tip, behind, ahead = git.base, git.base_tip, git.behind_base, git.ahead_of_base
    elif git.behind and git.ahead:
        source, tip, behind, ahead = git.upstream, git.upstream_tip, git.behind, git.ahead
    else:
        return []
    if not usable(source):
        return []
    here, there = plain(git.branch, 40), plain(source, 40)
    own = f"; {here} has {count(ahead, 'commit')} of its own" if ahead else ""
    return [
        offer(
            context,
            "rehearse_merge",
            f"Rehearse merging {there} into {here}",
            f"{there} has {count(behind, 'commit')} that {here} lacks{own}.",
            subject=f"{source} into {git.branch}",
            facts={"source": source, "source_tip": tip, "target": git.branch},
            parameters={"source": source, "target": git.branch},
            evidence_at=next((branch.at for branch in git.branches if branch.tip == tip), None),
            about=f"{git.branch} {source}",
        )
    ]


def forecast_conflicts(context: WorkspaceContext) -> list[Proposal]:
    """Two or more branches are being worked on that the base does not have."""
    git = context.git
    if git is None or not git.base or not usable(git.base) or not git.branches:
        return []
    newest = max(branch.at for branch in git.branches)
    alive = [branch for branch in git.open_branches if newest - branch.at <= ALIVE and usable(branch.name)][:COMPARED]
    if len(alive) < 2:
        return []
    names = [branch.name for branch in alive]
    return [
        offer(
            context,
            "forecast_conflicts",
            f"Forecast the conflicts of {count(len(names), 'open branch')} with {plain(git.base, 30)}",
            f"{listing(names)} have work that {plain(git.base, 30)} does not have yet.",
            subject=f"open branches beside {git.base}",
            facts={"base": git.base_tip, "branches": sorted((branch.name, branch.tip) for branch in alive)},
            parameters={"base": git.base, "branches": names},
            evidence_at=alive[0].at,
            about=" ".join(names),
        )
    ]


def untidy_branches(context: WorkspaceContext) -> tuple[list[Branch], list[Branch]]:
    """Local branches that are merged, and those without a commit for 30 days; neither the base nor the present one."""
    git = context.git
    if git is None:
        return [], []
    others = [
        branch
        for branch in git.branches
        if not branch.remote and branch.name not in (git.branch, bare_name_of(git.base))
    ]
    merged = [branch for branch in others if branch.merged]
    stale = [branch for branch in others if not branch.merged and context.now - branch.at > STALE_BRANCH]
    return merged, stale


def report_branches(context: WorkspaceContext) -> list[Proposal]:
    """There are branches that could be tidied up."""
    merged, stale = untidy_branches(context)
    if not merged and not stale:
        return []
    parts = [count(len(merged), "merged branch")] if merged else []
    parts += [count(len(stale), "stale branch")] if stale else []
    words = " and ".join(parts)
    days = STALE_BRANCH.days
    return [
        offer(
            context,
            "report_branches",
            f"Report {words}, with the commands to tidy up",
            f"{listing(branch.name for branch in [*merged, *stale])}: merged, or without a commit for {days} days.",
            subject="local branches",
            facts={"branches": sorted((branch.name, branch.tip) for branch in [*merged, *stale])},
            parameters={"days": days},
            evidence_at=oldest(branch.at for branch in [*merged, *stale]),
            about=" ".join(branch.name for branch in [*merged, *stale][:10]),
        )
    ]
