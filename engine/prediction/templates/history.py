"""Cards about your recent work: summaries of the day and for a meeting, and a file that usually changes with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from engine.git.history import Commit, is_group
from engine.git.state import GitState
from engine.model import PartOfDay
from engine.model.text import because, count, moment, plain, tail, text_hash
from engine.prediction.context import WorkspaceContext, result_words
from engine.prediction.signals import nearest
from engine.prediction.templates.offers import (
    Offer,
    earliest,
    is_usable,
    newest_commit,
    template,
)

DAY_BEGINS = timedelta(hours=5)
"""Work before five in the morning belongs to the day before, as in `part_of_day`."""


@template
def summarise_day(context: WorkspaceContext) -> Iterator[Offer]:
    """It is the evening of a day on which you committed something (SPEC 2.11)."""
    git = context.repository
    if not git.head or context.part is not PartOfDay.EVENING:
        return
    today = day_begin(context.local)
    commits = _commits_since(git, today)
    if not any(git.is_mine(commit) for commit in commits):
        return
    runs = sum(run.ran_at >= today for run in context.runs)
    more = [count(runs, "test run")] if runs else []
    more += [f"{count(len(git.files) + git.more_files, 'file')} uncommitted"] if git.files else []
    reasoning = f"The latest was “{plain(commits[0].subject, 50)}”{because(', '.join(more))}."
    yield _summary(context, f"Sum up today: {_count_words(commits, git)}", reasoning, today, commits)


PREPARATION_TIME = timedelta(hours=1)
"""How long before a meeting its preparation is offered."""


@template
def prepare_meeting(context: WorkspaceContext) -> Iterator[Offer]:
    """A meeting begins soon, and there are commits since it was last held, or if that is not known, since the day
    before."""
    git, meeting = context.repository, nearest(context.meetings, context.local)
    if not git.head or meeting is None or meeting.begins - context.local > PREPARATION_TIME:
        return
    since = meeting.before or day_begin(context.local - timedelta(days=1))
    commits = _commits_since(git, since)
    if not commits:
        return
    name = plain(meeting.name, 50)
    summary = _summary(
        context,
        f"Prepare for “{name}” at {meeting.begins:%H:%M}: sum up {_count_words(commits, git)} since "
        f"{moment(since, context.local)}",
        f"“{name}” begins soon; since then “{plain(commits[0].subject, 50)}” and others came in here.",
        since,
        commits,
    )
    facts = {"meeting": meeting.name, "begins": meeting.begins.isoformat()}
    yield replace(summary, subject=text_hash(meeting.name), facts=facts, evidence_at=context.now)


def _summary(context: WorkspaceContext, prompt: str, reasoning: str, since: datetime, commits: list[Commit]) -> Offer:
    return Offer(
        prompt,
        reasoning,
        subject="the day",
        facts={"since": since.isoformat(), "head": context.repository.head},
        parameters={"since": since.isoformat(), **_sessions_since(context, since)},
        evidence_at=earliest(commit.at for commit in commits),
    )


def _sessions_since(context: WorkspaceContext, since: datetime) -> dict[str, list[str]]:
    """The sessions and test runs since a time, oldest first, each in one line."""
    sessions = [
        f"{plain(session.prompt, 80)}: {plain(session.summary, 80) or session.state.value}"
        for session in context.sessions
        if session.state.over and session.created_at >= since
    ]
    checks = [
        f"{moment(run.ran_at, context.local)} {result_words(run.check)}" for run in context.runs if run.ran_at >= since
    ]
    return {"sessions": sessions[::-1], "checks": checks[::-1]}


def default_parameters(flow: str | None, local: datetime) -> dict[str, str]:
    """The parameters for a flow that is named without parameters, at the time `local`. Parameters with a default in the
    flow itself are left out."""
    return {"since": day_begin(local).isoformat()} if flow == "summarise_day" else {}


def day_begin(local: datetime) -> datetime:
    """The beginning of the working day of a local time, which is at five in the morning."""
    return (local - DAY_BEGINS).replace(hour=5, minute=0, second=0, microsecond=0, fold=0)


def _commits_since(git: GitState, start: datetime) -> list[Commit]:
    """The recent commits from `start` on, newest first: those of all local branches, as the summary lists them."""
    return [commit for commit in git.recent_of_branches if commit.at >= start]


def _count_words(commits: list[Commit], git: GitState) -> str:
    """The number in words: "3 commits". It is "at least 50 commits" if older commits were not read."""
    more = commits[-1] == git.recent_of_branches[-1] and bool(commits[-1].parents)
    return ("at least " if more else "") + count(len(commits), "commit")


@template
def changes_together(context: WorkspaceContext) -> Iterator[Offer]:
    """A file that usually changes together with the changed files has not changed."""
    git = context.repository
    if not git.head or git.partner is None:
        return
    partner = git.partner
    if not is_usable(partner.path) or not is_usable(partner.because):
        return
    path, cause = f"`{tail(partner.path, 60)}`", f"`{tail(partner.because, 60)}`"
    commits = (
        f"{partner.together} of {'the last ' if partner.together < partner.of else ''}{count(partner.of, 'commit')}"
    )
    habit = f"that changed {cause} {path} changed too" if is_group(partner.because) else f"{path} changed with {cause}"
    yield Offer(
        f"Show how {path} last changed with {cause}",
        f"In {commits} {habit}; not this time.",
        subject=f"{partner.path} with {partner.because}",
        facts={"partner": partner.path, "because": partner.because, "together": partner.together, "of": partner.of},
        parameters={"path": partner.because, "partner": partner.path},
        evidence_at=earliest(file.modified_at for file in git.files) or newest_commit(git),
    )
