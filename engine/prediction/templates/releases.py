"""Cards about a release: it is due, or the change log does not mention it yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from math import isfinite

from engine.git.project_habits import ReleaseRhythm
from engine.model.text import count, plain
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.offers import Offer, earliest, is_usable, template

ROUTINE = re.compile(
    r"""(?ix) \s* (?: (?:chore|build|ci) (?:\([^)]*\))? !? :\s* )?
    (?: (?:prepare|cut|tag|make|start|begin)\b .* \b(?:release|version)\b
      | (?:pre-?)?release\b (?! \s+ (?:the|a|an)\b)
      | (?:version\s+)? bump\b | merge\b
      | version\b \s* v?\d | v?\d+(?:\.\d+)+ \S* (?:\s*\(\S+\))? \s* $ )""",
)
"""Matches subjects of commits that only make a release, change a version number, or merge. A change log does not
mention these."""

WORK_IN_PROGRESS = timedelta(days=30)
"""If nothing was committed for this long, no release is proposed."""


@template
def draft_changelog(context: WorkspaceContext) -> Iterator[Offer]:
    """A release is due or being prepared, and the project's change log does not mention it yet."""
    release = _due_release(context)
    if release is not None and _is_missing_in_log(context, release):
        since = f"{count(release.commits, 'commit')} since {plain(release.tag, 30)}"
        prompt = f"Add the {since} to the unreleased section of {plain(_change_log_path(context), 30)}"
        yield _release_offer(context, release, prompt)


@template
def release_due(context: WorkspaceContext) -> Iterator[Offer]:
    """A release is due or being prepared, and the change log is written, if the project keeps one."""
    release = _due_release(context)
    if release is not None and not _is_missing_in_log(context, release):
        since = f"{count(release.commits, 'commit')} since {plain(release.tag, 30)}"
        yield _release_offer(context, release, f"List what a release would hold: the {since}")


def _release_offer(context: WorkspaceContext, release: ReleaseRhythm, prompt: str) -> Offer:
    return Offer(
        prompt,
        _release_reasoning(release, context.now),
        subject=f"since {release.tag}",
        parameters={"since": release.tag},
        evidence_at=earliest(commit.at for commit in context.repository.recent[: release.commits]),
    )


def _change_log_path(context: WorkspaceContext) -> str:
    """The change log at the top of the repository; "" if there is none."""
    return next((part.project.changelog for part in context.parts if not part.project.path), "")


def _is_missing_in_log(context: WorkspaceContext, release: ReleaseRhythm) -> bool:
    """Whether the project keeps a change log that did not change since the last release."""
    log = _change_log_path(context)
    return log in release.usual_files and log not in release.files


def _due_release(context: WorkspaceContext) -> ReleaseRhythm | None:
    """The rhythm of a project whose release is due. None if no release is due, or if it would contain nothing."""
    git = context.repository
    if not git.head or git.release is None:
        return None
    release = git.release
    if not release.commits or not is_usable(release.tag) or not release.is_due(context.now.timestamp()):
        return None
    idle = not git.recent or context.now - git.recent[0].at > WORK_IN_PROGRESS
    return None if idle or all(ROUTINE.match(subject) for subject in git.subjects) else release


def _release_reasoning(release: ReleaseRhythm, now: datetime) -> str:
    if release.preparing:
        return f"“{plain(release.preparing, 60)}” prepares a release, and no tag names it yet."
    assert isfinite(release.usual_days)  # without a rhythm only a preparation makes it due
    days = count(max(1, round(release.usual_days)), "day")
    commits = count(round(release.usual_commits), "commit")
    since = f"{count(round(release.days(now.timestamp())), 'day')} and {count(release.commits, 'commit')}"
    return f"A release usually comes after {days} and {commits}; it has been {since} since {plain(release.tag, 30)}."
