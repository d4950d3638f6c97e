"""What the project's own history lets one expect: a file that usually changes too, a release, its change log."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import isfinite

from engine.git.releases import Rhythm
from engine.git.together import is_group
from engine.model.words import count, plain, tail
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.history import ROUTINE
from engine.prediction.templates.making import (
    Offer,
    newest_commit,
    oldest,
    template,
    usable,
)

STILL_WORKED_ON = timedelta(days=30)
"""Where nothing was committed for so long nobody waits for a release."""


@template
def changes_together(context: WorkspaceContext) -> Offer | None:
    """A file that usually changes with what changed, and has not."""
    git = context.seen
    if not git.head or git.partner is None:
        return None
    found = git.partner
    if not usable(found.path) or not usable(found.because):
        return None
    path, because = f"`{tail(found.path, 60)}`", f"`{tail(found.because, 60)}`"
    commits = f"{found.together} of {'the last ' if found.together < found.of else ''}{count(found.of, 'commit')}"
    what = f"that changed {because} {path} changed too" if is_group(found.because) else f"{path} changed with {because}"
    return Offer(
        f"Show how {path} last changed with {because}",
        f"In {commits} {what}; not this time.",
        subject=f"{found.path} with {found.because}",
        facts={"partner": found.path, "because": found.because, "together": found.together, "of": found.of},
        parameters={"path": found.because, "partner": found.path},
        evidence_at=oldest(file.modified_at for file in git.files) or newest_commit(git),
        about=f"{found.because} {found.path}",
    )


@template
def draft_changelog(context: WorkspaceContext) -> Offer | None:
    """A release is due or being prepared, and the project's change log says nothing of it yet."""
    found = _due(context)
    if found is None or not _log_lacks_it(context, found):
        return None
    tag = plain(found.tag, 30)
    return Offer(
        f"Add the {count(found.commits, 'commit')} since {tag} to the unreleased section of "
        f"{plain(_change_log(context), 30)}",
        _why(found, context.now),
        subject=f"since {found.tag}",
        facts={"since": found.tag},
        parameters={"since": found.tag},
        evidence_at=_began(context, found),
        about=f"change log release {found.tag}",
    )


@template
def release_due(context: WorkspaceContext) -> Offer | None:
    """A release is due or being prepared, and the change log, where the project keeps one, is written."""
    found = _due(context)
    if found is None or _log_lacks_it(context, found):
        return None
    return Offer(
        f"List what a release would hold: the {count(found.commits, 'commit')} since {plain(found.tag, 30)}",
        _why(found, context.now),
        subject=f"since {found.tag}",
        facts={"since": found.tag},
        parameters={"since": found.tag},
        evidence_at=_began(context, found),
        about=f"release {found.tag}",
    )


def _change_log(context: WorkspaceContext) -> str:
    """The change log at the top of the repository, "" when there is none."""
    return next((part.project.changelog for part in context.parts if not part.project.path), "")


def _log_lacks_it(context: WorkspaceContext, found: Rhythm) -> bool:
    """Whether the project keeps a change log that did not change since the last release."""
    log = _change_log(context)
    return log in found.usual_files and log not in found.files


def _due(context: WorkspaceContext) -> Rhythm | None:
    """The rhythm of a project whose release is due; None when it is not, or nothing would be in it."""
    git = context.seen
    if not git.head or git.release is None:
        return None
    found = git.release
    if not found.commits or not usable(found.tag) or not found.due(context.now.timestamp()):
        return None
    idle = not git.recent or context.now - git.recent[0].at > STILL_WORKED_ON
    return None if idle or all(ROUTINE.match(subject) for subject in git.subjects) else found


def _began(context: WorkspaceContext, found: Rhythm) -> datetime | None:
    """When the oldest of the commits that wait was made, as far back as is known."""
    return oldest(commit.at for commit in context.seen.recent[: found.commits])


def _why(found: Rhythm, now: datetime) -> str:
    if found.preparing:
        return f"“{plain(found.preparing, 60)}” prepares a release, and no tag names it yet."
    assert isfinite(found.usual_days)  # without a rhythm only a preparation makes it due
    days = count(max(1, round(found.usual_days)), "day")
    commits = count(round(found.usual_commits), "commit")
    since = f"{count(round(found.days(now.timestamp())), 'day')} and {count(found.commits, 'commit')}"
    return f"A release usually comes after {days} and {commits}; it has been {since} since {plain(found.tag, 30)}."
