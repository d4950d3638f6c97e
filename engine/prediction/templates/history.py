"""What the history asks for: a change log, a look at what is not pushed, the day in words."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from engine.inspection.state import Commit, GitState
from engine.prediction.collectors.calendar import nearest
from engine.prediction.collectors.time_of_day import Activity
from engine.prediction.context import WorkspaceContext, result_words
from engine.prediction.templates.making import branch_of, offer, oldest, usable
from engine.prediction.words import count, moment, plain
from engine.values import PartOfDay, Proposal
from engine.values.text import mark

ROUTINE = re.compile(
    r"""(?ix) \s* (?: (?:chore|build|ci) (?:\([^)]*\))? !? :\s* )?
    (?: (?:prepare|cut|tag|make|start|begin)\b .* \b(?:release|version)\b
      | (?:pre-?)?release\b (?! \s+ (?:the|a|an)\b)
      | (?:version\s+)? bump\b | merge\b
      | version\b \s* v?\d | v?\d+(?:\.\d+)+ \S* (?:\s*\(\S+\))? \s* $ )""",
)
"""Subjects of commits that only release, raise a version's number or merge: no change log speaks of them."""

_BLAMED = re.compile(r"([0-9a-f]{10}) “")
"""The commit in the summary of a bisect that found one."""

DAY_BEGINS = timedelta(hours=5)
"""Work before five in the morning belongs to the day before, as `part_of_day` has it."""


def draft_changelog(context: WorkspaceContext) -> list[Proposal]:
    """The unreleased commits since the last tag, for a project that keeps a change log.

    Offered only where something can come of it: not for commits that only release, bump or merge.
    """
    git, tool = context.git, context.tool
    if git is None or not git.head or git.operation or tool is None or not tool.changelog:
        return []
    number, since = git.commits_since_tag, git.tag
    if not since or not number or not usable(since) or all(ROUTINE.match(subject) for subject in git.subjects):
        return []
    prompt = f"Add {_the(number)} since {plain(since, 30)} to the unreleased section of {plain(tool.changelog, 30)}"
    reasoning = f"The latest is “{plain(git.recent[0].subject, 60)}”."
    return [
        offer(
            context,
            "draft_changelog",
            prompt,
            reasoning,
            subject=f"since {since}",
            facts={"since": since, "head": git.head},
            parameters={"since": since},
            activities=(Activity.SUMMARY,),
            strength=min(1.0, number / 20),
            evidence=f"{count(number, 'commit')} since {plain(since, 30)}",
            channel="chronicle-hub",
            evidence_at=git.recent[min(number, len(git.recent)) - 1].at,
            usual_hours=72.0,
            about=f"change log release {since}",
        )
    ]


def _the(number: int) -> str:
    return "the commit" if number == 1 else f"the {count(number, 'commit')}"


def review_unpushed(context: WorkspaceContext) -> list[Proposal]:
    """Commits that others do not have yet: against the upstream, or, without one, against the base."""
    git = context.git
    if git is None or not git.head or git.operation:
        return []
    if git.upstream:
        against, tip, number, missing = git.upstream, git.upstream_tip, git.ahead, "not pushed to {} yet"
    elif git.base and git.branch:
        against, tip, number, missing = git.base, git.base_tip, git.ahead_of_base, "that {} does not have"
    else:
        return []
    if number == 0 or not usable(against):
        return []
    newest = git.recent[0]
    broken = _broken(context, git, number)
    return [
        offer(
            context,
            "review_unpushed",
            f"Review {_the(number)} {missing.format(plain(against, 30))}",
            f"Conflict markers, debug prints, secrets: better found before others see “{plain(newest.subject, 40)}”.",
            subject=f"{branch_of(git)} against {against}",
            facts={"upstream": against, "upstream_tip": tip, "head": git.head},
            parameters={"upstream": against} | ({"broken": broken} if broken else {}),
            activities=(Activity.REVIEW,),
            strength=min(1.0, 0.3 + 0.1 * number),
            evidence=count(number, "unpushed commit") if git.upstream else f"{count(number, 'commit')} of its own",
            channel="koji-core",
            evidence_at=git.recent[min(number, len(git.recent)) - 1].at,
            usual_hours=8.0,
            about=" ".join(commit.subject for commit in git.recent[: min(number, 10)]),
        )
    ]


def _broken(context: WorkspaceContext, git: GitState, number: int) -> list[str]:
    """What is known to be broken in the newest `number` commits: commits that a bisect blamed, red tests of HEAD."""
    unpushed = [commit.id for commit in git.recent[:number]]
    told = []
    for session in context.sessions:
        found = _BLAMED.match(session.summary) if session.flow == "bisect" else None
        if found and any(sha.startswith(found[1]) for sha in unpushed):
            told.append(f"{found[1]} broke a test: {plain(session.prompt, 80)}")
    red = next((run for run in context.runs if run.head == git.head and run.clean), None)
    if red is not None and red.check.failed + red.check.errors:
        told.append(f"the tests of HEAD are red: {result_words(red.check)} at {moment(red.ran_at, context.local)}")
    return list(dict.fromkeys(told))[:20]


