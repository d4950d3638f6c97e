"""How fast events reach two hundred WebSocket clients, and that clients which do not read delay no other (SPEC 10.1).

    pytest -m benchmark -s tests/benchmarks/test_pulse.py

A real engine in this process records 1,000 events a second. The clients are in a process of their own, and look at the
age of an event when they have read it. Bars: p95 of the ages below 250 ms, at most 20 frames a second to a client, and
nothing lost. Beside ten clients that read nothing, the others may not wait more than half as long again,
and 20 ms.
"""

import statistics
import time
from dataclasses import dataclass

from engine.api.gateway.guard import GatewayLimits
from tests.api.gateway.served import Serve, Served
from tests.api.gateway.served import serve as serve
from tests.benchmarks.event_writer import EVENTS_PER_SECOND, EventWriter
from tests.benchmarks.measuring import compute_p95
from tests.benchmarks.pulse_clients import ClientReport, connect_clients

CLIENTS, STALLED = 200, 10
SECONDS = 20
"""How long events are recorded."""

MAX_AGE = 0.25
"""Maximum age in seconds at p95."""

MAX_FRAMES = 21
"""Maximum number of frames of a client in a second: 20, and one that slips over the edge of a second on its way."""


@dataclass(frozen=True)
class Delivery:
    """What was recorded in `SECONDS`, how many clients were cut off meanwhile, and what the clients received."""

    written: int
    cut_off: int
    received: ClientReport

    @property
    def p95_age(self) -> float:
        return compute_p95(self.received.ages)


def measure_delivery(served: Served, stalled: int = 0) -> Delivery:
    """Record events while `CLIENTS` read them, and `stalled` more do not."""
    before = served.gateway.state().dropped
    writer = EventWriter(served.engine, served.propose_card().id)
    with connect_clients(served.port, served.token, CLIENTS, stalled) as clients:
        writer.run(SECONDS)
        time.sleep(1.0)
        received = clients.end()
    delivery = Delivery(writer.written, served.gateway.state().dropped - before, received)
    ages = [age * 1000 for age in received.ages]
    print(
        f"\n{CLIENTS} clients and {stalled} that stall: {writer.written / SECONDS:,.0f} events a second\n"
        f"  ages p50 {statistics.median(ages):.0f} ms, p95 {compute_p95(ages):.0f} (bar 250), "
        f"worst {max(ages):.0f} ms\n"
        f"  {received.frames / CLIENTS / SECONDS:.1f} frames a second and client, {received.max_frames_per_second} in "
        f"the busiest second (bar 20)\n"
        f"  a transaction takes {compute_p95(writer.transaction_seconds) * 1000:.1f} ms at p95; "
        f"{delivery.cut_off} cut off"
    )
    return delivery


def assert_all_arrived_in_time(delivery: Delivery):
    assert delivery.written >= EVENTS_PER_SECOND * SECONDS * 0.95, "the machine cannot write as fast"
    assert delivery.p95_age < MAX_AGE
    assert delivery.received.max_frames_per_second <= MAX_FRAMES
    assert delivery.received.min_messages >= delivery.written, "a client missed something"


def test_two_hundred_clients_get_every_event_in_time(serve: Serve):
    delivery = measure_delivery(serve(limits=GatewayLimits(), throw_away=False))
    assert_all_arrived_in_time(delivery)
    assert delivery.cut_off == 0


def test_clients_that_read_nothing_are_cut_off_and_delay_no_other(serve: Serve):
    served = serve(limits=GatewayLimits(), throw_away=False)
    alone, beside_stalled = measure_delivery(served), measure_delivery(served, STALLED)
    assert_all_arrived_in_time(beside_stalled)
    assert beside_stalled.cut_off == STALLED
    assert beside_stalled.p95_age < 1.5 * alone.p95_age + 0.02
