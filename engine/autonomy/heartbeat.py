"""The items of each agent's `heartbeat.md`: which of them are due, and the tasks that they become (SPEC 4.1).

    - [ ] every day 09:00: summarise what was committed yesterday
    - [ ] every weekday 17:30: look for change sets that wait
    - [ ] every monday 08:15: report stale branches
    - [ ] every 2h: see whether CI is red
    - [ ] 2026-03-01 10:00: rotate the signing key
    - [ ] every day 18:00 in shop run: lint

Times are in the operator's zone. A job of the schedule looks for due items. Each becomes a task, which goes the
ordinary way to a card. With `run` before the colon the card also runs by itself where cards may (SPEC 7.1, 7.4),
whatever the operator approved before. After `in` stands the name of the workspace's folder; without it the item is
about the first workspace of the engine that finds it due. A checked item (`- [x]`) does nothing. An open task is done
if its item is checked or gone, and waits for the operator if its item has no `run` any more.

The file is only read; the database keeps what was done. If an item was missed several times, it makes one task. It
makes none while its last task waits or runs; one that was tried without success makes room for the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Any

from engine.clock import Clock
from engine.events.engine import FaultReported
from engine.frozen import frozen
from engine.hierarchy.agents import HeartbeatPage
from engine.prediction.tasks import TaskBoard
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.text import hex_hash, read_markdown_lines

HISTORY_PREFIX = "heartbeat."
"""Prefix of the keys in the state table: what was done with the items of each agent."""

HEARTBEAT_JOB = "pulse"
"""The name of the job that looks for due items."""

MAX_PAGES = 200
"""Maximum number of pages whose items are kept: each cycle asks for all of them, and they seldom change."""

MIN_INTERVAL, MAX_INTERVAL = timedelta(minutes=5), timedelta(days=366)
"""The limits of `every SPAN`. Due items are looked for every five minutes."""

EXAMPLES = "`every day 09:00: …`, `every weekday …`, `every monday …`, `every 2h: …` or `2026-03-01 10:00: …`"

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_DAYS_BY_WORD = {
    "day": frozenset(range(7)),
    "weekday": frozenset(range(5)),
    **{day: frozenset({number}) for number, day in enumerate(_DAYS)},
}
"""The weekdays (0 is Monday) that the word after `every` means."""

_WHERE_AND_WHAT = "(?: in (?P<workspace>[^:]+?))?(?P<run> run)?: *(?P<text>.*)"

_FLAGS = re.IGNORECASE | re.ASCII  # in Unicode, `ı` and `İ` are `i` in another case, but their lower case is not

_TIME_OF_DAY = r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)"

_DAILY = re.compile(rf"every (?P<days>{'|'.join(_DAYS_BY_WORD)}) {_TIME_OF_DAY}{_WHERE_AND_WHAT}", _FLAGS)

_SPAN = re.compile(rf"every (?P<number>\d{{1,4}}) ?(?P<unit>m|min|h|d){_WHERE_AND_WHAT}", _FLAGS)

_AT_ONE_TIME = re.compile(rf"(?P<date>\d{{4}}-\d\d-\d\d)[ T]{_TIME_OF_DAY}{_WHERE_AND_WHAT}", _FLAGS)

_UNITS = {"m": timedelta(minutes=1), "min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


@frozen
class Daily:
    """At a time of the operator's day, on these weekdays (0 is Monday)."""

    days: frozenset[int]
    at: time


@frozen
class Every:
    """Again and again after this time, counted from when the item was written."""

    span: timedelta


@frozen
class Once:
    """At one moment of the operator's own time (naive)."""

    at: datetime


@frozen
class HeartbeatItem:
    """One item of a `heartbeat.md`. `line` counts from 1."""

    line: int
    text: str
    when: Daily | Every | Once
    runs_by_itself: bool = False
    workspace_name: str = ""
    """The name of the folder of its workspace; "" for the first one."""

    @property
    def key(self) -> str:
        """A name of the item that stays the same as long as its time, its workspace and its text do."""
        where = f"in {self.workspace_name}\n" if self.workspace_name else ""
        return hex_hash(f"{self.when!r} {where}{self.text}", 16)