def summarise_day(context: WorkspaceContext) -> list[Proposal]:
    """In the evening: today. Before that, while nothing was committed today: the last day on which something was."""
    git = context.git
    if git is None or not git.head:
        return []
    today = day_begin(context.local)
    if commits_between(git, today, None):
        late = context.part in (PartOfDay.EVENING, PartOfDay.NIGHT)
        return [_today(context, git, today)] if late else []
    past = [commit for commit in git.recent if commit.at < today]
    if not past:
        return []
    day = day_begin(max(commit.at for commit in past).astimezone(context.local.tzinfo))
    commits = commits_between(git, day, day_begin(day + timedelta(hours=36)))
    when = f"{day.day} {day:%B}" + ("" if day.year == context.local.year else f" {day.year}")
    return [
        _summary(
            context,
            git,
            f"Sum up the last day of work here, {when}: {_number_of(commits, git)}",
            f"Nothing was committed since; the last was “{plain(commits[0].subject, 50)}”.",
            day,
            commits,
            (Activity.REVIEW,),
            until=day_begin(day + timedelta(hours=36)),
        )
    ]


def _today(context: WorkspaceContext, git: GitState, today: datetime) -> Proposal:
    commits = commits_between(git, today, None)
    runs = sum(run.ran_at >= today for run in context.runs)
    parts = [_number_of(commits, git)]
    parts += [count(runs, "test run")] if runs else []
    parts += [f"{count(len(git.files) + git.more_files, 'file')} uncommitted"] if git.files else []
    return _summary(
        context,
        git,
        f"Sum up today: {', '.join(parts)}",
        f"The latest was “{plain(commits[0].subject, 50)}”."
        if _older_unread(commits, git)
        else f"The day began with “{plain(commits[-1].subject, 50)}”.",
        today,
        commits,
        (Activity.SUMMARY,),
    )


PREPARED_FROM = timedelta(hours=1)
"""So long before a meeting its preparation is offered."""


def prepare_meeting(context: WorkspaceContext) -> list[Proposal]:
    """Before a meeting: what was done since it was last held, or since the day before began, if that is anything."""
    git, meeting = context.git, nearest(context.meetings, context.local)
    if git is None or not git.head or meeting is None or meeting.begins - context.local > PREPARED_FROM:
        return []
    since = meeting.before or day_begin(context.local - timedelta(days=1))
    commits = commits_between(git, since, None)
    if not commits:
        return []
    name = plain(meeting.name, 50)
    summary = _summary(
        context,
        git,
        f"Prepare for “{name}” at {meeting.begins:%H:%M}: sum up {_number_of(commits, git)} since "
        f"{moment(since, context.local)}",
        f"“{name}” begins soon; since then “{plain(commits[0].subject, 50)}” and others came in here.",
        since,
        commits,
        (Activity.REVIEW, Activity.SUMMARY),
    )
    facts = {"meeting": meeting.name, "begins": meeting.begins.isoformat()}
    about = replace(summary, kind="prepare_meeting", subject=mark(meeting.name), facts=facts)
    return [replace(about, evidence_at=context.now, usual_hours=0.5)]


def _summary(
    context: WorkspaceContext,
    git: GitState,
    prompt: str,
    reasoning: str,
    since: datetime,
    commits: list[Commit],
    activities: tuple[Activity, ...],
    until: datetime | None = None,
) -> Proposal:
    return offer(
        context,
        "summarise_day",
        prompt,
        reasoning,
        subject=f"{since:%Y-%m-%d}",
        facts={"since": since.isoformat(), "head": git.head},
        parameters={
            "since": since.isoformat(),
            **({"until": until.isoformat()} if until is not None else {}),
            **_beside_git(context, since, until),
        },
        activities=activities,
        strength=min(1.0, 0.1 * len(commits)),
        evidence=f"{_number_of(commits, git)} that day",
        channel="chronicle-hub",
        evidence_at=oldest(commit.at for commit in commits),
        usual_hours=24.0,
        about="summary of the day",
    )


def _beside_git(context: WorkspaceContext, since: datetime, until: datetime | None) -> dict[str, list[str]]:
    """What the engine knows of that time and git does not: sessions and test runs, a line each, oldest first."""

    def within(at: datetime) -> bool:
        return at >= since and (until is None or at < until)

    sessions = [
        f"{plain(session.prompt, 80)}: {plain(session.summary, 80) or session.state.value}"
        for session in context.sessions
        if session.state.over and within(session.created_at)
    ]
    checks = [
        f"{moment(run.ran_at, context.local)} {result_words(run.check)}" for run in context.runs if within(run.ran_at)
    ]
    return {"sessions": sessions[::-1], "checks": checks[::-1]}


def day_begin(local: datetime) -> datetime:
    """Five in the morning of the working day that a local time belongs to."""
    return (local - DAY_BEGINS).replace(hour=5, minute=0, second=0, microsecond=0, fold=0)


def commits_between(git: GitState, start: datetime, end: datetime | None) -> list[Commit]:
    """Of the recent commits, those from `start` on and before `end`, newest first."""
    return [commit for commit in git.recent if commit.at >= start and (end is None or commit.at < end)]


def _older_unread(commits: list[Commit], git: GitState) -> bool:
    """Whether there may be more of them: the oldest is the last that was read, and history goes on behind it."""
    return commits[-1] == git.recent[-1] and bool(commits[-1].parents)


def _number_of(commits: list[Commit], git: GitState) -> str:
    """ "3 commits", "at least 50 commits"."""
    return ("at least " if _older_unread(commits, git) else "") + count(len(commits), "commit")
