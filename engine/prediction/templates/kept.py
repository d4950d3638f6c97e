"""What may get lost or forgotten: commits on no branch, fixup commits, old stashes."""

from __future__ import annotations

from datetime import timedelta

from engine.model.words import count, listing, moment, plain
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import (
    Offer,
    branch_of,
    project_of,
    template,
)


@template
def lost_commits(context: WorkspaceContext) -> Offer | None:
    """Commits that no branch, remote branch or tag holds; all of them are kept at once."""
    if not context.looks.lost:
        return None
    first, number = context.looks.lost[0], sum(line.number for line in context.looks.lost)
    subject = plain(first.subject, 60)
    if first.here:
        which = f"“{subject}” is" if first.number == 1 else f"{count(first.number, 'commit')} up to “{subject}” are"
        them = "it" if first.number == 1 else "them"
        why = f"HEAD is detached: {which} on no branch, and the next checkout leaves {them} behind."
    else:
        last = "" if number == 1 else f"{count(number, 'commit')} are on no branch any more, the last "
        left = f"left {moment(first.left_at, context.local)}"
        why = f"{last}“{subject}”, {left}." if last else f"“{subject}” is on no branch any more, {left}."
    return Offer(
        f"Make a branch for {count(number, 'commit')} that no branch holds",
        why,
        subject=first.tip[:10],
        facts={"tips": sorted(line.tip for line in context.looks.lost)},
        parameters={"commits": [line.tip for line in context.looks.lost]},
        evidence_at=min(first.left_at, context.now),
        about=subject,
    )


@template
def autosquash(context: WorkspaceContext) -> Offer | None:
    """Fixup commits beside what they mend, neither pushed yet."""
    git, fixups = context.seen, context.looks.fixups
    if fixups is None:
        return None
    number = len(fixups.subjects)
    targets = " and ".join(f"“{plain(one, 40)}”" for one in fixups.targets[:2])
    told = "is" if number == 1 else f"and {number - 1} more are"
    more = f" and {len(fixups.targets) - 2} more" if len(fixups.targets) > 2 else ""
    return Offer(
        f"Rehearse squashing {count(number, 'fixup commit')} into {targets}{more}",
        f"“{plain(fixups.subjects[0], 60)}” {told} not pushed yet, and neither are the commits that they fix.",
        subject=branch_of(git),
        facts={"head": git.head, "onto": fixups.onto},
        parameters={"onto": fixups.onto or None, **project_of(context, git.own_files)},
        evidence_at=fixups.at,
        about=" ".join(fixups.targets),
    )


OLD_STASH = timedelta(days=14)
MOST_STASHES = 10  # stashes that one card is about, the oldest


@template
def old_stash(context: WorkspaceContext) -> Offer | None:
    """Stashes older than two weeks; all of them in one card."""
    old = [stash for stash in context.looks.stashes if context.now - stash.at > OLD_STASH][-MOST_STASHES:]
    if context.git is None or not old:
        return None
    oldest = old[-1]
    holds = f" with {listing(oldest.files)}" if oldest.files else ""
    beside = f", and {count(len(old) - 1, 'other')} older than two weeks" if len(old) > 1 else ""
    where = f" made on {plain(oldest.branch, 40)}" if oldest.branch else ""
    return Offer(
        "Look at the old stash: what is in it, and does it still apply?"
        if len(old) == 1
        else f"Look at {len(old)} old stashes: what is in them, and do they still apply?",
        f"“{plain(oldest.words, 60)}”{where}{holds} has been waiting since {moment(oldest.at, context.local)}{beside}.",
        subject="old stashes",
        facts={"stashes": sorted(stash.commit for stash in old)},
        parameters={"stashes": [stash.commit for stash in old]},
        evidence_at=oldest.at,
        about=" ".join(stash.words for stash in old),
    )
