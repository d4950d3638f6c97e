"""The six signals of SPEC 2.1: the relevance of work right now, in [0, 1], with its evidence in words. Pure."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from engine.files import read_plain
from engine.frozen import frozen
from engine.git.github import GitHubState
from engine.git.state import GitState, Touch
from engine.model import PartOfDay, Refusal, SessionState, SessionView, Signal, Task, Thread, part_of_day, sanitise
from engine.model.text import count, plain, span, words_of
from engine.prediction.kinds import Activity

# Reads meetings out of `.ics` files: RRULE, TZID, EXDATE and the rest by libraries that know them (SPEC 2.1).


AHEAD = timedelta(hours=4)
"""A meeting that begins now weighs all, one in four hours nothing."""

BEHIND = timedelta(days=14)
"""So far back it is looked when the same meeting was held last."""

MAX_BYTES = 20 * 1024 * 1024
"""Bytes of a calendar that are read."""

UNNAMED = "a meeting"


@frozen
class Meeting:
    """One occurrence: `begins` in the operator's own zone; `before` when the same was held last, None if never."""

    name: str
    begins: datetime
    before: datetime | None = None


def nearest(meetings: Sequence[Meeting], now: datetime) -> Meeting | None:
    """The next one that has not begun, within `AHEAD`."""
    coming = [meeting for meeting in meetings if now <= meeting.begins < now + AHEAD]
    return min(coming, key=lambda meeting: (meeting.begins, meeting.name), default=None)


class CalendarReader:
    """Meetings of the calendars that the settings name. A file is parsed again only when it changed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsed: dict[Path, tuple[tuple[int, int], Any]] = {}

    def meetings(self, files: Sequence[str], local: datetime) -> list[Meeting] | None:
        """Those that begin within `AHEAD` of `local`, the earliest first; None when no file is named.

        Whole days, cancelled ones and those that do not make busy are no meetings. Raises `Refusal`
        `unreadable_calendar` that names the file.
        """
        if not files:
            return None
        with self._lock:
            meetings = [
                meeting
                for name in files
                for meeting in _meetings_around(self._read_calendar(Path(name).expanduser()), local)
            ]
        return sorted(meetings, key=lambda meeting: (meeting.begins, meeting.name))

    def _read_calendar(self, file: Path) -> Any:
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            cached = self._parsed.get(file)
            if cached is not None and cached[0] == stamp:
                return cached[1]
            if status.st_size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            import icalendar  # 0.3 s that only those pay who have a calendar

            calendar = icalendar.Calendar.from_ical(read_plain(file, MAX_BYTES))
        except (OSError, ValueError) as error:
            raise Refusal(
                "unreadable_calendar", f"{file}: {sanitise(str(error))[:200]}", "fix calendar.files in the settings"
            ) from error
        self._parsed[file] = (stamp, calendar)
        return calendar


def _meetings_around(calendar: Any, local: datetime) -> list[Meeting]:
    import recurring_ical_events

    events = filter(_is_meeting, recurring_ical_events.of(calendar).between(local - BEHIND, local + AHEAD))
    last_held: dict[str, datetime] = {}
    meetings = []
    for event in sorted(events, key=lambda event: _begin_of(event, local)):
        begins, uid = _begin_of(event, local), str(event.get("UID", ""))
        if begins >= local:
            name = sanitise(str(event.get("SUMMARY", ""))).strip() or UNNAMED
            meetings.append(Meeting(name, begins, last_held.get(uid)))
        last_held[uid] = begins
    return [meeting for meeting in meetings if meeting.begins < local + AHEAD]


def _is_meeting(event: Any) -> bool:
    if not isinstance(event["DTSTART"].dt, datetime):
        return False  # a whole day
    return str(event.get("STATUS", "")) != "CANCELLED" and str(event.get("TRANSP", "")) != "TRANSPARENT"


def _begin_of(event: Any, local: datetime) -> datetime:
    """When it begins, in the operator's zone, which is also that of times without one."""
    begins: datetime = event["DTSTART"].dt
    return begins.replace(tzinfo=local.tzinfo) if begins.tzinfo is None else begins.astimezone(local.tzinfo)


WEIGHTS: Final = {
    "time": 0.3,
    "silence": 0.2,
    "tasks": 0.2,
    "conversations": 0.15,
    "git": 0.1,
    "calendar": 0.05,
}
"""The weight of each signal in a proposal's rank (SPEC 2.1); the six sum to 1."""


