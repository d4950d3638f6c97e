"""The task board: the operator's tasks, those of files, and how sessions change tasks (SPEC 9.3)."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.model import SessionState, SessionView
from engine.prediction.tasks import TaskBoard
from engine.randomness import Randomness
from engine.storage.database import Database
from tests.prediction.builders import make_session
from tests.prediction.deciding import DecisionWorld, find_refusal_code


@pytest.fixture
def board(database: Database) -> TaskBoard:
    return TaskBoard(database, randomness=Randomness(1))


def start(world: DecisionWorld, board: TaskBoard, task_id: str | None = None) -> SessionView:
    """Start a session for a new card, which may be made from a task."""
    card = world.make_card(task_id=task_id)
    view = make_session(state=SessionState.RUNNING, prediction_id=card.id, ended_at=None)
    world.database.write(lambda tx: board.session_started(tx, view))
    return view


def end(world: DecisionWorld, board: TaskBoard, view: SessionView, state: SessionState, **fields: Any):
    """End a session with these other fields."""
    world.database.write(lambda tx: board.session_ended(tx, replace(view, state=state, **fields)))


def test_a_task_is_added_listed_and_done(board: TaskBoard, clock: FakeClock):
    first = board.add("cart rounding", channel="koji-core", workspace="/srv/shop")
    clock.advance(timedelta(minutes=1))
    second = board.add("write the change log")
    assert [task.id for task in board.list()] == [second.id, first.id]
    assert board.finish(first.id).state == "done"
    assert [task.id for task in board.list(state="open")] == [second.id]
    assert [task.id for task in board.list(limit=1)] == [second.id], "what is over hides no open task"
    assert board.finish(first.id) == board.get(first.id), "a second time changes nothing"


@pytest.mark.parametrize("title", ["", " ", "\x1b[2J", "x" * 501])
def test_a_title_has_1_to_500_characters(board: TaskBoard, title: str):
    assert find_refusal_code(board.add, title) == "bad_title"


def test_a_session_has_a_task_of_its_own(world: DecisionWorld, board: TaskBoard):
    view = start(world, board)
    [task] = board.list(state="running")
    assert (task.title, task.session_id, task.source) == ("Run the tests", view.id, "session")
    assert world.cards.get(view.prediction_id).task_id == task.id
    assert find_refusal_code(board.finish, task.id) == "task_running"
    end(world, board, view, SessionState.SUCCEEDED, summary="23 passed")
    assert (board.get(task.id).state, board.get(task.id).note) == ("done", "23 passed")


def test_a_card_made_from_a_task_works_on_that_task(world: DecisionWorld, board: TaskBoard):
    end(world, board, make_session(), SessionState.CANCELLED)
    assert board.list() == [], "a session that ended before it started has no task"
    task = board.add("cart rounding")
    view = start(world, board, task.id)
    assert [(task.id, task.state) for task in board.list()] == [(task.id, "running")]
    end(world, board, view, SessionState.FAILED)
    assert board.get(task.id).state == "open"


def test_open_boxes_of_files_are_tasks_until_they_are_checked_or_gone(board: TaskBoard, tmp_path: Path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "shop.md").write_text("# Shop\n- [ ] cart rounding\n- [x] old\n* [ ] search\nprose [ ] none\n")
    (folder / "home.md").write_text("- [ ] pay the taxes\n")
    (folder / "notes.txt").write_text("- [ ] not read\n")
    for _ in range(2):
        board.update_from_files(folder, {"shop": "/srv/shop"})
    assert {(task.title, task.workspace, task.source, task.state) for task in board.list()} == {
        ("cart rounding", "/srv/shop", "file", "open"),
        ("search", "/srv/shop", "file", "open"),
        ("pay the taxes", "", "file", "open"),
    }
    (folder / "shop.md").write_text("- [X] cart rounding\n")
    board.update_from_files(folder, {"shop": "/srv/shop"})
    assert {task.title for task in board.list(state="open")} == {"pay the taxes"}
    with pytest.raises(FileNotFoundError):
        board.update_from_files(tmp_path / "nowhere", {})


def test_a_file_of_tasks_that_is_not_utf_8_is_named(board: TaskBoard, tmp_path: Path):
    (tmp_path / "home.md").write_bytes(b"- [ ] pay the B\xe4cker\n")
    with pytest.raises(ValueError, match=r"home\.md is not UTF-8"):
        board.update_from_files(tmp_path, {})


def test_a_task_of_a_file_is_open_again_when_its_box_is_unchecked(board: TaskBoard, tmp_path: Path):
    def state_after(text: str) -> str:
        (tmp_path / "shop.md").write_text(text)
        board.update_from_files(tmp_path, {"shop": "/srv/shop"})
        [task] = board.list()
        return task.state

    assert state_after("- [ ] cart\n") == "open"
    assert state_after("- [x] cart\n") == "done"
    assert state_after("- [ ] cart\n") == "open"
    board.finish(board.list()[0].id)
    assert state_after("- [ ] cart\n") == "done", "it was done on the board, and the file did not change"
