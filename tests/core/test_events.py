"""The bus never waits for a listener."""

from __future__ import annotations

from engine.events import Event, EventBus, TaskAdded
from engine.events.bus import Subscription


def titles(subscription: Subscription) -> list[str]:
    return [event.title for event in subscription.drain() if isinstance(event, TaskAdded)]


def test_a_burst_wakes_a_reader_once_and_is_read_in_order(bus: EventBus) -> None:
    woken: list[int] = []
    subscription = bus.subscribe(lambda: woken.append(1))
    for number in range(100):
        bus.publish(TaskAdded(title=str(number)))
    assert len(woken) == 1
    assert titles(subscription) == [str(number) for number in range(100)]
    bus.publish(TaskAdded(title="later"))
    assert len(woken) == 2


def test_a_slow_reader_loses_the_oldest_and_knows_how_many(bus: EventBus) -> None:
    subscription = bus.subscribe(lambda: None, capacity=10)
    for number in range(25):
        bus.publish(TaskAdded(title=str(number)))
    assert titles(subscription) == [str(number) for number in range(15, 25)]
    assert subscription.dropped == 15


def test_a_listener_that_fails_is_taken_off_and_harms_no_other(bus: EventBus) -> None:
    def broken() -> None:
        raise RuntimeError("screen is gone")

    bus.subscribe(broken)
    healthy = bus.subscribe(lambda: None)
    bus.publish(TaskAdded(title="one"))
    bus.publish(TaskAdded(title="two"))
    assert len(healthy.drain()) == 2


def test_a_closed_subscription_hears_nothing_more(bus: EventBus) -> None:
    subscription = bus.subscribe(lambda: None)
    subscription.close()
    bus.publish(TaskAdded(title="one"))
    assert subscription.drain() == []


def test_an_event_knows_its_kind_and_payload() -> None:
    event: Event = TaskAdded(subject="task_1", workspace="/shop", title="x")
    assert (event.kind, event.payload()) == ("TaskAdded", {"title": "x"})
