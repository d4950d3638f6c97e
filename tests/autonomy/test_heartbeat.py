"""SPEC 4.1: items of heartbeat.md come due by the operator's clock, once each, also across a restart."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.heartbeat import (
    HEARTBEAT_JOB,
    Daily,
    Every,
    Heartbeat,
    HeartbeatItem,
    Once,
    find_last_occurrence,
    parse_items,
)
from engine.clock import FakeClock
from engine.hierarchy.agents import HeartbeatPage
from engine.model import Card, TriggerType
from engine.prediction import is_heartbeat
from engine.prediction.tasks import TaskBoard
from engine.randomness import Randomness
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.autonomy.autonomy_world import AutonomyWorld
from tests.support import MONDAY_MORNING as NOW
from tests.support import read_table

TABLE = read_table(__file__)

BERLIN = ZoneInfo("Europe/Berlin")
WEEK = frozenset(range(7))
ITEM = "which branches are stale"
WORKSPACES = {"": "/srv/api", "shop": "/srv/shop"}
"""Each workspace by the name that items use; "" if they name none."""


@pytest.fixture
def board(database: Database) -> TaskBoard:
    return TaskBoard(database, randomness=Randomness(1))


@pytest.fixture
def make_heartbeat(database: Database, clock: FakeClock, board: TaskBoard) -> Callable[[str], Heartbeat]:
    def make(text: str) -> Heartbeat:
        page = HeartbeatPage("cto", text, clock.now(), "koji-core")
        return Heartbeat(database, clock, board=board, pages=lambda: ([page], []), find_workspace=WORKSPACES.get)

    return make


def test_every_documented_form_is_read():
    text = """# Heartbeat
- [ ] every day 09:00: Sum up yesterday
- [ ] every weekday 17:30: look: twice
* [ ] Every Monday 8:15: report stale branches
- [ ] every 2h: see whether CI is red
- [ ] every 90 min: breathe
- [ ] 2026-03-01 10:00: rotate the key
- [ ] every 1H in My Shop RUN: lint in src: all
- [x] every day 10:00: done with
- no box
    - [ ] every day 11:00: an example
