"""Every reply of the gateway is as its OpenAPI document says (SPEC 10.1).

Ten thousand random requests: `pytest -m faults -s tests/api/gateway/test_openapi.py`. They are valid and invalid, on
cards that exist and cards that do not. Cards run and are dismissed, snoozed and undone.
"""

import time
from collections import Counter

import pytest

from tests.api.gateway.served import Serve


@pytest.mark.parametrize(
    "number, requests_of_engine",
    [pytest.param(50, 60, marks=pytest.mark.long), pytest.param(10_000, 2_000, marks=pytest.mark.faults)],
)
def test_every_reply_is_as_documented(serve: Serve, number: int, requests_of_engine: int):
    from tests.api.gateway.fuzz import UNHURRIED, fuzz  # Schemathesis takes a second to import

    counts, began, engines = Counter(), time.monotonic(), 0
    while counts.total() < number and engines < 100:
        engines += 1
        counts += fuzz(serve(limits=UNHURRIED), requests_of_engine, start=engines)
    print(f"\n{counts.total():,} requests in {time.monotonic() - began:.0f} s, {engines} engines")
    for reply, count in sorted(counts.items()):
        print(f"  {count:6,}  {reply}")
    assert counts.total() >= number
    statuses = {reply.rpartition(" ")[2] for reply in counts}
    assert "200" in statuses
    assert statuses & {"400", "422"}, "bad requests were among them"
    assert not [status for status in statuses if status.startswith("5")]
