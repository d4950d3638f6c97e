"""What must not leave this machine, and what may be lost: secrets and large files about to be pushed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from engine.git.leftovers import SECRET
from engine.git.state import GitState
from engine.git.unpushed import Found, span_of
from engine.model import Proposal, Tier
from engine.model.words import count, plain, tail
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import (
    Offer,
    proposed,
    template,
    usable,
)

NAMED = 5


def secret(context: WorkspaceContext) -> list[Proposal]:
    """A likely secret in what is not pushed yet, or in what is changed and not committed. Its value is never shown."""
    return _about_to_leave(context, "secret", secrets=True)


def large_file(context: WorkspaceContext) -> list[Proposal]:
    """A file that belongs in no repository: in a commit that is not pushed yet, or in the index."""
    return _about_to_leave(context, "large_file", secrets=False)


def _about_to_leave(context: WorkspaceContext, kind: str, *, secrets: bool) -> list[Proposal]:
    git, known = context.seen, context.looks.unpushed
    if not git.head:
        return []
    committed = [one for one in known.found if one.secret is secrets]
    paths = {one.path for one in committed}
    waiting = [one for one in known.uncommitted if one.secret is secrets and one.path not in paths]
    offers = []
    if committed:
        tier = Tier.BROKEN if known.shared else Tier.BLOCKS
        offers.append(_warning(context, kind, committed, tier, "push"))
    if waiting:
        offers.append(_warning(context, kind, waiting, Tier.BLOCKS, "commit"))
    return offers


def _warning(context: WorkspaceContext, kind: str, found: Sequence[Found], tier: Tier, step: str) -> Proposal:
    git = context.git
    assert git is not None
    first, paths = found[0], sorted({one.path for one in found})
    subjects = sorted({_subject(one) for one in found})
    others = f", and {count(len(found) - 1, 'other finding')}" if len(found) > 1 else ""
    commit = next((one for one in git.recent if one.id == first.sha), None)
    modified = next((file.modified_at for file in git.files if file.path == first.path), None)
    if first.sha:
        subject = f"“{plain(commit.subject, 50)}”" if commit else first.sha[:10]
        whom = "no remote has" if context.looks.unpushed.shared else "you can still change"
        reasoning = f"It came in with {subject}, which {whom}" + (" yet" if context.looks.unpushed.shared else "")
        reasoning += "; a later commit removed it, but the history still has it." if first.gone else "."
    else:
        reasoning = "It is in no commit yet, so it is easy to take out."
    offer = Offer(
        f"Do not {step} yet: {_said(first)}{others}",
        reasoning,
        subject=", ".join(subjects[:NAMED]),
        facts={"found": sorted([one.kind, one.path] for one in found), "committed": bool(first.sha)},
        parameters=against(git, context.now),
        evidence_at=commit.at if commit else modified or (git.recent[0].at if git.recent else None),
        tier=tier,
        about=" ".join(paths),
    )
    return proposed(context, kind, offer)


def _subject(one: Found) -> str:
    """Another secret in the same file is something else."""
    path = plain(one.path, 200)
    return f"{one.kind.removeprefix(f'{SECRET}: ')} in {path}" if one.secret else path


def _said(one: Found) -> str:
    """What is where: `config.py:12 holds an AWS access key`, `data/dump.bin is 60 MB`."""
    where = f"{tail(one.path, 60)}:{one.line}" if one.line else tail(one.path, 60)
    if one.secret:
        what = one.kind.removeprefix(f"{SECRET}: ")
        if not one.line:
            return f"{where} is a file that holds keys"
        return f"{where} holds {'an' if what[0] in 'aeioAEIO' else 'a'} {what}"
    if not one.size or one.kind.startswith("files"):
        return f"{where} holds {one.kind.partition(',')[0]}"
    size = f"{one.size / 1_000_000:.{0 if one.size >= 10_000_000 else 1}f} MB"
    return f"{where} is {size}" + ("" if one.kind == "large file" else f" ({one.kind})")


def against(git: GitState, now: datetime) -> dict[str, Any]:
    """What the review compares with, as the look at what is not pushed does (`span_of`)."""
    span = span_of(git, now)
    if span is None:
        return {}
    name = git.upstream if git.upstream_tip else git.base if span.without else ""
    if span.without:
        return {"upstream": name if usable(name) else span.without}
    return {} if span.shared else {"newest": span.newest}


WORTH: Final = 100_000_000
SHARE: Final = 10


@template
def reclaim_space(context: WorkspaceContext) -> Offer | None:
    """The disk of the home is nearly full, and what clawpy does not need any more is a good part of what is left."""
    disk = context.disk
    if disk is None or disk.ours < WORTH or disk.ours * SHARE < disk.free:
        return None
    free, ours = gigabytes(disk.free), gigabytes(disk.ours)
    return Offer(
        f"Remove {ours} of old worktrees and caches of clawpy",
        f"Only {free} of {gigabytes(disk.total)} is free on this disk. Undecided work is kept.",
        subject="disk",
        facts={"urgent": disk.urgent},
        parameters={},
        evidence_at=disk.since,
        tier=Tier.BROKEN if disk.urgent else Tier.BLOCKS,
    )


def gigabytes(size: int) -> str:
    """`0.4 GB`, `120 GB`."""
    return f"{size / 1_000_000_000:.{1 if size < 10_000_000_000 else 0}f} GB"
