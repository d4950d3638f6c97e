"""How long a key on a card takes while the console's engine sends 1,000 events a second to two hundred WebSocket
clients (SPEC 10.1, 11.4).

    pytest -m benchmark -s tests/benchmarks/test_key_latency_gateway.py

`key_bench` says what is measured. Bar: p95 of at least 100 keys < 50 ms, and p95 of delivery < 250 ms meanwhile.
"""

import time
from pathlib import Path

import pytest

from engine.lock import read_holder
from tests.benchmarks.key_bench import open_key_bench
from tests.benchmarks.measuring import compute_p95
from tests.benchmarks.pulse_clients import connect_clients
from tests.support.checks import wait_until

CLIENTS = 200
TOKEN = "clawpy_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def test_a_key_is_quick_while_two_hundred_clients_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_GATEWAY_API_KEY", TOKEN)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    config = "[gateway]\nenabled = true\nport = 0\n"
    with open_key_bench(tmp_path, config=config, module="tests.benchmarks.busy_console") as bench:
        wait_until(lambda: (holder := read_holder(bench.home)) and holder.gateway, 30)
        port = int(read_holder(bench.home).gateway.rpartition(":")[2])
        with connect_clients(port, TOKEN, CLIENTS) as clients:
            time.sleep(3)
            bench.press_keys(26)
            received = clients.end()
    slowest = bench.report(f"{CLIENTS} listen")
    delivery = compute_p95(received.ages)
    print(f"delivery p95 {delivery * 1000:.0f} ms (bar 250), {received.min_messages:,} messages to each")
    assert received.min_messages > 10_000
    assert slowest < 0.050
    assert delivery < 0.250
