"""How fast events reach two hundred WebSocket clients, and how much a client that does not read slows down the others.

    pytest -m benchmark -s tests/benchmarks/test_pulse.py

A real engine in this process writes 1,000 facts a second, one in ten a new card whose whole text goes out; the clients
are in a process of their own and look at each message's age when they have read it. Bars: p95 of delivery < 250 ms, at
most 20 frames a second to a client, nothing lost; beside ten clients that read nothing no slower, by more than half.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.api.gateway.access import Limits
from engine.engine import Engine
from engine.events import PredictionCreated, PredictionExecuted, PredictionExpired, TaskChanged
from tests.api.gateway.conftest import Serve, Served, serve
from tests.benchmarks.measuring import p95
from tests.benchmarks.pulse_clients import listen

__all__ = ["serve"]

CLIENTS, STALLED = 200, 10
RATE, SECONDS = 1_000, 20
BEAT = 0.02
"""Seconds between two transactions."""


class Writer:
    """Writes facts at an even rate, in transactions of a beat."""

    def __init__(self, engine: Engine, card: str) -> None:
        self._engine = engine
        self._card = card
        self.written = 0
        self.transaction_seconds: list[float] = []

    def run(self, seconds: float) -> None:
        engine, began = self._engine, time.monotonic()
        card = {"subject": self._card, "workspace": ""}
        kinds = [
            PredictionCreated(**card, flow="", channel="koji-core", confidence=0.7, source="template"),
            *[PredictionExecuted(subject="pred_gone", outcome="succeeded")] * 4,
            *[PredictionExpired(subject="pred_gone", withdrawn=True, reason="what it was about is no longer so")] * 5,
        ]
        while (now := time.monotonic()) - began < seconds:
            due = int((now - began + BEAT) * RATE) - self.written
            facts = [kinds[(self.written + number) % len(kinds)] for number in range(due)]
            engine.database.write(lambda tx, facts=facts: [tx.record(fact) for fact in facts])
            self.transaction_seconds.append(time.monotonic() - now)
            self.written += due
            time.sleep(max(0.0, BEAT - (time.monotonic() - now)))
        engine.database.write(lambda tx: tx.record(TaskChanged(subject="the end", state="done")))


@contextmanager
def clients(port: int, token: str, number: int, stalled: int = 0) -> Iterator[Any]:
    """A process with so many clients; `stalled` more that subscribe and read nothing. Yields where its report comes."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    child = spawn.Process(target=listen, args=(there, port, token, number, stalled), daemon=True)
    child.start()
    try:
        assert here.poll(60), "the clients did not connect"
        assert here.recv() == "listening"
        yield here
    finally:
        child.kill()
        child.join()


def measure(served: Served, stalled: int = 0) -> dict[str, Any]:
    before = served.gateway.state().dropped
    with clients(served.port, served.token, CLIENTS, stalled) as pipe:
        writer = Writer(served.engine, served.propose_card().id)
        thread = threading.Thread(target=writer.run, args=(SECONDS,))
        thread.start()
        thread.join()
        time.sleep(1.0)
        pipe.send("enough")
        report: dict[str, Any] = json.loads(pipe.recv())
    ages = report["ages"]
    figures = {
        "written": writer.written,
        "p50": statistics.median(ages) * 1000,
        "p95": p95(ages) * 1000,
        "worst": max(ages) * 1000,
        "frames": report["frames"] / CLIENTS / SECONDS,
        "busiest": report["busiest"],
        "fewest": report["fewest"],
        "write p95": p95(writer.transaction_seconds) * 1000,
        "dropped": served.gateway.state().dropped - before,
    }
    label = f"{CLIENTS} clients" + (f" and {stalled} that stall" if stalled else "")
    print(f"\n{label}: {writer.written / SECONDS:,.0f} facts a second for {SECONDS} s, {len(ages):,} ages")
    print(
        f"  delivery p50 {figures['p50']:.0f} ms, p95 {figures['p95']:.0f} (bar 250), worst {figures['worst']:.0f} ms"
    )
    print(
        f"  {figures['frames']:.1f} frames a second and client, {figures['busiest']} in the busiest second (bar 20)\n"
        f"  a transaction of the engine takes {figures['write p95']:.1f} ms at p95; {figures['dropped']} dropped"
    )
    return figures


def test_delivery_to_two_hundred_clients_beside_stalled_ones(serve: Serve) -> None:
    served = serve(limits=Limits(), throw_away=False)
    plain = measure(served)
    with_stalled = measure(served, STALLED)
    for figures in (plain, with_stalled):
        assert figures["written"] >= RATE * SECONDS * 0.95, "the machine cannot write as fast"
        assert figures["p95"] < 250
        assert figures["busiest"] <= 21, "one may slip over the edge of a second on its way"
        assert figures["fewest"] >= figures["written"], "a client missed something"
    assert plain["dropped"] == 0
    assert with_stalled["dropped"] == STALLED
    assert with_stalled["p95"] < 1.5 * plain["p95"] + 20
