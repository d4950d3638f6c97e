"""Each is delivered at least once, and but for a crash at the wrong instant not twice, whatever fails and when."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.notify.addresses import Address
from engine.api.notify.delivery import Button, Failure
from engine.api.notify.notes import Note
from engine.clock import FakeClock
from engine.config.notify import Surface
from engine.events import CostWarned, EventBus
from engine.model import microusd
from engine.storage.database import Database
from engine.storage.ledger import append
from tests.api.notify.world import World
from tests.conftest import MONDAY_MORNING

URL = "json://nowhere.invalid/x"


class Crash(BaseException):
    """The process ends here."""


class Post:
    """Takes notes, unless it fails or crashes after it took one."""

    def __init__(self) -> None:
        self.got: Counter[str] = Counter()
        self.fails = self.crashes = False

    def deliver(self, address: Address, note: Note, buttons: Mapping[str, Button]) -> Failure | None:
        if self.fails:
            return Failure("it cannot be reached")
        self.got.update(word for word in note.body.split() if word.startswith("$") and word.endswith("7"))
        if self.crashes:
            self.crashes = False
            raise Crash
        return None


STEP = st.sampled_from(
    ["happen", "happen", "read", "deliver", "deliver", "fail", "work", "wait", "restart", "crash", "quiet"]
)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEP, max_size=25))
def test_whatever_fails_and_when(steps: list[str]) -> None:
    clock = FakeClock(MONDAY_MORNING)
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "clawpy.db", clock=clock, bus=EventBus(), recorder=append)
        try:
            _live(steps, database, clock)
        finally:
            database.close()


def _live(steps: list[str], database: Database, clock: FakeClock) -> None:
    post, told, crashed = Post(), [], False

    def begin() -> World:
        world = World(database, clock, EventBus())
        world.at(phone=URL)
        world.notifications.deliver = post.deliver
        return world

    world = begin()
    for step in [*steps, "work", "restart", "read", "wait", "deliver", "wait", "deliver"]:
        if step == "happen":
            told.append(f"${len(told)}.07")
            spent = microusd(float(told[-1][1:]))
            database.write(lambda tx, spent=spent: tx.record(CostWarned(window="day", spent=spent, cap=microusd(1))))
        elif step == "read":
            world.notifications.catch_up()
        elif step in ("fail", "work"):
            post.fails = step == "fail"
        elif step == "wait":
            clock.advance(timedelta(minutes=31))
        elif step == "quiet":
            world.quiet = not world.quiet
        elif step == "restart":
            world = begin()
        else:
            post.crashes = step == "crash"
            try:
                world.deliver([Surface.PHONE])
            except Crash:
                crashed = True
                world = begin()
            post.crashes = False
    missed = {one.surface for one in world.notifications.outbox.undelivered()}
    assert set(post.got) == set(told) or missed
    if not crashed:
        assert all(number == 1 for number in post.got.values())
