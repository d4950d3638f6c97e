"""Rules for every operation: checks of arguments (SPEC 11.2), and whether it shows that you are present (SPEC 2.2)."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.api.operations import dispatch
from engine.api.operations.operation import find_target
from engine.clock import FakeClock
from tests.api.operations.conftest import Ask
from tests.api.stand_in import StandIn
from tests.autonomy.autonomy_world import AutonomyWorld
from tests.support.card_rows import make_card_row
from tests.support.helpers import refused


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
        ("approve", {"id": "pred_abc1", "wait": "yes"}, "bad_arguments"),
        ("approve", {"id": "pred_abc1", "force": True}, "bad_arguments"),
        ("snooze", {"id": "pred_abc1", "seconds": 0}, "bad_arguments"),
        ("cards", {"workspaces": "x"}, "bad_arguments"),
        ("cards", {"all": True, "limit": 0}, "bad_arguments"),
        ("cards", {"all": True, "limit": True}, "bad_arguments"),
        ("check", {"command": "a", "prompt": "b"}, "bad_arguments"),
        ("status", [], "bad_arguments"),
        ("status", None, "bad_arguments"),
    ],
)
def test_wrong_arguments_are_refused(engine: StandIn, verb: str, arguments: Any, code: str):
    refused(code, lambda: dispatch(engine, verb, arguments))


def test_null_means_absent(engine: StandIn):
    refusal = refused("bad_arguments", lambda: dispatch(engine, "approve", {"id": None}))
    assert refusal.message == "the argument id: it is missing or empty"


@pytest.mark.long
def test_the_beginning_of_an_old_card_is_found_among_thousands(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    world = AutonomyWorld(tmp_path, clock, monkeypatch)
    with world.opened() as engine:
        ids = ["pred_old%_1", "pred_oldx_2", *(f"pred_n{number:05}" for number in range(1_500))]
        rows = [
            make_card_row(card_id, clock.now() + timedelta(seconds=number), expires_at=clock.now() + timedelta(days=9))
            for number, card_id in enumerate(ids)
        ]
        engine.database.write(lambda tx: tx.session.add_all(rows))
        for prefix in ("pred_old%", "old%", "old%_1"):
            assert find_target(engine, prefix).card_id == "pred_old%_1", "% and _ are letters like any other"
        assert find_target(engine, "n01499").card_id == "pred_n01499"
        for prefix in ("old", "n0"):
            refused("ambiguous_id", partial(find_target, engine, prefix))
        for prefix in ("ld%", "", "p", "pred_"):
            refused("unknown_id", partial(find_target, engine, prefix))


def test_the_id_of_a_candidate_is_refused_with_the_verb_that_decides_it(engine: StandIn):
    refusal = refused("unknown_id", lambda: find_target(engine, "cand_7k2m"))
    assert "clawpy candidates show cand_7k2m" in refusal.fix
