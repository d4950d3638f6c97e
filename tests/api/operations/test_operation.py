"""Rules for every operation: checks of arguments (SPEC 11.2), whether it shows that you are present (SPEC 2.2), and the
cards that it is about.

The stand-in engine has two pending cards: `pred_abc1` in /srv/shop and `pred_abd2` in /srv/other.
"""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.api.operations import dispatch
from engine.api.operations.memory import RESERVED_NAMES, parse_agent_name
from engine.api.operations.operation import find_target
from engine.clock import FakeClock
from engine.model import RETENTION_BY_KIND, NewMemory, RememberResult, Retention
from tests.api.operations.conftest import Ask
from tests.api.stand_in import StandIn
from tests.autonomy.autonomy_world import AutonomyWorld
from tests.support.card_rows import make_card_row
from tests.support.helpers import read_table, refused


def test_only_a_deciding_verb_means_that_the_operator_is_there(engine: StandIn, ask: Ask):
    for verb in ("status", "cards", "work", "agents", "tasks", "config"):
        ask(verb)
    assert engine.autonomy.activity_count == 0
    ask("dismiss", id="pred_abc1")
    ask("tasks", action="add", title="x")
    assert engine.autonomy.activity_count == 2


@pytest.mark.parametrize(
    "verb, arguments, code",
    [
        ("fly", {}, "unknown_verb"),
        ("approve", {}, "bad_arguments"),
        ("approve", {"id": 3}, "bad_arguments"),
        ("approve", {"id": "x" * 200_000}, "bad_arguments"),
        ("approve", {"id": "pred_abc1", "force": True}, "bad_arguments"),
        ("snooze", {"id": "pred_abc1", "seconds": 0}, "bad_arguments"),
        ("status", None, "bad_arguments"),
    ],
)
def test_wrong_arguments_are_refused(engine: StandIn, verb: str, arguments: Any, code: str):
    refused(code, lambda: dispatch(engine, verb, arguments))


@pytest.mark.long
def test_the_beginning_of_an_old_card_is_found_among_thousands(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    world = AutonomyWorld(tmp_path, clock, monkeypatch)
    with world.opened() as engine:
        ids = ["pred_old%_1", "pred_oldx_2", *(f"pred_n{number:05}" for number in range(1_500))]
        expires_at = clock.now() + timedelta(days=9)
        rows = [make_card_row(card_id, clock.now(), expires_at=expires_at) for card_id in ids]
        engine.database.write(lambda tx: tx.session.add_all(rows))
        assert find_target(engine, "old%").card_id == "pred_old%_1", "% is a letter like any other"
        assert find_target(engine, "n01499").card_id == "pred_n01499"
        refused("ambiguous_id", partial(find_target, engine, "old"))
        refused("unknown_id", partial(find_target, engine, "pred_"))


def test_only_what_a_person_sees_counts_as_shown(engine: StandIn, ask: Ask):
    ask("cards")
    assert engine.cards.shown == []
    ask("cards", shown=True)
    assert engine.cards.shown == ["pred_abc1", "pred_abd2"]


def test_a_card_is_snoozed_for_two_hours_or_as_long_as_is_asked(engine: StandIn, ask: Ask):
    ask("snooze", id="pred_abc1")
    ask("snooze", id="pred_abc1", seconds=60)
    assert engine.cards.spans == [timedelta(hours=2), timedelta(minutes=1)]


def test_propose_continues_a_session_in_its_workspace(engine: StandIn, ask: Ask):
    [session] = engine.sessions.list(limit=1)
    ask("propose", text="now the docs", continues=session.id)
    [proposed] = engine.cards.proposed
    assert (proposed["continues"], proposed["workspace"]) == (session.id, session.workspace)


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
