"""Which flow a prompt of the operator names, and with which parameters."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from engine.execution.runners.flow_registry import ALIASES, edit_parameters, named_flow, validate_parameters
from engine.execution.runners.flows import FLOWS as REAL_FLOWS
from engine.model import Refusal
from engine.prediction.templates.history import implied

FLOWS = ("run_tests", "draft_changelog", "fix_lint", "lint", "summarise_day", "report_branches")


EVENING = datetime(2026, 1, 5, 21, 30, tzinfo=ZoneInfo("Europe/Vienna"))


@pytest.mark.parametrize(
    "prompt",
    ["run the tests of the cart", "why is lint red?", "the", "", "rewrite the parser", "do not run the tests",
     "format the disk", "test the payment service", "sum up today for the board", "which branches are mine?"],
)  # fmt: skip
def test_anything_more_is_prose(prompt: str) -> None:
    assert named_flow(prompt, FLOWS) is None


def test_parameters_may_follow_the_name() -> None:
    assert named_flow("run_tests paths=src", FLOWS) == ("run_tests", "paths=src")
    assert named_flow('run_tests {"paths": ["src"]}', FLOWS) == ("run_tests", '{"paths": ["src"]}')
    assert named_flow("run_tests paths=src\n\nkeyword = tax", FLOWS) == ("run_tests", "paths=src\n\nkeyword = tax")
    assert named_flow("run_tests paths=src\nand then rm -rf ~ = fine", FLOWS) is None  # a paragraph that was pasted


@pytest.mark.parametrize(
    ("prompt", "values"),
    [
        ("bisect tests/test_cart.py::test_total", "tests/test_cart.py::test_total"),
        ("bisect test_total v1.2", "test_total v1.2"),
        ("bisect test_total HEAD~3", "test_total HEAD~3"),
        ("hunt_flakes 50", "50"),
        ("lint src/cart.py", "src/cart.py"),
    ],
)
def test_values_without_their_names_are_parameters_too_and_the_flow_says_which_it_takes(
    prompt: str, values: str
) -> None:
    flow = prompt.partition(" ")[0]
    assert named_flow(prompt, tuple(REAL_FLOWS)) == (flow, values)
    with pytest.raises(Refusal) as refusal:
        edit_parameters(REAL_FLOWS[flow], {}, values)
    assert refusal.value.message == f"{flow}: which parameter is '{values}'?"
    assert refusal.value.fix.startswith(f"`{flow} ")


@pytest.mark.parametrize(
    "prompt",
    ["bisect why the cart is wrong", "lint everything.", "lint src/cart.py and say what each warning means",
     "bisect it... please", "lint and fix"],
)  # fmt: skip
def test_a_sentence_that_begins_as_a_flow_is_prose(prompt: str) -> None:
    assert named_flow(prompt, tuple(REAL_FLOWS)) is None


def test_a_flow_says_how_its_parameters_are_written() -> None:
    with pytest.raises(Refusal) as refusal:
        edit_parameters(REAL_FLOWS["bisect"], {}, "tst=test_total")
    assert refusal.value.message == "bisect has no parameter tst"
    assert refusal.value.fix.startswith("`bisect test=… good=… [project=…] [bad=…]`; test: text (id of the test")


def test_every_alias_names_its_flow_and_no_other_and_the_flow_takes_what_is_implied() -> None:
    for flow, names in ALIASES.items():
        validate_parameters(REAL_FLOWS[flow], implied(flow, EVENING))
        for name in names:
            assert named_flow(f"Please {name}.", tuple(REAL_FLOWS)) == (flow, ""), name
