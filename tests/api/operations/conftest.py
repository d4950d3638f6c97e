"""Fixtures that carry out operations on a stand-in engine through `dispatch`, as the control socket does."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.api.operations import dispatch
from engine.model import Refusal
from tests.api.stand_in import StandIn

Ask = Callable[..., dict[str, Any]]
Refused = Callable[..., Refusal]


@pytest.fixture
def ask(engine: StandIn) -> Ask:
    """Carries out a verb with its arguments."""

    def carry_out(verb: str, **arguments: Any) -> dict[str, Any]:
        document = dispatch(engine, verb, arguments)
        return json.loads(json.dumps(document))  # every document is JSON

    return carry_out


@pytest.fixture
def refused(ask: Ask) -> Refused:
    """The refusal of a verb, which says how to mend it."""

    def carry_out(verb: str, **arguments: Any) -> Refusal:
        with pytest.raises(Refusal) as caught:
            ask(verb, **arguments)
        assert caught.value.message
        assert caught.value.fix
        return caught.value

    return carry_out
