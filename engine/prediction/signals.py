"""The six signals of SPEC 2.1. Each says how relevant work is now, in [0, 1], and gives its evidence in words.

The evidence names moments, not ages, because a card shows it for hours. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import prod

from engine.clock import PartOfDay, part_of_day
from engine.frozen import frozen, group_pairs
from engine.git.github import GitHubState
from engine.git.state import GitState, Touch
from engine.model import SessionState, SessionView, Signal, Task, TaskState
from engine.text import plain
from engine.wording import count, moment, span

WEIGHTS = {
    "time": 0.3,
    "silence": 0.2,
    "tasks": 0.2,
    "conversations": 0.15,
    "git": 0.1,
    "calendar": 0.05,
}
"""The weight of each signal in a proposal's rank (SPEC 2.1); the six sum to 1."""


def make_signal(name: str, relevance: float, *evidence: str, error: str = "") -> Signal:
    """Make a signal with its weight of SPEC 2.1. Raises KeyError if the name is none of the six."""
    return Signal(name, WEIGHTS[name], min(1.0, max(0.0, relevance)), evidence, error)


# -- time of day


_EVIDENCE_OF_PARTS = {
    PartOfDay.MORNING: ("morning: review and plan", 1.0),
    PartOfDay.AFTERNOON: ("afternoon: deep work", 1.0),
    PartOfDay.EVENING: ("evening: summarise the day", 1.0),
    PartOfDay.NIGHT: ("night: little is urgent", 0.5),
}
"""The purpose of each part of the day, and how relevant work is in it."""


def make_time_signal(local: datetime) -> Signal:
    """The signal of the operator's local time."""
    words, relevance = _EVIDENCE_OF_PARTS[part_of_day(local)]
    return make_signal("time", relevance, words)


# -- silence


MAX_CLOCK_DIFFERENCE = timedelta(minutes=1)
"""A file dated further into the future than this was copied with its date, and is no sign of activity."""

ANY_NEW_FILE = "*"
"""The path of an `OurWrite` of every untracked file: those that a check of ours may leave behind."""


STAMP_SLACK = timedelta(milliseconds=1)
"""Files have times in nanoseconds, instants in microseconds."""


@frozen
class OurWrite:
    """A write by the engine, between two instants, both included: of a landing into `path` (relative to the workspace),
    or of a session that may have left untracked files (`ANY_NEW_FILE`)."""

    path: str
    since: datetime
    until: datetime

    @classmethod
    def of_landing(cls, path: str, mtime_ns: int) -> OurWrite:
        """The write of a landing that left this time on a file, in nanoseconds."""
        at = datetime.fromtimestamp(mtime_ns / 1e9, UTC)
        return cls(path, at - STAMP_SLACK, at + STAMP_SLACK)

    def covers(self, touch: Touch) -> bool:
        """Whether `touch` is this write, and not a later write by the operator."""
        ours = touch.path == self.path or (self.path == ANY_NEW_FILE and touch.untracked)
        return ours and self.since <= touch.at <= self.until


def find_last_activity(
    now: datetime, last_input: datetime | None, touches: Iterable[Touch], ours: Iterable[OurWrite]
) -> datetime | None:
    """The operator's last activity, None for unknown. Never later than `now`."""
    writes = group_pairs((write.path, write) for write in ours)
    signs = [] if last_input is None else [last_input]
    signs += [
        touch.at
        for touch in touches
        if touch.at <= now + MAX_CLOCK_DIFFERENCE
        and not any(write.covers(touch) for write in [*writes.get(touch.path, ()), *writes.get(ANY_NEW_FILE, ())])
    ]
    return min(max(signs), now) if signs else None


def make_silence_signal(silence: timedelta | None, threshold: timedelta, local: datetime) -> Signal:
    """Grows evenly from 0 (just active) to 1 at `threshold` (`silenceThresholdMs`, > 0); 0 if nothing is known."""
    if silence is None:
        return make_signal("silence", 0.0, "no activity seen yet")
    since = local.astimezone(UTC) - silence
    return make_signal("silence", silence / threshold, f"quiet since {moment(since, local)}")


# -- tasks


FULLY_STALE = timedelta(days=7)
"""Time without a change after which the staleness of a task is 1."""


def list_open_tasks(tasks: Sequence[Task]) -> list[Task]:
    """The open tasks that can be begun, the one without a change for longest first. Tasks of sessions, and tasks that
    wait for others, are left out."""
    opened = (
        task for task in tasks if task.state == TaskState.OPEN and task.source != "session" and not task.waits_for
    )
    return sorted(opened, key=lambda task: task.updated_at)


