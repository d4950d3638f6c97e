"""Cards about your commits: summaries of a day and for a meeting, a file that usually changes too, what must not be
pushed, releases.

They read the history and what is not pushed yet. Only the draft of a change log changes a file. The warnings before
publishing come back until their reason is gone (`Kind.comes_back`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from engine.clock import PartOfDay
from engine.git.habits import ReleaseRhythm, is_group
from engine.git.history import Commit
from engine.git.leftovers import SECRET_KIND
from engine.git.push_problems import PushProblem, find_unpushed_span
from engine.git.state import GitState, is_byproduct
from engine.model import SessionView, Tier
from engine.prediction import REVIEWED_IN, REVIEWED_STATE
from engine.prediction.context import WorkspaceContext, describe_result
from engine.prediction.signals import find_nearest_meeting
from engine.prediction.templates.offers import (
    Offer,
    count_others,
    describe_branch,
    find_day_begin,
    find_earliest,
    find_ended_sessions,
    find_head_time,
    is_usable,
    is_usable_path,
    template,
)
from engine.text import compute_text_hash, plain, shorten_path
from engine.wording import because, count, join_shortened, moment

PREPARATION_TIME = timedelta(hours=1)
"""How long before a meeting its preparation is offered."""

MAX_SUBJECT_FINDINGS = 5
"""Maximum number of findings that a subject names."""

MIN_WAITING_TIME = timedelta(days=2)
"""Work that has not been pushed or committed for this long gets a card."""

ROUTINE_SUBJECT = re.compile(
    r"""(?ix) \s* (?: (?:chore|build|ci) (?:\([^)]*\))? !? :\s* )?
    (?: (?:prepare|cut|tag|make|start|begin)\b .* \b(?:release|version)\b
      | (?:pre-?)?release\b (?! \s+ (?:the|a|an)\b)
      | (?:version\s+)? bump\b | merge\b
      | version\b \s* v?\d | v?\d+(?:\.\d+)+ \S* (?:\s*\(\S+\))? \s* $ )""",
)
"""Matches subjects of commits that only make a release, change a version number, or merge. A change log does not
mention these."""

MAX_PROGRESS_AGE = timedelta(days=30)
"""If nothing was committed for this long, no release is proposed."""


@template
def summarise_day(context: WorkspaceContext) -> Iterator[Offer]:
    """It is the evening of a day on which you committed something (SPEC 2.11)."""
    git = context.repository
    if not git.head or context.part is not PartOfDay.EVENING:
        return
    today = find_day_begin(context.local)
    commits = _find_commits_since(git, today)
    if not any(git.is_mine(commit) for commit in commits):
        return
    runs = sum(run.ran_at >= today for run in context.runs)
    details = [count(runs, "test run")] if runs else []
    details += [f"{count(len(git.files) + git.more_files, 'file')} uncommitted"] if git.files else []
    reasoning = f"The latest was “{plain(commits[0].subject, 50)}”{because(', '.join(details))}."
    yield _make_summary_offer(context, f"Sum up today: {_count_words(commits, git)}", reasoning, today, commits)


@template
def prepare_meeting(context: WorkspaceContext) -> Iterator[Offer]:
    """A meeting begins soon, and there are commits since it was last held, or if that is not known, since the day
    before."""
    git, meeting = context.repository, find_nearest_meeting(context.meetings, context.local)
    if not git.head or meeting is None or meeting.begins - context.local > PREPARATION_TIME:
        return
    since = meeting.before or find_day_begin(context.local - timedelta(days=1))
    commits = _find_commits_since(git, since)
    if not commits:
        return
    name = plain(meeting.name, 50)
    summary = _make_summary_offer(
        context,
        f"Prepare for “{name}” at {meeting.begins:%H:%M}: sum up {_count_words(commits, git)} since "
        f"{moment(since, context.local)}",
        f"“{name}” begins soon; since then “{plain(commits[0].subject, 50)}” and others came in here.",
        since,
        commits,
    )
    facts = {"meeting": meeting.name, "begins": meeting.begins.isoformat()}
    yield replace(summary, subject=compute_text_hash(meeting.name), facts=facts, evidence_at=context.now)


def _make_summary_offer(
    context: WorkspaceContext, prompt: str, reasoning: str, since: datetime, commits: list[Commit]
) -> Offer:
    return Offer(
        prompt,
        reasoning,
        subject="the day",
        facts={"since": since.isoformat(), "head": context.repository.head},
        parameters={"since": since.isoformat(), **_find_sessions_since(context, since)},
        evidence_at=find_earliest(commit.at for commit in commits),
    )


def _find_sessions_since(context: WorkspaceContext, since: datetime) -> dict[str, list[str]]:
    """The sessions and test runs since a time, oldest first, each in one line."""
    sessions = [
        f"{plain(session.prompt, 80)}: {plain(session.summary, 80) or session.state.value}"
        for session in context.sessions
        if session.state.is_over and session.created_at >= since
    ]
    checks = [
        f"{moment(run.ran_at, context.local)} {describe_result(run.check)}"
        for run in context.runs
        if run.ran_at >= since
    ]
    return {"sessions": sessions[::-1], "checks": checks[::-1]}


def _find_commits_since(git: GitState, start: datetime) -> list[Commit]:
    """The recent commits from `start` on, newest first: those of all local branches, as the summary lists them."""
    return [commit for commit in git.recent_of_branches if commit.at >= start]


def _count_words(commits: list[Commit], git: GitState) -> str:
    """The number in words: "3 commits". It is "at least 50 commits" if older commits were not read."""
    is_incomplete = commits[-1] == git.recent_of_branches[-1] and bool(commits[-1].parents)
    return ("at least " if is_incomplete else "") + count(len(commits), "commit")


@template
def changes_together(context: WorkspaceContext) -> Iterator[Offer]:
    """A file that usually changes together with the changed files has not changed."""
    git = context.repository
    if not git.head or git.partner is None:
        return
    partner = git.partner
    if not is_usable_path(partner.path) or not is_usable_path(partner.because):
        return
    path, cause = f"`{shorten_path(partner.path, 60)}`", f"`{shorten_path(partner.because, 60)}`"
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
        evidence_at=find_earliest(file.modified_at for file in git.files) or find_head_time(git),
    )


@template
def secret(context: WorkspaceContext) -> Iterator[Offer]:
    """There is a likely secret, whose value is never shown: in commits that are not pushed, or not committed yet."""
    return _offer_warnings(context, is_secret=True)


@template
def large_file(context: WorkspaceContext) -> Iterator[Offer]:
    """There is something else that should not be pushed, such as a large file."""
    return _offer_warnings(context, is_secret=False)


def _offer_warnings(context: WorkspaceContext, *, is_secret: bool) -> Iterator[Offer]:
    """A warning for commits that are not pushed, and one for uncommitted changes."""
    unpushed, uncommitted = context.inspection.unpushed, context.inspection.uncommitted
    committed = [problem for problem in unpushed.committed if problem.is_secret is is_secret]
    if committed:
        tier = Tier.AT_RISK if unpushed.has_remote else Tier.BLOCKS
        yield _make_warning(context, committed, "push", tier)
    paths = {problem.path for problem in committed}
    others = [problem for problem in uncommitted if problem.is_secret is is_secret and problem.path not in paths]
    if others:
        yield _make_warning(context, others, "commit", Tier.BLOCKS)


def _make_warning(context: WorkspaceContext, problems: Sequence[PushProblem], action: str, tier: Tier) -> Offer:
    """The warning not to take an `action`, push or commit, because of these problems."""
    git, first = context.repository, problems[0]
    commit = next((commit for commit in git.recent if commit.id == first.sha), None)
    modified = next((file.modified_at for file in git.files if file.path == first.path), None)
    evidence_at = commit.at if commit else modified or find_head_time(git)
    reasoning = "It is in no commit yet, so it is easy to take out."
    if first.sha:
        subject = f"“{plain(commit.subject, 50)}”" if commit else first.sha[:10]
        who_has_it = "no remote has yet" if context.inspection.unpushed.has_remote else "you can still change"
        reasoning = f"It came in with {subject}, which {who_has_it}."
    subjects = sorted({_make_problem_subject(problem) for problem in problems})
    facts = {"found": sorted([problem.kind, problem.path] for problem in problems), "committed": bool(first.sha)}
    if review := _find_review(context, problems):
        at = moment(review.ended_at or review.created_at, context.local)
        reasoning += f" You reviewed it at {at}; the details say how to take it out."
        reasoning = "\n".join([reasoning, *review.facts.get("steps", ())])
        facts |= {REVIEWED_IN: review.id, REVIEWED_STATE: review.facts.get("state", "")}
    else:
        reasoning += " Approving this lists the commands that take it out, and changes nothing."
    return Offer(
        f"Do not {action} yet: {describe_problem(first)}{count_others(problems, ', and ', 'other finding')}",
        reasoning,
        subject=", ".join(subjects[:MAX_SUBJECT_FINDINGS]),
        facts=facts,
        parameters=find_review_range(git, context.now),
        evidence_at=evidence_at,
        tier=tier,
    )


def _find_review(context: WorkspaceContext, problems: Sequence[PushProblem]) -> SessionView | None:
    """The last review, if it read the present HEAD and found each of these problems as it is now."""
    review = next(iter(find_ended_sessions(context, "", "review_unpushed")), None)
    if review is None or review.facts.get("head") != context.repository.head:
        return None
    keys = ("kind", "path", "line", "commit", "gone")
    found = {tuple(fact[key] for key in keys) for fact in review.facts.get("findings", ())}
    present = {
        (problem.kind, problem.path, problem.line, problem.sha, problem.is_in_history_only) for problem in problems
    }
    return review if present <= found else None


def _make_problem_subject(problem: PushProblem) -> str:
    """A secret is named with its kind, so that another secret in the same file is another subject."""
    path = plain(problem.path, 200)
    return f"{problem.kind.removeprefix(f'{SECRET_KIND}: ')} in {path}" if problem.is_secret else path


def describe_problem(problem: PushProblem) -> str:
    """The problem in words, with at most 60 characters of its path."""
    return replace(problem, path=shorten_path(problem.path, 60)).description


def find_review_range(git: GitState, now: datetime) -> dict[str, Any]:
    """The parameter that says which commits the review reads: those that the inspection reads, too."""
    span = find_unpushed_span(git, now)
    if span is None:
        return {}
    name = git.upstream if git.upstream_tip else git.base if span.excluded else ""
    if span.excluded:
        return {"upstream": name if is_usable(name) else span.excluded}
    return {} if span.has_remote else {"newest": span.max_commits}


@template
def waiting_work(context: WorkspaceContext) -> Iterator[Offer]:
    """Commits have not been pushed for days, or changes have not been committed for days."""
    git = context.repository
    if git.head and not git.operation:
        yield from _offer_waiting_commits(context, git)
        yield from _offer_waiting_changes(context, git)


def _offer_waiting_commits(context: WorkspaceContext, git: GitState) -> Iterator[Offer]:
    """Commits that are not pushed; without a remote, commits that the base branch does not have."""
    if git.has_remote:
        number = context.inspection.unpushed.commits
        where = f"not pushed to {plain(git.upstream, 30)}" if git.upstream else ""
    else:
        number = git.ahead_of_base if git.base and git.branch else 0
        where = f"on this branch alone, not in {plain(git.base, 30)}"
    if not number:
        return
    oldest_at = git.recent[min(number, len(git.recent)) - 1].at
    if context.now - oldest_at < MIN_WAITING_TIME:
        return
    yield Offer(
        f"Look through the {'commit' if number == 1 else count(number, 'commit')} "
        + ("to push" if git.has_remote else "of this branch"),
        f"{count(number, 'commit')} {'is' if number == 1 else 'are'} {where or 'on no remote branch'}, the oldest "
        f"from {moment(oldest_at, context.local)}.",
        subject=f"{describe_branch(git)} against {git.upstream or git.base}",
        facts={"upstream": git.upstream or git.base, "upstream_tip": git.upstream_tip, "head": git.head},
        parameters=find_review_range(git, context.now),
        evidence_at=oldest_at,
    )


def _offer_waiting_changes(context: WorkspaceContext, git: GitState) -> Iterator[Offer]:
    """Files that were changed days ago and are not committed. Byproducts such as logs are left out."""
    dated = [
        (file.modified_at, file.path)
        for file in git.files
        if file.modified_at is not None and not file.conflicted and not (file.untracked and is_byproduct(file.path))
    ]
    files = [(at, path) for at, path in dated if context.now - at >= MIN_WAITING_TIME]
    if not files:
        return
    since, paths = min(files)[0], sorted(path for _, path in files)
    number = len(paths)
    yield Offer(
        f"Look at what is not committed yet: {join_shortened(paths, 3)}",
        f"{count(number, 'file')} changed since {moment(since, context.local)} "
        f"{'is' if number == 1 else 'are'} in no commit.",
        subject=f"uncommitted on {describe_branch(git)}",
        facts={"paths": paths},
        evidence_at=since,
        flow="look_at_changes",
    )


@template
def release_due(context: WorkspaceContext) -> Iterator[Offer]:
    """A release is due or being prepared. If the project keeps a change log that did not change since the last release,
    that comes first."""
    release = _find_due_release(context)
    if release is None:
        return
    since = f"{count(release.commits, 'commit')} since {plain(release.tag, 30)}"
    changelog = next((part.project.changelog for part in context.parts if not part.project.path), "")
    is_unwritten = changelog in release.usual_files and changelog not in release.files
    yield Offer(
        f"Add the {since} to the unreleased section of {plain(changelog, 30)}"
        if is_unwritten
        else f"List what a release would hold: the {since}",
        _explain_release(release, context.now),
        subject=f"since {release.tag}",
        parameters={"since": release.tag},
        evidence_at=find_earliest(commit.at for commit in context.repository.recent[: release.commits]),
        kind="draft_changelog" if is_unwritten else "",
    )


def _find_due_release(context: WorkspaceContext) -> ReleaseRhythm | None:
    """The rhythm of a project whose release is due. None if no release is due, or if it would contain nothing."""
    git = context.repository
    if not git.head or git.release is None:
        return None
    release = git.release
    if not release.commits or not is_usable(release.tag) or not release.is_due(context.now.timestamp()):
        return None
    idle = not git.recent or context.now - git.recent[0].at > MAX_PROGRESS_AGE
    return None if idle or all(ROUTINE_SUBJECT.match(subject) for subject in release.subjects) else release


def _explain_release(release: ReleaseRhythm, now: datetime) -> str:
    """Why a release is due, in words."""
    if release.preparing:
        return f"“{plain(release.preparing, 60)}” prepares a release, and no tag names it yet."
    assert isfinite(release.usual_days)  # without a rhythm only a preparation makes it due
    days = count(max(1, round(release.usual_days)), "day")
    commits = count(round(release.usual_commits), "commit")
    since = f"{count(round(release.days(now.timestamp())), 'day')} and {count(release.commits, 'commit')}"
    return f"A release usually comes after {days} and {commits}; it has been {since} since {plain(release.tag, 30)}."
