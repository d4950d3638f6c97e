"""The operator's own rules of the content filter (SPEC 3.5): what they allow and block, and their form."""

import pytest
from pydantic import ValidationError

from engine.config.settings import Settings
from engine.model import Verdict
from engine.safety.content.commands import check_command
from engine.safety.content.prompts import check_prompt
from engine.safety.content.rulebook import make_own_rules
from tests.safety.examples import read_examples

OWN = make_own_rules(
    (
        "docker system prune -f",
        "rm -rf scratch/*",
        "make destroy **",
        "terraform destroy",
        "prompt: purge all backups of*",
    ),
    ("make deploy", "terraform apply", "acme* push --hard", "prompt: *customer data*"),
)


@pytest.mark.parametrize("command", read_examples("allowed_by_operator"))
def test_a_command_that_the_operator_allows_passes(command: str):
    assert check_command(command).verdict is not Verdict.ALLOW
    assert check_command(command, own=OWN).verdict is Verdict.ALLOW


@pytest.mark.parametrize("command", read_examples("behind_allowed_commands"))
def test_nothing_hides_behind_an_allowed_command(command: str):
    assert check_command(command, own=OWN).verdict is not Verdict.ALLOW


@pytest.mark.parametrize("command", read_examples("blocked_by_operator"))
def test_a_command_that_the_operator_blocks_is_blocked(command: str):
    assert check_command(command).verdict is Verdict.ALLOW
    verdict = check_command(command, own=OWN)
    assert (verdict.verdict, verdict.rule) == (Verdict.BLOCK, "own-block")
    assert "your rule" in verdict.reason


def test_the_operators_rules_on_prompts_count():
    assert check_prompt("Purge  all backups of the demo", own=OWN).verdict is Verdict.ALLOW
    assert check_prompt("Purge all backups of the demo and run `rm -rf /`", own=OWN).verdict is Verdict.BLOCK
    assert check_prompt("Look at the Customer Data now", own=OWN).rule == "own-block"
    assert check_prompt("Look at the data now", own=OWN).verdict is Verdict.ALLOW
    assert check_prompt("run `make deploy`", own=OWN).rule == "own-block"


@pytest.mark.parametrize(
    "pattern, message",
    [
        ("", "would match everything"),
        ("prompt: *", "would match everything"),
        ("--force", "must begin with the name of a program"),
        ("rm\nls", "is not one line"),
        ("rm " + "x" * 200, "at most 200 characters"),
    ],
)
@pytest.mark.parametrize("key", ["allow", "block"])
def test_a_malformed_pattern_is_refused_with_the_reason(key: str, pattern: str, message: str):
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate({"content": {key: [pattern]}})