def signal(name: str, relevance: float, *evidence: str, error: str = "") -> Signal:
    """A signal with its weight of SPEC 2.1. Raises KeyError for a name that is none of the six."""
    return Signal(name, WEIGHTS[name], min(1.0, max(0.0, relevance)), evidence, error)


ACTIVITY_FIT: Final[dict[PartOfDay, dict[Activity, float]]] = {
    PartOfDay.MORNING: {Activity.REVIEW: 1.0, Activity.WORK: 0.6, Activity.SUMMARY: 0.3, Activity.REPAIR: 1.0},
    PartOfDay.AFTERNOON: {Activity.REVIEW: 0.5, Activity.WORK: 1.0, Activity.SUMMARY: 0.3, Activity.REPAIR: 1.0},
    PartOfDay.EVENING: {Activity.REVIEW: 0.4, Activity.WORK: 0.5, Activity.SUMMARY: 1.0, Activity.REPAIR: 0.8},
    PartOfDay.NIGHT: {Activity.REVIEW: 0.2, Activity.WORK: 0.3, Activity.SUMMARY: 0.4, Activity.REPAIR: 0.5},
}
"""How well an activity fits a part of the day, in [0, 1]."""

HABIT_WORDS: Final = {
    PartOfDay.MORNING: "morning: review and plan",
    PartOfDay.AFTERNOON: "afternoon: deep work",
    PartOfDay.EVENING: "evening: summarise the day",
    PartOfDay.NIGHT: "night: little is urgent",
}


def time_relevance(part: PartOfDay, *activities: Activity) -> float:
    """How well the best of `activities`, by default of all, fits `part` of the day."""
    return max(ACTIVITY_FIT[part][activity] for activity in activities or tuple(Activity))


def time_signal(local: datetime, *activities: Activity) -> Signal:
    """The signal for a proposal of these activities, or, without any, for the workspace as a whole."""
    part = part_of_day(local)
    return signal("time", time_relevance(part, *activities), HABIT_WORDS[part])


MAX_CLOCK_DIFFERENCE = timedelta(minutes=1)
"""A file dated further into the future than this was copied with its date, and is no sign of activity."""


ANY_NEW_FILE: Final = "*"
"""Path of an `OurWrite` that stands for every untracked file: what a check of ours leaves lying about."""


@frozen
class OurWrite:
    """A write by the engine, between two instants, both included: of a landing into `path` (relative to the workspace),
    or of a session that may have left untracked files (`ANY_NEW_FILE`)."""

    path: str
    since: datetime
    until: datetime

    def covers(self, touch: Touch) -> bool:
        """Whether `touch` is this write, and not a later one of the operator."""
        ours = touch.path == self.path or (self.path == ANY_NEW_FILE and touch.untracked)
        return ours and self.since <= touch.at <= self.until


def last_activity(
    now: datetime, last_input: datetime | None, touches: Iterable[Touch], ours: Iterable[OurWrite] = ()
) -> datetime | None:
    """The operator's last activity, None for unknown. Never later than `now`."""
    writes: dict[str, list[OurWrite]] = {}
    for write in ours:
        writes.setdefault(write.path, []).append(write)
    signs = [] if last_input is None else [min(last_input, now)]
    signs += [
        min(touch.at, now)
        for touch in touches
        if touch.at <= now + MAX_CLOCK_DIFFERENCE
        and not any(write.covers(touch) for write in [*writes.get(touch.path, ()), *writes.get(ANY_NEW_FILE, ())])
    ]
    return max(signs, default=None)


def time_since_activity(
    now: datetime, last_input: datetime | None, touches: Iterable[Touch], ours: Iterable[OurWrite] = ()
) -> timedelta | None:
    """Time since the operator's last activity (>= 0), None for unknown."""
    sign = last_activity(now, last_input, touches, ours)
    return None if sign is None else now - sign


def silence_relevance(silence: timedelta | None, threshold: timedelta) -> float:
    """Grows evenly from 0 (just active) to 1 at `threshold` (`silenceThresholdMs`, > 0); 0 if nothing is known."""
    return 0.0 if silence is None else min(1.0, max(0.0, silence / threshold))