@lru_cache(MAX_PAGES)
def parse_items(text: str) -> tuple[Sequence[HeartbeatItem], Sequence[tuple[int, str]]]:
    """Returns (items, problems): the open items of a page, and the (line, problem) of each item that cannot be read, or
    has no check box. None in code or a comment count."""
    items: list[HeartbeatItem] = []
    problems: list[tuple[int, str]] = []
    for line, mark, rest in read_markdown_lines(text):
        if mark not in (" ", None):
            continue
        try:
            item = _parse_item(line, rest if mark else rest.lstrip("-*+[] "))
        except ValueError as error:
            if mark:
                problems.append((line, str(error)))
            continue
        if mark is None:
            problems.append((line, "it has no check box; begin it with `- [ ] `"))
        else:
            items.append(item)
    return items, problems


def _parse_item(line: int, rest: str) -> HeartbeatItem:
    """The item in the text after a check box. Raises `ValueError` with the problem in words."""
    when: Daily | Every | Once
    if match := _DAILY.fullmatch(rest):
        when = Daily(_DAYS_BY_WORD[match["days"].lower()], time(int(match["hour"]), int(match["minute"])))
    elif match := _SPAN.fullmatch(rest):
        span = int(match["number"]) * _UNITS[match["unit"].lower()]
        if not MIN_INTERVAL <= span <= MAX_INTERVAL:
            raise ValueError("the interval must be from 5 minutes to 366 days")
        when = Every(span)
    elif match := _AT_ONE_TIME.fullmatch(rest):
        clock = time(int(match["hour"]), int(match["minute"]))
        when = Once(datetime.combine(datetime.fromisoformat(match["date"]).date(), clock))
    else:
        raise ValueError(f"the time is not understood; write {EXAMPLES}")
    text = match["text"].strip()
    if not text:
        raise ValueError("it says when, but not what to do")
    return HeartbeatItem(line, text, when, match["run"] is not None, (match["workspace"] or "").strip())


def find_heartbeat_problems(pages: Sequence[HeartbeatPage], unread: Sequence[str]) -> list[str]:
    """`unread`, and the items of the pages that cannot be read, in words that begin with the file and the line."""
    problems = [(page.agent, *problem) for page in pages for problem in parse_items(page.text)[1]]
    return [*unread, *(f"agents/{agent}/heartbeat.md:{line}: {fault}" for agent, line, fault in problems)]


def _describe_unknown_workspace(agent: str, item: HeartbeatItem) -> str:
    """The problem of an item whose workspace is not known."""
    unknown = f"no workspace {item.workspace_name} is known, or several"
    return f"agents/{agent}/heartbeat.md:{item.line}: {unknown}; start `clawpy` in it once"


def find_last_occurrence(
    when: Daily | Every | Once, first_seen: datetime, now: datetime, zone: tzinfo
) -> datetime | None:
    """The latest time (UTC) after `first_seen` and up to `now` at which an item was due, None if there was none yet.

    A time of day that the clock skips is due at the change; a time that it repeats is due once. `Once` is also due if
    its time was before `first_seen`.
    """
    if isinstance(when, Once):
        at = when.at.replace(tzinfo=zone).astimezone(UTC)
        return at if at <= now else None
    if isinstance(when, Every):
        times = (now - first_seen) // when.span
        return first_seen + times * when.span if times > 0 else None
    today = now.astimezone(zone).date()
    for days_ago in range(9):
        day = today - timedelta(days=days_ago)
        at = datetime.combine(day, when.at, tzinfo=zone).astimezone(UTC)
        if day.weekday() in when.days and at <= now:
            return at if at > first_seen else None
    return None


