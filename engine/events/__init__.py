"""Typed facts in the past tense, and the one bus that carries them.

A fact is recorded in the ledger by the transaction that made it true (`Transaction.record`), and put on the bus
only after that transaction was committed. The bus itself is volatile: a slow screen may lose old facts, which is
counted; a service that must not lose any reads the ledger with a cursor of its own.
"""

from __future__ import annotations

from engine.events.agents import *
from engine.events.bus import Event as Event
from engine.events.bus import EventBus as EventBus
from engine.events.bus import Subscription as Subscription
from engine.events.cards import *
from engine.events.engine import *
from engine.events.learning import *
from engine.events.sessions import *
