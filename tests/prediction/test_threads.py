"""Conversations with other agents: what is open in them, when they grew, and that our own sessions are none."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.model import Randomness, Refusal, SessionState, SessionView
from engine.prediction.card_rows import Prediction, load_card
from engine.prediction.tasks import TaskBoard
from engine.prediction.threads import TAIL_BYTES, Threads, final_question
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
SHOP = "/home/me/shop"


def claude(speaker: str, text: str, ago: timedelta = timedelta(minutes=5), **more: Any) -> str:
    message = {"role": speaker, "content": [{"type": "text", "text": text}]}
    stamp = (NOW - ago).isoformat()
    line = {"type": speaker, "uuid": text, "sessionId": "s1", "cwd": SHOP, "timestamp": stamp, "message": message}
    return json.dumps(line | more) + "\n"


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.opened = folder, FakeClock(NOW), 0
        self.threads = Threads(
            lambda: [str(folder)],
            self.clock,
            ours=lambda one: one.startswith("/ours"),
            secrets=lambda: ["hunter2-hunter2"],
        )

    def write(self, text: str, name: str = "s1", ago: timedelta = timedelta(minutes=5)) -> Path:
        path = self.folder / "projects" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, ((NOW - ago).timestamp(),) * 2)
        self.clock.advance(timedelta(seconds=6))
        return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Done. Shall I also migrate the tests?", "Shall I also migrate the tests?"),
        ("Two ways:\n1. keep it\n2. drop it\n\n**Which one do you want?**", "Which one do you want?"),
        ("Soll ich weitermachen？", "Soll ich weitermachen？"),
        ("Why did it fail? Because of the date.", ""),
        ("All green.", ""),
        ("", ""),
    ],
)
def test_the_question_that_a_text_ends_with(text: str, asked: str) -> None:
    assert final_question(text) == asked


def test_an_open_question_is_found_with_what_it_is_about(world: World) -> None:
    world.write(
        claude("user", "Add the cart") + claude("assistant", "Added. Shall I use hunter2-hunter2 for the tests?")
    )
    [thread] = world.threads.latest(SHOP)
    assert (thread.agent, thread.about, thread.unanswered) == ("Claude Code", "Add the cart", False)
    assert thread.question.startswith("Shall I use")
    assert "hunter2-hunter2" not in thread.question
    assert thread.at == NOW - timedelta(minutes=5)
    assert world.threads.latest("/home/me/blog") == []


def test_codex_says_its_folder_once(world: World) -> None:
    meta = {"type": "session_meta", "payload": {"id": "x", "cwd": SHOP}}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Next?"}]}
    lines = [meta, {"timestamp": NOW.isoformat(), "type": "response_item", "payload": said}]
    world.write("".join(json.dumps(line) + "\n" for line in lines), "rollout-1")
    [thread] = world.threads.latest(SHOP)
    assert (thread.agent, thread.session, thread.question) == ("Codex", "codex:rollout-1", "Next?")


def test_a_long_file_is_read_at_its_ends(world: World) -> None:
    filler = claude("assistant", "x" * 5000) * (TAIL_BYTES // 5000 + 20)
    world.write(claude("user", "The first wish") + filler + claude("assistant", "And now?"))
    [thread] = world.threads.latest(SHOP)
    assert (thread.about, thread.question) == ("The first wish", "And now?")


def test_growth_is_the_operators_but_not_that_of_our_own_sessions(world: World) -> None:
    assert world.threads.grew() is None
    world.write(claude("user", "hello"), ago=timedelta(hours=3))
    world.write(claude("user", "hello", cwd="/ours/worktree"), "s2", ago=timedelta(minutes=1))
    assert world.threads.grew() == NOW - timedelta(hours=3)
    world.write(claude("user", "and more"), ago=timedelta(minutes=2))
    assert world.threads.grew() == NOW - timedelta(minutes=2)


@pytest.mark.parametrize("ago", [timedelta(hours=24), timedelta(hours=-2)])
def test_old_files_and_files_of_the_future_say_nothing(world: World, ago: timedelta) -> None:
    world.write(claude("user", "hello"), ago=ago)
    assert world.threads.grew() is None
    assert world.threads.latest(SHOP) == []


# The task board: the operator's tasks and what sessions make of them.


class Cards:
    """A card, and which task is its own."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        self._database = database
        row = Prediction(
            id="pred_1", prompt="Run the tests", target_agent="", target_channel="koji-core", confidence=0.4,
            created_at=clock.now(), expires_at=clock.now(), kind="run_tests", workspace="/srv/shop", runner="flow",
            subject="", fingerprint="",
        )  # fmt: skip
        database.write(lambda tx: tx.session.add(row))

    @property
    def task(self) -> str | None:
        with self._database.read() as session:
            return load_card(session, "pred_1").task_id

    def has(self, task_id: str) -> None:
        def link(tx: Transaction) -> None:
            load_card(tx.session, "pred_1").task_id = task_id

        self._database.write(link)


