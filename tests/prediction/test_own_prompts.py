"""Which flow a prompt of the operator's own names."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from engine.execution.runners.flows import FLOWS as REAL_FLOWS
from engine.execution.runners.parameters import validated
from engine.prediction.flow_names import ALIASES, named_flow
from engine.prediction.own_prompts import implied

FLOWS = ("run_tests", "draft_changelog", "fix_lint", "lint", "summarise_day", "report_branches")
EVENING = datetime(2026, 1, 5, 21, 30, tzinfo=ZoneInfo("Europe/Vienna"))


@pytest.mark.parametrize(
    ("prompt", "flow"),
    [
        ("run_tests", "run_tests"),
        ("Run tests", "run_tests"),
        ("run the tests", "run_tests"),
        ("Please run all my tests.", "run_tests"),
        ("draft the change-log", "draft_changelog"),
        ("Draft the changelog!", "draft_changelog"),
        ("lint this project", "lint"),
        ("fix the lint", "fix_lint"),
        ("summarise the day", "summarise_day"),
        ("sum up today", "summarise_day"),
        ("What did I do today?", "summarise_day"),
        ("which branches are stale?", "report_branches"),
        ("format the code", "fix_lint"),
        ("run the linter", "lint"),
        ("run the whole test suite", "run_tests"),
        ("Write the change log", "draft_changelog"),
    ],
)
def test_a_prompt_that_says_a_flows_name_in_other_words(prompt: str, flow: str) -> None:
    assert named_flow(prompt, FLOWS) == (flow, "")


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


def test_every_alias_names_its_flow_and_no_other_and_the_flow_takes_what_is_implied() -> None:
    for flow, names in ALIASES.items():
        validated(flow, REAL_FLOWS[flow].parameters, implied(flow, EVENING))
        for name in names:
            assert named_flow(f"Please {name}.", tuple(REAL_FLOWS)) == (flow, ""), name


def test_the_day_begins_at_five() -> None:
    assert implied("summarise_day", EVENING) == {"since": "2026-01-05T05:00:00+01:00"}
    assert implied("summarise_day", EVENING.replace(hour=4)) == {"since": "2026-01-04T05:00:00+01:00"}
    assert implied("run_tests", EVENING) == {}
