"""SPEC 3.5 on lists of examples: ordinary work passes, orders to destroy and disguised commands are stopped.

One example a line in `content_examples/`; `\n` and `\t` stand for a line break and a tab.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import RailVerdict, Verdict
from engine.safety.content import check_command, check_prompt, rulebook

FOLDER = Path(__file__).parent / "content_examples"


def read_examples(name: str) -> list[str]:
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines if line]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("ordinary_commands", check_command),
        ("looking_commands", check_command),
        ("ordinary_shell", check_command),
        ("creative_safe", check_command),
        ("ordinary_prompts", check_prompt),
    ],
)
def test_ordinary_work_is_not_stopped(name: str, check: Callable[[str], RailVerdict]) -> None:
    texts = read_examples(name)
    verdicts = [(text, check(text)) for text in texts]
    assert [(text, verdict.rule) for text, verdict in verdicts if verdict.verdict is not Verdict.ALLOW] == []
    assert len(texts) >= 30


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("disguised_commands", check_command),
        ("vendor_commands", check_command),
        ("disguises", check_command),
        ("orders_to_destroy", check_prompt),
    ],
)
def test_destructive_work_is_stopped(name: str, check: Callable[[str], RailVerdict]) -> None:
    assert [text for text in read_examples(name) if check(text).verdict is Verdict.ALLOW] == []


def read_quotable_commands(name: str) -> list[str]:
    """The commands of a list that can stand in one line between backticks."""
    return [text for text in read_examples(name) if "\n" not in text and "`" not in text]


def test_destructive_commands_in_a_prompt_are_stopped() -> None:
    commands = read_quotable_commands("disguised_commands")
    assert [text for text in commands if check_prompt(f"Run `{text}` now").verdict is Verdict.ALLOW] == []


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Run `{}` now", "ordinary_commands"),
        ("Write a test that `{}` is refused", "disguised_commands"),
        ("Explain why `{}` is dangerous", "disguised_commands"),
        ("Never run `{}`", "disguised_commands"),
    ],
)
def test_ordinary_commands_and_talk_about_destructive_ones_are_not_stopped_in_a_prompt(prompt: str, name: str) -> None:
    commands = read_quotable_commands(name)
    assert [text for text in commands if check_prompt(prompt.format(text)).verdict is not Verdict.ALLOW] == []


@pytest.mark.parametrize(
    ("name", "min_stopped", "count"),
    [("creative_tuned", 43, 46), ("creative_aside", 39, 46), ("creative_blind", 12, 12)],
)
def test_creative_commands_are_stopped(name: str, min_stopped: int, count: int) -> None:
    """The rules were tuned on the first list alone; the others were set aside. The least number that is stopped is what
    the rules reached, so that no list gets worse."""
    texts = read_examples(name)
    assert len(texts) == count
    assert sum(check_command(text).verdict is not Verdict.ALLOW for text in texts) >= min_stopped


# Disguised commands (SPEC 3.5)


SIMPLE = re.compile(r"[\w./:=@-]+(?: [\w./:=@-]+)*")
"""A command of plain words: nothing in it is quoted already."""
STOPPED = sorted({text for rule in rulebook.load_command_rules() for text in rule.stops if SIMPLE.fullmatch(text)})
ORDINARY = sorted({text for text in read_examples("ordinary_commands") if SIMPLE.fullmatch(text)})

LOOKALIKES = str.maketrans("aeopcxsi", "\u0430\u0435\u043e\u0440\u0441\u0445\u0455\u0456")
WRAPPINGS = read_examples("wrappings")


def verdict(text: str) -> Verdict:
    return check_command(text).verdict


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(STOPPED))
def test_look_alikes_and_invisible_characters_change_nothing(data: st.DataObject, command: str) -> None:
    text = "".join(letter.translate(LOOKALIKES) if data.draw(st.booleans()) else letter for letter in command)
    at = data.draw(st.integers(0, len(command)))
    invisible = data.draw(st.sampled_from(["", "\u200b", "\u2060", "\ufeff"]))
    assert verdict(text[:at] + invisible + text[at:]) is verdict(command)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(STOPPED), st.sampled_from(WRAPPINGS))
def test_a_stopped_command_is_stopped_in_any_wrapping(command: str, wrapping: str) -> None:
    assert verdict(wrapping.format(command)) is not Verdict.ALLOW


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ORDINARY), st.sampled_from(WRAPPINGS))
def test_an_ordinary_command_passes_in_any_wrapping(command: str, wrapping: str) -> None:
    assert verdict(wrapping.format(command)) is Verdict.ALLOW


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STOPPED))
def test_encoding_hides_nothing(command: str) -> None:
    for text in (
        f"echo {base64.b64encode(command.encode()).decode()} | base64 -d | sh",
        f"echo {command.encode().hex()} | xxd -r -p | bash",
        f"echo '{command[::-1]}' | rev | sh",
        f"printf '{''.join(f'{chr(92)}{ord(letter):03o}' for letter in command)}' | sh",
    ):
        assert verdict(text) is not Verdict.ALLOW
