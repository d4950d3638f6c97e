"""Rules for every operation: the checks of its arguments, and whether it shows that you are present."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.operations import OPERATIONS, dispatch
from engine.model import Refusal
from tests.api.operations.conftest import Ask
from tests.api.stand_in import StandIn


def test_only_a_deciding_verb_means_that_the_operator_is_there(engine: StandIn, ask: Ask) -> None:
    for verb in ("status", "cards", "work", "agents", "tasks", "config"):
        ask(verb)
    assert engine.autonomy.activity == []
    ask("dismiss", id="pred_abc1")
    ask("tasks", action="add", title="x")
    assert engine.autonomy.activity == ["clawpy dismiss", "clawpy tasks"]


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("fly", {}, "unknown_verb"),
        ("approve", {}, "bad_arguments"),
        ("approve", {"id": None}, "bad_arguments"),
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
def test_wrong_arguments_are_refused(engine: StandIn, verb: str, arguments: Any, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        dispatch(engine, verb, arguments)  # type: ignore[arg-type]
    assert refused.value.code == code


def test_null_means_absent(engine: StandIn) -> None:
    with pytest.raises(Refusal, match="the argument id is missing or empty"):
        dispatch(engine, "approve", {"id": None})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_arguments_of_an_operation_have_a_model(name: str) -> None:
    assert OPERATIONS[name].arguments.model_fields is not None
