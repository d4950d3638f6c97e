"""What verbs print of prompts with several lines, and of sessions that ended red."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from clawpy_console.headless import in_words
from clawpy_console.printing.settings import config
from clawpy_console.printing.style import Style, how_it_ended, indented, one_line
from engine.events import (
    CandidatePromoted,
    ChangeSetLanded,
    CloudSyncFailed,
    Event,
    LearningsExtracted,
    NightlyFinished,
    RowsLetGo,
)

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


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (
            NightlyFinished(subject="2026-01-05", promoted=2, drafted=0, cost=0, reason="nothing happened"),
            "night of 2026-01-05: 2 facts kept, 0 drafted; nothing happened",
        ),
        (
            RowsLetGo(rows={"memory_events": 3, "cost_entries": 1}),
            "kept long enough: 3 of memory_events, 1 of cost_entries",
        ),
        (ChangeSetLanded(subject="change_1", session_id="sess_1", files=3), "landed: change_1, 3 files"),
        (
            CandidatePromoted(subject="cand_1", type="t", title="Heal once", by="operator"),
            "in force by operator: cand_1, Heal once",
        ),
        (
            CloudSyncFailed(subject="summaries", message="the server is away", unsent=3),
            "summaries not shared with other machines: the server is away; 3 unsent",
        ),
        (
            LearningsExtracted(subject="sess_1", entries=1, scopes=("observations",), by="rules"),
            "written down from sess_1: 1 of what it taught",
        ),
    ],
)
def test_what_a_headless_engine_says_is_in_words(fact: Event, line: str) -> None:
    payload = {one.name: getattr(fact, one.name) for one in fields(fact) if one.name not in ("subject", "workspace")}
    assert in_words(type(fact).__name__, fact.subject, payload) == line
