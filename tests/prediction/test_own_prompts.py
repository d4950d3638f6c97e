"""Which flow a prompt of the operator's own names."""

from __future__ import annotations

import pytest

from engine.prediction.own_prompts import named_flow

FLOWS = ("run_tests", "draft_changelog", "fix_lint", "lint", "summarise_day")


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
    ],
)
def test_a_prompt_that_says_a_flows_name_in_other_words(prompt: str, flow: str) -> None:
    assert named_flow(prompt, FLOWS) == (flow, "")


@pytest.mark.parametrize(
    "prompt", ["run the tests of the cart", "why is lint red?", "the", "", "rewrite the parser", "do not run the tests"]
)
def test_anything_more_is_prose(prompt: str) -> None:
    assert named_flow(prompt, FLOWS) is None


def test_parameters_may_follow_the_name() -> None:
    assert named_flow("run_tests paths=src", FLOWS) == ("run_tests", "paths=src")
