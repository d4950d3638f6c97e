"""Notes and suggestions of agents that work elsewhere, and the names that they may have (SPEC 9.8, 10.4)."""

import pytest

from engine.api.operations.memory import RESERVED_NAMES, parse_agent_name
from engine.model import RETENTION_BY_KIND, NewMemory, RememberResult, Retention
from tests.api.operations.conftest import Ask
from tests.api.stand_in import StandIn
from tests.support.helpers import read_table, refused

TABLE = read_table(__file__)


def test_a_note_is_stored_with_its_author(engine: StandIn, ask: Ask):
    stored = []

    class RecordingMemory:
        def remember(self, memories: list[NewMemory]) -> RememberResult:
            stored.extend(memories)
            return RememberResult(("mem_1",), 1)

    engine.memory = RecordingMemory()  # type: ignore[attr-defined]
    document = ask("note", text="the port is 8001", by=" claude\ncode\x1b[1m ", workspace="/srv/shop")
    assert document == {"id": "mem_1", "new": True, "by": "claude code"}
    [memory] = stored
    assert (memory.kind, memory.speaker, memory.source, memory.workspace) == (
        "fact", "claude code", "mcp:claude code", "/srv/shop",
    )  # fmt: skip
    ask("note", text="I am moving the parser now", by="codex", kind="note")
    assert RETENTION_BY_KIND[stored[1].kind] is Retention.SESSION, "for a day"


def test_a_suggestion_is_a_card_once_and_no_sign_of_the_operator(engine: StandIn, ask: Ask):
    engine.cards.by_id.clear()
    first, again = (
        ask("suggest", text="Run the tests", by="claude", reason="the cart\nchanged", workspace="/srv/shop")
        for _ in range(2)
    )
    assert first["new"]
    assert not again["new"]
    assert first["predictions"][0]["id"] == again["predictions"][0]["id"]
    [suggested] = engine.cards.suggested
    assert (suggested["text"], suggested["workspace"]) == ("Run the tests", "/srv/shop")
    assert suggested["reasoning"] == "suggested by claude: the cart changed"
    assert engine.autonomy.activity_count == 0


# An agent has a name of its own. A name that carries authority is refused, however it is spelt.


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


# forget
