"""Makes random requests from the gateway's OpenAPI document, valid and invalid, and checks every reply."""

import contextlib
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import requests
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, openapi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engine.model import Refusal
from tests.api.gateway.served import SMALL, Served

UNHURRIED = replace(
    SMALL, requests_per_second=1e9, request_burst=10**9, failures_per_second=1e9, failure_burst=10**9,
    max_slow_operations=64, head_seconds=30.0, body_seconds=30.0,
)  # fmt: skip
"""Limits that these requests do not reach."""

CHECKS: list[Any] = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

CARDS = 12
"""Number of cards that requests may be about."""


class CardPool:
    """Cards that requests may be about; decided ones are replaced now and then."""

    def __init__(self, served: Served):
        self._served = served
        self._chance = random.Random(7)
        self._ids = [served.propose_card().id for _ in range(CARDS)]

    def choose(self) -> str:
        if self._chance.random() < 0.1:
            with contextlib.suppress(Refusal):
                self._ids[self._chance.randrange(CARDS)] = self._served.propose_card().id
        return self._chance.choice(self._ids)


def fuzz(served: Served, number: int, *, start: int) -> Counter[str]:
    """Send `number` requests; how often each path had which status. Fails at the first reply that the document does not
    describe."""
    document = served.ask("GET", "/api/v1/openapi.json").json()
    schema = openapi.from_dict(document)
    schema.config.update(base_url=served.url)
    requests_of = []
    for result in schema.get_all_operations():
        operation = result.ok()
        requests_of.append(operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        if operation.body or operation.query or operation.path_parameters:
            requests_of.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    cards, counts = CardPool(served), Counter[str]()
    session = requests.Session()
    session.trust_env = False

    @seed(start)
    @settings(max_examples=number, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=st.one_of(requests_of), of_card=st.booleans())
    def send(case: Case, of_card: bool):
        if of_card and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = cards.choose()
        if of_card and isinstance(case.body, dict) and "predictionId" in case.body:
            case.body["predictionId"] = cards.choose()
        url = requests.Request(**case.as_transport_kwargs()).prepare().url or ""
        assume(len(url) < UNHURRIED.max_head_bytes)  # the server refuses a longer one before the API sees it
        response = case.call(session=session, headers=served.headers, timeout=120)
        counts[f"{case.method} {case.path.removeprefix('/api/v1')} {response.status_code}"] += 1
        assert response.status_code < 500, f"{case.as_curl_command()[:2000]}\n{response.text}"
        case.validate_response(response, checks=CHECKS)

    send()
    return counts
