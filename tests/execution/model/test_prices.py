"""Prices of models are read from a list that comes with the program (SPEC 5.4)."""

import pytest

from engine.execution.runners.model.prices import find_listed_price
from tests.execution.model_routers import make_router
from tests.support.programs import find_imported

MISTRAL = '[providers.mistral]\nkind = "openai"\nbaseUrl = "{}"\nkeyless = true\n'
"""A provider whose name is in the list, at another address."""


def test_a_listed_model_on_this_machine_is_free():
    router = make_router(config=MISTRAL.format("http://127.0.0.1:3/v1"))
    choice = router.choose_named("mistral:mistral-large-latest", "a test")
    assert find_listed_price(choice.make_model()) == {"input": 0, "output": 0}


@pytest.mark.long
def test_the_list_loads_without_the_clients():
    assert not find_imported("import engine.execution.runners.model.prices", "pydantic_ai")
