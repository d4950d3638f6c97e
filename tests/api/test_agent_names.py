"""An agent has a name of its own. A name that carries authority is refused, however it is spelt (SPEC 10.4)."""

import pytest

from engine.api.operations.memory import RESERVED_NAMES, parse_agent_name
from tests.support import read_table
from tests.support.checks import refused

TABLE = read_table(__file__)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
@pytest.mark.parametrize("spelling", ["{}", " {} ", "{}\n", "{}1", "{}.", "@{}"])
def test_a_name_of_authority_is_refused(name: str, spelling: str):
    refused("not_its_name", lambda: parse_agent_name(spelling.format(name)))


@pytest.mark.parametrize("name", TABLE["disguises"])
def test_a_disguised_name_is_refused(name: str):
    refused("not_its_name", lambda: parse_agent_name(name))


@pytest.mark.parametrize("name", TABLE["own_names"])
def test_a_name_of_its_own_is_kept(name: str):
    assert parse_agent_name(name) == name
