"""What verbs print of prompts with several lines, and of sessions that ended red."""

from __future__ import annotations

from typing import Any

import pytest

from clawpy_console.printing.settings import config
from clawpy_console.printing.style import Style, how_it_ended, indented, one_line

PLAIN = Style(False)


@pytest.mark.parametrize(
    ("state", "check", "word"),
    [
        ("succeeded", None, "succeeded"),
        ("succeeded", {"failed": 0, "errors": 0}, "succeeded"),
        ("succeeded", {"failed": 1, "errors": 1}, "ran, 2 red"),
        ("failed", {"failed": 1, "errors": 0}, "failed"),
    ],
)
def test_a_session_that_left_tests_red_is_not_told_as_a_success(
    state: str, check: dict[str, Any] | None, word: str
) -> None:
    assert how_it_ended({"state": state, "check": check}, PLAIN) == word


def test_a_setting_without_a_value_is_named_as_one_that_is_not_set() -> None:
    document = {"settings": {"workspaces": {"/srv/shop": {"retention": {"memoryEvents": 60, "costEntries": None}}}}}
    assert config(document | {"file": "config.toml"}, {}, PLAIN).splitlines() == [
        'workspaces."/srv/shop".retention.memoryEvents = 60',
        '# workspaces."/srv/shop".retention.costEntries is not set',
        "# config.toml",
    ]


def test_a_prompt_of_several_lines_stays_one_entry() -> None:
    prompt = "Write what was learnt:\n- [/foo] first\n\x1b[31m- second"
    assert one_line(prompt) == "Write what was learnt: - [/foo] first - second"
    assert indented(prompt) == ["    Write what was learnt:", "    - [/foo] first", "    - second"]
