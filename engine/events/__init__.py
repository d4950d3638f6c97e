"""Typed events, named in the past tense, and the bus that carries them.

The transaction that makes an event true records it in the ledger (`Transaction.record`). The event is put on the bus
after the commit. The bus is only in memory: a slow reader may lose old events, and their number is counted. A service
that must not lose events reads the ledger with a cursor of its own.
"""

from __future__ import annotations

from engine.events.engine import *
from engine.events.event import Event as Event
from engine.events.event import EventBus as EventBus
from engine.events.event import Subscription as Subscription
from engine.events.learning import *
from engine.events.work import *
