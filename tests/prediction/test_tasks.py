"""The task board: the operator's tasks, those of files, and what sessions make of them (SPEC 9.3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.model import Randomness, Refusal, SessionState, SessionView
from engine.prediction.card_rows import Prediction, load_card
from engine.prediction.tasks import TaskBoard
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger


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