@pytest.fixture
def cards(database: Database, clock: FakeClock) -> Cards:
    return Cards(database, clock)


@pytest.fixture
def board(database: Database) -> TaskBoard:
    return TaskBoard(database, randomness=Randomness(1))


@pytest.fixture
def session(clock: FakeClock) -> SessionView:
    return SessionView(
        id="sess_1", prediction_id="pred_1", prompt="Run the tests", workspace="/srv/shop", channel="koji-core",
        agent="backend_builder", runner="flow", flow="run_tests", state=SessionState.RUNNING, mode="approved",
        sandbox="bubblewrap", cwd="/srv/shop", created_at=clock.now(), started_at=clock.now(), ended_at=None,
        tokens=0, cost=0, summary="",
    )  # fmt: skip


def kinds(database: Database) -> list[tuple[str, str]]:
    return [(entry.kind, entry.payload.get("state", "")) for entry in reversed(Ledger(database).latest())]


def test_add_list_done(board: TaskBoard, clock: FakeClock, database: Database) -> None:
    first = board.add("cart rounding", channel="koji-core", workspace="/srv/shop")
    clock.advance(timedelta(minutes=1))
    second = board.add("write the change log")
    assert [task.id for task in board.list()] == [second.id, first.id]
    assert board.done(first.id).state == "done"
    assert [task.id for task in board.list(state="open")] == [second.id]
    assert kinds(database) == [("TaskAdded", ""), ("TaskAdded", ""), ("TaskChanged", "done")]
    board.done(first.id)
    assert len(kinds(database)) == 3  # done twice is done


@pytest.mark.parametrize("title", ["", " ", "\x1b[2J", "x" * 501])
def test_a_title_says_something(board: TaskBoard, title: str) -> None:
    with pytest.raises(Refusal) as caught:
        board.add(title)
    assert caught.value.code == "bad_title"


def test_the_beginning_of_an_id_will_do(board: TaskBoard) -> None:
    task = board.add("one")
    board.add("two")
    assert board.get(task.id[:9]) == task
    assert board.get(task.id.removeprefix("task_")[:5]) == task
    for bad, code in (("task_", "ambiguous_id"), ("nope", "unknown_task"), ("", "unknown_task"), ("%", "unknown_task")):
        with pytest.raises(Refusal) as caught:
            board.get(bad)
        assert caught.value.code == code


def test_a_session_has_a_task_of_its_own(
    board: TaskBoard, database: Database, cards: Cards, session: SessionView
) -> None:
    database.write(lambda tx: board.session_started(tx, session))
    [task] = board.list(state="running")
    assert (task.title, task.session_id, task.source, task.channel) == (
        "Run the tests", "sess_1", "session", "koji-core",
    )  # fmt: skip
    assert cards.task == task.id
    with pytest.raises(Refusal) as caught:
        board.done(task.id)
    assert caught.value.code == "task_running"
    ended = replace(session, state=SessionState.SUCCEEDED, summary="23 passed")
    database.write(lambda tx: board.session_ended(tx, ended))
    assert (board.get(task.id).state, board.get(task.id).note) == ("done", "23 passed")


