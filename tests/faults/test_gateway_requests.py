"""Ten thousand random requests by the gateway's document, on a real engine: no 5xx, no undocumented reply (SPEC 10.1).

    pytest -m faults -s tests/faults/test_gateway_requests.py

The requests are valid and invalid, on cards that exist and cards that do not. Cards run and are dismissed, snoozed and
undone.
"""

import time
from collections import Counter

import pytest

from tests.api.gateway.conftest import serve
from tests.api.gateway.fuzz import UNHURRIED, fuzz
from tests.api.gateway.served import Serve

__all__ = ["serve"]

pytestmark = pytest.mark.faults

REQUESTS, RUNS = 10_000, 5
"""The number of requests, and of engines among which they are divided."""


def test_ten_thousand_requests_get_described_replies(serve: Serve):
    sent, began = 0, time.monotonic()
    counts = Counter()
    for run in range(20 * RUNS):
        report = fuzz(serve(limits=UNHURRIED), REQUESTS // RUNS, start=run + 1)
        sent += report.total()
        counts += report
        if sent >= REQUESTS:
            break
    print(f"\n{sent:,} requests in {time.monotonic() - began:.0f} s, {run + 1} engines")
    for reply, count in sorted(counts.items()):
        print(f"  {count:6,}  {reply}")
    assert sent >= REQUESTS
    assert not [reply for reply in counts if reply.rpartition(" ")[2].startswith("5")]
