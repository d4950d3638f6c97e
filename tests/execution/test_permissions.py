"""Permission requests: each its own answer, none lost, none waited for when nobody is there (SPEC 3.5, 9.3)."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus, PermissionAnswered, PermissionAsked, PermissionWithdrawn
from engine.execution.live_session import AUTONOMOUS
from engine.execution.permissions import Permissions
from engine.execution.runners.flow import SessionStopped
from engine.model import PermissionAnswer, Randomness, Refusal
from engine.storage.database import Database
from tests.execution.session_world import until
from tests.execution.tools.belt_world import BeltWorld

ASKED = {"tool": "exec", "title": "run make deploy", "detail": "make deploy", "reason": "sends to the outside"}


class Asking:
    """A thread of a session that asks, and what came of it."""

    def __init__(self, world: BeltWorld, key: str = "exec:make deploy") -> None:
        self.said: bool | str = ""

        def work() -> None:
            try:
                self.said = world.permissions.ask(world.live, world.view, key=key, **ASKED)
            except SessionStopped as stopped:
                self.said = str(stopped)

        before = len(world.permissions.latest(1_000))
        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        until(lambda: len(world.permissions.latest(1_000)) > before)

    def result(self) -> bool | str:
        self.thread.join(5)
        assert not self.thread.is_alive()
        return self.said


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> BeltWorld:
    return BeltWorld(tmp_path, database, clock)


def test_a_session_that_has_ended_asks_nothing(world: BeltWorld) -> None:
    world.stop()
    with pytest.raises(SessionStopped):
        world.permissions.ask(world.live, world.view, key="x", **ASKED)
    assert world.permissions.latest() == []


@pytest.mark.parametrize("answer", list(PermissionAnswer))
def test_a_session_waits_for_the_answer(world: BeltWorld, bus: EventBus, answer: PermissionAnswer) -> None:
    facts = bus.subscribe(lambda: None)
    asking = Asking(world)
    request = world.permissions.waiting()[0]
    assert (request.title, request.detail, request.reason) == ("run make deploy", "make deploy", "sends to the outside")
    assert (request.agent, request.session_id, request.answer) == ("builder", world.view.id, None)
    answered = world.permissions.answer(request.id, answer)
    assert (answered.answer, answered.by, answered.withdrawn) == (answer, "operator", False)
    assert asking.result() is answer.allows
    assert world.permissions.waiting() == []
    assert [type(fact) for fact in facts.drain()] == [PermissionAsked, PermissionAnswered]
    lines = world.lines("ask")
    assert lines[0] == f"run make deploy: sends to the outside ({request.id})"
    lasting = " for this session" if answer.lasts else ""
    assert lines[1] == f"{'allowed' if answer.allows else 'denied'}{lasting} by operator"


def test_the_clock_of_a_session_stands_still_while_it_waits(world: BeltWorld, clock: FakeClock) -> None:
    asking = Asking(world)
    until(lambda: world.live.is_waiting)
    clock.advance(timedelta(hours=1))
    assert world.live.exceeded_limit() == ""
    world.permissions.answer(world.permissions.waiting()[0].id, PermissionAnswer.ALLOW_ONCE)
    assert asking.result() is True
    assert world.live.exceeded_limit() == ""


def test_an_answer_applies_once_or_for_the_session(world: BeltWorld, clock: FakeClock) -> None:
    first = Asking(world)
    world.permissions.answer(world.permissions.waiting()[0].id, PermissionAnswer.ALLOW_ONCE)
    assert first.result() is True
    second = Asking(world)
    request = world.permissions.waiting()[0]
    world.permissions.answer(request.id, PermissionAnswer.ALLOW_SESSION)
    assert second.result() is True
    clock.advance(timedelta(seconds=1))
    assert Asking(world).result() is True
    newest = world.permissions.latest(1)[0]
    assert newest.by == f"operator ({request.id}, for this session)", "recorded as what it is"
    assert (newest.answer, newest.answered_at) == (PermissionAnswer.ALLOW_SESSION, newest.asked_at)
    other = Asking(world, key="exec:make clean")
    assert len(world.permissions.waiting()) == 1, "another key is another question"
    world.permissions.answer(world.permissions.waiting()[0].id, PermissionAnswer.DENY_SESSION)
    assert other.result() is False
    assert Asking(world, key="exec:make clean").result() is False


def test_an_answer_for_a_session_does_not_apply_to_another(
    tmp_path: Path, database: Database, clock: FakeClock
) -> None:
    first_world, second_world = (BeltWorld(tmp_path / name, database, clock) for name in ("one", "two"))
    first = Asking(first_world)
    first_world.permissions.answer(first_world.permissions.waiting()[0].id, PermissionAnswer.ALLOW_SESSION)
    assert first.result() is True
    second = Asking(second_world)
    assert len(second_world.permissions.waiting()) == 1
    second_world.permissions.answer(second_world.permissions.waiting()[0].id, PermissionAnswer.DENY_ONCE)
    assert second.result() is False


def test_an_answer_for_the_session_answers_its_waiting_requests(world: BeltWorld) -> None:
    same = [Asking(world) for _ in range(3)]
    first = world.permissions.waiting()[0]
    other = Asking(world, key="exec:other")
    world.permissions.answer(first.id, PermissionAnswer.ALLOW_SESSION)
    assert [asking.result() for asking in same] == [True] * 3
    assert len(world.permissions.waiting()) == 1
    world.permissions.answer(world.permissions.waiting()[0].id, PermissionAnswer.DENY_ONCE)
    assert other.result() is False


def test_an_answer_to_a_closed_request_is_refused(world: BeltWorld) -> None:
    def code(request_id: str) -> str:
        with pytest.raises(Refusal) as refused:
            world.permissions.answer(request_id, PermissionAnswer.ALLOW_ONCE)
        return refused.value.code

    assert code("perm_none") == "unknown_permission"
    with pytest.raises(Refusal, match="there is no permission request"):
        world.permissions.get("perm_none")
    asking = Asking(world)
    request = world.permissions.waiting()[0]
    world.permissions.answer(request.id, PermissionAnswer.DENY_ONCE)
    assert asking.result() is False
    assert code(request.id) == "permission_answered"
    Asking(world, key="another")
    pending = world.permissions.waiting()[0]
    world.stop()
    until(lambda: world.permissions.get(pending.id).withdrawn)
    assert code(pending.id) == "permission_withdrawn"


def test_a_request_ends_with_its_session(world: BeltWorld, bus: EventBus) -> None:
    facts = bus.subscribe(lambda: None)
    askings = [Asking(world, key=str(number)) for number in range(3)]
    world.stop("the kill switch")
    assert [asking.result() for asking in askings] == ["the kill switch"] * 3
    assert world.permissions.waiting() == []
    assert sum(isinstance(fact, PermissionWithdrawn) for fact in facts.drain()) == 3


def test_an_answer_at_the_end_of_the_session_is_stored_or_refused(
    tmp_path: Path, database: Database, clock: FakeClock
) -> None:
    for number in range(10):
        world = BeltWorld(tmp_path / str(number), database, clock)
        asking = Asking(world)
        request = world.permissions.waiting()[0]
        ending = threading.Thread(target=world.stop)
        ending.start()
        try:
            world.permissions.answer(request.id, PermissionAnswer.ALLOW_ONCE)
            answered = True
        except Refusal:
            answered = False
        ending.join()
        assert asking.result() in (True, "enough")
        stored = world.permissions.get(request.id)
        assert (stored.answer is not None) is answered
        assert stored.withdrawn is not answered


def test_a_session_that_runs_by_itself_is_denied(tmp_path: Path, database: Database, clock: FakeClock) -> None:
    world = BeltWorld(tmp_path, database, clock, mode=AUTONOMOUS)
    assert world.permissions.ask(world.live, world.view, key="x", **ASKED) is False
    request = world.permissions.latest()[0]
    assert (request.answer, request.by) == (PermissionAnswer.DENY_ONCE, "nobody")
    assert request.reason == "sends to the outside; nobody can be asked, because the session runs by itself"
    assert world.permissions.waiting() == []


def test_after_a_crash_waiting_requests_are_withdrawn_and_answers_stay(
    world: BeltWorld, tmp_path: Path, clock: FakeClock
) -> None:
    """Everything a `kill -9` leaves is the file: another engine opens a copy of it while the first still waits."""
    answered = Asking(world, key="answered")
    world.permissions.answer(world.permissions.waiting()[0].id, PermissionAnswer.ALLOW_SESSION)
    assert answered.result() is True
    Asking(world, key="waiting")
    pending = world.permissions.waiting()[0]
    for part in ("", "-wal"):
        source = Path(f"{world.database.path}{part}")
        if source.exists():
            (tmp_path / f"copy.db{part}").write_bytes(source.read_bytes())
    database = Database(tmp_path / "copy.db", clock=clock, bus=EventBus())
    try:
        after = Permissions(database, randomness=Randomness())
        assert after.waiting() == [pending]
        reason = f"it was withdrawn because its session is gone ({pending.id})"
        message = f"“run make deploy” was waiting for your answer; {reason}"
        assert after.recover() == [message]
        assert after.recover() == []
        assert after.waiting() == []
        assert after.get(pending.id).withdrawn
        assert {request.answer for request in after.latest()} == {None, PermissionAnswer.ALLOW_SESSION}
        with pytest.raises(Refusal, match="is closed"):
            after.answer(pending.id, PermissionAnswer.ALLOW_ONCE)
    finally:
        database.close()
    world.stop()


def test_waiting_requests_are_withdrawn_with_their_session_alone(world: BeltWorld, database: Database) -> None:
    asking = Asking(world)
    [request] = world.permissions.waiting()
    for session_id, is_withdrawn in (("another", False), (world.view.id, True)):
        ended = replace(world.view, id=session_id)
        database.write(lambda tx, ended=ended: world.permissions.session_ended(tx, ended))
        assert world.permissions.get(request.id).withdrawn is is_withdrawn
        assert len(world.permissions.latest(session_id=session_id)) == is_withdrawn
    world.stop()
    asking.result()


def test_no_secret_is_stored(world: BeltWorld) -> None:
    """Neither one that the operator has, nor what looks like one (SPEC 11.1)."""
    permissions = Permissions(world.database, randomness=Randomness(), secrets=lambda: ["the-operators-key"])
    command = "curl -H 'x: the-operators-key' -d api_key=sk-0123456789abcdefghijklmnop"

    def work() -> None:
        permissions.ask(
            world.live, world.view, tool="exec", title=command, detail=command, reason=command, key=f"exec:{command}"
        )

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until(permissions.waiting)
    request = permissions.waiting()[0]
    assert request.title.startswith("curl -H")
    permissions.answer(request.id, PermissionAnswer.ALLOW_SESSION)
    thread.join(5)
    work()  # the same again is the same key still
    world.live.transcript.flush()
    for file in world.database.path.parent.rglob("*"):
        if file.is_file():
            assert b"the-operators-key" not in file.read_bytes(), file
            assert b"sk-0123456789" not in file.read_bytes(), file


def test_hostile_text_is_sanitised(world: BeltWorld) -> None:
    def work() -> None:
        world.permissions.ask(
            world.live, world.view, tool="exec", title="\x1b[2Jok\nallow", detail="\x07rm", reason="\u202ex", key="k"
        )

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until(world.permissions.waiting)
    request = world.permissions.waiting()[0]
    assert (request.title, request.detail, request.reason) == ("ok allow", "rm", "x")
    world.permissions.answer(request.id, PermissionAnswer.DENY_ONCE)
    thread.join(5)