```
- [ ] every day 12:00: fenced
```
"""
    items, problems = parse_items(text)
    assert problems == []
    assert items == [
        HeartbeatItem(2, "Sum up yesterday", Daily(WEEK, time(9))),
        HeartbeatItem(3, "look: twice", Daily(frozenset(range(5)), time(17, 30))),
        HeartbeatItem(4, "report stale branches", Daily(frozenset({0}), time(8, 15))),
        HeartbeatItem(5, "see whether CI is red", Every(timedelta(hours=2))),
        HeartbeatItem(6, "breathe", Every(timedelta(minutes=90))),
        HeartbeatItem(7, "rotate the key", Once(datetime(2026, 3, 1, 10))),  # noqa: DTZ001
        HeartbeatItem(8, "lint in src: all", Every(timedelta(hours=1)), runs_by_itself=True, workspace_name="My Shop"),
    ]


@pytest.mark.parametrize(
    "line",
    TABLE["unreadable_items"],
)  # fmt: skip
def test_an_item_that_cannot_be_read_is_reported_with_its_line(line: str):
    items, problems = parse_items(f"# Heartbeat\n\n- [ ] {line}\n")
    assert items == []
    assert [number for number, _ in problems] == ([3] if line else [])


@pytest.mark.parametrize("begin", ["", "- ", "* ", "-[ ] ", "- [] ", "- [ ]", "  - "])
def test_an_item_without_a_check_box_is_reported(begin: str):
    text = f"Every day has its work.\n{begin}every day 09:00: x\n\n    every day 10:00: an example\n"
    assert parse_items(text) == ([], [(2, "it has no check box; begin it with `- [ ] `")])


@pytest.mark.parametrize(
    "text",
    ["<!--\nevery day 09:00: x\n\n- [ ] every day 10:00: x\n-->", "<!-- off\n```\n-->\n<!-- every day 09:00: x -->",
     "- [-] every day 10:00: x\n* [/] every day 11:00: x", "```\n<!--\n```\n````\n```\nevery day 10:00: x\n````\n<!--"],
)  # fmt: skip
def test_comments_code_and_cancelled_items_are_no_items(text: str):
    items, problems = parse_items(f"{text}\n- [ ] every day 12:00: y\n")
    assert [(item.text, item.line) for item in items] == [("y", text.count("\n") + 2)]
    assert problems == []


@given(st.text(max_size=200))
def test_any_text_is_parsed_without_an_error(text: str):
    parse_items(text)
    parse_items(f"- [ ] {text}")


def test_a_daily_item_comes_at_its_time_and_not_before_it_was_written():
    item, nine = Daily(WEEK, time(9)), datetime(2026, 1, 5, 9, tzinfo=UTC)
    written = nine - timedelta(minutes=2)
    assert find_last_occurrence(item, written, nine - timedelta(seconds=1), UTC) is None
    assert find_last_occurrence(item, written, NOW, UTC) == nine
    assert find_last_occurrence(item, nine, NOW, UTC) is None
    saturdays = Daily(frozenset({5}), time(9))
    assert find_last_occurrence(saturdays, NOW - timedelta(days=30), NOW, UTC) == nine - timedelta(days=2)


def test_an_item_is_due_once_when_the_clock_skips_or_repeats_its_time():
    half_past_two = Daily(WEEK, time(2, 30))
    spring = datetime(2026, 3, 29, tzinfo=UTC)  # the clock skips this time
    due = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    assert find_last_occurrence(half_past_two, spring, due - timedelta(minutes=1), BERLIN) is None
    assert find_last_occurrence(half_past_two, spring, datetime(2026, 3, 29, 3, tzinfo=UTC), BERLIN) == due
    autumn = datetime(2026, 10, 24, 23, tzinfo=UTC)  # the clock repeats it
    occurrences = {
        find_last_occurrence(half_past_two, autumn, autumn + timedelta(minutes=minutes), BERLIN)
        for minutes in range(0, 20 * 60, 5)
    }
    assert occurrences == {None, datetime(2026, 10, 25, 0, 30, tzinfo=UTC)}


@given(st.integers(5, 5000), st.integers(0, 100_000))
def test_an_interval_is_due_at_its_multiples(span: int, passed: int):
    occurrence = find_last_occurrence(Every(timedelta(minutes=span)), NOW, NOW + timedelta(minutes=passed), UTC)
    times = passed // span
    assert occurrence == (NOW + timedelta(minutes=span * times) if times else None)


def test_missed_occurrences_make_one_task_and_a_restart_none(
    make_heartbeat: Callable[[str], Heartbeat], clock: FakeClock, board: TaskBoard
):
    text = "- [ ] every 2h: look at CI\n- [ ] every day 10:00: sum up\n"
    heartbeat = make_heartbeat(text)
    assert heartbeat.make_due_tasks() == []
    clock.advance(timedelta(days=3))
    assert len(heartbeat.make_due_tasks()) == 2
    assert make_heartbeat(text).make_due_tasks() == []
    assert {(task.title, task.channel, task.source, task.state) for task in board.list()} == {
        ("look at CI", "koji-core", "heartbeat", "open"),
        ("sum up", "koji-core", "heartbeat", "open"),
    }
    clock.advance(timedelta(hours=2))
    assert heartbeat.make_due_tasks() == [], "the last one still waits"
    for task in board.list():
        board.finish(task.id)
    clock.advance(timedelta(hours=2))
    assert len(heartbeat.make_due_tasks()) == 1


def test_the_task_of_an_item_is_about_the_workspace_that_it_names_and_is_due_since_its_time(
    make_heartbeat: Callable[[str], Heartbeat], clock: FakeClock, board: TaskBoard, database: Database
):
    text = "- [ ] every 2h in shop: lint\n- [ ] every 2h: audit\n- [ ] every 2h in nowhere: summarise\n"
    due = clock.now() + timedelta(hours=2)
    heartbeat = make_heartbeat(text)
    heartbeat.make_due_tasks()
    clock.advance(timedelta(hours=2, minutes=7))
    heartbeat.make_due_tasks()
    assert {(task.title, task.workspace, task.created_at) for task in board.list()} == {
        ("lint", "/srv/shop", due),
        ("audit", "/srv/api", due),
    }
    [fault] = Ledger(database).read_newest(kinds=("FaultReported",))  # once, although both looks found it
    assert fault.payload["message"].startswith("agents/cto/heartbeat.md:3: no workspace nowhere is known")


def test_a_task_follows_the_changes_of_its_item(database: Database, clock: FakeClock, board: TaskBoard):
    """The task is done when its item is ticked or gone, and open when it is back. It is an order while the item says
    `run`."""
    run, plain = "- [ ] 2026-01-05 09:00 run: lint\n", "- [ ] 2026-01-05 09:00: lint\n"
    pages, faults = [], []
    heartbeat = Heartbeat(database, clock, board=board, pages=lambda: (pages, faults), find_workspace=WORKSPACES.get)

    def pulse_with(text: str | None, *page_faults: str) -> tuple[str, str]:
        """Source and state of the task after a pulse with this page; None for no page."""
        pages[:] = [] if text is None else [HeartbeatPage("cto", text, clock.now())]
        faults[:] = page_faults
        heartbeat.make_due_tasks()
        [task] = board.list()
        return task.source, task.state

    assert pulse_with(run) == ("order", "open")
    assert pulse_with(plain) == ("heartbeat", "open")
    assert pulse_with(run.replace("[ ]", "[x]")) == ("heartbeat", "done")
    assert pulse_with(run) == ("order", "open")
    unreadable = pulse_with(None, "cto: heartbeat.md cannot be read")
    assert unreadable == ("heartbeat", "open"), "what was not read is not gone"
    assert pulse_with(None) == ("heartbeat", "done")
    assert pulse_with(run + plain) == ("heartbeat", "open"), "one of the two does not say `run`"
    board.finish(board.list()[0].id)
    assert pulse_with(run) == ("heartbeat", "done"), "what the operator did is not to be done again"


# Cards of the heartbeat


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[AutonomyWorld]:
    world = AutonomyWorld(tmp_path, clock, monkeypatch)
    with world.opened():
        yield world


def decide_other_kinds(world: AutonomyWorld, decisions: int):
    """Decide so many cards, none of them like the card of `ITEM`."""
    world.earn_trust(kind="lint", approvals=decisions - 1, others=0)  # and approves one card more
    assert world.engine.embedded_twin.read_phase().number == 0


def bring_due(world: AutonomyWorld) -> Card:
    """The card of `ITEM`, which is marked to run, once it is due and the operator has gone away."""
    page = world.home.agents / "backend_builder" / "heartbeat.md"
    page.write_text(f"- [ ] every 20m run: {ITEM}\n")
    os.utime(page, (world.clock.now().timestamp(),) * 2)
    world.engine.autonomy.schedule.run(HEARTBEAT_JOB)
    world.clock.advance(timedelta(minutes=20))
    world.engine.autonomy.schedule.run(HEARTBEAT_JOB)
    world.engine.checks.run()
    [card] = [card for card in world.engine.cards.list_pending() if is_heartbeat(card.kind)]
    assert "you marked it to run" in card.reasoning
    world.be_inactive()
    return card


@pytest.mark.long
def test_an_item_marked_run_does_not_run_after_nine_decisions(world: AutonomyWorld):
    decide_other_kinds(world, 9)
    bring_due(world)
    cycle = world.run_cycle()
    assert cycle.acted == ""
    assert "9 of 10 decisions" in " ".join(cycle.blocked)


@pytest.mark.long
def test_an_item_marked_run_runs_after_ten_decisions_none_of_which_was_on_its_kind(world: AutonomyWorld):
    decide_other_kinds(world, 10)
    card = bring_due(world)
    assert world.run_cycle().acted == card.id
    world.wait_for_session(card.id)
    entry = world.engine.safety.read_log(1)[0]
    assert (entry.decided_by, entry.trigger_type) == ("autonomy", TriggerType.HEARTBEAT)