class Heartbeat:
    """Makes tasks of the due items of all pages. `pages()` returns (pages, errors). `find_workspace(name)` is the
    workspace of items that name it so, None if none is known by this name; for items that name none, `name` is ""."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        board: TaskBoard,
        pages: Callable[[], tuple[Sequence[HeartbeatPage], Sequence[str]]],
        find_workspace: Callable[[str], str | None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._board = board
        self._pages = pages
        self._find_workspace = find_workspace
        self._reported: set[str] = set()

    def make_due_tasks(self) -> list[str]:
        """Make tasks of all due items, and end the tasks whose items are gone. Returns the ids of the new tasks."""
        pages, unread = self._pages()
        faults = find_heartbeat_problems(pages, unread)
        items_of_pages = [(page, parse_items(page.text)[0]) for page in pages]
        if not faults and not any(items for _, items in items_of_pages) and not self._board.has_heartbeat_tasks():
            return []  # every cycle comes here: no transaction for nothing

        names = {item.workspace_name for _, items in items_of_pages for item in items}
        workspaces = {name: self._find_workspace(name) for name in names}
        faults += [
            _describe_unknown_workspace(page.agent, item)
            for page, items in items_of_pages
            for item in items
            if workspaces[item.workspace_name] is None
        ]

        def update(transaction: Transaction) -> list[str]:
            task_ids = self._update_tasks(transaction, items_of_pages, workspaces, all_read=not unread)
            for fault in faults:
                if fault not in self._reported:  # each is reported once
                    self._reported.add(fault)
                    transaction.record(FaultReported(where="heartbeat", message=fault))
            return task_ids

        return self._database.write(update)

    def _update_tasks(
        self,
        transaction: Transaction,
        items_of_pages: Sequence[tuple[HeartbeatPage, Sequence[HeartbeatItem]]],
        workspaces: Mapping[str, str | None],
        *,
        all_read: bool,
    ) -> list[str]:
        """End the tasks whose items are gone, and make those of due items; returns the ids of the new ones.
        `workspaces` are those that items name, and `all_read` says that no page is missing."""
        histories_of = state.get_all(transaction.session, HISTORY_PREFIX)
        runs_by_itself: dict[str, bool] = {}
        for page, items in items_of_pages:
            for item in items:
                task_id = histories_of.get(page.agent, {}).get(item.key, {}).get("task")
                if task_id:
                    runs_by_itself[task_id] = runs_by_itself.get(task_id, True) and item.runs_by_itself
        self._board.update_from_heartbeats(transaction, runs_by_itself, all_read=all_read)
        task_ids: list[str] = []
        for page, items in items_of_pages:
            placed_items = [(item, place) for item in items if (place := workspaces[item.workspace_name]) is not None]
            task_ids += self._add_due_tasks(transaction, page, placed_items, histories_of.get(page.agent, {}))
        return task_ids

    def _add_due_tasks(
        self,
        transaction: Transaction,
        page: HeartbeatPage,
        items: Sequence[tuple[HeartbeatItem, str]],
        before: Mapping[str, dict[str, Any]],
    ) -> list[str]:
        """Make a task of each due item of a page, if its last task makes room; returns their ids. `items` have their
        workspaces. `before` has the history of each item by its key, and is stored again if that changes."""
        zone = self._clock.local().tzinfo
        assert zone is not None
        histories = {key: dict(value) for key, value in before.items()}
        task_ids = []
        for item, workspace in items:
            history = histories.setdefault(item.key, {"seen": min(page.written, transaction.now).isoformat()})
            at = find_last_occurrence(item.when, datetime.fromisoformat(history["seen"]), transaction.now, zone)
            fired = history.get("fired")
            if at is None or (fired and at <= datetime.fromisoformat(fired)):
                continue
            history["fired"] = at.isoformat()
            if self._board.make_room_for_next(transaction, history.get("task", "")):
                history["task"] = self._board.add_heartbeat_task(
                    transaction,
                    item.text,
                    since=at,
                    channel=page.channel,
                    workspace=workspace,
                    run=item.runs_by_itself,
                )
                task_ids.append(history["task"])
        if histories != before:
            state.put(transaction, HISTORY_PREFIX + page.agent, histories)
        return task_ids
