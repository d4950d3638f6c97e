"""How long a key on a card takes while the console's engine tells two hundred WebSocket clients 1,000 facts a second.

    pytest -m benchmark -s tests/benchmarks/test_key_latency_gateway.py

The same keys, the same terminal and the same floor as in `test_key_latency.py`. Bar: p95 of at least 100 keys < 50 ms,
and p95 of delivery < 250 ms meanwhile.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from engine.home import Home
from engine.lock import read_holder
from tests.benchmarks.terminal import percentile, terminal
from tests.benchmarks.test_key_latency import KEYS, Floor, busy_repository, four_keys, table
from tests.benchmarks.test_pulse import CLIENTS, clients

pytestmark = pytest.mark.benchmark

ROUNDS = 26  # four keys each
TOKEN = "clawpy_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def test_a_key_while_two_hundred_listen(tmp_path: Path) -> None:
    repository = busy_repository(tmp_path / "shop")
    home = Home.locate(tmp_path / "home")
    home.config.mkdir(parents=True)
    home.config_file.write_text("[gateway]\nenabled = true\nport = 0\n")
    times: dict[str, list[float]] = {key: [] for key in KEYS}
    floor_times = []
    with terminal() as console, terminal() as beside:
        floor = Floor(beside)
        began = console.start(
            [sys.executable, "-m", "tests.benchmarks.busy_console", "--home", str(home.root)],
            cwd=repository.path,
            environment={
                "TEXTUAL_ANIMATIONS": "none",
                "CLAWPY_GATEWAY_API_KEY": TOKEN,
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
        )
        console.wait_for(r"1 of \d", began, timeout=60)
        end = time.monotonic() + 30
        while not (holder := read_holder(home)) or not holder.gateway:
            assert time.monotonic() < end, "the gateway does not listen"
            time.sleep(0.1)
        time.sleep(2)
        still = [took for _ in range(5) for took in four_keys(console).values()]
        with clients(int(holder.gateway.rpartition(":")[2]), TOKEN, CLIENTS) as pipe:
            time.sleep(3)
            for _ in range(ROUNDS):
                for key, took in four_keys(console).items():
                    times[key].append(took)
                floor_times.append(floor.key())
            pipe.send("enough")
            report = json.loads(pipe.recv())
    p95 = table(still, times, floor_times, f"{CLIENTS} listen")
    print(f"{p95 / percentile(still, 0.95):.2f} x the p95 of an engine to which nobody listens")
    delivery = percentile(report["ages"], 0.95) * 1000
    print(f"delivery p95 {delivery:.0f} ms (bar 250), {report['fewest']:,} messages to each")
    assert report["fewest"] > 10_000
    assert sum(map(len, times.values())) >= 100
    assert p95 < 50
    assert delivery < 250
