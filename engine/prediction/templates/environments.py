"""What a project needs before anything of it can run: its packages, and a lock file that fits its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from engine.execution.runners.toolchains.installing import Installation, installations, lock_updates
from engine.execution.runners.toolchains.looking import Packages
from engine.model import Proposal, SessionState, SessionView, Tier
from engine.model.words import plain
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates.making import (
    ALWAYS,
    Offer,
    ended,
    newest_commit,
    proposed,
    template,
    usable,
)

_TESTING = ("run_tests", "check_clean_head", "bisect", "hunt_flakes", "narrow_failures")


@template
def prepare_environment(context: WorkspaceContext, part: Part) -> Offer | None:
    """Its tests lack a tool or a package. That blocks you where they were tried or where you changed something; in a
    repository that you only look at it is upkeep."""
    git, where = context.seen, plain(part.project.path, 40) or "this project"
    if any(one.folder == part.project.path for one in context.locks):
        return None  # first the lock file: `update_lock`
    tried = _lacked(context, part)
    at: datetime | None = ALWAYS
    if tried is not None:
        told, at = f"The tests of {where} could not run: {plain(tried.error.partition(' (')[0], 80)}", tried.ended_at
    elif part.project.lacks:
        told = f"The tests of {where} need {plain(part.project.lacks, 30)}, which is not installed"
    else:
        return None
    mine = next((file for file in git.files if part.holds(file.path)), None)
    if tried is None and mine is not None:
        at = mine.modified_at
    blocks = tried is not None or mine is not None or any(part.holds(path) for path in git.own_files)
    found = _usable(installations(Path(context.workspace), _packages(context), part.project.path))
    if not found:
        return None
    one = found[0]
    return Offer(
        f"Install the packages{part.within}: {plain(one.command, 80)}",
        f"{told}. {one.words}.",
        subject="packages",
        facts={"command": one.lines},  # what it could not bring it will not bring the next time
        parameters={"command": one.lines},
        evidence_at=at,
        tier=Tier.BLOCKS if blocks else Tier.UPKEEP,
        about=f"install packages {part.project.path}",
    )


def _lacked(context: WorkspaceContext, part: Part) -> SessionView | None:
    """The newest session that tried its tests, when these lacked a package and nothing was installed since."""
    for session in ended(context, part.project.path, "prepare_environment", *_TESTING):
        if session.flow in _TESTING:
            lacked = session.state is SessionState.CANNOT_RUN and "is not installed" in session.error
            return session if lacked else None
        if session.state is SessionState.SUCCEEDED:
            return None
    return None


def update_lock(context: WorkspaceContext, part: Part) -> list[Proposal]:
    """A lock file says something else than its manifest."""
    git = context.seen
    offers = []
    for found in (one for one in context.locks if one.folder == part.project.path):
        updates = _usable(lock_updates(Path(context.workspace), _packages(context), part.project.path))
        update = next((one for one in updates if one.lock == found.lock_path), None)
        if update is None:
            continue
        manifest = f"{found.folder}/{found.manifest}".removeprefix("/")
        changed = [file.modified_at for file in git.files if file.path == manifest and file.modified_at]
        more = f", and {found.more} more" if found.more else ""
        offers.append(
            Offer(
                f"Bring {plain(found.lock_path, 50)} in step: {plain(update.command, 60)}",
                f"{plain(found.differences[0], 120)}{more}. {update.words}.",
                subject=found.lock_path,
                facts={"differences": found.differences, "lock": found.lock_path},
                parameters={"command": update.lines, **part.parameters},
                evidence_at=min(changed, default=newest_commit(git)),
            )
        )
    return [proposed(context, "update_lock", offer) for offer in offers]


def _packages(context: WorkspaceContext) -> dict[str, tuple[Packages, ...]]:
    return {part.project.path: part.project.packages for part in context.parts}


def _usable(found: Sequence[Installation]) -> list[Installation]:
    """Those whose commands may become a parameter."""
    return [one for one in found if all(usable(line) for line in one.lines)]
