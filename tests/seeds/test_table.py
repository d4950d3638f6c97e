"""The table in docs/SPEC.md is made of the tests, and every number of it that is cited exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.seeds.table import PAGE, read_parts, replace_table

ROOT = PAGE.parent.parent
CITED = re.compile(r"\bSPEC (\d+(?:\.\d+)?(?:(?:,| and| to) \d+\.\d+)*)")


def defined_numbers() -> set[str]:
    """The numbers of the sections and paragraphs of the page."""
    page = PAGE.read_text()
    return set(re.findall(r"^## (\d+)\b", page, re.M)) | set(re.findall(r"^\*\*(\d+\.\d+)\b", page, re.M))


def test_the_table_is_made_of_the_tests() -> None:
    page = PAGE.read_text()
    assert replace_table(page) == page, "run python -m tests.seeds.table"


def test_every_part_has_a_name_of_its_own_and_numbers_of_the_page() -> None:
    parts = read_parts()
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert {number for part in parts for number in part.numbers} <= defined_numbers()


@pytest.mark.long
def test_every_number_that_is_cited_is_there() -> None:
    places = [
        path for room in ("engine", "clawpy_console", "tests", "docs") for path in sorted((ROOT / room).rglob("*"))
    ]
    missing: dict[str, list[str]] = {}
    defined = defined_numbers()
    for path in [ROOT / "README.md", *places]:
        if path.suffix not in (".py", ".md"):
            continue
        for cited in CITED.findall(path.read_text()):
            for number in re.findall(r"\d+(?:\.\d+)?", cited):
                if number not in defined:
                    missing.setdefault(number, []).append(str(Path(path).relative_to(ROOT)))
    assert missing == {}