def silence_signal(silence: timedelta | None, threshold: timedelta) -> Signal:
    """The signal with its evidence."""
    words = "no activity seen yet" if silence is None else f"quiet for {span(silence)}"
    return signal("silence", silence_relevance(silence, threshold), words)


FULLY_STALE = timedelta(days=7)
"""Time without a change after which the staleness of a task is 1."""

UNRELATED_SHARE = 0.5
"""Share of the relevance of an open task, or a recent thread, for unrelated proposals."""


def open_tasks(tasks: Sequence[Task]) -> list[Task]:
    """The open tasks, oldest change first, without those of sessions and those that wait for other tasks."""
    opened = (task for task in tasks if task.state == "open" and task.source != "session" and not task.waits_for)
    return sorted(opened, key=lambda task: task.updated_at)


def staleness(task: Task, now: datetime) -> float:
    """0.3 for a task of this moment, growing evenly to 1 after seven days untouched."""
    return 0.3 + 0.7 * min(1.0, max(0.0, (now - task.updated_at) / FULLY_STALE))


def related_task(tasks: Sequence[Task], text: str) -> Task | None:
    """The stalest open task that shares a word of at least four letters with `text`."""
    opened = open_tasks(tasks)
    words = words_of(text) if opened else set()
    return next((task for task in opened if words & words_of(task.title)), None)


def tasks_signal(tasks: Sequence[Task], now: datetime, about: str | None = None) -> Signal:
    """The staleness of the stalest open task, naming up to three tasks and how long each has waited. For a proposal
    (`about` = its words) the task that it is related to counts in full; without one the stalest counts half."""
    opened = open_tasks(tasks)
    if not opened:
        return signal("tasks", 0.0, "no open tasks")
    related = None if about is None else related_task(opened, about)
    named = [related] if related else opened[:3]
    share = 1.0 if related or about is None else UNRELATED_SHARE
    evidence = [f"“{plain(task.title, 40)}” {span(now - task.updated_at)} old" for task in named]
    return signal("tasks", share * staleness(named[0], now), *evidence)


THREAD_FADES = timedelta(hours=24)
"""Time over which the relevance of a thread decreases to 0."""


_LEFT_OPEN = {SessionState.FAILED, SessionState.INTERRUPTED, SessionState.BLOCKED}


def _fading(at: datetime, now: datetime) -> float:
    """1 for this moment, falling evenly to 0 within `THREAD_FADES`."""
    return 1.0 - min(1.0, max(0.0, (now - at) / THREAD_FADES))


def session_relevance(session: SessionView, now: datetime) -> float:
    """How much a session asks to be taken up again: at its end 1 when it failed, was interrupted or blocked, 0.8 when
    it found a problem, 0.4 when it ended well, 0.2 when the operator cancelled it; less with time. 0 while it runs."""
    if not session.state.over:
        return 0.0
    if session.state in _LEFT_OPEN:
        openness = 1.0
    elif session.state is SessionState.CANCELLED:
        openness = 0.2
    else:
        openness = 0.8 if session.has_problem else 0.4
    return openness * _fading(session.ended_at or session.created_at, now)


MAX_ANSWER_TIME = timedelta(minutes=10)
"""Time after the operator's last message in which an agent may still be answering."""


def thread_relevance(thread: Thread, now: datetime) -> float:
    """How much a conversation with another agent asks to be taken up again: 1 when its question is open, 0.8 when the
    operator's last word was never answered, 0.4 when it ended otherwise; less with time. 0 while the agent may be at
    it."""
    if thread.unanswered and not thread.question and now - thread.at < MAX_ANSWER_TIME:
        return 0.0
    openness = 1.0 if thread.question else 0.8 if thread.unanswered else 0.4
    return openness * _fading(thread.at, now)


