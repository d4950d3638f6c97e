"""Each notification is sent at least once, and twice only after a crash, whatever fails and when (SPEC 10.2)."""

import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.notify.addresses import Address
from engine.api.notify.delivery import Button, DeliveryFailure
from engine.api.notify.notes import Note
from engine.clock import FakeClock
from engine.config.external_sections import Surface
from engine.events import EventBus
from engine.events.engine import CostWarned
from engine.storage.database import Database
from engine.wording import to_microusd
from tests.api.notify.notify_world import EVERYWHERE, NotifyWorld
from tests.support import MONDAY_MORNING


class Crash(BaseException):
    """The process ends here."""


class StandInPhone:
    """Takes notes, unless it fails, or crashes after it took one."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        """How often it took a note with each amount."""
        self.fails = self.crashes = False

    def deliver(self, address: Address, note: Note, buttons: Mapping[str, Button]) -> DeliveryFailure | None:
        if self.fails:
            return DeliveryFailure("it cannot be reached")
        self.counts.update(word for word in note.body.split() if word.startswith("$") and word.endswith("7"))
        if self.crashes:
            self.crashes = False
            raise Crash
        return None


STEP = st.sampled_from(
    ["happen", "happen", "read", "deliver", "deliver", "fail", "recover", "wait", "restart", "crash", "quiet"]
)


def check_steps(steps: list[str], database: Database, clock: FakeClock):
    """Carry the steps out, then let everything be delivered, and count the notes on the phone."""
    phone, amounts, crashed = StandInPhone(), [], False

    def restart() -> NotifyWorld:
        world = NotifyWorld(database, clock, EventBus())
        world.set_addresses(phone=EVERYWHERE["phone"])
        world.courier.deliver = phone.deliver
        return world

    world = restart()
    for step in [*steps, "recover", "restart", "read", "wait", "deliver", "wait", "deliver"]:
        if step == "happen":
            amounts.append(f"${len(amounts)}.07")
            spent = to_microusd(float(amounts[-1][1:]))
            database.write(lambda tx, spent=spent: tx.record(CostWarned(window="day", spent=spent, cap=to_microusd(1))))
        elif step == "read":
            world.notifications.catch_up()
        elif step in ("fail", "recover"):
            phone.fails = step == "fail"
        elif step == "wait":
            clock.advance(timedelta(minutes=31))
        elif step == "quiet":
            world.quiet = not world.quiet
        elif step == "restart":
            world = restart()
        else:
            phone.crashes = step == "crash"
            try:
                world.deliver([Surface.PHONE])
            except Crash:
                crashed = True
                world = restart()
            phone.crashes = False
    missed = {notes.surface for notes in world.notifications.outbox.list_undelivered()}
    assert set(phone.counts) == set(amounts) or missed
    if not crashed:
        assert all(number == 1 for number in phone.counts.values())


@pytest.mark.long
@settings(max_examples=25)
@given(steps=st.lists(STEP, max_size=25))
def test_no_notification_is_lost_or_doubled_whatever_fails(steps: list[str]):
    clock = FakeClock(MONDAY_MORNING)
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "clawpy.db", clock=clock, bus=EventBus())
        try:
            check_steps(steps, database, clock)
        finally:
            database.close()