def make_tasks_signal(tasks: Sequence[Task], local: datetime) -> Signal:
    """The signal of the workspace: how stale its stalest open task is. It names the three stalest."""
    opened = list_open_tasks(tasks)
    if not opened:
        return make_signal("tasks", 0.0, "no open tasks")
    return make_signal(
        "tasks", _compute_staleness(opened[0], local), *(_describe_task(task, local) for task in opened[:3])
    )


def make_task_signal(task: Task, local: datetime) -> Signal:
    """The signal of a proposal that is about this task."""
    return make_signal("tasks", _compute_staleness(task, local), _describe_task(task, local))


def _compute_staleness(task: Task, now: datetime) -> float:
    """0.3 for a task that was changed just now, growing evenly to 1 after seven days without a change."""
    return 0.3 + 0.7 * min(1.0, max(0.0, (now - task.updated_at) / FULLY_STALE))


def _describe_task(task: Task, local: datetime) -> str:
    """A task in words."""
    return f"“{plain(task.title, 40)}”, unchanged since {moment(task.updated_at, local)}"


# -- conversations


THREAD_FADES = timedelta(hours=24)
"""Time over which the relevance of a conversation decreases to 0."""

MAX_ANSWER_TIME = timedelta(minutes=10)
"""Time after the operator's last message in which an agent may still be answering."""

_LEFT_OPEN = {SessionState.FAILED, SessionState.INTERRUPTED, SessionState.BLOCKED}
"""States of sessions whose work is not done."""


def _compute_freshness(at: datetime, now: datetime) -> float:
    """1 for this moment, falling evenly to 0 within `THREAD_FADES`."""
    return 1.0 - min(1.0, max(0.0, (now - at) / THREAD_FADES))


def compute_session_relevance(session: SessionView, now: datetime) -> float:
    """How much a session asks to be continued, in [0, 1].

    At its end it is 1 if the session failed, was interrupted or was blocked, 0.8 if it found a problem, 0.4 if it ended
    well, and 0.2 if the operator cancelled it. It decreases with time. While the session runs it is 0."""
    if not session.state.is_over:
        return 0.0
    if session.state in _LEFT_OPEN:
        openness = 1.0
    elif session.state is SessionState.CANCELLED:
        openness = 0.2
    else:
        openness = 0.8 if session.has_problem else 0.4
    return openness * _compute_freshness(session.ended_at or session.created_at, now)


def compute_thread_relevance(thread: Thread, now: datetime) -> float:
    """How much a conversation with another agent asks to be continued, in [0, 1].

    It is 1 if a question of the agent is open, 0.8 if the operator's last message was never answered, and 0.4
    otherwise. It decreases with time. While the agent may be answering it is 0."""
    if thread.unanswered and not thread.question and now - thread.at < MAX_ANSWER_TIME:
        return 0.0
    openness = 1.0 if thread.question else 0.8 if thread.unanswered else 0.4
    return openness * _compute_freshness(thread.at, now)


def make_conversations_signal(sessions: Sequence[SessionView], threads: Sequence[Thread], local: datetime) -> Signal:
    """The signal of the workspace: the most relevant session and the most relevant conversation with another agent."""
    rated_threads = [(compute_thread_relevance(thread, local), describe_thread(thread, local)) for thread in threads]
    best = [*_find_best_session(sessions, local), *sorted(rated_threads)[-1:]]
    return _make_conversations_signal(best, "no recent sessions")


def make_continuation_signal(sessions: Sequence[SessionView], local: datetime, flows: Collection[str]) -> Signal:
    """The signal of a proposal: the most relevant session of the flows that it continues."""
    continued = [session for session in sessions if session.flow in flows]
    return _make_conversations_signal(_find_best_session(continued, local), "no recent session that it continues")


def _find_best_session(sessions: Sequence[SessionView], local: datetime) -> list[tuple[float, str]]:
    """The most relevant session as (relevance, words)."""
    return sorted(
        (compute_session_relevance(session, local), _describe_session(session, local)) for session in sessions
    )[-1:]


def _make_conversations_signal(rated: Sequence[tuple[float, str]], nothing: str) -> Signal:
    """The signal of what is relevant, the most relevant first; `nothing` says that nothing is."""
    relevant = sorted((pair for pair in rated if pair[0] > 0.0), reverse=True) or [(0.0, nothing)]
    return make_signal("conversations", relevant[0][0], *(words for _, words in relevant))


