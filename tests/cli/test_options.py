"""Options may stand before or after any verb (SPEC 9.8)."""

import pytest

from clawpy_console.cli import split_options


@pytest.mark.parametrize(
    "argv",
    ["--json --home h --workspace=a cards --workspace b", "cards --workspace a --json --workspace=b --home=h"],
    ids=["before", "after"],
)
def test_options_stand_before_or_after_the_verb(argv: str):
    common, rest = split_options(argv.split())
    assert common.as_json
    assert common.home_name == "h"
    assert common.workspace_names == ["a", "b"]
    assert rest == ["cards"]


def test_behind_two_dashes_everything_is_the_verbs():
    argv = ["check", "--", "tool", "--json"]
    common, rest = split_options(argv)
    assert not common.as_json
    assert rest == argv
