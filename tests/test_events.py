"""Events (ARCHITECTURE rule 3): the bus loses none without a count, and every stored event is a sentence, which
`clawpy run` prints."""

import json
import re
from dataclasses import fields
from operator import itemgetter
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from engine.events import Event, EventBus, Subscription, engine, learning, work
from engine.events.work import TaskAdded
from tests.support import read_table


def read_titles(subscription: Subscription) -> list[str]:
    return [event.title for event in subscription.drain() if isinstance(event, TaskAdded)]


def test_a_slow_subscriber_loses_the_oldest_events_and_knows_how_many(bus: EventBus):
    subscription = bus.subscribe(lambda: None, capacity=10)
    for number in range(25):
        bus.publish(TaskAdded(title=str(number)))
    assert read_titles(subscription) == [str(number) for number in range(15, 25)]
    assert subscription.dropped == 15


def test_a_subscriber_that_fails_is_removed_and_harms_no_other(bus: EventBus):
    def broken():
        raise RuntimeError("screen is gone")

    bus.subscribe(broken)
    healthy = bus.subscribe(lambda: None)
    bus.publish(TaskAdded(title="one"))
    bus.publish(TaskAdded(title="two"))
    assert len(healthy.drain()) == 2


# Sentences

KINDS = [
    kind
    for module in (engine, learning, work)
    for kind in vars(module).values()
    if kind in Event.kinds.values() and not kind.volatile
]
"""Every kind of event that is stored."""

NO_SENTENCE = """
    PermitIssued CostReserved CostSettled SessionQueued EngineStopped GuidanceApplied TeachingRefreshed ToolsUsed
    ChangeSetCommented DismissalExplained CloudMemoryRecalled LearningReinforced LearningsCompacted
"""
"""Kinds whose sentence is that of another event, or that only programs read."""


def read_sentence(event: Event) -> str:
    """The sentence of an event that was written as JSON and read again."""
    return Event.kinds[event.kind](subject=event.subject, **json.loads(json.dumps(event.payload()))).sentence()


def make_example(kind: type[Event], *, empty: bool) -> Event:
    """An event of `kind` whose fields have values of their types; with `empty` its lists and tables are empty."""
    hints = get_type_hints(kind)
    return kind(**{field.name: make_value(hints[field.name], field.name, empty) for field in fields(kind)})


def make_value(hint: Any, name: str, empty: bool) -> Any:
    """A value for the field `name` of the type `hint`."""
    if isinstance(hint, UnionType):
        return None if empty else make_value(get_args(hint)[0], name, empty)
    if get_origin(hint) is tuple:
        return () if empty else (make_value(get_args(hint)[0], name, empty),) * 5
    if get_origin(hint) is not None:
        return {} if empty else {f"{name}-key": 3}
    if name == "tier":
        return 3
    if name == "until":
        return "2026-01-05T12:00:00+00:00"
    return {str: f"some-{name}", int: 0 if empty else 7, float: 0.5, bool: not empty}[hint]


@pytest.mark.parametrize("empty", [False, True], ids=["filled", "empty"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_has_a_sentence_of_its_own_or_none(kind: type[Event], empty: bool):
    line = read_sentence(make_example(kind, empty=empty))
    assert (line == "") is (kind.__name__ in NO_SENTENCE.split())
    assert kind.__name__ not in line
    assert not re.search(r"\w=|[\[\]{}]|None", line), line
    assert line == " ".join(line.split())


@pytest.mark.parametrize("row", read_table(__file__)["events"], ids=itemgetter("sentence"))
def test_an_event_is_told_in_this_sentence(row: dict[str, Any]):
    assert Event.kinds[row["kind"]](**row["fields"]).sentence() == row["sentence"]
