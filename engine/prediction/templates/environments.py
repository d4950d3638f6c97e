"""Cards about what the tests of a project lack: packages that are not installed, lock files out of step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains.installing import Installation, find_installations, find_lock_updates
from engine.execution.runners.toolchains.package_managers import PackageSetup
from engine.model import SessionState, SessionView, Tier
from engine.model.text import plain
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates.offers import (
    LONG_AGO,
    Offer,
    ended_sessions,
    is_usable,
    template,
    written_at,
)

_TESTING = ("run_tests", "check_clean_head", "bisect", "hunt_flakes", "narrow_failures")
"""Flows that run tests."""


@template
def prepare_environment(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Its tests lack a tool or a package. That blocks you where they were tried or where you changed something; in a
    repository that you only look at it is upkeep."""
    git, where = context.repository, plain(part.project.path, 40) or "this project"
    if any(lock.folder == part.project.path for lock in context.locks):
        return  # first the lock file: `update_lock`
    tried = _session_lacking_packages(context, part)
    at: datetime | None = LONG_AGO
    if tried is not None:
        reason, at = f"The tests of {where} could not run: {plain(tried.error.partition(' (')[0], 80)}", tried.ended_at
    elif part.project.missing_tool:
        reason = f"The tests of {where} need {plain(part.project.missing_tool, 30)}, which is not installed"
    else:
        return
    changed_file = next((file for file in git.files if part.holds(file.path)), None)
    if tried is None and changed_file is not None:
        at = changed_file.modified_at
    blocks = tried is not None or changed_file is not None or any(part.holds(path) for path in git.own_files)
    usable_installations = _with_usable_commands(
        find_installations(Path(context.workspace), _packages(context), part.project.path)
    )
    if not usable_installations:
        return
    lacking = tried.error if tried is not None else part.project.missing_tool
    installation = next((item for item in usable_installations if _brings(item, lacking)), usable_installations[0])
    yield Offer(
        f"Install the packages{part.within}: {plain(installation.command, 80)}",
        f"{reason}. {installation.summary}.",
        subject="packages",
        facts={"command": installation.lines},  # what it could not bring it will not bring the next time
        parameters={"command": installation.lines},
        evidence_at=at,
        tier=Tier.BLOCKS if blocks else Tier.UPKEEP,
        about=f"install packages {part.project.path}",
    )


def _brings(installation: Installation, lacking: str) -> bool:
    """Whether it installs what is lacking: a folder of packages, or what an error names with its command."""
    folders = {PurePosixPath(place).name for place in (*installation.made, *installation.updated)}
    return lacking in folders or installation.command in lacking


def _session_lacking_packages(context: WorkspaceContext, part: Part) -> SessionView | None:
    """The newest session that tried its tests, when these lacked a package and nothing was installed since."""
    for session in ended_sessions(context, part.project.path, "prepare_environment", *_TESTING):
        if session.flow in _TESTING:
            lacked = session.state is SessionState.CANNOT_RUN and "is not installed" in session.error
            return session if lacked else None
        if session.state is SessionState.SUCCEEDED:
            return None
    return None


@template
def update_lock(context: WorkspaceContext) -> Iterator[Offer]:
    """A lock file says something else than its manifest."""
    parts = {part.project.path: part for part in context.parts}
    for mismatch in (lock for lock in context.locks if lock.folder in parts):
        updates = _with_usable_commands(find_lock_updates(Path(context.workspace), _packages(context), mismatch.folder))
        update = next((item for item in updates if item.lock == mismatch.lock_path), None)
        if update is None:
            continue
        manifest = f"{mismatch.folder}/{mismatch.manifest}".removeprefix("/")
        more = f", and {mismatch.more} more" if mismatch.more else ""
        yield Offer(
            f"Bring {plain(mismatch.lock_path, 50)} in step: {plain(update.command, 60)}",
            f"{plain(mismatch.differences[0], 120)}{more}. {update.summary}.",
            subject=mismatch.lock_path,
            facts={"differences": mismatch.differences, "lock": mismatch.lock_path},
            parameters={"command": update.lines, **parts[mismatch.folder].parameters},
            evidence_at=written_at(context.repository, {manifest}),
        )


def _packages(context: WorkspaceContext) -> dict[str, tuple[PackageSetup, ...]]:
    return {part.project.path: part.project.packages for part in context.parts}


def _with_usable_commands(candidates: Sequence[Installation]) -> list[Installation]:
    """The installations whose commands may become a parameter."""
    return [item for item in candidates if all(is_usable(line) for line in item.lines)]
