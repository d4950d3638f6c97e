r"""SPEC 3.5 on lists of examples: ordinary work passes, orders to destroy and disguised commands are stopped.

One example a line in `content_examples/`; `\n` and `\t` stand for a line break and a tab.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.model import Verdict
from engine.safety.content import check_command, check_prompt

FOLDER = Path(__file__).parent / "content_examples"


def examples(name: str) -> list[str]:
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines if line]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("ordinary_commands", check_command),
        ("looking_commands", check_command),
        ("ordinary_shell", check_command),
        ("ordinary_prompts", check_prompt),
    ],
)
def test_ordinary_work_is_not_stopped(name: str, check: object) -> None:
    texts = examples(name)
    verdicts = [(text, check(text)) for text in texts]  # type: ignore[operator]
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
def test_what_destroys_is_stopped(name: str, check: object) -> None:
    assert [text for text in examples(name) if check(text).verdict is Verdict.ALLOW] == []  # type: ignore[operator]


def test_ordinary_commands_in_a_prompt_are_not_stopped() -> None:
    commands = [text for text in examples("ordinary_commands") if "\n" not in text]
    stopped = [text for text in commands if check_prompt(f"Run `{text}` now").verdict is not Verdict.ALLOW]
    assert stopped == []


def test_what_destroys_is_stopped_in_a_prompt() -> None:
    commands = [text for text in examples("disguised_commands") if "\n" not in text and "`" not in text]
    assert [text for text in commands if check_prompt(f"Run `{text}` now").verdict is Verdict.ALLOW] == []


def test_talk_about_what_destroys_is_not_stopped() -> None:
    for frame in ("Write a test that `{}` is refused", "Explain why `{}` is dangerous", "Never run `{}`"):
        commands = [text for text in examples("disguised_commands") if "\n" not in text and "`" not in text]
        stopped = [text for text in commands if check_prompt(frame.format(text)).verdict is not Verdict.ALLOW]
        assert stopped == [], frame


@pytest.mark.parametrize(
    ("name", "least"),
    [("creative_tuned", 43), ("creative_aside", 39), ("creative_blind", 12)],
)
def test_creative_commands_are_stopped(name: str, least: int) -> None:
    """Rules were tuned on the first list alone, the others were written before and set aside. No list gets worse."""
    texts = examples(name)
    stopped = sum(check_command(text).verdict is not Verdict.ALLOW for text in texts)
    print(f"{name}: {stopped} of {len(texts)}")
    assert stopped >= least


def test_what_looks_like_a_creative_command_is_not_stopped() -> None:
    texts = examples("creative_safe")
    verdicts = [(text, check_command(text)) for text in texts]
    assert [(text, verdict.rule) for text, verdict in verdicts if verdict.verdict is not Verdict.ALLOW] == []
