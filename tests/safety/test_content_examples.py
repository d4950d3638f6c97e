"""Ordinary work passes the content filter, and orders to destroy are stopped, on lists of examples (SPEC 3.5)."""

from collections.abc import Callable

import pytest

from engine.model import RailVerdict, Verdict
from engine.safety.content import check_command, check_prompt
from tests.safety.examples import read_examples


def read_quotable_commands(name: str) -> list[str]:
    """The commands of a list that can stand in one line between backticks."""
    return [text for text in read_examples(name) if "\n" not in text and "`" not in text]


@pytest.mark.parametrize(
    "name, check",
    [
        ("ordinary_commands", check_command),
        ("looking_commands", check_command),
        ("ordinary_shell", check_command),
        ("creative_safe", check_command),
        ("ordinary_prompts", check_prompt),
    ],
)
def test_ordinary_work_is_not_stopped(name: str, check: Callable[[str], RailVerdict]):
    texts = read_examples(name)
    verdicts = [(text, check(text)) for text in texts]
    assert [(text, verdict.rule) for text, verdict in verdicts if verdict.verdict is not Verdict.ALLOW] == []
    assert len(texts) >= 30


@pytest.mark.parametrize(
    "name, check",
    [
        ("disguised_commands", check_command),
        ("vendor_commands", check_command),
        ("disguises", check_command),
        ("orders_to_destroy", check_prompt),
    ],
)
def test_destructive_work_is_stopped(name: str, check: Callable[[str], RailVerdict]):
    assert [text for text in read_examples(name) if check(text).verdict is Verdict.ALLOW] == []


def test_destructive_commands_in_a_prompt_are_stopped():
    commands = read_quotable_commands("disguised_commands")
    assert [text for text in commands if check_prompt(f"Run `{text}` now").verdict is Verdict.ALLOW] == []


@pytest.mark.parametrize(
    "prompt, name",
    [
        ("Run `{}` now", "ordinary_commands"),
        ("Write a test that `{}` is refused", "disguised_commands"),
        ("Explain why `{}` is dangerous", "disguised_commands"),
        ("Never run `{}`", "disguised_commands"),
    ],
)
def test_ordinary_commands_and_talk_about_destructive_ones_are_not_stopped_in_a_prompt(prompt: str, name: str):
    commands = read_quotable_commands(name)
    assert [text for text in commands if check_prompt(prompt.format(text)).verdict is not Verdict.ALLOW] == []


@pytest.mark.parametrize(
    "name, min_stopped, count",
    [("creative_tuned", 44, 47), ("creative_aside", 39, 46), ("creative_blind", 12, 12)],
)
def test_creative_commands_are_stopped(name: str, min_stopped: int, count: int):
    """The rules were tuned on the first list alone; the others were set aside. The least number that is stopped is what
    the rules reached, so that no list gets worse."""
    texts = read_examples(name)
    assert len(texts) == count
    assert sum(check_command(text).verdict is not Verdict.ALLOW for text in texts) >= min_stopped
