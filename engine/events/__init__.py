"""Events, named in the past tense: their base class, and the bus that carries them in memory.

An event is a class with typed fields, topics and a sentence: `GatewayClosed(subject=url)` says "no longer listening at
…". The ledger stores events, `clawpy run` prints their sentences, and screens read their topics again. The classes are
in `engine`, `work` and `learning`.

The transaction that makes an event true records it in the ledger (`Transaction.record`). The event is put on the bus
after the commit. A slow reader of the bus may lose old events, and their number is counted. A service that must not
lose events reads the ledger with a cursor of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, dataclass_transform

from engine.frozen import frozen_kw_only
from engine.wording import join_names

MAX_NAMES = 3
"""Names that a sentence lists before it counts the others."""

log = logging.getLogger(__name__)


@dataclass_transform(frozen_default=True, kw_only_default=True)
@frozen_kw_only
class Event:
    """An event. `subject` is the id of the thing that it is about, `workspace` the path of its repository ("" for
    none).

    Every subclass becomes a frozen dataclass with keyword arguments. Its `topics`, separated by spaces, are the parts
    of the screen that must be read again after the event. A `volatile` event is only for screens, and is never stored.
    A subclass has a `template`, a `sentence` of its own, or neither.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}
    """Every class of event by its name."""
    volatile: ClassVar[bool] = False
    topics: ClassVar[tuple[str, ...]] = ()
    template: ClassVar[str] = ""
    """The sentence, with the names of fields in braces."""
    subject: str = ""
    workspace: str = ""

    def __init_subclass__(cls, *, topics: str = "", volatile: bool = False) -> None:
        cls.topics, cls.volatile = tuple(topics.split()), volatile
        Event.kinds[cls.__name__] = frozen_kw_only(cls)

    @property
    def kind(self) -> str:
        """The name of its class, under which it is stored, for instance `SessionEnded`."""
        return type(self).__name__

    def payload(self) -> dict[str, Any]:
        """All fields but subject and workspace, as JSON."""
        return {name: value for name, value in vars(self).items() if name not in ("subject", "workspace")}

    def sentence(self) -> str:
        """A sentence about the event, on one line; "" if another event has the sentence."""
        return self.template.format_map(vars(self))


def list_names(names: Sequence[str]) -> str:
    """`a, b and c`, or `a, b, c and 4 more`, each name once (see `join_names`); `nobody` for none."""
    return join_names(dict.fromkeys(names), MAX_NAMES) or "nobody"


class Subscription:
    """A bounded queue of events for one reader. If it is full, the oldest event is dropped and counted."""

    def __init__(self, bus: EventBus, wake: Callable[[], None], capacity: int) -> None:
        self._bus = bus
        self._wake = wake
        self._events: deque[Event] = deque()
        self._capacity = capacity
        self._lock = threading.Lock()
        self._awake = False
        self.dropped = 0

    def offer(self, event: Event) -> None:
        """Add an event to the queue, and wake the reader if it sleeps."""
        with self._lock:
            if len(self._events) >= self._capacity:
                self._events.popleft()
                self.dropped += 1
            self._events.append(event)
            wake = not self._awake
            self._awake = True
        if wake:
            self._wake()

    def drain(self) -> list[Event]:
        """Take all events since the last call, oldest first. The next event wakes the reader again."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
            self._awake = False
        return events

    def close(self) -> None:
        """Stop receiving."""
        self._bus.remove(self)


class EventBus:
    """Passes events to all subscribers, from any thread. It never waits for a subscriber."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()
        self._lock = threading.Lock()

    def subscribe(self, wake: Callable[[], None], *, capacity: int = 10_000) -> Subscription:
        """Subscribe to all events. `wake` is called once for each batch of events, from the publishing thread, and must
        return at once (for a screen: `loop.call_soon_threadsafe`). The reader then calls `drain`."""
        subscription = Subscription(self, wake, capacity)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """End a subscription."""
        with self._lock:
            self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)

    def publish(self, event: Event) -> None:
        """Put `event` into every queue. If the `wake` of a subscription raises, that is logged and the subscription
        ends."""
        for subscription in self._subscriptions:
            try:
                subscription.offer(event)
            except Exception:
                log.exception("a listener failed on %s and was taken off the bus", event.kind)
                self.remove(subscription)