@pytest.mark.parametrize("state", [SessionState.FAILED, SessionState.CANCELLED, SessionState.INTERRUPTED])
def test_a_session_that_did_not_succeed_leaves_a_failed_task(
    board: TaskBoard, database: Database, session: SessionView, state: SessionState
) -> None:
    ended = replace(session, state=state, error="no pytest")
    database.write(lambda tx: board.session_ended(tx, ended))
    assert board.list() == [], "one that ends before it starts has no task"
    database.write(lambda tx: board.session_started(tx, session))
    database.write(lambda tx: board.session_ended(tx, ended))
    [task] = board.list()
    assert (task.state, task.note) == ("failed", f"{state.value}: no pytest")


def test_a_card_made_from_a_task_works_on_that_task(
    board: TaskBoard, database: Database, cards: Cards, session: SessionView
) -> None:
    task = board.add("cart rounding")
    cards.has(task.id)
    database.write(lambda tx: board.session_started(tx, session))
    assert [(task.id, task.state) for task in board.list()] == [(task.id, "running")]
    database.write(lambda tx: board.session_ended(tx, replace(session, state=SessionState.FAILED)))
    assert board.get(task.id).state == "open"  # still to be done


def test_a_task_waits_for_those_that_it_needs(board: TaskBoard) -> None:
    build, test = board.add("Build"), board.add("Test")
    deploy = board.add("Deploy", needs=[build.id, test.id[:9], build.id])
    assert deploy.needs == deploy.waits_for == (build.id, test.id)
    assert [task.id for task in board.needing(build.id)] == [deploy.id]
    board.done(build.id)
    assert board.get(deploy.id).waits_for == (test.id,)
    board.done(test.id)
    assert {task.title: task.waits_for for task in board.list()} == {"Build": (), "Test": (), "Deploy": ()}
    with pytest.raises(Refusal, match="there is no task nobody"):
        board.add("Fly", needs=["nobody"])


def test_the_files_of_a_folder_are_tasks_and_done_when_checked_or_gone(board: TaskBoard, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "shop.md").write_text("# Shop\n- [ ] cart rounding\n- [x] old\n* [ ] search\nprose [ ] none\n")
    (folder / "home.md").write_text("- [ ] pay the taxes\n")
    (folder / "notes.txt").write_text("- [ ] not read\n")
    for _ in range(2):
        board.update_from_files(folder, ["/srv/shop"])
    assert {(task.title, task.workspace, task.source, task.state) for task in board.list()} == {
        ("cart rounding", "/srv/shop", "file", "open"),
        ("search", "/srv/shop", "file", "open"),
        ("pay the taxes", "", "file", "open"),
    }
    (folder / "shop.md").write_text("- [X] cart rounding\n")
    board.update_from_files(folder, ["/srv/shop"])
    assert {task.title for task in board.list(state="open")} == {"pay the taxes"}
    with pytest.raises(FileNotFoundError):
        board.update_from_files(tmp_path / "nowhere", [])


def test_a_box_that_is_unchecked_or_written_again_is_open_again(board: TaskBoard, tmp_path: Path) -> None:
    def after(text: str) -> str:
        (tmp_path / "shop.md").write_text(text)
        board.update_from_files(tmp_path, ["/srv/shop"])
        [task] = board.list()
        return task.state

    assert after("- [ ] cart\n") == "open"
    assert after("- [x] cart\n") == "done"
    assert after("- [ ] cart\n") == "open"
    assert after("") == "done"
    assert after("- [x] cart\n- [ ] cart\n") == "open"
    board.done(board.list()[0].id)
    assert after("- [ ] cart\n") == "done", "done on the board, and the file says nothing new"
    assert after("- [x] cart\n") == "done"
    assert after("- [ ] cart\n") == "open"


def test_a_file_that_could_be_about_two_workspaces_is_about_none(board: TaskBoard, tmp_path: Path) -> None:
    (tmp_path / "shop.md").write_text("- [ ] cart\n")
    board.update_from_files(tmp_path, ["/srv/shop", "/old/shop"])
    assert [(task.title, task.workspace) for task in board.list()] == [("cart", "")]
