"""The table of kinds (SPEC 2.11): the pages about kinds and flows name each."""

import re
from dataclasses import fields
from pathlib import Path

from engine.execution.runners.flows import FLOWS
from engine.git.inspection import Inspection
from engine.model import Tier
from engine.prediction import KINDS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_about_cards_has_every_kind_in_its_tier_and_order():
    page = (DOCS / "CARDS.md").read_text(encoding="utf-8")
    _, *numbers_and_sections = re.split(r"^### (\d)", page, flags=re.MULTILINE)
    tiers_and_kinds = [
        (Tier(int(number)), kind)
        for number, section in zip(numbers_and_sections[::2], numbers_and_sections[1::2], strict=True)
        for kind in re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    ]
    assert tiers_and_kinds == [(kind.tier, kind.name) for kind in KINDS.values()]


def test_the_page_of_flows_names_every_flow():
    page = (DOCS / "FLOWS.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(FLOWS)


def test_every_check_of_an_inspection_names_its_kinds():
    """If such a check fails, the cards of its kinds must stay, because nobody knows whether their reason is gone."""
    checks = {name for kind in KINDS.values() for name in kind.inspections}
    assert checks == {field.name for field in fields(Inspection)} - {"unknown"}
