"""The parser of verbs (SPEC 9.8): help, wrong use, spans of time."""

import argparse
import re

import pytest

from clawpy_console.cli import WrongUse, split_options
from clawpy_console.cli.verbs import VERBS, parse_span
from engine import __version__
from tests.cli.calls import Clawpy
from tests.support import read_table

TABLE = read_table(__file__)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_action_has_help_with_an_example(clawpy: Clawpy, verb: str):
    for words in ([verb], *([verb, action] for action in VERBS[verb].actions)):
        result = clawpy(*words, "--help")
        assert result.code == 0
        example = result.out.partition("\nexample:\n")[2]
        is_default = words == ["token", "show"]  # its example leaves the action out
        assert ("clawpy " + " ".join(words) in example) is not is_default


def test_help_lists_every_verb(clawpy: Clawpy):
    result = clawpy("--help")
    assert result.code == 0
    assert all(re.search(rf"^  {verb}( |$)", result.out, re.MULTILINE) for verb in VERBS)


def test_the_version_is_printed(clawpy: Clawpy):
    assert clawpy("--version").out == f"clawpy {__version__}\n"


@pytest.mark.parametrize(
    "word, message",
    TABLE["unknown_verbs"],
)
def test_an_unknown_verb_names_what_may_have_been_meant(clawpy: Clawpy, word: str, message: str):
    result = clawpy(word)
    assert result.code == 2
    assert message in result.err
    assert "choose from" not in result.err


@pytest.mark.parametrize("text, seconds", TABLE["spans"])
def test_a_span_is_read_as_seconds(text: str, seconds: int):
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", TABLE["no_spans"])
def test_a_text_that_is_no_span_is_refused(text: str):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time span"):
        parse_span(text)


@pytest.mark.parametrize("text", ["31d", "30d1s", "500d"])
def test_a_span_above_the_maximum_is_called_too_long(text: str):
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is too long: at most 30d"):
        parse_span(text)


@pytest.mark.parametrize(
    "argv",
    ["--json --home h --workspace=a cards --workspace b", "cards --workspace a --json --workspace=b --home=h"],
    ids=["before", "after"],
)
def test_options_stand_before_or_after_the_verb(argv: str):
    invocation, rest = split_options(argv.split())
    assert invocation.as_json
    assert invocation.home_name == "h"
    assert invocation.workspace_names == ["a", "b"]
    assert rest == ["cards"]


def test_behind_two_dashes_everything_is_the_verbs():
    argv = ["check", "--", "tool", "--json"]
    invocation, rest = split_options(argv)
    assert not invocation.as_json
    assert rest == argv


@pytest.mark.parametrize("argv", [["--home", "--json", "status"], ["status", "--workspace"]])
def test_an_option_is_no_folder(argv: list[str]):
    with pytest.raises(WrongUse, match="needs a folder"):
        split_options(argv)