def describe_thread(thread: Thread, local: datetime) -> str:
    """A conversation with another agent in words."""
    at = moment(thread.at, local)
    if thread.question:
        return f"{thread.agent} asks “{plain(thread.question, 60)}” ({at})"
    about = f"“{plain(thread.about, 40)}” with {thread.agent}" if thread.about else f"a talk with {thread.agent}"
    return f"{about} was left without an answer ({at})" if thread.unanswered else f"{about} ({at})"


def _describe_session(session: SessionView, local: datetime) -> str:
    """A session in words."""
    outcome = "found a problem" if session.has_problem else session.state.value
    at = moment(session.ended_at or session.created_at, local)
    return f"“{plain(session.prompt, 40)}” {outcome} ({at})"


# -- git


def _rank_waiting(state: GitState, github: GitHubState | None, *, tests_stale: bool) -> list[tuple[float, str]]:
    """What waits in the repository, as (relevance, words); the words may be ""."""
    files = len(state.files) + state.more_files
    requests, failing = (github.pull_requests, github.failing) if github else ((), ())
    rows: tuple[tuple[float, object, str], ...] = (
        (0.8, state.operation, f"{state.operation} in progress"),
        (0.5, files, count(files, "uncommitted file")),
        (0.3, state.ahead, count(state.ahead, "unpushed commit")),
        (0.3, state.behind_base, f"{count(state.behind_base, 'commit')} behind {plain(state.base, 30)}"),
        (0.7, failing, f"CI fails: {plain(failing[0][1], 30)}" if failing else ""),
        (0.2, requests, count(len(requests), "open pull request")),
        (0.4, tests_stale, ""),
        (0.1, state.open_branches, ""),
    )
    return [(relevance, words) for relevance, value, words in rows if value]


def describe_git_evidence(state: GitState, github: GitHubState | None) -> list[str]:
    """What waits in the repository, in words. If nothing does, one line says so."""
    if not state.head:
        return ["no commits yet"]
    unpushed = "nothing unpushed" if state.upstream_tip else "no upstream to compare with"
    return [words for _, words in _rank_waiting(state, github, tests_stale=False) if words] or [f"clean, {unpushed}"]


def make_git_signal(state: GitState, github: GitHubState | None, *, tests_stale: bool) -> Signal:
    """The signal of the workspace. Its relevance is 1 minus the product of (1 - relevance) over all that waits. If
    `gh` failed, the signal has that error, and the rest still counts."""
    relevance = 1.0 - prod(
        1.0 - item_relevance for item_relevance, _ in _rank_waiting(state, github, tests_stale=tests_stale)
    )
    error = f"gh: {plain(github.error, 200)}" if github and github.error else ""
    return make_signal("git", relevance, *describe_git_evidence(state, github), error=error)


# -- calendar


MEETINGS_AHEAD = timedelta(hours=4)
"""How far ahead meetings count. The relevance of a meeting decreases evenly to 0 over this time."""


@frozen
class Thread:
    """A conversation of the operator with another agent about a workspace."""

    session: str
    agent: str
    workspace: str
    about: str
    """The operator's words."""
    question: str
    """The agent's last question, "" for none."""
    unanswered: bool
    """Whether the operator spoke last."""
    at: datetime
    """The time of the last turn."""


@frozen
class Meeting:
    """One occurrence of a meeting. `begins` is in the operator's zone; `before` is when the meeting was last held, None
    for never."""

    name: str
    begins: datetime
    before: datetime | None = None


def find_nearest_meeting(meetings: Sequence[Meeting], now: datetime) -> Meeting | None:
    """The next meeting that begins within `MEETINGS_AHEAD`, None for none."""
    coming = [meeting for meeting in meetings if now <= meeting.begins < now + MEETINGS_AHEAD]
    return min(coming, key=lambda meeting: (meeting.begins, meeting.name), default=None)


def make_calendar_signal(meetings: Sequence[Meeting] | None, now: datetime) -> Signal:
    """The relevance is 1 for a meeting that begins now, and decreases evenly to 0 for one in four hours. `meetings` is
    None if the settings name no calendar."""
    if meetings is None:
        return make_signal("calendar", 0.0, "no calendar configured")
    meeting = find_nearest_meeting(meetings, now)
    if meeting is None:
        return make_signal("calendar", 0.0, f"no meeting within {span(MEETINGS_AHEAD)}")
    wait = meeting.begins - now
    return make_signal("calendar", 1.0 - wait / MEETINGS_AHEAD, f"{plain(meeting.name, 50)} at {meeting.begins:%H:%M}")
