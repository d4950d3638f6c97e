"""Permission requests: one answer for each, none lost, none for a session that runs by itself (SPEC 3.5, 9.3)."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.events.work import PermissionAnswered, PermissionAsked, PermissionWithdrawn
from engine.execution.permissions import Permissions
from engine.execution.runners import SessionStopped
from engine.execution.session_store import AUTONOMOUS
from engine.model import PermissionAnswer
from engine.randomness import Randomness
from engine.storage.database import Database
from tests.execution.tools.belt_world import BeltWorld
from tests.support.checks import refused, wait_until

DEPLOY = {"tool": "exec", "title": "run make deploy", "detail": "make deploy", "reason": "sends to the outside"}


class AskedRequest:
    """A request of a session, which is asked in a thread. Its texts are those of `DEPLOY` unless named."""

    def __init__(
        self, world: BeltWorld, key: str = "exec:make deploy", permissions: Permissions | None = None, **texts: str
    ):
        self._permissions = permissions or world.permissions
        earlier = {request.id for request in self._permissions.list_newest(1_000)}
        ask = partial(self._permissions.ask, world.live, world.view, key=key, **DEPLOY | texts)
        self._asking = ThreadPoolExecutor(1).submit(ask)
        wait_until(lambda: len(self._permissions.list_newest(1_000)) > len(earlier))
        [self.request] = [request for request in self._permissions.list_newest(1_000) if request.id not in earlier]

    def result(self) -> bool | str:
        """Whether it was allowed, or why the session was stopped."""
        try:
            return self._asking.result(20)
        except SessionStopped as stopped:
            return str(stopped)

    def answer(self, answer: PermissionAnswer) -> bool | str:
        """Answer it. Returns what `result` does."""
        self._permissions.answer(self.request.id, answer)
        return self.result()


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> BeltWorld:
    return BeltWorld(tmp_path, database, clock)


@pytest.mark.parametrize("answer", list(PermissionAnswer))
def test_a_session_waits_for_the_answer(world: BeltWorld, bus: EventBus, answer: PermissionAnswer):
    events = bus.subscribe(lambda: None)
    question = AskedRequest(world)
    [request] = world.permissions.list_waiting()
    assert (request.title, request.detail, request.reason) == ("run make deploy", "make deploy", "sends to the outside")
    assert (request.agent, request.session_id, request.answer) == ("builder", world.view.id, None)
    assert question.answer(answer) is answer.allows
    answered = world.permissions.get(request.id)
    assert (answered.answer, answered.by, answered.withdrawn) == (answer, "operator", False)
    assert world.permissions.list_waiting() == []
    assert [type(event) for event in events.drain()] == [PermissionAsked, PermissionAnswered]
    verb, lasting = "allowed" if answer.allows else "denied", " for this session" if answer.is_for_session else ""
    assert world.read_lines("ask")[1] == f"{verb}{lasting} by operator"


def test_the_clock_of_a_session_stands_still_while_it_waits(world: BeltWorld, clock: FakeClock):
    question = AskedRequest(world)
    wait_until(lambda: world.live.is_waiting)
    clock.advance(timedelta(hours=1))
    assert world.live.explain_exceeded_limit() == ""
    assert question.answer(PermissionAnswer.ALLOW_ONCE) is True
    assert world.live.explain_exceeded_limit() == ""


def test_an_answer_applies_once_or_for_the_session(world: BeltWorld):
    assert AskedRequest(world).answer(PermissionAnswer.ALLOW_ONCE) is True
    second = AskedRequest(world)
    assert second.answer(PermissionAnswer.ALLOW_SESSION) is True
    later = AskedRequest(world)
    assert later.result() is True
    assert world.permissions.get(later.request.id).by == f"operator ({second.request.id}, for this session)"
    assert AskedRequest(world, key="exec:make clean").answer(PermissionAnswer.DENY_SESSION) is False
    assert AskedRequest(world, key="exec:make clean").result() is False


def test_an_answer_for_a_session_does_not_apply_to_another(tmp_path: Path, database: Database, clock: FakeClock):
    first, second = (BeltWorld(tmp_path / name, database, clock) for name in ("one", "two"))
    assert AskedRequest(first).answer(PermissionAnswer.ALLOW_SESSION) is True
    assert AskedRequest(second).answer(PermissionAnswer.DENY_ONCE) is False


def test_an_answer_for_the_session_answers_its_waiting_requests(world: BeltWorld):
    questions = [AskedRequest(world) for _ in range(3)]
    unrelated = AskedRequest(world, key="exec:other")
    assert questions[0].answer(PermissionAnswer.ALLOW_SESSION) is True
    assert [question.result() for question in questions] == [True] * 3
    assert world.permissions.list_waiting() == [unrelated.request]
    world.stop()


def test_an_answer_to_a_closed_request_is_refused(world: BeltWorld):
    def answer(request_id: str):
        world.permissions.answer(request_id, PermissionAnswer.ALLOW_ONCE)

    refused("unknown_permission", lambda: answer("perm_none"))
    answered, pending = AskedRequest(world), AskedRequest(world, key="another")
    answered.answer(PermissionAnswer.DENY_ONCE)
    refused("permission_answered", lambda: answer(answered.request.id))
    world.stop()
    assert pending.result() == "enough"
    refused("permission_withdrawn", lambda: answer(pending.request.id))


def test_a_request_ends_with_its_session(world: BeltWorld, bus: EventBus):
    events = bus.subscribe(lambda: None)
    questions = [AskedRequest(world, key=str(number)) for number in range(3)]
    world.stop("the kill switch")
    assert [question.result() for question in questions] == ["the kill switch"] * 3
    assert world.permissions.list_waiting() == []
    assert sum(isinstance(event, PermissionWithdrawn) for event in events.drain()) == 3


def test_a_session_that_runs_by_itself_is_denied(tmp_path: Path, database: Database, clock: FakeClock):
    world = BeltWorld(tmp_path, database, clock, mode=AUTONOMOUS)
    question = AskedRequest(world)
    assert question.result() is False
    assert (question.request.answer, question.request.by) == (PermissionAnswer.DENY_ONCE, "nobody")
    assert question.request.reason == "sends to the outside; nobody can be asked, because the session runs by itself"
    assert world.permissions.list_waiting() == []


def test_after_a_crash_waiting_requests_are_withdrawn_and_answers_stay(
    world: BeltWorld, tmp_path: Path, clock: FakeClock
):
    """Another engine opens a copy of the database, which is all that `kill -9` leaves, while the first still waits."""
    answered = AskedRequest(world, key="answered")
    answered.answer(PermissionAnswer.ALLOW_SESSION)
    pending = AskedRequest(world, key="waiting").request
    for source in world.database.path.parent.glob(f"{world.database.path.name}*"):
        (tmp_path / source.name.replace(world.database.path.name, "copy.db")).write_bytes(source.read_bytes())
    with closing(Database(tmp_path / "copy.db", clock=clock, bus=EventBus())) as database:
        after = Permissions(database, randomness=Randomness())
        assert after.list_waiting() == [pending]
        reason = f"it was withdrawn because its session is gone ({pending.id})"
        assert after.recover() == [f"“run make deploy” was waiting for your answer; {reason}"]
        assert after.recover() == after.list_waiting() == []
        assert after.get(pending.id).withdrawn
        assert after.get(answered.request.id).answer is PermissionAnswer.ALLOW_SESSION
    world.stop()


def test_no_secret_is_stored(world: BeltWorld):
    """Neither one that the operator has, nor what looks like one (SPEC 11.1)."""
    permissions = Permissions(world.database, randomness=Randomness(), secrets=lambda: ["the-operators-key"])
    command = "curl -H 'x: the-operators-key' -d api_key=sk-0123456789abcdefghijklmnop"
    question = AskedRequest(world, permissions=permissions, title=command, detail=command, reason=command)
    assert question.request.title.startswith("curl -H")
    question.answer(PermissionAnswer.ALLOW_SESSION)
    world.live.transcript.flush()
    for file in world.database.path.parent.rglob("*"):
        stored = file.read_bytes() if file.is_file() else b""
        assert b"the-operators-key" not in stored, file
        assert b"sk-0123456789" not in stored, file