class Conversations:
    """Sessions and conversations with other agents (`threads`), rated once for all proposals of one moment."""

    def __init__(self, sessions: Sequence[SessionView], now: datetime, threads: Sequence[Thread] = ()) -> None:
        self._now = now
        self._sessions = [(session_relevance(session, now), session) for session in sessions]
        self._threads = [(thread_relevance(thread, now), thread) for thread in threads]

    def signal(self, continues: Collection[str] | None = None) -> Signal:
        """The most relevant session, in words, and the most relevant conversation elsewhere. `continues` names the
        flows that a proposal would take up: for it, sessions of others and conversations count half."""
        ours = [
            (relevance if continues is None or session.flow in continues else UNRELATED_SHARE * relevance, session)
            for relevance, session in self._sessions
        ]
        share = 1.0 if continues is None else UNRELATED_SHARE
        relevance, session = max(ours, key=lambda pair: pair[0], default=(0.0, None))
        elsewhere, thread = max(self._threads, key=lambda pair: pair[0], default=(0.0, None))
        rated_words = []
        if session is not None and relevance > 0.0:
            rated_words.append((relevance, _session_words(session, self._now)))
        if thread is not None and elsewhere > 0.0:
            rated_words.append((share * elsewhere, thread_words(thread, self._now)))
        if not rated_words:
            return signal("conversations", 0.0, "no recent sessions")
        rated_words.sort(key=lambda pair: pair[0], reverse=True)
        return signal("conversations", rated_words[0][0], *(words for _, words in rated_words))


def thread_words(thread: Thread, now: datetime) -> str:
    """A conversation with another agent in words."""
    ago = span(now - thread.at)
    if thread.question:
        return f"{thread.agent} asks “{plain(thread.question, 60)}”, {ago} ago"
    about = f"“{plain(thread.about, 40)}” with {thread.agent}" if thread.about else f"a talk with {thread.agent}"
    return f"{about} was left without an answer {ago} ago" if thread.unanswered else f"{about}, last {ago} ago"


def _session_words(session: SessionView, now: datetime) -> str:
    outcome = "found a problem" if session.has_problem else session.state.value
    ago = span(now - (session.ended_at or session.created_at))
    return f"“{plain(session.prompt, 40)}” {outcome} {ago} ago"


def git_relevance(state: GitState, github: GitHubState | None = None, tests_stale: bool = False) -> float:
    """How much of the repository waits for a hand: 1 minus the product of (1 - part) over what holds of

    an unfinished merge or rebase 0.8 · failing CI 0.7 · uncommitted files 0.5 · changes since the last test run 0.4 ·
    unpushed commits 0.3 · behind the base 0.3 · open pull requests 0.2 · open branches 0.1.
    """
    parts = (
        (0.8, bool(state.operation)),
        (0.7, bool(github and github.failing)),
        (0.5, not state.clean),
        (0.4, tests_stale),
        (0.3, state.ahead > 0),
        (0.3, state.behind_base > 0),
        (0.2, bool(github and github.pull_requests)),
        (0.1, bool(state.open_branches)),
    )
    quiet = 1.0
    for part, holds in parts:
        quiet *= 1.0 - part if holds else 1.0
    return 1.0 - quiet


def git_signal(state: GitState, github: GitHubState | None = None, tests_stale: bool = False) -> Signal:
    """The signal of the workspace as a whole. An error of `gh` is named, the rest still counts."""
    return signal(
        "git",
        git_relevance(state, github, tests_stale),
        *git_evidence(state, github),
        error=f"gh: {plain(github.error, 200)}" if github and github.error else "",
    )


def git_evidence(state: GitState, github: GitHubState | None = None) -> list[str]:
    """The notable facts in words; one line if there are none."""
    if not state.head:
        return ["no commits yet"]
    words = []
    if state.operation:
        words.append(f"{state.operation} in progress")
    if not state.clean:
        words.append(count(len(state.files) + state.more_files, "uncommitted file"))
    if state.ahead:
        words.append(count(state.ahead, "unpushed commit"))
    if state.behind_base:
        words.append(f"{count(state.behind_base, 'commit')} behind {plain(state.base, 30)}")
    if github and github.failing:
        words.append(f"CI fails: {plain(github.failing[0].name, 30)}")
    if github and github.pull_requests:
        words.append(count(len(github.pull_requests), "open pull request"))
    return words or ["clean, nothing unpushed"]


def calendar_signal(meetings: Sequence[Meeting] | None = None, now: datetime | None = None) -> Signal:
    """1 for a meeting that begins now, evenly less to 0 in four hours; `meetings` None when no calendar is named."""
    if meetings is None or now is None:
        return signal("calendar", 0.0, "no calendar configured")
    meeting = nearest(meetings, now)
    if meeting is None:
        return signal("calendar", 0.0, f"no meeting within {span(AHEAD)}")
    wait = meeting.begins - now
    return signal("calendar", 1.0 - wait / AHEAD, f"{plain(meeting.name, 50)} in {span(wait)}")
