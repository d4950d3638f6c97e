"""Cards about your recent work: unpushed commits and uncommitted changes that wait, summaries of the day and for a
meeting, and a file that usually changes with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from engine.git.history import Commit
from engine.git.project_habits import is_group
from engine.git.state import GitState, is_byproduct
from engine.model import PartOfDay
from engine.model.text import because, count, listing, moment, plain, tail, text_hash
from engine.prediction.context import WorkspaceContext, result_words
from engine.prediction.signals import nearest
from engine.prediction.templates.changes import find_review, review_range
from engine.prediction.templates.failures import find_culprit
from engine.prediction.templates.offers import (
    Offer,
    branch_of,
    earliest,
    is_usable,
    newest_commit,
    template,
)

DAY_BEGINS = timedelta(hours=5)
"""Work before five in the morning belongs to the day before, as in `part_of_day`."""


MIN_WAIT = timedelta(days=2)
"""Work that has not been pushed or committed for this long gets a card."""


@template
def waiting_work(context: WorkspaceContext) -> Iterator[Offer]:
    """Commits have not been pushed for days, or changes have not been committed for days."""
    git = context.repository
    if git.head and not git.operation:
        yield from _waiting_commits(context, git)
        yield from _waiting_changes(context, git)


def _waiting_commits(context: WorkspaceContext, git: GitState) -> Iterator[Offer]:
    """Commits that are not pushed; without a remote, commits that the base branch does not have."""
    if git.has_remote:
        number, where = (
            context.inspection.unpushed.commits,
            f"not pushed to {plain(git.upstream, 30)}" if git.upstream else "",
        )
    else:
        number = git.ahead_of_base if git.base and git.branch else 0
        where = f"on this branch alone, not in {plain(git.base, 30)}"
    if not number or find_review(context) is not None:
        return
    oldest_at = git.recent[min(number, len(git.recent)) - 1].at
    if context.now - oldest_at < MIN_WAIT:
        return
    broken = _known_breakage(context, git, number)
    yield Offer(
        f"Look through the {'commit' if number == 1 else count(number, 'commit')} "
        + ("to push" if git.has_remote else "of this branch"),
        f"{count(number, 'commit')} {'is' if number == 1 else 'are'} {where or 'on no remote branch'}, the oldest "
        f"from {moment(oldest_at, context.local)}.",
        subject=f"{branch_of(git)} against {git.upstream or git.base}",
        facts={"upstream": git.upstream or git.base, "upstream_tip": git.upstream_tip, "head": git.head},
        parameters=review_range(git, context.now) | ({"broken": broken} if broken else {}),
        evidence_at=oldest_at,
    )


def _waiting_changes(context: WorkspaceContext, git: GitState) -> Iterator[Offer]:
    """Files that were changed days ago and are not committed. Byproducts such as logs are left out."""
    dated = [
        (file.modified_at, file.path)
        for file in git.files
        if file.modified_at is not None and not file.conflicted and not (file.untracked and is_byproduct(file.path))
    ]
    files = [(at, path) for at, path in dated if context.now - at >= MIN_WAIT]
    if not files:
        return
    since, paths = min(files)[0], sorted(path for _, path in files)
    number = len(paths)
    day = f"{since.astimezone(context.local.tzinfo):%A}" if context.now - since < timedelta(days=6) else ""
    yield Offer(
        f"Look at what is not committed yet: {listing(paths, 3)}",
        f"{count(number, 'file')} changed since {day or moment(since, context.local)} "
        f"{'is' if number == 1 else 'are'} in no commit.",
        subject=f"uncommitted on {branch_of(git)}",
        facts={"paths": paths},
        evidence_at=since,
        flow="look_at_changes",
    )


def _known_breakage(context: WorkspaceContext, git: GitState, number: int) -> list[str]:
    """The known problems of the newest `number` commits: commits that broke a test according to a bisect, and failing
    tests of HEAD."""
    unpushed = [commit.id for commit in git.recent[:number]]
    faults = []
    for session in context.sessions:
        commit, _ = find_culprit(session)
        if commit and any(sha.startswith(commit) for sha in unpushed):
            faults.append(f"{commit} broke a test: {plain(session.prompt, 80)}")
    red = next((run for run in context.runs if run.head == git.head and run.clean), None)
    if red is not None and red.check.failed + red.check.errors:
        faults.append(f"the tests of HEAD fail: {result_words(red.check)} at {moment(red.ran_at, context.local)}")
    return list(dict.fromkeys(faults))[:20]


@template
def summarise_day(context: WorkspaceContext) -> Iterator[Offer]:
    """It is the evening of a day on which you committed something (SPEC 2.11)."""
    git = context.repository
    if not git.head or context.part is not PartOfDay.EVENING:
        return
    today = day_begin(context.local)
    commits = commits_between(git, today, None)
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
    commits = commits_between(git, since, None)
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


def commits_between(git: GitState, start: datetime, end: datetime | None) -> list[Commit]:
    """The recent commits from `start` up to, but not including, `end`, newest first. Without an `end`, up to now."""
    return [commit for commit in git.recent if commit.at >= start and (end is None or commit.at < end)]


def _count_words(commits: list[Commit], git: GitState) -> str:
    """The number in words: "3 commits". It is "at least 50 commits" if older commits were not read."""
    more = commits[-1] == git.recent[-1] and bool(commits[-1].parents)
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
