"""The table of kinds: every kind has a flow, a template or a source, and a line in the page about cards."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from engine.execution.runners.flows import FLOWS
from engine.git.inspection import Inspection
from engine.model import Tier
from engine.prediction.kinds import (
    BLOCKED_TASK,
    FIX_BY_AGENT,
    KINDS,
    OPEN_TASK,
    OWN_PROMPT,
    STALE_TASK,
    SUGGESTED,
    kind_of,
)

PAGE = (Path(__file__).parents[2] / "docs" / "CARDS.md").read_text(encoding="utf-8")
PROSE = {FIX_BY_AGENT, SUGGESTED, OWN_PROMPT, STALE_TASK, BLOCKED_TASK, OPEN_TASK}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_runs_a_flow_or_is_prose(kind: str) -> None:
    assert kind in PROSE or KINDS[kind].flow in FLOWS


def test_the_page_about_cards_has_every_kind_in_its_tier_and_order() -> None:
    sections = re.split(r"^### (\d)", PAGE, flags=re.MULTILINE)[1:]
    told = [
        (Tier(int(number)), kind)
        for number, text in zip(sections[::2], sections[1::2], strict=True)
        for kind in re.findall(r"^\| `(\w+)`", text, re.MULTILINE)
    ]
    assert told == [(kind.tier, kind.name) for kind in KINDS.values()]


def test_the_page_of_flows_names_every_flow() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FLOWS.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(FLOWS)


def test_a_kind_that_is_not_in_the_table() -> None:
    assert kind_of("heartbeat-1a2b3c4d").tier is Tier.BLOCKS
    assert kind_of("sweep_the_floor").title == "sweep the floor"


def test_every_check_of_an_inspection_names_its_kinds() -> None:
    """A failed look without its kinds would fail the cycle, or withdraw what nobody saw go."""
    checks = {name for kind in KINDS.values() for name in kind.inspections}
    assert checks == {field.name for field in fields(Inspection)} - {"unknown"}
