"""How long a key on a card takes while the console's engine sends 1,000 events a second to two hundred WebSocket
clients.

    pytest -m benchmark -s tests/benchmarks/test_key_latency_gateway.py

The same keys, the same terminal and the same floor as in `test_key_latency.py`. Bar: p95 of at least 100 keys < 50 ms,
and p95 of delivery < 250 ms meanwhile.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

from engine.lock import read_holder
from tests.benchmarks.measuring import p95
from tests.benchmarks.terminal import Terminal
from tests.benchmarks.test_key_latency import KeyBench
from tests.benchmarks.test_pulse import CLIENTS, clients
from tests.support.helpers import wait_until

TOKEN = "clawpy_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def test_a_key_while_two_hundred_listen(tmp_path: Path) -> None:
    with closing(Terminal()) as console, closing(Terminal()) as beside:
        bench = KeyBench(
            console, beside, tmp_path, config="[gateway]\nenabled = true\nport = 0\n",
            module="tests.benchmarks.busy_console",
            environment={"CLAWPY_GATEWAY_API_KEY": TOKEN, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        wait_until(lambda: (holder := read_holder(bench.home)) and holder.gateway, 30)
        holder = read_holder(bench.home)
        with clients(int(holder.gateway.rpartition(":")[2]), TOKEN, CLIENTS) as pipe:
            time.sleep(3)
            bench.press_keys(26)
            pipe.send("enough")
            report = json.loads(pipe.recv())
    slowest = bench.report(f"{CLIENTS} listen")
    delivery = p95(report["ages"]) * 1000
    print(f"delivery p95 {delivery:.0f} ms (bar 250), {report['fewest']:,} messages to each")
    assert report["fewest"] > 10_000
    assert slowest < 0.050
    assert delivery < 250
