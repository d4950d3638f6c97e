"""A property of the whole API: whatever is sent, the reply is one that the document describes, and none is a fault.

Ten thousand requests: `pytest -m faults -s tests/faults/test_gateway_requests.py`.
"""

from __future__ import annotations

import pytest

from tests.api.gateway.conftest import Serve


@pytest.mark.long
def test_every_reply_is_as_documented(serve: Serve) -> None:
    from tests.api.gateway.fuzz import UNHURRIED, fuzz  # Schemathesis takes a second to import

    told = fuzz(serve(limits=UNHURRIED), 60)
    assert sum(told.values()) >= 50
    assert {key.rpartition(" ")[2] for key in told} >= {"200", "422"}
